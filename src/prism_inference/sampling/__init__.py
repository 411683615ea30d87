"""From logits to a token id: parameters, the chain's steps, one sampler for each request. Knows ids, never text."""

from __future__ import annotations

from .chain import Sampler, new_seed
from .dry import Breakers
from .logprobs import TokenLogprob
from .params import SamplingOptions, SamplingParams

__all__ = ["Breakers", "Sampler", "SamplingOptions", "SamplingParams", "TokenLogprob", "new_seed"]
