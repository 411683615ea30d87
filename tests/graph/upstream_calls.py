"""One call of every function of `prism_inference.graph.upstream` that makes a node: arguments as the C function orders
them, and the same by the method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from op_cases import Maker

from prism_inference.graph import Glu, Interpolation, Op, Order, Pool, RopeMode, RopeParameters, Tensor, Triangle, Unary


@dataclass(frozen=True)
class Call:
    """Arguments after the context, and what they make by method. `alone`: why libggml cannot be asked the same."""

    op: Op
    arguments: Callable[[Maker], list[Any]]
    method: Callable[..., Tensor]
    alone: str = ""


def one(op: Op, method: Callable[..., Tensor], *parameters: Any, low: float = -1.0) -> Call:
    """A function of one matrix, and its parameters in the method's order."""
    return Call(op, lambda m: [m.leaf(5, 3, low=low), *parameters], method)


def two(op: Op, method: Callable[..., Tensor], *parameters: Any) -> Call:
    """A function of two matrices, and its parameters in the method's order."""
    return Call(op, lambda m: [m.leaf(5, 3), m.leaf(5, 3, low=0.5), *parameters], method)


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


CALLS: dict[str, Call] = {
    # Element by element
    "ggml_add": two(Op.ADD, Tensor.add),
    "ggml_add_inplace": two(Op.ADD, Tensor.add_inplace),
    "ggml_add1": Call(Op.ADD1, lambda m: [m.leaf(5, 3), m.leaf(1)], Tensor.add1),
    "ggml_add_id": Call(
        Op.ADD_ID, lambda m: [m.leaf(5, 2, 3), m.leaf(5, 4), m.integers([[0, 3], [2, 0], [3, 1]])], Tensor.add_id
    ),
    "ggml_sub": two(Op.SUB, Tensor.sub),
    "ggml_mul": two(Op.MUL, Tensor.mul),
    "ggml_div": two(Op.DIV, Tensor.div),
    "ggml_scale": one(Op.SCALE, Tensor.scale, 0.5),
    "ggml_scale_bias": one(Op.SCALE, Tensor.scale, 0.5, 2.0),
    "ggml_sqr": one(Op.SQR, Tensor.sqr),
    "ggml_sqrt": one(Op.SQRT, Tensor.sqrt, low=0.5),
    "ggml_log": one(Op.LOG, Tensor.log, low=0.5),
    "ggml_sin": one(Op.SIN, Tensor.sin),
    "ggml_cos": one(Op.COS, Tensor.cos),
    "ggml_clamp": one(Op.CLAMP, Tensor.clamp, -0.25, 0.5),
    "ggml_leaky_relu": one(Op.LEAKY_RELU, lambda a, slope, inplace: a.leaky_relu(slope), 0.25, False),
    "ggml_fill": one(Op.FILL, Tensor.fill, 3.0),
    "ggml_arange": Call(Op.ARANGE, lambda m: [1.0, 4.0, 0.5], lambda *values: Maker().context.arange(*values)),
    "ggml_unary": one(Op.UNARY, Tensor.unary, Unary.TANH),
    **{
        f"ggml_{kind.name.lower()}": one(Op.UNARY, lambda a, kind=kind: a.unary(kind))
        for kind in Unary
        if kind is not Unary.XIELU
    },
    "ggml_xielu": one(
        Op.UNARY,
        lambda a, an, ap, beta, eps: a.unary(Unary.XIELU, beta + softplus(an), softplus(ap), beta, eps),
        0.8,
        0.3,
        0.5,
        -1e-6,
    ),
    "ggml_silu_back": two(Op.SILU_BACK, Tensor.silu_back),
    "ggml_glu": Call(
        Op.GLU, lambda m: [m.leaf(6, 3), Glu.REGLU, True], lambda a, kind, swapped: a.glu(kind, swapped=swapped)
    ),
    "ggml_glu_split": two(Op.GLU, lambda a, b, kind: a.glu(kind, b), Glu.GEGLU_ERF),
    **{
        f"ggml_{kind.name.lower()}{suffix}": Call(
            Op.GLU,
            lambda m: [m.leaf(6, 3)],
            lambda a, kind=kind, suffix=suffix: a.glu(kind, swapped=bool(suffix)),
        )
        for kind in Glu
        if kind is not Glu.SWIGLU_OAI
        for suffix in ("", "_swapped")
    },
    **{
        f"ggml_{kind.name.lower()}_split": two(Op.GLU, lambda a, b, kind=kind: a.glu(kind, b))
        for kind in Glu
        if kind is not Glu.SWIGLU_OAI
    },
    "ggml_swiglu_oai": two(Op.GLU, lambda a, b, *p: a.glu(Glu.SWIGLU_OAI, b, *p), 1.5, 0.75),
    # Rows
    "ggml_norm": one(Op.NORM, Tensor.norm, 1e-2),
    "ggml_rms_norm": one(Op.RMS_NORM, Tensor.rms_norm, 1e-2),
    "ggml_l2_norm": one(Op.L2_NORM, Tensor.l2_norm, 1e-6),
    "ggml_group_norm": Call(Op.GROUP_NORM, lambda m: [m.leaf(3, 2, 4), 2, 1e-2], Tensor.group_norm),
    "ggml_rms_norm_back": two(Op.RMS_NORM_BACK, Tensor.rms_norm_back, 1e-2),
    "ggml_soft_max": one(Op.SOFT_MAX, Tensor.soft_max),
    "ggml_soft_max_ext": Call(
        Op.SOFT_MAX, lambda m: [m.leaf(5, 3, 2), m.leaf(5, 3), 0.5, 4.0], lambda a, *rest: a.soft_max(*rest)
    ),
    "ggml_soft_max_ext_back": two(Op.SOFT_MAX_BACK, lambda a, b, scale, bias: a.soft_max_back(b, scale), 0.5, 0.0),
    "ggml_diag_mask_inf": one(Op.DIAG_MASK_INF, Tensor.diag_mask_inf, 1),
    "ggml_diag_mask_zero": one(Op.DIAG_MASK_ZERO, Tensor.diag_mask_zero, 1),
    "ggml_sum": one(Op.SUM, Tensor.sum),
    "ggml_sum_rows": one(Op.SUM_ROWS, Tensor.sum_rows),
    "ggml_mean": one(Op.MEAN, Tensor.mean),
    "ggml_cumsum": one(Op.CUMSUM, Tensor.cumsum),
    "ggml_argmax": one(Op.ARGMAX, Tensor.argmax),
    "ggml_count_equal": Call(
        Op.COUNT_EQUAL, lambda m: [m.integers([1, 2, 3]), m.integers([1, 0, 3])], Tensor.count_equal
    ),
    "ggml_argsort": one(Op.ARGSORT, Tensor.argsort, Order.DESC),
    "ggml_argsort_top_k": one(Op.TOP_K, Tensor.top_k, 2),
    "ggml_top_k": Call(
        Op.TOP_K, lambda m: [m.leaf(5, 3), 2], Tensor.top_k, "ggml gives the largest in no particular order"
    ),
    "ggml_get_rows": Call(Op.GET_ROWS, lambda m: [m.leaf(5, 4), m.integers([3, 0, 3])], Tensor.get_rows),
    "ggml_get_rows_back": Call(
        Op.GET_ROWS_BACK, lambda m: [m.leaf(5, 3), m.integers([3, 0, 3]), m.leaf(5, 4)], Tensor.get_rows_back
    ),
    "ggml_set_rows": Call(Op.SET_ROWS, lambda m: [m.leaf(5, 4), m.leaf(5, 2), m.integers([3, 0])], Tensor.set_rows),
    # Products
    "ggml_mul_mat": Call(Op.MUL_MAT, lambda m: [m.leaf(5, 4), m.leaf(5, 3)], Tensor.mul_mat),
    "ggml_mul_mat_id": Call(
        Op.MUL_MAT_ID,
        lambda m: [m.leaf(5, 3, 4), m.leaf(5, 1, 3), m.integers([[0, 3], [2, 0], [3, 1]])],
        Tensor.mul_mat_id,
    ),
    "ggml_out_prod": Call(Op.OUT_PROD, lambda m: [m.leaf(5, 4), m.leaf(3, 4)], Tensor.out_prod),
    # Layout
    "ggml_dup": one(Op.DUP, Tensor.dup),
    "ggml_cpy": Call(Op.CPY, lambda m: [m.leaf(5, 3), m.leaf(3, 5)], Tensor.cpy),
    "ggml_cast": Call(
        Op.CPY, lambda m: [m.leaf(5, 3), 1], lambda a, kind: a.cpy(a.context.tensor(kind, a.ne).set([0.0] * 15))
    ),
    "ggml_cont": Call(Op.CONT, lambda m: [m.leaf(5, 3).transpose()], Tensor.cont),
    **{
        f"ggml_cont_{len(ne)}d": Call(
            Op.CONT, lambda m, ne=ne: [m.leaf(5, 4, 3).transpose(), *ne], lambda a, *ne: a.cont().reshape(*ne)
        )
        for ne in ((60,), (10, 6), (2, 5, 6), (2, 5, 2, 3))
    },
    "ggml_reshape": Call(Op.RESHAPE, lambda m: [m.leaf(6, 4), m.leaf(3, 8)], lambda a, b: a.reshape(3, 8)),
    **{
        f"ggml_reshape_{len(ne)}d": Call(Op.RESHAPE, lambda m, ne=ne: [m.leaf(5, 4, 3), *ne], Tensor.reshape)
        for ne in ((60,), (10, 6), (2, 5, 6), (2, 5, 2, 3))
    },
    "ggml_view_1d": Call(Op.VIEW, lambda m: [m.leaf(5, 4, 3), 7, 8], lambda a, n, at: a.view((n,), (), at)),
    "ggml_view_2d": Call(Op.VIEW, lambda m: [m.leaf(5, 4, 3), 2, 3, 20, 8], lambda a, *p: a.view(p[:2], (20,), 8)),
    "ggml_view_3d": Call(
        Op.VIEW, lambda m: [m.leaf(5, 4, 3), 2, 3, 2, 20, 80, 8], lambda a, *p: a.view(p[:3], (20, 80), 8)
    ),
    "ggml_view_4d": Call(
        Op.VIEW,
        lambda m: [m.leaf(5, 4, 3, 2), 2, 3, 2, 1, 20, 80, 240, 8],
        lambda a, *p: a.view(p[:4], (20, 80, 240), 8),
    ),
    "ggml_permute": Call(Op.PERMUTE, lambda m: [m.leaf(5, 4, 3, 2), 2, 0, 3, 1], Tensor.permute),
    "ggml_transpose": one(Op.TRANSPOSE, Tensor.transpose),
    "ggml_repeat": Call(Op.REPEAT, lambda m: [m.leaf(5, 1), m.leaf(10, 3)], lambda a, b: a.repeat(10, 3)),
    "ggml_repeat_4d": Call(Op.REPEAT, lambda m: [m.leaf(5, 1), 10, 3, 2, 1], Tensor.repeat),
    "ggml_repeat_back": Call(Op.REPEAT_BACK, lambda m: [m.leaf(10, 3), m.leaf(5, 1)], lambda a, b: a.repeat_back(5, 1)),
    "ggml_concat": Call(Op.CONCAT, lambda m: [m.leaf(5, 3), m.leaf(5, 2), 1], Tensor.concat),
    "ggml_acc": Call(
        Op.ACC, lambda m: [m.leaf(6, 4), m.leaf(3, 2), 24, 96, 96, 28], lambda a, b, *p: a.acc(b, p[:3], p[3])
    ),
    "ggml_acc_inplace": Call(
        Op.ACC, lambda m: [m.leaf(6, 4), m.leaf(3, 2), 24, 96, 96, 28], lambda a, b, *p: a.acc_inplace(b, p[:3], p[3])
    ),
    "ggml_set": Call(
        Op.SET, lambda m: [m.leaf(6, 4), m.leaf(3, 2), 24, 96, 96, 28], lambda a, b, *p: a.set_part(b, p[:3], p[3])
    ),
    "ggml_set_1d": Call(Op.SET, lambda m: [m.leaf(6, 4), m.leaf(3), 28], lambda a, b, at: a.set_part(b, a.nb[1:], at)),
    "ggml_set_2d": Call(
        Op.SET,
        lambda m: [m.leaf(6, 4, 3), m.leaf(3, 2), 48, 28],
        lambda a, b, step, at: a.set_part(b, (step, *a.nb[2:]), at),
    ),
    "ggml_diag": Call(Op.DIAG, lambda m: [m.leaf(4, 1, 3)], Tensor.diag),
    "ggml_tri": Call(Op.TRI, lambda m: [m.leaf(4, 4), Triangle.LOWER], Tensor.tri),
    "ggml_pad": one(Op.PAD, Tensor.pad, 1, 2, 0, 1),
    "ggml_pad_circular": one(Op.PAD, lambda a, *p: a.pad(*p, circular=True), 1, 2, 0, 0),
    "ggml_pad_ext": one(Op.PAD, lambda a, *p: a.pad(*p[1::2], before=p[::2]), 1, 2, 3, 0, 0, 1, 1, 0),
    "ggml_pad_ext_circular": one(
        Op.PAD, lambda a, *p: a.pad(*p[1::2], before=p[::2], circular=True), 1, 2, 3, 0, 0, 1, 1, 0
    ),
    "ggml_roll": one(Op.ROLL, Tensor.roll, 2, -1, 0, 0),
}

# --- Along a sequence -------------------------------------------------------------------------------------------

_YARN = (64, 1000.0, 0.25, 0.8, 1.125, 16.0, 2.0)
_YARN_PARAMETERS = RopeParameters(6, RopeMode.NEOX, 1000.0, 0.25, 0.8, 1.125, 16.0, 2.0, 64)
_SECTIONS = (2, 1, 1, 0)
_SECTION_PARAMETERS = RopeParameters(8, RopeMode.NEOX, 1000.0, 0.25, 0.8, 1.125, 16.0, 2.0, 64, _SECTIONS)


def _rotated(m: Maker) -> list[Any]:
    return [m.leaf(8, 2, 3), m.integers([0, 3, 7]), m.leaf(3, low=1.0, high=2.0), 6, int(RopeMode.NEOX), *_YARN]


def _rotated_by_sections(m: Maker) -> list[Any]:
    places = m.integers([0, 1, 2, 5, 6, 7, 9, 4, 3, 0, 0, 0])
    return [m.leaf(8, 2, 3), places, None, 8, _SECTIONS, 40, *_YARN]


def _attended(m: Maker) -> list[Any]:
    mask = m.context.tensor("F16", (6, 3)).set(m.rng.uniform(-1, 1, (3, 6)))
    return [m.leaf(8, 3, 4), m.leaf(8, 6, 2), m.leaf(8, 6, 2), mask, 0.5, 4.0, 2.0]


def _attention_back(q: Tensor, k: Tensor, v: Tensor, d: Tensor, masked: bool) -> Tensor:
    ranges = q.context.tensor("I32", (2, 3)).set([[0, 4], [0, 5], [0, 6]])
    scale = 1 / math.sqrt(8)
    return d.flash_attn_back(q, k, v, q.flash_attn_ext(k, v, ranges, scale), ranges, scale)


def _delta(m: Maker) -> list[Any]:
    q, k, v = m.leaf(4, 2, 5), m.leaf(4, 2, 5), m.leaf(4, 6, 5)
    return [q, k, v, m.leaf(1, 6, 5, high=0.0), m.leaf(1, 6, 5, low=0.0), m.leaf(4, 4, 6), 1]


def _delta_net(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, snapshots: int) -> Tensor:
    y = q.gated_delta_net(k, v, g.reshape(6, 5), beta.reshape(6, 5), state)
    return y.reshape(24, 5).concat(state.reshape(24, 4), 1)


def _signal(a: Tensor, b: Tensor, *window: tuple[int, int]) -> Tensor:
    kernel, image = (t.reshape(t.ne[0], 1, t.ne[1], t.ne[2]) for t in (a, b))
    y = kernel.conv_2d(image, *window)
    return y.reshape(y.ne[0], y.ne[2], y.ne[3])


CALLS |= {
    "ggml_rope": Call(
        Op.ROPE,
        lambda m: [m.leaf(8, 2, 3), m.integers([0, 3, 7]), 6, int(RopeMode.NORM)],
        lambda a, b, n, mode: a.rope(b, RopeParameters(n, RopeMode(mode))),
    ),
    "ggml_rope_ext": Call(Op.ROPE, _rotated, lambda a, b, c, *rest: a.rope(b, _YARN_PARAMETERS, c)),
    "ggml_rope_ext_back": Call(Op.ROPE_BACK, _rotated, lambda a, b, c, *rest: a.rope_back(b, _YARN_PARAMETERS, c)),
    "ggml_rope_multi": Call(
        Op.ROPE, _rotated_by_sections, lambda a, b, c, *rest: a.rope(b.reshape(3, 4), _SECTION_PARAMETERS)
    ),
    "ggml_rope_multi_back": Call(
        Op.ROPE_BACK, _rotated_by_sections, lambda a, b, c, *rest: a.rope_back(b.reshape(3, 4), _SECTION_PARAMETERS)
    ),
    "ggml_flash_attn_ext": Call(
        Op.FLASH_ATTN_EXT,
        _attended,
        lambda q, k, v, mask, scale, bias, cap: q.flash_attn_ext(k, v, None, scale, cap, mask=mask, max_bias=bias),
    ),
    "ggml_flash_attn_back": Call(
        Op.FLASH_ATTN_BACK,
        lambda m: [m.leaf(8, 3, 4), m.leaf(8, 6, 2), m.leaf(8, 6, 2), m.leaf(8, 4, 3), True],
        _attention_back,
        "ggml's own function waits to be adapted to ggml_flash_attn_ext",
    ),
    "ggml_ssm_conv": Call(Op.SSM_CONV, lambda m: [m.leaf(8, 4, 2), m.leaf(3, 4)], Tensor.ssm_conv),
    "ggml_gated_delta_net": Call(Op.GATED_DELTA_NET, _delta, _delta_net),
    # Images
    "ggml_im2col": Call(
        Op.IM2COL,
        lambda m: [m.leaf(3, 2, 2, 3), m.leaf(6, 5, 2, 2), 2, 1, 1, 0, 1, 2, True, 0],
        lambda a, b, *rest: a.im2col(b, (2, 1), (1, 0), (1, 2)),
    ),
    "ggml_im2col_back": Call(
        Op.IM2COL_BACK,
        lambda m: [m.leaf(12, 3, 3, 2), m.leaf(3, 2, 2, 3), (6, 5, 2, 2), 2, 1, 1, 0, 1, 2, True],
        lambda g, a, ne, *rest: a.im2col_back(g, ne, (2, 1), (1, 0), (1, 2)),
    ),
    "ggml_conv_1d": Call(
        Op.CONV_2D,
        lambda m: [m.leaf(3, 2, 4), m.leaf(9, 2), 2, 1, 2],
        lambda a, b, *rest: _signal(a, b, (2, 1), (1, 0), (2, 1)),
    ),
    "ggml_conv_1d_ph": Call(
        Op.CONV_2D,
        lambda m: [m.leaf(3, 2, 4), m.leaf(9, 2), 2, 1],
        lambda a, b, *rest: _signal(a, b, (2, 1), (1, 0), (1, 1)),
    ),
    **{
        f"ggml_conv_2d{suffix}": Call(
            Op.CONV_2D,
            lambda m: [m.leaf(3, 2, 2, 3), m.leaf(6, 5, 2, 2), 2, 1, 1, 0, 1, 2],
            lambda a, b, *rest: a.conv_2d(b, (2, 1), (1, 0), (1, 2)),
        )
        for suffix in ("", "_direct")
    },
    "ggml_conv_2d_sk_p0": Call(
        Op.CONV_2D, lambda m: [m.leaf(3, 2, 2, 3), m.leaf(6, 6, 2, 2)], lambda a, b: a.conv_2d(b, (3, 2))
    ),
    "ggml_conv_2d_s1_ph": Call(
        Op.CONV_2D, lambda m: [m.leaf(3, 5, 2, 3), m.leaf(6, 6, 2, 2)], lambda a, b: a.conv_2d(b, padding=(1, 2))
    ),
    "ggml_pool_1d": Call(Op.POOL_1D, lambda m: [m.leaf(9, 2), Pool.MAX, 3, 2, 1], Tensor.pool_1d),
    "ggml_pool_2d": Call(
        Op.POOL_2D,
        lambda m: [m.leaf(6, 5, 2), Pool.AVG, 3, 2, 1, 2, 1.0, 0.0],
        lambda a, kind, *rest: a.pool_2d(kind, (3, 2), (1, 2), (1, 0)),
    ),
    "ggml_pool_2d_back": Call(
        Op.POOL_2D_BACK,
        lambda m: [m.leaf(6, 2, 2), m.leaf(6, 5, 2), Pool.MAX, 3, 2, 1, 2, 1.0, 0.0],
        lambda g, a, kind, *rest: g.pool_2d_back(a, kind, (3, 2), (1, 2), (1, 0)),
    ),
    "ggml_upscale": Call(
        Op.UPSCALE, lambda m: [m.leaf(3, 2, 2), 2, Interpolation.NEAREST], lambda a, *rest: a.upscale(6, 4, 2)
    ),
    "ggml_upscale_ext": Call(
        Op.UPSCALE,
        lambda m: [m.leaf(3, 2, 2), 7, 5, 2, 1, Interpolation.BILINEAR],
        lambda a, *rest: a.upscale(7, 5, 2, mode=Interpolation.BILINEAR),
    ),
    "ggml_interpolate": Call(
        Op.UPSCALE,
        lambda m: [m.leaf(3, 2, 2), 7, 5, 2, 1, Interpolation.BILINEAR | 256],
        lambda a, *rest: a.upscale(7, 5, 2, mode=Interpolation.BILINEAR, align_corners=True),
    ),
    # Learning
    "ggml_cross_entropy_loss": Call(
        Op.CROSS_ENTROPY_LOSS, lambda m: [m.leaf(5, 3), m.leaf(5, 3).soft_max()], Tensor.cross_entropy_loss
    ),
    "ggml_cross_entropy_loss_back": Call(
        Op.CROSS_ENTROPY_LOSS_BACK,
        lambda m: [m.leaf(1), m.leaf(5, 3), m.leaf(5, 3).soft_max()],
        Tensor.cross_entropy_loss_back,
    ),
    "ggml_opt_step_adamw": Call(
        Op.OPT_STEP_ADAMW,
        lambda m: [
            m.parameter(5, 3),
            m.leaf(5, 3),
            m.leaf(5, 3),
            m.leaf(5, 3, low=0.0),
            m.values([0.1, 0.9, 0.99, 1e-3, 0.01, 2.0, 3.0]),
        ],
        Tensor.opt_step_adamw,
    ),
    "ggml_opt_step_sgd": Call(
        Op.OPT_STEP_SGD,
        lambda m: [m.parameter(5, 3), m.leaf(5, 3), m.values([0.1, 0.01])],
        Tensor.opt_step_sgd,
    ),
}
