"""The parts that transformer architectures share: attention over a cache, gated feed-forward, embedding and head.

Built from graph operations only. Extents are in ggml's order: [values, heads, tokens].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from ..graph import Context, RopeParameters, Tensor
from .config import Config, Expected
from .rotation import EMBEDDING, Rotation


@dataclass
class Cache:
    """Keys and values of one block: [size, cells, key heads]."""

    keys: Tensor
    values: Tensor


@dataclass
class State:
    """The state of one recurrent block, F32: last inputs of the convolution [channels, taps - 1], and the matrices
    [key size, value size, value heads]. Both are updated in place."""

    inputs: Tensor
    matrices: Tensor


@dataclass
class Batch:
    """What a run is fed with.

    `tokens`, `positions` and `cells` are I32 [tokens]: ids, positions, and the cache cells that the tokens are
    written to. `ranges` and `local_ranges` are I32 [2, tokens]: the cells each token sees in global and in local
    layers. `outputs` is I32 [outputs]: the tokens whose logits are wanted; None: all of them.

    Without caches (training) the tokens see each other alone: `sequences` of equal length follow one another, and the
    ranges count tokens of the batch. Recurrent layers start each sequence from zeros.
    """

    tokens: Tensor
    positions: Tensor
    ranges: Tensor
    local_ranges: Tensor
    cells: Tensor | None = None
    outputs: Tensor | None = None
    caches: list[Cache | State] = field(default_factory=list)
    sequences: int = 1

    @property
    def cells_available(self) -> int:
        """Positions that the caches hold: the context of the session. Without caches, the length of a sequence."""
        held = max((int(part.keys.ne[1]) for part in self.caches if isinstance(part, Cache)), default=0)
        return held if self.caches else int(self.size) // self.sequences

    def cache(self, block: int) -> Cache | None:
        """Return the keys and values of an attending block, None where nothing is kept."""
        part = self.caches[block] if self.caches else None
        assert part is None or isinstance(part, Cache)
        return part

    def state(self, block: int) -> State | None:
        """Return the state of a recurrent block, None where nothing is kept."""
        part = self.caches[block] if self.caches else None
        assert part is None or isinstance(part, State)
        return part

    @property
    def size(self) -> int:
        """Number of tokens: the extent that varies."""
        return self.tokens.ne[0]


@dataclass(frozen=True)
class Adapter:
    """A low-rank addition to a product (arXiv 2106.09685): scale·B·(A·x) with A [in, rank] and B [rank, out], for
    mixtures with a third extent of experts."""

    a: Tensor
    b: Tensor
    scale: float


class Weights:
    """A model's tensors by name; `block(n)` gives those of one block under their short names.

    Where a file's weights are folded with a rotation, inputs are rotated here, once for all products that read the same
    one, and embedding rows are rotated back. Adapters see the input as it is.
    """

    def __init__(
        self,
        context: Context,
        tensors: Mapping[str, Tensor],
        rotation: Rotation | None = None,
        adapters: Mapping[str, Sequence[Adapter]] | None = None,
        exact: bool = False,
    ) -> None:
        """Args:
        context: where the constants of the rotation are made.
        tensors: leaves (or nodes) by full name.
        rotation: of the file.
        adapters: additions by the full name of the weight.
        exact: multiply activations unrounded (`Tensor.mul_mat`), as training needs.
        """
        self._context = context
        self._tensors = tensors
        self._prefix = ""
        self.rotation = rotation
        self.boundaries: list[int] = []  # numbers of the first tensors of each block, and of what follows the last
        self._adapters = adapters or {}
        self._exact = exact
        self._rotated: dict[int, Tensor] = {}
        self._signs = {
            width: context.tensor("F32", (width,), name=f"signs {width}").set(signs)
            for width, signs in (rotation.signs.items() if rotation else ())
        }

    def __call__(self, name: str) -> Tensor:
        return self._tensors[f"{self._prefix}{name}"]

    def get(self, name: str) -> Tensor | None:
        """Return an optional tensor."""
        return self._tensors.get(f"{self._prefix}{name}")

    def block(self, number: int) -> Weights:
        """Return the weights of a block, which begins with what is made next."""
        self.mark()
        part = copy(self)
        part._prefix = f"blk.{number}."
        return part

    def mark(self) -> None:
        """Note that a block begins, or ends, with what is made next."""
        self.boundaries.append(len(self._context.tensors))

    def product(self, name: str, x: Tensor) -> Tensor:
        """Multiply by the weight of a (full) name, the input rotated if the weight is folded, and add its adapters."""
        y = self(name).mul_mat(self._input(name, x), exact=self._exact)
        for adapter in self._adapters.get(f"{self._prefix}{name}", ()):
            inner = adapter.a.mul_mat(x, exact=self._exact)
            y = y.add(adapter.b.mul_mat(inner, exact=self._exact).scale(adapter.scale))
        return y

    def _input(self, name: str, x: Tensor) -> Tensor:
        """Return what the weight of a name multiplies: x, or the rotated x."""
        rotation, full = self.rotation, f"{self._prefix}{name}"
        if rotation is None or not (full in rotation.weights or (rotation.embedding and full == EMBEDDING)):
            return x
        if x.index not in self._rotated:
            self._rotated[x.index] = x.hadamard(rotation.block, self._signs.get(int(x.ne[0])))
        return self._rotated[x.index]

    def picked(self, name: str, x: Tensor, index: Tensor) -> Tensor:
        """Multiply [values, used or 1, tokens] by the experts of `name`.weight that the index picks."""
        name = f"{name}.weight"
        y = self(name).mul_mat_id(self._input(name, x), index, exact=self._exact)
        for adapter in self._adapters.get(f"{self._prefix}{name}", ()):
            inner = adapter.a.mul_mat_id(x, index, exact=self._exact)
            y = y.add(adapter.b.mul_mat_id(inner, index, exact=self._exact).scale(adapter.scale))
        return y

    def linear(self, name: str, x: Tensor) -> Tensor:
        """Multiply by `name`.weight and add `name`.bias if the file has it."""
        y = self.product(f"{name}.weight", x)
        bias = self.get(f"{name}.bias")
        return y if bias is None else y.add(bias)

    def norm(self, name: str, x: Tensor, eps: float) -> Tensor:
        """Normalize the rows and multiply by `name`.weight."""
        return x.rms_norm(eps).mul(self(f"{name}.weight"))

    def embed(self, tokens: Tensor) -> Tensor:
        """Look up the rows of the embedding table: [width, tokens]."""
        rows = self(EMBEDDING).get_rows(tokens)
        if self.rotation is None or not self.rotation.embedding:
            return rows
        return rows.hadamard(self.rotation.block, self._signs.get(int(rows.ne[0])), inverse=True)


def outer_tensors(config: Config) -> dict[str, Expected]:
    """Return the tensors before and after the blocks."""
    d = config.width
    return {
        "token_embd.weight": Expected((d, config.vocabulary)),
        "output_norm.weight": Expected((d,)),
        "output.weight": Expected((d, config.vocabulary), optional=True),
    }


def expected_tensors(
    config: Config, *, head_norms: bool = False, post_norms: bool = False, biases: bool = False
) -> dict[str, Expected]:
    """Return the tensors of a plain transformer by name.

    Args:
        head_norms: each head's queries and keys are normalized.
        post_norms: what attention and feed-forward give is normalized.
        biases: attention biases may occur.
    """
    d, ff = config.width, config.feed_forward
    q, k, v = config.heads * config.key_size, config.key_heads * config.key_size, config.key_heads * config.value_size
    expected = outer_tensors(config)
    per_block = {
        "attn_norm.weight": Expected((d,)),
        "attn_q.weight": Expected((d, q)),
        "attn_k.weight": Expected((d, k)),
        "attn_v.weight": Expected((d, v)),
        "attn_output.weight": Expected((config.heads * config.value_size, d)),
        "ffn_norm.weight": Expected((d,)),
        "ffn_gate.weight": Expected((d, ff)),
        "ffn_up.weight": Expected((d, ff)),
        "ffn_down.weight": Expected((ff, d)),
    }
    if head_norms:
        per_block |= {
            "attn_q_norm.weight": Expected((config.key_size,)),
            "attn_k_norm.weight": Expected((config.key_size,)),
        }
    if post_norms:
        per_block |= {"post_attention_norm.weight": Expected((d,)), "post_ffw_norm.weight": Expected((d,))}
    if biases:
        sizes = {"attn_q": q, "attn_k": k, "attn_v": v, "attn_output": d}
        per_block |= {f"{name}.bias": Expected((size,), optional=True) for name, size in sizes.items()}
    for block in range(config.blocks):
        expected |= {f"blk.{block}.{name}": row for name, row in per_block.items()}
    return expected


def attention(
    config: Config,
    weights: Weights,
    x: Tensor,
    batch: Batch,
    block: int,
    *,
    rope: RopeParameters,
    head_norms: bool = False,
    factors: Tensor | None = None,
) -> Tensor:
    """Self-attention over the cache: x [width, tokens] → [width, tokens]."""
    tokens = batch.size
    q = weights.linear("attn_q", x).reshape(config.key_size, config.heads, tokens)
    k = weights.linear("attn_k", x).reshape(config.key_size, config.key_heads, tokens)
    v = weights.linear("attn_v", x).reshape(config.value_size, config.key_heads, tokens)
    if head_norms:
        q, k = weights.norm("attn_q_norm", q, config.eps), weights.norm("attn_k_norm", k, config.eps)
    q, k = q.rope(batch.positions, rope, factors), k.rope(batch.positions, rope, factors)
    return weights.linear("attn_output", attend(config, q, k, v, batch, block))


def attend(config: Config, q: Tensor, k: Tensor, v: Tensor, batch: Batch, block: int) -> Tensor:
    """Add keys and values [size, key heads, tokens] to the cache and let the queries see it: [all heads, tokens]."""
    keys, values = (part.permute(0, 2, 1, 3) for part in (k, v))
    cache = batch.cache(block)
    if cache is not None:
        assert batch.cells is not None
        keys, values = cache.keys.set_rows(keys, batch.cells), cache.values.set_rows(values, batch.cells)
    ranges = batch.local_ranges if config.local(block) else batch.ranges
    heads = q.permute(0, 2, 1, 3).flash_attn_ext(keys, values, ranges, config.attention_scale, config.attention_cap)
    return heads.reshape(config.value_size * config.heads, batch.size)


def feed_forward(weights: Weights, x: Tensor, gate: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """down(gate(gate·x, up·x))."""
    return weights.linear("ffn_down", gate(weights.linear("ffn_gate", x), weights.linear("ffn_up", x)))


def expert_tensors(config: Config) -> dict[str, Expected]:
    """Return the tensors of a block's mixture of experts, which stand in place of the feed-forward ones."""
    d, e = config.width, config.experts
    assert e is not None
    rows = {
        "ffn_gate_inp.weight": Expected((d, e.count)),
        "ffn_gate_exps.weight": Expected((d, e.feed_forward, e.count)),
        "ffn_up_exps.weight": Expected((d, e.feed_forward, e.count)),
        "ffn_down_exps.weight": Expected((e.feed_forward, d, e.count)),
    }
    if e.shared:
        rows |= {
            "ffn_gate_inp_shexp.weight": Expected((d,)),
            "ffn_gate_shexp.weight": Expected((d, e.shared)),
            "ffn_up_shexp.weight": Expected((d, e.shared)),
            "ffn_down_shexp.weight": Expected((e.shared, d)),
        }
    return rows


FEED_FORWARD = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")


def with_experts(config: Config, expected: dict[str, Expected]) -> dict[str, Expected]:
    """Replace the feed-forward tensors of every block by those of its mixture."""
    kept = {name: row for name, row in expected.items() if not name.endswith(FEED_FORWARD)}
    rows = expert_tensors(config)
    return kept | {f"blk.{block}.{name}": row for block in range(config.blocks) for name, row in rows.items()}


def mixture(config: Config, w: Weights, x: Tensor) -> Tensor:
    """Mixture of experts: the likeliest experts of each token, their weights made to sum to one, and the shared one."""
    e, tokens = config.experts, x.ne[1]
    assert e is not None
    chances = w.linear("ffn_gate_inp", x).soft_max()
    index = chances.top_k(e.used)
    picked = chances.reshape(1, e.count, tokens).get_rows(index).reshape(e.used, tokens)
    shares = picked.div(picked.sum_rows()).reshape(1, e.used, tokens)
    inputs = x.reshape(config.width, 1, tokens)
    h = w.picked("ffn_gate_exps", inputs, index).swiglu(w.picked("ffn_up_exps", inputs, index))
    out = w.picked("ffn_down_exps", h, index).mul(shares)
    parts = [out.view((config.width, tokens), (out.nb[2],), out.nb[1] * number) for number in range(e.used)]
    total = parts[0].cont() if len(parts) == 1 else parts[0].add(parts[1])
    for part in parts[2:]:
        total = total.add(part)
    if e.shared:
        h = w.linear("ffn_gate_shexp", x).swiglu(w.linear("ffn_up_shexp", x))
        total = total.add(w.linear("ffn_down_shexp", h).mul(w.linear("ffn_gate_inp_shexp", x).sigmoid()))
    return total


def logits(config: Config, weights: Weights, x: Tensor) -> Tensor:
    """Final norm and head: [width, outputs] → [vocabulary, outputs]."""
    weights.mark()
    y = weights.product(EMBEDDING if config.tied else "output.weight", weights.norm("output_norm", x, config.eps))
    if config.logit_cap:
        y = y.scale(1.0 / config.logit_cap).tanh().scale(config.logit_cap)
    return y


def pick_outputs(config: Config, batch: Batch, block: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """In the last block keep only the tokens whose logits are wanted: what follows concerns no other token."""
    wanted = batch.outputs
    if block < config.blocks - 1 or wanted is None:
        return tensors
    return tuple(tensor.get_rows(wanted) for tensor in tensors)
