"""What libggml has for each operation: one row per number, the operations it lacks with the reason, and what its
backward pass can do. Rows adapt types, strides and arguments; each means what ours means.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ggml_library import PRECISE, Ggml, Pointer

from prism_inference.graph import Glu, Op, RopeParameters, Tensor, Unary
from prism_inference.graph.gradients.layout import overlapping

Row = Callable[[Ggml, Tensor, list[Pointer]], Pointer]
"""(library, node, its sources in ggml, None for absent ones) → the node's result in ggml."""

F32, F16 = 0, 1
IMROPE = 40  # GGML_ROPE_TYPE_IMROPE
HADAMARD_HINT = 1  # GGML_HINT_SRC0_IS_HADAMARD
ALIGN_CORNERS = 1 << 8  # GGML_SCALE_FLAG_ALIGN_CORNERS


def _same(name: str) -> Row:
    """ggml's function of a name on all sources, as they are."""
    return lambda g, node, s: g(name, *s)


def _dense(name: str) -> Row:
    """The same on contiguous sources, followed by the node's parameters."""
    return lambda g, node, s: g(name, *(g.dense(t) for t in s if t), *node.params)


def _extents(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.ne)


# --- Element by element ---------------------------------------------------------------------------------


def _add(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("add_inplace", *s) if node.view_of is not None else g("add", g.dense(s[0]), s[1])


def _with_second_strided(name: str) -> Row:
    return lambda g, node, s: g(name, g.dense(s[0]), s[1])


def _clamp(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("clamp", g("cont", s[0]), *node.params)  # works in place


def _fill(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("fill", g.leaf(F32, _extents(node)), *node.params)


def _round_to(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    from prism_inference.gguf import tensor_type

    return g("cast", g("cast", g.dense(s[0]), tensor_type(node.params[0]).id), F32)


def _unary(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    kind, *params = node.params
    if kind is not Unary.XIELU:
        return g("unary", g.dense(s[0]), kind)
    # ggml_xielu takes the alphas before their soft-plus, and adds beta to the negative one.
    alpha_n, alpha_p, beta, eps = params
    return g("xielu", g.dense(s[0]), math.log(math.expm1(alpha_n - beta)), math.log(math.expm1(alpha_p)), beta, eps)


def _glu(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    kind, *params, swapped = node.params
    a, b = g.dense(s[0]), s[1] and g.dense(s[1])
    if kind is Glu.SWIGLU_OAI:
        return g("swiglu_oai", *((a, b) if b else _halves(g, a, swapped)), *params)
    return g("glu_split", a, b, kind) if b else g("glu", a, kind, swapped)


def _halves(g: Ggml, a: Pointer, swapped: bool) -> list[Pointer]:
    """The halves of each row: ggml's swiglu_oai takes two tensors."""
    t = a.contents
    starts = [0, 4 * (t.ne[0] // 2)]
    parts = (g("view_4d", a, t.ne[0] // 2, *t.ne[1:], *t.nb[1:], start) for start in starts)
    return [g("cont", part) for part in parts][:: -1 if swapped else 1]


# --- Rows -------------------------------------------------------------------------------------------------


def _soft_max(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    scores, mask, sinks = s
    made = g("soft_max_ext", g.dense(scores), mask and g.dense(mask), *node.params)
    if sinks:
        g.plain("soft_max_add_sinks", made, sinks)
    return made


def _soft_max_back(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("soft_max_ext_back", g.dense(s[0]), g.dense(s[1]), *node.params, 0.0)


def _top_k(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("cont", g("argsort_top_k", g.dense(s[0]), int(node.ne[0])))


def _get_rows(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    # Rows of blocks cannot be copied, and always lie dense.
    return g("get_rows", g.dense(s[0]) if s[0].contents.type in (F32, F16) else s[0], s[1])


def _get_rows_back(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("get_rows_back", g.dense(s[0]), s[1], g.leaf(F32, _extents(node)))


def _set_rows(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    rows, index, target = s
    return g("set_rows", target, g.dense(rows), index)


# --- Products ---------------------------------------------------------------------------------------------


def _product(name: str) -> Row:
    """MUL_MAT and MUL_MAT_ID. ggml's kernels round what meets quantized or F16 weights whatever precision is asked for,
    so that exact products take decoded weights."""

    def row(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
        weights = s[0]
        if node.params[0] and weights.contents.type != F32:
            weights = g("cast", weights, F32)
        return g(name, weights, g.dense(s[1]), *s[2:])

    return row


def _out_prod(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    weights = s[0] if s[0].contents.type == F32 else g("cast", s[0], F32)
    return g("out_prod", g.dense(weights), s[1])


# --- Layout -----------------------------------------------------------------------------------------------


def _placed(name: str) -> Row:
    def row(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
        suffix = "_inplace" if node.view_of is not None else ""
        return g(name + suffix, s[0], g.dense(s[1]), *node.params)

    return row


def _view(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    made = g("view_4d", s[0], *_extents(node), *node.nb[1:], node.view_offset)
    made.contents.nb[0] = node.nb[0]  # ggml's function takes the first dimension for dense
    return made


def _pad(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    *before, circular = node.params
    source = node.sources[0]
    assert source is not None
    sizes = [(left, int(node.ne[d] - source.ne[d]) - left) for d, left in enumerate(before)]
    return g("pad_ext_circular" if circular else "pad_ext", g.dense(s[0]), *(n for pair in sizes for n in pair))


def _roll(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("roll", g.dense(s[0]), *node.params)


# --- Along a sequence ---------------------------------------------------------------------------------------


def _rope(suffix: str) -> Row:
    def row(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
        x, positions, factors = s
        p: RopeParameters = node.params[0]
        numbers = (p.original_context, *map(float, (p.base, p.scale, p.extension)))
        numbers = (*numbers, *map(float, (p.magnitude, p.beta_fast, p.beta_slow)))
        if p.sections and positions.contents.ne[1] == 4:
            flat = g("reshape_1d", positions, 4 * positions.contents.ne[0])
            sections = (ctypes.c_int * 4)(*(*p.sections, 0, 0, 0, 0)[:4])
            return g(f"rope_multi{suffix}", g.dense(x), flat, factors, p.rotated, sections, IMROPE, *numbers)
        return g(f"rope_ext{suffix}", g.dense(x), positions, factors, p.rotated, p.mode, *numbers)

    return row


def _attention(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    q, k, v, ranges, mask, sinks = s
    scale, cap, max_bias = node.params
    k, v = (g.dense(t) if t.contents.type == F32 else g("cast", t, F32) for t in (k, v))
    mask = _mask(g, mask, ranges, int(q.contents.ne[1]), int(k.contents.ne[1]))
    made = g("flash_attn_ext", g.dense(q), k, v, mask, scale, max_bias, cap)
    g.plain("flash_attn_ext_set_prec", made, PRECISE)
    if sinks:
        g.plain("flash_attn_ext_add_sinks", made, sinks)
    return made


def _mask(g: Ggml, mask: Pointer, ranges: Pointer, tokens: int, cells: int) -> Pointer:
    """ggml's mask, F16: ours, with what each token does not see in its range of the cells closed."""
    if mask:
        t = mask.contents
        mask = g.dense(g("view_4d", mask, t.ne[0], tokens, *t.ne[2:], *t.nb[1:], 0))
    if ranges:
        first, last = np.moveaxis(g.values(ranges)[0, 0], -1, 0)[..., None]
        seen = (np.arange(cells) >= first) & (np.arange(cells) < last)
        closed = g.numbers(np.where(seen, 0.0, -np.inf).astype(np.float32))
        mask = g("add", mask if mask.contents.type == F32 else g("cast", mask, F32), closed) if mask else closed
    return g("cast", mask, F16) if mask and mask.contents.type != F16 else mask


def _hadamard(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    """A product with a matrix that ggml is told to be Walsh-Hadamard's; it then runs the fast transform."""
    x, signs = s
    block, inverse = node.params
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.kron(matrix, [[1, 1], [1, -1]])
    x = g("mul", g.dense(x), signs) if signs and not inverse else g.dense(x)
    rows = g("reshape_2d", x, block, int(np.prod(node.ne)) // block)
    turned = g("mul_mat", g.numbers((matrix / np.sqrt(block)).astype(np.float32)), rows)
    g.plain("mul_mat_set_hint", turned, HADAMARD_HINT)
    turned = g("reshape_4d", turned, *_extents(node))
    return g("mul", turned, signs) if signs and inverse else turned


def _causal_conv(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    """Our state lies before the inputs; ggml's convolution takes both in one tensor, and leaves the silu to another."""
    x, weight, state = s
    channels, _, sequences = x.contents.ne[:3]
    before = int(weight.contents.ne[0]) - 1
    start = state if state else _zeros(g, channels, before, sequences)
    whole = g("concat", start, g.dense(x), 1)
    ne, nb = whole.contents.ne, whole.contents.nb
    if state:
        last = g("view_2d", whole, channels, before, nb[1], nb[1] * (ne[1] - before))
        g.aside.append(g("cpy", last, state))
    return g("silu", g("ssm_conv", g("cont", g("transpose", whole)), g.dense(weight)))


def _gated_delta_net(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    q, k, v, gate, beta, state = s
    size, heads, tokens, sequences = v.contents.ne
    gate, beta = (g("reshape_4d", g.dense(t), 1, heads, tokens, sequences) for t in (gate, beta))
    start = g("dup", state) if state else _zeros(g, size, size, heads, sequences)
    both = g("gated_delta_net", *map(g.dense, (q, k, v)), gate, beta, start, 1)
    if state:
        end = g("view_1d", both, size * size * heads, 4 * size * heads * tokens)
        g.aside.append(g("cpy", end, state))
    steps = [4 * int(n) for n in (size, size * heads, size * heads * tokens)]
    return g("view_4d", both, size, heads, tokens, sequences, *steps, 0)


def _zeros(g: Ggml, *ne: int) -> Pointer:
    return g.numbers(np.zeros(tuple(reversed(ne)), np.float32))


# --- Images -------------------------------------------------------------------------------------------------


def _im2col(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    return g("im2col", s[0], g.dense(s[1]), *node.params, F32)


def _im2col_back(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    # The header names the kernel first; the function takes the gradient first.
    return g("im2col_back", g.dense(s[1]), s[0], (ctypes.c_int64 * 4)(*_extents(node)), *node.params)


def _pool_2d(name: str) -> Row:
    def row(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
        *numbers, p0, p1 = node.params
        return g(name, *map(g.dense, s), *numbers, float(p0), float(p1))

    return row


def _upscale(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
    mode, align_corners = node.params
    return g("interpolate", g.dense(s[0]), *_extents(node), mode | (ALIGN_CORNERS if align_corners else 0))


# --- Learning ---------------------------------------------------------------------------------------------------


def _step(name: str) -> Row:
    def row(g: Ggml, node: Tensor, s: list[Pointer]) -> Pointer:
        weights, gradient, *others, factor = s
        g.plain("set_param", weights)
        return g(name, weights, g("mul", gradient, factor) if factor else gradient, *others)

    return row


ROWS: dict[Op, Row] = {
    Op.DUP: _same("dup"),
    Op.ADD: _add,
    Op.ADD_ID: _dense("add_id"),
    Op.ADD1: _with_second_strided("add1"),
    Op.ACC: _placed("acc"),
    Op.SUB: _with_second_strided("sub"),
    Op.MUL: _with_second_strided("mul"),
    Op.DIV: _with_second_strided("div"),
    Op.SQR: _dense("sqr"),
    Op.SQRT: _dense("sqrt"),
    Op.LOG: _dense("log"),
    Op.SIN: _dense("sin"),
    Op.COS: _dense("cos"),
    Op.SUM: _dense("sum"),
    Op.SUM_ROWS: _dense("sum_rows"),
    Op.CUMSUM: _dense("cumsum"),
    Op.MEAN: _dense("mean"),
    Op.ARGMAX: _dense("argmax"),
    Op.COUNT_EQUAL: _dense("count_equal"),
    Op.REPEAT: lambda g, node, s: g("repeat_4d", g.dense(s[0]), *_extents(node)),
    Op.REPEAT_BACK: lambda g, node, s: g("repeat_back", g.dense(s[0]), g.leaf(F32, _extents(node))),
    Op.CONCAT: lambda g, node, s: g("concat", *s, *node.params),
    Op.SILU_BACK: _dense("silu_back"),
    Op.NORM: _dense("norm"),
    Op.RMS_NORM: _dense("rms_norm"),
    Op.RMS_NORM_BACK: _dense("rms_norm_back"),
    Op.GROUP_NORM: _dense("group_norm"),
    Op.L2_NORM: _dense("l2_norm"),
    Op.MUL_MAT: _product("mul_mat"),
    Op.MUL_MAT_ID: _product("mul_mat_id"),
    Op.OUT_PROD: _out_prod,
    Op.SCALE: lambda g, node, s: g("scale_bias", g.dense(s[0]), *node.params),
    Op.SET: _placed("set"),
    Op.CPY: _same("cpy"),
    Op.CONT: _same("cont"),
    Op.RESHAPE: lambda g, node, s: g("reshape_4d", s[0], *_extents(node)),
    Op.VIEW: _view,
    Op.PERMUTE: lambda g, node, s: g("permute", s[0], *node.params),
    Op.TRANSPOSE: _same("transpose"),
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.SET_ROWS: _set_rows,
    Op.DIAG: _dense("diag"),
    Op.DIAG_MASK_INF: _dense("diag_mask_inf"),
    Op.DIAG_MASK_ZERO: _dense("diag_mask_zero"),
    Op.SOFT_MAX: _soft_max,
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.ROPE: _rope(""),
    Op.ROPE_BACK: _rope("_back"),
    Op.CLAMP: _clamp,
    Op.IM2COL: _im2col,
    Op.IM2COL_BACK: _im2col_back,
    Op.CONV_2D: _dense("conv_2d_direct"),
    Op.POOL_1D: _dense("pool_1d"),
    Op.POOL_2D: _pool_2d("pool_2d"),
    Op.POOL_2D_BACK: _pool_2d("pool_2d_back"),
    Op.UPSCALE: _upscale,
    Op.PAD: _pad,
    Op.ROLL: _roll,
    Op.ARANGE: lambda g, node, s: g("arange", *node.params),
    Op.ARGSORT: _dense("argsort"),
    Op.TOP_K: _top_k,
    Op.LEAKY_RELU: lambda g, node, s: g("leaky_relu", g.dense(s[0]), *node.params, 0),
    Op.TRI: _dense("tri"),
    Op.FILL: _fill,
    Op.FLASH_ATTN_EXT: _attention,
    Op.SSM_CONV: _dense("ssm_conv"),
    Op.GATED_DELTA_NET: _gated_delta_net,
    Op.UNARY: _unary,
    Op.CROSS_ENTROPY_LOSS: _dense("cross_entropy_loss"),
    Op.CROSS_ENTROPY_LOSS_BACK: _dense("cross_entropy_loss_back"),
    Op.OPT_STEP_ADAMW: _step("opt_step_adamw"),
    Op.OPT_STEP_SGD: _step("opt_step_sgd"),
    Op.GLU: _glu,
    Op.HADAMARD: _hadamard,
    Op.CAUSAL_CONV: _causal_conv,
    Op.ROUND_TO: _round_to,
    Op.SUM_SQUARES: lambda g, node, s: g("sum", g("sqr", g.dense(s[0]))),
}

# Tensor types that only Prism's programs know, and the older layout of a number that ggml gave to another.
UNKNOWN_TYPES = ("Q2_0_G128", "PQ2_0", "PTQ1_0")

# Operations of the table that libggml has no equal of, each with the reason.
SKIPPED: dict[Op, str] = {
    Op.FLASH_ATTN_BACK: "ggml_flash_attn_back aborts: its header says that it needs to be adapted",
    Op.UNARY_BACK: "ggml has a way back for silu alone",
    Op.NORM_BACK: "ggml has a way back for the RMS norm alone",
    Op.L2_NORM_BACK: "ggml has a way back for the RMS norm alone",
    Op.OUT_PROD_ID: "ggml has no way back through MUL_MAT_ID",
    Op.MUL_MAT_ID_BACK: "ggml has no way back through MUL_MAT_ID",
    Op.UPSCALE_BACK: "ggml has no way back through UPSCALE",
    Op.SSM_CONV_BACK: "ggml has no way back through SSM_CONV",
    Op.CAUSAL_CONV_BACK: "ggml has no way back through SSM_CONV",
    Op.GATED_DELTA_NET_BACK: "ggml has no way back through GATED_DELTA_NET",
    Op.TOKEN_LOSS: "ggml's loss takes a distribution per row",
    Op.TOKEN_LOSS_BACK: "ggml's loss takes a distribution per row",
}


def _source(node: Tensor, number: int) -> Tensor:
    source = node.sources[number]
    assert source is not None
    return source


# --- What libggml can do of an operation ----------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """Nodes that libggml takes: `takes(node, flows)`, where `flows` are the numbers of the sources that a gradient is
    wanted for (none in the forward pass)."""

    takes: Callable[[Tensor, frozenset[int]], bool] = lambda node, flows: True
    only: str = "all that ours takes"


def _turns_by_sections(node: Tensor, flows: frozenset[int] = frozenset()) -> bool:
    """No pair lies beyond the sections: ggml turns those by the fourth channel, ours (like the models) by time."""
    p: RopeParameters = node.params[0]
    i = np.arange(p.rotated // 2)
    return not p.sections or bool((i < 3 * np.array(p.sections[:3])[i % 3]).all())


FORWARD_LIMITS: dict[Op, Limit] = {
    Op.GET_ROWS_BACK: Limit(lambda node, flows: node.ne[2:] == (1, 1), "one table"),
    Op.ARANGE: Limit(lambda node, flows: node.params[2] > 0, "steps upwards"),
    Op.GATED_DELTA_NET: Limit(lambda node, flows: _source(node, 0).ne[0] == node.ne[0], "keys as long as values"),
    Op.ROLL: Limit(
        lambda node, flows: all(abs(shift) < n for shift, n in zip(node.params, node.ne, strict=True)),
        "shifts below the extents",
    ),
    Op.ROPE: Limit(_turns_by_sections, "sections that hold all pairs"),
    Op.ROPE_BACK: Limit(_turns_by_sections, "sections that hold all pairs"),
}


def _distributions(node: Tensor, flows: frozenset[int]) -> bool:
    """Labels that are constant and add up to 1: ggml takes that for granted."""
    labels = _source(node, 1)
    if 1 in flows or labels.op not in (Op.NONE, Op.SOFT_MAX):
        return False
    return labels.op is Op.SOFT_MAX or bool(np.allclose(labels.numpy().sum(-1), 1.0, atol=1e-6))


def _matching_batches(node: Tensor, flows: frozenset[int]) -> bool:
    return 0 not in flows or node.ne[3] == 1 or _source(node, 0).ne[2:] == node.ne[2:]


_UNARY_BACKWARD = (Unary.ABS, Unary.NEG, Unary.RELU, Unary.SILU, Unary.EXP, Unary.EXPM1, Unary.SOFTPLUS)
_EQUAL = Limit(lambda node, flows: 1 not in flows or node.ne == _source(node, 1).ne, "a second of the same shape")

# Operations that ggml_build_backward_expand knows; for other nodes than these it ends the process or, where `differs`
# of the bridge says so, is wrong.
BACKWARD: dict[Op, Limit] = {
    Op.DUP: Limit(),
    Op.ADD: Limit(lambda node, flows: node.view_of is None, "new results"),
    Op.ADD1: Limit(lambda node, flows: flows == {0}, "the first source"),
    Op.ACC: Limit(lambda node, flows: node.view_of is None, "new results"),
    Op.SUB: _EQUAL,
    Op.MUL: Limit(),
    Op.DIV: _EQUAL,
    Op.SQR: Limit(),
    Op.SQRT: Limit(),
    Op.LOG: Limit(),
    Op.SIN: Limit(),
    Op.COS: Limit(),
    Op.SUM: Limit(),
    Op.SUM_ROWS: Limit(),
    Op.MEAN: Limit(),
    Op.REPEAT: Limit(),
    Op.REPEAT_BACK: Limit(),
    Op.RMS_NORM: Limit(),
    Op.MUL_MAT: Limit(_matching_batches, "weights repeated along the third dimension alone"),
    Op.SCALE: Limit(),
    Op.SET: Limit(),
    Op.CPY: Limit(lambda node, flows: node.type.name == "F32", "F32 targets"),
    Op.CONT: Limit(),
    Op.RESHAPE: Limit(),
    Op.VIEW: Limit(
        lambda node, flows: _source(node, 0).contiguous and not overlapping(node),
        "contiguous sources, elements in places of their own",
    ),
    Op.PERMUTE: Limit(),
    Op.TRANSPOSE: Limit(),
    Op.GET_ROWS: Limit(lambda node, flows: node.ne[2:] == (1, 1), "one table"),
    Op.DIAG_MASK_INF: Limit(),
    Op.DIAG_MASK_ZERO: Limit(),
    Op.SOFT_MAX: Limit(lambda node, flows: flows == {0} and node.params[1] == 0, "the scores, without a bias"),
    Op.ROPE: Limit(),
    Op.IM2COL: Limit(),
    Op.POOL_2D: Limit(),
    Op.UNARY: Limit(lambda node, flows: node.params[0] in _UNARY_BACKWARD, ", ".join(k.name for k in _UNARY_BACKWARD)),
    Op.CROSS_ENTROPY_LOSS: Limit(_distributions, "constant labels that add up to 1"),
    Op.GLU: Limit(
        lambda node, flows: node.params[0] is Glu.SWIGLU and node.sources[1] is not None, "SWIGLU of two sources"
    ),
}
