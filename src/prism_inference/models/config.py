"""Hyper-parameters that decoder-only transformers share, read from metadata and checked. Knows no tensors' bytes.

A value is refused where it could lead to an endless loop, a division by zero or a nonsensical size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ModelError, UnsupportedError
from ..gguf import Metadata
from ..graph import RopeMode, RopeParameters
from ..limits import MODEL_MAX_BLOCKS, MODEL_MAX_CONTEXT, MODEL_MAX_EXPERTS_USED, MODEL_MAX_VOCABULARY

MAX_WIDTH = 1 << 20  # embedding, feed-forward and head sizes; the widest published models stay below 2^17


@dataclass(frozen=True)
class Expected:
    """A tensor that an architecture asks for: extents in ggml order, trailing ones left out."""

    ne: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True)
class Recurrent:
    """Sizes of gated delta-net layers: taps of the convolution, key and value heads and their sizes."""

    taps: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int

    @property
    def inner(self) -> int:
        """Width of all value heads."""
        return self.value_heads * self.value_size

    @property
    def channels(self) -> int:
        """Width of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_size + self.inner


@dataclass(frozen=True)
class Experts:
    """Sizes of a mixture of experts: how many there are, how many a token uses, their widths; `shared` is 0 where no
    expert serves all tokens."""

    count: int
    used: int
    feed_forward: int
    shared: int = 0


@dataclass(frozen=True)
class Config:
    """Sizes and constants of one model. Lengths count values, `context` counts tokens."""

    architecture: str
    blocks: int
    context: int
    vocabulary: int
    width: int
    feed_forward: int
    heads: int
    key_heads: int
    key_size: int
    value_size: int
    eps: float
    rope: RopeParameters
    attention_scale: float
    tied: bool
    attention_cap: float = 0.0  # scores and logits s become cap·tanh(s / cap); 0 leaves them
    logit_cap: float = 0.0
    window: int = 0  # sliding window of local layers, 0 where all layers see everything
    local_rope: RopeParameters | None = None
    local_layers: tuple[bool, ...] = ()  # per block: whether it sees only the window
    experts: Experts | None = None
    recurrent: Recurrent | None = None
    recurrent_layers: tuple[bool, ...] = ()  # per block: whether it has a recurrent state instead of keys and values

    def is_recurrent(self, block: int) -> bool:
        """Whether a block is recurrent."""
        return bool(self.recurrent_layers) and self.recurrent_layers[block]

    def local(self, block: int) -> bool:
        """Whether a block's attention is limited to the window."""
        return bool(self.local_layers) and self.local_layers[block]


class Reader:
    """Looks hyper-parameters up under the architecture's prefix."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.architecture = metadata.string("general.architecture")

    def key(self, name: str) -> str:
        """Return the full key."""
        return f"{self.architecture}.{name}"

    def has(self, name: str) -> bool:
        """Whether the file gives a value."""
        return self.key(name) in self.metadata

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int = MAX_WIDTH) -> int:
        """Return an integer in low … high; a key without default must be there."""
        if default is not None and not self.has(name):
            return default
        return self.metadata.integer(self.key(name), low=low, high=high)

    def number(self, name: str, default: float | None = None, *, above: float = 0.0, below: float = math.inf) -> float:
        """Return a finite number between the bounds (exclusive)."""
        if default is not None and not self.has(name):
            return default
        value = self.metadata.number(self.key(name))
        if not above < value < below:
            raise ModelError(
                "hyper-parameter out of range",
                where=self.key(name),
                expected=f"above {above}, below {below}",
                found=value,
            )
        return value


def read_config(metadata: Metadata, vocabulary: int, tied: bool, mode: RopeMode) -> Config:
    """Read what all decoder-only transformers have in common.

    Args:
        vocabulary: rows of the embedding table.
        tied: whether the file has no output matrix of its own.
        mode: which values make a rotated pair.

    Raises:
        MetadataError, ModelError: a value is missing or out of range.
    """
    r = Reader(metadata)
    if not 1 <= vocabulary <= MODEL_MAX_VOCABULARY:
        raise ModelError("wrong vocabulary size", expected=f"1 to {MODEL_MAX_VOCABULARY}", found=vocabulary)
    width = r.integer("embedding_length")
    heads = r.integer("attention.head_count", high=65_536)
    key_heads = r.integer("attention.head_count_kv", heads, high=65_536)
    if heads % key_heads:
        raise ModelError(
            "heads do not share key heads evenly",
            where=r.key("attention.head_count_kv"),
            expected=f"a divisor of {heads}",
            found=key_heads,
        )
    if not r.has("attention.key_length") and width % heads:
        raise ModelError(
            "width does not split into heads",
            where=r.key("embedding_length"),
            expected=f"a multiple of {heads}",
            found=width,
        )
    key_size = r.integer("attention.key_length", width // heads)
    context = r.integer("context_length", high=MODEL_MAX_CONTEXT)
    return Config(
        architecture=r.architecture,
        blocks=r.integer("block_count", high=MODEL_MAX_BLOCKS),
        context=context,
        vocabulary=vocabulary,
        width=width,
        feed_forward=r.integer("feed_forward_length", r.integer("expert_feed_forward_length", 0, low=0) or None),
        heads=heads,
        key_heads=key_heads,
        key_size=key_size,
        value_size=r.integer("attention.value_length", key_size),
        eps=r.number("attention.layer_norm_rms_epsilon", below=1.0),
        rope=read_rope(r, key_size, context, mode),
        attention_scale=1.0 / math.sqrt(key_size),
        tied=tied,
    )


def read_experts(metadata: Metadata) -> Experts:
    """Read the sizes of a mixture of experts.

    Raises:
        MetadataError: a size is missing or out of range; a token cannot use more experts than there are.
    """
    r = Reader(metadata)
    count = r.integer("expert_count", high=65_536)
    return Experts(
        count=count,
        used=r.integer("expert_used_count", high=min(count, MODEL_MAX_EXPERTS_USED)),
        feed_forward=r.integer("expert_feed_forward_length"),
        shared=r.integer("expert_shared_feed_forward_length", 0, low=0),
    )


def read_rope(r: Reader, key_size: int, context: int, mode: RopeMode) -> RopeParameters:
    """Read the rotary embedding, with linear or YaRN scaling."""
    rotated = r.integer("rope.dimension_count", key_size, high=key_size)
    if rotated % 2:
        raise ModelError(
            "an odd number of values cannot be rotated", where=r.key("rope.dimension_count"), found=rotated
        )
    scaling = r.metadata.string(r.key("rope.scaling.type"), default="none")
    factor = r.number("rope.scaling.factor", r.number("rope.scale_linear", 1.0))
    base = r.number("rope.freq_base", 10_000.0, above=1.0)
    plain = RopeParameters(rotated, mode, base, magnitude=r.number("rope.scaling.attn_factor", 1.0))
    if scaling == "none" and r.has("rope.scale_linear"):
        scaling = "linear"
    makers = {
        "none": lambda: plain,
        "linear": lambda: RopeParameters(rotated, mode, base, 1.0 / factor, magnitude=plain.magnitude),
        "yarn": lambda: RopeParameters(
            rotated,
            mode,
            base,
            1.0 / factor,
            extension=r.number("rope.scaling.yarn_ext_factor", 1.0, above=-1.0),
            magnitude=plain.magnitude,
            beta_fast=r.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=r.number("rope.scaling.yarn_beta_slow", 1.0),
            original_context=r.integer("rope.scaling.original_context_length", context, high=MODEL_MAX_CONTEXT),
        ),
    }
    if scaling not in makers:
        raise UnsupportedError(
            "unknown rope scaling", where=r.key("rope.scaling.type"), expected=", ".join(makers), found=repr(scaling)
        )
    return makers[scaling]()
