"""From logits to a token id: parameters, filters, one sampler for each request. Knows ids and numbers, never text."""

from __future__ import annotations

from .chain import Sampler
from .params import SamplingParams

__all__ = ["Sampler", "SamplingParams"]
