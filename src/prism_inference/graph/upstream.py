"""Operations by their names in ggml's C interface, with each C function's arguments after the context.

One table leads from a name to the method that makes the node; adaptors stand only where the order or the meaning of
arguments differs. What has no equal here is refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import GraphError, UnsupportedError
from ..gguf import tensor_type
from .graph import Graph
from .ops import Glu, Interpolation, Op, Order, RopeMode, Triangle, Unary
from .rope import RopeParameters
from .table import REFUSED
from .tensor import Context, Storage, Tensor

PRECISE = 10  # GGML_PREC_F32
ROPE_INTERLEAVED = 40  # GGML_ROPE_TYPE_IMROPE
ALIGN_CORNERS = 1 << 8  # GGML_SCALE_FLAG_ALIGN_CORNERS
GRAPH_SIZE = 2048  # GGML_DEFAULT_GRAPH_SIZE


@dataclass(frozen=True)
class Function:
    """The arguments of a C function after the context, by the names that ggml.h gives them, and what does its work."""

    arguments: str
    call: Callable[..., Any]

    @property
    def count(self) -> int:
        """How many arguments there are."""
        return len(self.arguments.split())


def find(name: str) -> Callable[..., Any]:
    """Return the function (context, *arguments) of a name in ggml's C interface, such as "ggml_mul_mat".

    Functions of C that take no context (ggml_set_param, ggml_build_forward_expand, …) take one here all the same.

    Raises:
        UnsupportedError: there is none of that name here; says why.
    """
    if name not in FUNCTIONS:
        raise _refusal(name)
    return partial(_call, name)


def _call(name: str, context: Context, *arguments: Any) -> Any:
    """Call a function of the table.

    Raises:
        GraphError: another number of arguments, a tensor of another context, or what the operation itself refuses.
        UnsupportedError: a value of an argument that is not supported here.
    """
    function = FUNCTIONS[name]
    if len(arguments) != function.count:
        raise GraphError(
            "wrong number of arguments", where=name, expected=f"({function.arguments})", found=len(arguments)
        )
    for argument in arguments:
        if isinstance(argument, Tensor | Graph) and argument.context is not context:
            raise GraphError("argument of another context", where=name, found=repr(argument))
    return function.call(context, *arguments)


def _refusal(name: str) -> UnsupportedError:
    bare = name.removeprefix("ggml_")
    refused = [op for op in REFUSED if bare.startswith(op.name.lower())]
    if refused:
        return UnsupportedError(REFUSED[max(refused, key=lambda op: len(op.name))], where=name)
    base = name.removesuffix("_inplace")
    if base in FUNCTIONS:
        return UnsupportedError(
            "results are tensors of their own here", where=name, hint=f"Call {base}: plans reuse memory by themselves."
        )
    close = get_close_matches(bare, [known.removeprefix("ggml_") for known in FUNCTIONS], n=1)
    return UnsupportedError(
        "no operation of this name is known here", where=name, hint=f"Did you mean ggml_{close[0]}?" if close else None
    )


# --- Rows of the table ------------------------------------------------------------------------------------


def _method(arguments: str, method: Callable[..., Any]) -> Function:
    """A method of the first argument that takes the others in the same order."""
    return Function(arguments, lambda context, *values: method(*values))


def _extents(count: int) -> str:
    return " ".join(f"ne{d}" for d in range(count))


def _new_tensor(context: Context, kind: str | int, dims: int, ne: Sequence[int]) -> Tensor:
    return context.tensor(kind, tuple(ne)[:dims])


def _cast(context: Context, a: Tensor, kind: str | int) -> Tensor:
    target = context.tensor(kind, a.ne)
    target.storage = Storage.allocate(target.nbytes)
    return a.cpy(target)


def _view(dims: int) -> Function:
    """ggml_view_1d … 4d: extents, the byte strides above the first, the offset."""

    def call(context: Context, a: Tensor, *values: int) -> Tensor:
        return a.view(values[:dims], values[dims:-1], values[-1])

    strides = [f"nb{d}" for d in range(1, dims)]
    return Function(" ".join(["a", _extents(dims), *strides, "offset"]), call)


def _shaped(dims: int, method: Callable[..., Tensor]) -> Function:
    """A tensor and its new extents."""
    return _method(f"a {_extents(dims)}", method)


def _contiguous(a: Tensor, *ne: int) -> Tensor:
    return a.cont().reshape(*ne)


def _placed(method: Callable[..., Tensor], dims: int = 4) -> Function:
    """ggml_acc and ggml_set: strides and offset one by one; the strides not given are the tensor's own."""

    def call(context: Context, a: Tensor, b: Tensor, *values: int) -> Tensor:
        nb = (*values[:-1], *a.nb[dims:])
        return method(a, b, nb, values[-1])

    return Function(" ".join(["a b", *(f"nb{d}" for d in range(1, dims)), "offset"]), call)


def _leaky_relu(context: Context, a: Tensor, slope: float, inplace: bool) -> Tensor:
    if inplace:
        raise UnsupportedError("results are tensors of their own here", where="ggml_leaky_relu", expected="inplace 0")
    return a.leaky_relu(slope)


def _xielu(context: Context, a: Tensor, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Tensor:
    """ggml takes the alphas before their soft-plus, and adds beta to the negative one."""
    negative, positive = (math.log1p(math.exp(-abs(x))) + max(x, 0.0) for x in (alpha_n, alpha_p))
    return a.xielu(beta + negative, positive, beta, eps)


def _gated(kind: Glu) -> dict[str, Function]:
    name = f"ggml_{kind.name.lower()}"
    return {
        name: Function("a", lambda context, a: a.glu(kind)),
        f"{name}_swapped": Function("a", lambda context, a: a.glu(kind, swapped=True)),
        f"{name}_split": Function("a b", lambda context, a, b: a.glu(kind, b)),
    }


def _set_precision(context: Context, product: Tensor, precision: int) -> None:
    if product.op not in (Op.MUL_MAT, Op.MUL_MAT_ID):
        raise GraphError("not a product", where="ggml_mul_mat_set_prec", found=repr(product))
    product.params = (precision == PRECISE,)


def _soft_max_sinks(context: Context, made: Tensor, sinks: Tensor | None) -> None:
    """The node's sources with sinks, as the method checks and orders them."""
    scores, mask, _ = made.sources if made.op is Op.SOFT_MAX else (None,) * 3
    if scores is None:
        raise GraphError("not a soft-max", where="ggml_soft_max_add_sinks", found=repr(made))
    scale, max_bias = made.params
    made.sources = scores.soft_max(mask, scale, max_bias, sinks).sources
    context.tensors.pop()


def _attention_sinks(context: Context, made: Tensor, sinks: Tensor | None) -> None:
    q, k, v, ranges, mask, _ = made.sources if made.op is Op.FLASH_ATTN_EXT else (None,) * 6
    if q is None or k is None or v is None:
        raise GraphError("not attention", where="ggml_flash_attn_ext_add_sinks", found=repr(made))
    scale, cap, max_bias = made.params
    made.sources = q.flash_attn_ext(k, v, ranges, scale, cap, mask=mask, sinks=sinks, max_bias=max_bias).sources
    context.tensors.pop()


def _attention(
    context: Context, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, max_bias: float, cap: float
) -> Tensor:
    return q.flash_attn_ext(k, v, None, scale, cap, mask=mask, max_bias=max_bias)


def _attention_back(context: Context, q: Tensor, k: Tensor, v: Tensor, d: Tensor, masked: bool) -> Tensor:
    """The gradients of q, k and v one after the other, for the gradient d of the attention's result.

    ggml's own function waits to be adapted to ggml_flash_attn_ext; this is it with that one's shapes, scores divided by
    the root of the head size and, where `masked`, each token seeing itself and those before it.
    """
    tokens, before = int(q.ne[1]), int(k.ne[1] - q.ne[1])
    ranges = None
    if masked:
        ranges = context.tensor("I32", (2, tokens)).set([[0, before + token + 1] for token in range(tokens)])
    scale = 1.0 / math.sqrt(q.ne[0])
    return d.flash_attn_back(q, k, v, q.flash_attn_ext(k, v, ranges, scale), ranges, scale)


# --- Rotary embedding -----------------------------------------------------------------------------------------


def _parameters(mode: int, sections: Sequence[int], numbers: Sequence[float]) -> RopeParameters:
    """Ours of ggml's (n_dims, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow)."""
    n_dims, n_ctx_orig, *floats = numbers
    if mode == ROPE_INTERLEAVED and sections:
        order = RopeMode.NEOX
    elif mode in list(RopeMode) and not sections:
        order = RopeMode(mode)
    else:
        raise UnsupportedError(
            "this rotary mode is not known here",
            where="mode",
            expected=f"{[int(m) for m in RopeMode]}, with sections {ROPE_INTERLEAVED}",
            found=mode,
        )
    base, scale, extension, magnitude, fast, slow = map(float, floats)
    return RopeParameters(
        int(n_dims), order, base, scale, extension, magnitude, fast, slow, int(n_ctx_orig), tuple(sections)
    )


_PLAIN = (0, 10000.0, 1.0, 0.0, 1.0, 0.0, 0.0)
_WINDOW = "s0 s1 p0 p1 d0 d1"
_NUMBERS = "n_ctx_orig freq_base freq_scale ext_factor attn_factor beta_fast beta_slow"


def _rope(context: Context, a: Tensor, b: Tensor, n_dims: int, mode: int) -> Tensor:
    return a.rope(b, _parameters(mode, (), (n_dims, *_PLAIN)))


def _rope_extended(method: Callable[..., Tensor]) -> Function:
    def call(
        context: Context, a: Tensor, b: Tensor, c: Tensor | None, n_dims: int, mode: int, *numbers: float
    ) -> Tensor:
        return method(a, b, _parameters(mode, (), (n_dims, *numbers)), c)

    return Function(f"a b c n_dims mode {_NUMBERS}", call)


def _rope_multi(method: Callable[..., Tensor]) -> Function:
    """Positions are four numbers per token, one channel after the other."""

    def call(
        context: Context,
        a: Tensor,
        b: Tensor,
        c: Tensor | None,
        n_dims: int,
        sections: Sequence[int],
        mode: int,
        *numbers: float,
    ) -> Tensor:
        return method(a, b.reshape(a.ne[2], 4), _parameters(mode, sections, (n_dims, *numbers)), c)

    return Function(f"a b c n_dims sections mode {_NUMBERS}", call)


# --- Images -----------------------------------------------------------------------------------------------------


def _im2col(context: Context, a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    *window, two_d, kind = rest
    stride, padding, dilation = _pairs(window)
    made = a.im2col(b, stride, padding, dilation, bool(two_d))
    return made if tensor_type(kind) == made.type else _cast(context, made, kind)


def _im2col_back(context: Context, a: Tensor, b: Tensor, ne: Sequence[int], *rest: Any) -> Tensor:
    """ggml.h names the kernel first; the C function takes the gradient first."""
    *window, two_d = rest
    stride, padding, dilation = _pairs(window)
    return b.im2col_back(a, ne, stride, padding, dilation, bool(two_d))


def _pairs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """s0, s1, p0, p1, … as pairs."""
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _conv_2d(context: Context, a: Tensor, b: Tensor, *window: int) -> Tensor:
    return a.conv_2d(b, *_pairs(window))


def _conv_1d(context: Context, a: Tensor, b: Tensor, stride: int, padding: int, dilation: int) -> Tensor:
    """A kernel [K, C, OC] and signals [W, C, N] as images of height 1: [OW, OC, N]. (ggml's own function puts the
    values of several signals in another order than its extents say.)"""
    kernel, image = (t.reshape(t.ne[0], 1, t.ne[1], t.ne[2]) for t in (a, b))
    made = kernel.conv_2d(image, (stride, 1), (padding, 0), (dilation, 1))
    return made.reshape(made.ne[0], made.ne[2], made.ne[3])


def _pool_2d(method: Callable[..., Tensor], arguments: str) -> Function:
    def call(context: Context, *values: Any) -> Tensor:
        *tensors, kind, k0, k1, s0, s1, p0, p1 = values
        if p0 != int(p0) or p1 != int(p1):
            raise UnsupportedError("padding by parts of a value is not known here", where="padding", found=(p0, p1))
        return method(*tensors, kind, (k0, k1), (s0, s1), (int(p0), int(p1)))

    return Function(f"{arguments} op k0 k1 s0 s1 p0 p1", call)


def _upscale(context: Context, a: Tensor, factor: int, mode: int) -> Tensor:
    return _interpolate(context, a, a.ne[0] * factor, a.ne[1] * factor, *a.ne[2:], mode)


def _interpolate(context: Context, a: Tensor, *values: int) -> Tensor:
    *ne, mode = values
    kind = mode & ~ALIGN_CORNERS
    if kind not in list(Interpolation):
        raise UnsupportedError(
            "this mode of interpolation is not known here",
            where="mode",
            expected=f"{[int(m) for m in Interpolation]}, with {ALIGN_CORNERS} to align corners",
            found=mode,
        )
    return a.upscale(*ne, mode=Interpolation(kind), align_corners=bool(mode & ALIGN_CORNERS))


# --- Recurrence -------------------------------------------------------------------------------------------------


def _gated_delta_net(
    context: Context, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, snapshots: int
) -> Tensor:
    """The results, then the last state, in one tensor; the state given stays as it is."""
    size, heads, tokens, sequences = v.ne
    if snapshots != 1 or g.ne[0] != 1 or sequences != 1:
        raise UnsupportedError(
            "this form of the delta rule is not known here",
            where="ggml_gated_delta_net",
            expected="K 1, one gate per head and one sequence",
            found=f"K {snapshots}, g {g.ne}, {sequences} sequences",
        )
    matrix = state.cont()
    gate, share = (t.reshape(heads, tokens) for t in (g, beta))
    y = q.gated_delta_net(k, v, gate, share, matrix.reshape(size, size, heads))
    return y.reshape(size * heads, tokens).concat(matrix.reshape(size * heads, size), 1)


# --- Graphs -----------------------------------------------------------------------------------------------------


def _set_name(context: Context, tensor: Tensor, name: str) -> Tensor:
    tensor.name = name
    return tensor


def _build_backward(context: Context, graph: Graph, accumulators: Mapping[Tensor, Tensor] | None) -> None:
    graph.build_backward(accumulators)


FUNCTIONS: dict[str, Function] = {
    # Tensors
    "ggml_new_tensor": Function("type n_dims ne", _new_tensor),
    **{
        f"ggml_new_tensor_{dims}d": Function(
            f"type {_extents(dims)}", lambda context, kind, *ne: context.tensor(kind, ne)
        )
        for dims in (1, 2, 3, 4)
    },
    "ggml_dup_tensor": Function("src", lambda context, a: context.tensor(a.type.id, a.ne)),
    "ggml_view_tensor": Function("src", lambda context, a: a.view(a.ne, a.nb[1:])),
    "ggml_set_name": Function("tensor name", _set_name),
    "ggml_set_input": _method("tensor", Tensor.mark_input),
    "ggml_set_output": _method("tensor", Tensor.mark_output),
    "ggml_set_param": _method("tensor", Tensor.mark_parameter),
    "ggml_set_loss": _method("tensor", Tensor.mark_loss),
    # Graphs
    "ggml_new_graph": Function("", lambda context: Graph(context, GRAPH_SIZE)),
    "ggml_new_graph_custom": Function("size grads", Graph),
    "ggml_build_forward_expand": _method("cgraph tensor", Graph.expand),
    "ggml_build_backward_expand": Function("cgraph grad_accs", _build_backward),
    "ggml_graph_reset": _method("cgraph", Graph.reset),
    "ggml_graph_compute_with_ctx": _method("cgraph n_threads", Graph.compute),
    "ggml_graph_get_grad": _method("cgraph node", Graph.gradient),
    "ggml_graph_get_grad_acc": _method("cgraph node", Graph.gradient_accumulator),
    "ggml_graph_n_nodes": Function("cgraph", lambda context, graph: len(graph.nodes)),
    "ggml_graph_node": Function("cgraph i", lambda context, graph, i: graph.nodes[i]),
    # Element by element
    "ggml_add": _method("a b", Tensor.add),
    "ggml_add_inplace": _method("a b", Tensor.add_inplace),
    "ggml_add1": _method("a b", Tensor.add1),
    "ggml_add_id": _method("a b ids", Tensor.add_id),
    "ggml_sub": _method("a b", Tensor.sub),
    "ggml_mul": _method("a b", Tensor.mul),
    "ggml_div": _method("a b", Tensor.div),
    "ggml_scale": _method("a s", Tensor.scale),
    "ggml_scale_bias": _method("a s b", Tensor.scale),
    "ggml_sqr": _method("a", Tensor.sqr),
    "ggml_sqrt": _method("a", Tensor.sqrt),
    "ggml_log": _method("a", Tensor.log),
    "ggml_sin": _method("a", Tensor.sin),
    "ggml_cos": _method("a", Tensor.cos),
    "ggml_clamp": _method("a min max", Tensor.clamp),
    "ggml_leaky_relu": Function("a negative_slope inplace", _leaky_relu),
    "ggml_fill": _method("a c", Tensor.fill),
    "ggml_arange": Function("start stop step", Context.arange),
    "ggml_unary": Function("a op", lambda context, a, op: a.unary(Unary(op))),
    **{
        f"ggml_{kind.name.lower()}": Function("a", lambda context, a, kind=kind: a.unary(kind))
        for kind in Unary
        if kind is not Unary.XIELU
    },
    "ggml_xielu": Function("a alpha_n alpha_p beta eps", _xielu),
    "ggml_silu_back": _method("a b", Tensor.silu_back),
    "ggml_glu": Function("a op swapped", lambda context, a, op, swapped: a.glu(Glu(op), swapped=bool(swapped))),
    "ggml_glu_split": Function("a b op", lambda context, a, b, op: a.glu(Glu(op), b)),
    **{name: row for kind in Glu if kind is not Glu.SWIGLU_OAI for name, row in _gated(kind).items()},
    "ggml_swiglu_oai": _method("a b alpha limit", Tensor.swiglu_oai),
    # Rows
    "ggml_norm": _method("a eps", Tensor.norm),
    "ggml_rms_norm": _method("a eps", Tensor.rms_norm),
    "ggml_l2_norm": _method("a eps", Tensor.l2_norm),
    "ggml_group_norm": _method("a n_groups eps", Tensor.group_norm),
    "ggml_rms_norm_back": _method("a b eps", Tensor.rms_norm_back),
    "ggml_soft_max": _method("a", Tensor.soft_max),
    "ggml_soft_max_ext": _method("a mask scale max_bias", Tensor.soft_max),
    "ggml_soft_max_add_sinks": Function("a sinks", _soft_max_sinks),
    # A bias is part of the result that this reads: the way back needs no more of it.
    "ggml_soft_max_ext_back": Function(
        "a b scale max_bias", lambda context, a, b, scale, max_bias: a.soft_max_back(b, scale)
    ),
    "ggml_diag_mask_inf": _method("a n_past", Tensor.diag_mask_inf),
    "ggml_diag_mask_zero": _method("a n_past", Tensor.diag_mask_zero),
    "ggml_sum": _method("a", Tensor.sum),
    "ggml_sum_rows": _method("a", Tensor.sum_rows),
    "ggml_mean": _method("a", Tensor.mean),
    "ggml_cumsum": _method("a", Tensor.cumsum),
    "ggml_argmax": _method("a", Tensor.argmax),
    "ggml_count_equal": _method("a b", Tensor.count_equal),
    "ggml_argsort": Function("a order", lambda context, a, order: a.argsort(Order(order))),
    "ggml_argsort_top_k": _method("a k", Tensor.top_k),
    "ggml_top_k": _method("a k", Tensor.top_k),
    "ggml_get_rows": _method("a b", Tensor.get_rows),
    "ggml_get_rows_back": _method("a b c", Tensor.get_rows_back),
    "ggml_set_rows": _method("a b c", Tensor.set_rows),
    # Products
    "ggml_mul_mat": _method("a b", Tensor.mul_mat),
    "ggml_mul_mat_id": _method("as b ids", Tensor.mul_mat_id),
    "ggml_mul_mat_set_prec": Function("a prec", _set_precision),
    "ggml_out_prod": _method("a b", Tensor.out_prod),
    # Layout
    "ggml_dup": _method("a", Tensor.dup),
    "ggml_cpy": _method("a b", Tensor.cpy),
    "ggml_cast": Function("a type", _cast),
    "ggml_cont": _method("a", Tensor.cont),
    **{f"ggml_cont_{dims}d": _shaped(dims, _contiguous) for dims in (1, 2, 3, 4)},
    "ggml_reshape": Function("a b", lambda context, a, b: a.reshape(*b.ne)),
    **{f"ggml_reshape_{dims}d": _shaped(dims, Tensor.reshape) for dims in (1, 2, 3, 4)},
    **{f"ggml_view_{dims}d": _view(dims) for dims in (1, 2, 3, 4)},
    "ggml_permute": _method("a axis0 axis1 axis2 axis3", Tensor.permute),
    "ggml_transpose": _method("a", Tensor.transpose),
    "ggml_repeat": Function("a b", lambda context, a, b: a.repeat(*b.ne)),
    "ggml_repeat_4d": _shaped(4, Tensor.repeat),
    "ggml_repeat_back": Function("a b", lambda context, a, b: a.repeat_back(*b.ne)),
    "ggml_concat": _method("a b dim", Tensor.concat),
    "ggml_acc": _placed(Tensor.acc),
    "ggml_acc_inplace": _placed(Tensor.acc_inplace),
    "ggml_set": _placed(Tensor.set_part),
    "ggml_set_1d": _placed(Tensor.set_part, 1),
    "ggml_set_2d": _placed(Tensor.set_part, 2),
    "ggml_diag": _method("a", Tensor.diag),
    "ggml_tri": Function("a type", lambda context, a, part: a.tri(Triangle(part))),
    "ggml_pad": _method("a p0 p1 p2 p3", Tensor.pad),
    "ggml_pad_circular": Function("a p0 p1 p2 p3", lambda context, a, *after: a.pad(*after, circular=True)),
    **{
        f"ggml_pad_ext{suffix}": Function(
            "a lp0 rp0 lp1 rp1 lp2 rp2 lp3 rp3",
            lambda context, a, *sizes, circular=bool(suffix): a.pad(*sizes[1::2], before=sizes[::2], circular=circular),
        )
        for suffix in ("", "_circular")
    },
    "ggml_roll": _method("a shift0 shift1 shift2 shift3", Tensor.roll),
    # Along a sequence
    "ggml_rope": Function("a b n_dims mode", _rope),
    "ggml_rope_ext": _rope_extended(Tensor.rope),
    "ggml_rope_ext_back": _rope_extended(Tensor.rope_back),
    "ggml_rope_multi": _rope_multi(Tensor.rope),
    "ggml_rope_multi_back": _rope_multi(Tensor.rope_back),
    "ggml_flash_attn_ext": Function("q k v mask scale max_bias logit_softcap", _attention),
    "ggml_flash_attn_ext_add_sinks": Function("a sinks", _attention_sinks),
    "ggml_flash_attn_ext_set_prec": Function("a prec", lambda context, a, prec: None),  # always float32 here
    "ggml_flash_attn_back": Function("q k v d masked", _attention_back),
    "ggml_ssm_conv": _method("sx c", Tensor.ssm_conv),
    "ggml_gated_delta_net": Function("q k v g beta state K", _gated_delta_net),
    # Images
    "ggml_im2col": Function("a b s0 s1 p0 p1 d0 d1 is_2D dst_type", _im2col),
    "ggml_im2col_back": Function("grad a ne s0 s1 p0 p1 d0 d1 is_2D", _im2col_back),
    "ggml_conv_1d": Function("a b s0 p0 d0", _conv_1d),
    "ggml_conv_1d_ph": Function(
        "a b s d", lambda context, a, b, s, d: _conv_1d(context, a, b, s, int(a.ne[0]) // 2, d)
    ),
    "ggml_conv_2d": Function(f"a b {_WINDOW}", _conv_2d),
    "ggml_conv_2d_direct": Function(f"a b {_WINDOW}", _conv_2d),
    "ggml_conv_2d_sk_p0": Function("a b", lambda context, a, b: a.conv_2d(b, (a.ne[0], a.ne[1]))),
    "ggml_conv_2d_s1_ph": Function("a b", lambda context, a, b: a.conv_2d(b, padding=(a.ne[0] // 2, a.ne[1] // 2))),
    "ggml_pool_1d": _method("a op k0 s0 p0", Tensor.pool_1d),
    "ggml_pool_2d": _pool_2d(Tensor.pool_2d, "a"),
    "ggml_pool_2d_back": _pool_2d(Tensor.pool_2d_back, "a af"),
    "ggml_upscale": Function("a scale_factor mode", _upscale),
    "ggml_upscale_ext": Function("a ne0 ne1 ne2 ne3 mode", _interpolate),
    "ggml_interpolate": Function("a ne0 ne1 ne2 ne3 mode", _interpolate),
    # Learning
    "ggml_cross_entropy_loss": _method("a b", Tensor.cross_entropy_loss),
    "ggml_cross_entropy_loss_back": _method("grad a b", Tensor.cross_entropy_loss_back),
    "ggml_opt_step_adamw": _method("a grad m v adamw_params", Tensor.opt_step_adamw),
    "ggml_opt_step_sgd": _method("a grad sgd_params", Tensor.opt_step_sgd),
}
