"""The gemma2 architecture: as gemma3 without norms of the heads, every other layer local, scores and logits capped."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from ..gguf import Metadata
from ..graph import RopeMode
from . import gemma3
from .blocks import expected_tensors
from .config import Config, Expected, Reader, read_config

_WINDOW, _SCORES, _LOGITS = 4096, 50.0, 30.0  # where the file does not say
_BLOCKS_27B = 46  # this size alone scales its scores by width / heads instead of the head's size


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters."""
    config = read_config(metadata, vocabulary, tied, RopeMode.NEOX)
    r = Reader(metadata)
    size = config.width / config.heads if config.blocks == _BLOCKS_27B else config.key_size
    return replace(
        config,
        window=r.integer("attention.sliding_window", _WINDOW),
        local_layers=tuple(block % 2 == 0 for block in range(config.blocks)),
        attention_scale=1.0 / math.sqrt(size),
        attention_cap=r.number("attn_logit_softcapping", _SCORES),
        logit_cap=r.number("final_logit_softcapping", _LOGITS),
    )


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    return expected_tensors(config, post_norms=True)


build = partial(gemma3.build, head_norms=False)
