"""Cases of what runs along a sequence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prism_inference.graph import Op, RopeMode, RopeParameters, Tensor
from tolerances import ATTENTION, FUNCTIONS, SUMS

from . import Maker, OpCase

CASES: list[OpCase] = []


def case(op: Op, name: str, *, tolerance: object = SUMS, smooth: bool = True) -> Callable[..., None]:
    """Record a case whose build function follows."""

    def record(build: Callable[[Maker], Tensor]) -> None:
        CASES.append(OpCase(op, name, build, tolerance, smooth))

    return record


# --- Rotary embedding -----------------------------------------------------------------------------------

ROPES = {
    "norm": RopeParameters(8, RopeMode.NORM, 10000.0),
    "neox": RopeParameters(8, RopeMode.NEOX, 1e6),
    "partial norm": RopeParameters(6, RopeMode.NORM, 500.0),
    "partial neox": RopeParameters(6, RopeMode.NEOX, 500.0),
    "linear": RopeParameters(8, RopeMode.NEOX, 1e4, scale=0.25),
    "yarn neox": RopeParameters(8, RopeMode.NEOX, 1e6, scale=0.25, extension=1.0, original_context=64),
    "yarn norm": RopeParameters(8, RopeMode.NORM, 1e4, scale=0.5, extension=0.7, magnitude=1.1, original_context=2048),
}


def rope_cases() -> None:
    for op in (Op.ROPE, Op.ROPE_BACK):
        for name, p in ROPES.items():
            for factors in (False, True):

                def turned(m: Maker, op: Op = op, p: RopeParameters = p, factors: bool = factors) -> Tensor:
                    divisors = m.leaf(p.rotated // 2, low=1.0, high=8.0) if factors else None
                    x = m.parameter(8, 2, 3)
                    turn = x.rope if op is Op.ROPE else x.rope_back
                    return turn(m.integers([0, 5, 130_000]), p, divisors)

                case(op, f"{name}{' factors' if factors else ''}")(turned)

        def sections(m: Maker, op: Op = op) -> Tensor:
            p = RopeParameters(10, RopeMode.NEOX, 1e4, sections=(2, 1, 1, 0))
            x = m.parameter(12, 2, 3)
            turn = x.rope if op is Op.ROPE else x.rope_back
            return turn(m.integers(m.rng.integers(0, 50, (4, 3))), p)

        def strided(m: Maker, op: Op = op) -> Tensor:
            p = RopeParameters(40, RopeMode.NORM if op is Op.ROPE else RopeMode.NEOX)
            x = m.leaf(5, 3, 44, 2).permute(1, 2, 0, 3)
            turn = x.rope if op is Op.ROPE else x.rope_back
            return turn(m.integers([3, 1, 4000]), p)

        case(op, "sections")(sections)
        case(op, "strided and wide", smooth=False)(strided)

    @case(Op.ROPE_BACK, "undoes the rotation")
    def _(m: Maker) -> Tensor:
        p, places = ROPES["neox"], m.integers([7, 90])
        return m.parameter(8, 3, 2).rope(places, p).rope_back(places, p)


rope_cases()


# --- Walsh-Hadamard rotation ------------------------------------------------------------------------------


def hadamard_cases() -> None:
    for block in (1, 2, 16, 32):
        for signed in (False, True):
            for inverse in (False, True):

                def turned(m: Maker, block: int = block, signed: bool = signed, inverse: bool = inverse) -> Tensor:
                    n = 2 * block
                    signs = m.values(m.rng.choice([-1.0, 1.0], n)) if signed else None
                    return m.parameter(n, 2).hadamard(block, signs, inverse=inverse)

                name = f"{block}{' signs' if signed else ''}{' inverse' if inverse else ''}"
                case(Op.HADAMARD, name)(turned)

    @case(Op.HADAMARD, "permuted")
    def _(m: Maker) -> Tensor:
        return m.parameter(3, 16, 2).permute(1, 0, 2, 3).hadamard(4)


hadamard_cases()


# --- Attention ------------------------------------------------------------------------------------------


class Attention:
    """Builds attention of some tokens over cells: every option of the operation, in one place."""

    def __init__(self, tokens: int, heads: int, shared: int, d: int, dv: int, **options: object) -> None:
        self.tokens, self.heads, self.shared, self.d, self.dv = tokens, heads, shared, d, dv
        self.options = options

    def __call__(self, m: Maker) -> Tensor:
        o, tokens = self.options, self.tokens
        leaf = m.parameter if o.get("trained", True) else m.leaf
        cells, batches = int(o.get("cells", tokens)), int(o.get("batches", 1))
        # Heads lie inside tokens, as in a model.
        q = leaf(self.d, self.heads, tokens, batches).permute(0, 2, 1, 3)
        kind = str(o.get("kind", "computed"))
        keys, values = (self._cache(m, kind, width, cells, batches) for width in (self.d, self.dv))
        mask = self._mask(m, cells) if "mask" in o else None
        sinks = leaf(self.heads) if o.get("sinks") else None
        ranges = m.integers(o["ranges"]) if "ranges" in o else None
        return q.flash_attn_ext(
            keys,
            values,
            ranges,
            self.d**-0.5,
            float(o.get("cap", 0.0)),
            mask=mask,
            sinks=sinks,
            max_bias=float(o.get("max_bias", 0.0)),
        )

    def _mask(self, m: Maker, cells: int) -> Tensor:
        """Random numbers; closed where token and cell add up to a multiple of `closed`, and for one token everywhere if
        there are many."""
        o, tokens = self.options, self.tokens
        values = m.rng.uniform(-1, 1, (*reversed(o["mask"]), tokens, cells))
        if "closed" in o:
            hidden = np.add.outer(np.arange(tokens), np.arange(cells)) % int(o["closed"]) == 0
            hidden[20:21] = True
            values = np.where(hidden, -np.inf, values)
        return m.context.tensor("F16" if o.get("half") else "F32", tuple(reversed(values.shape))).set(values)

    def _cache(self, m: Maker, kind: str, width: int, cells: int, batches: int) -> Tensor:
        if kind == "computed":
            leaf = m.parameter if self.options.get("trained", True) else m.leaf
            return leaf(width, self.shared, cells, batches).scale(1.5).permute(0, 2, 1, 3)
        if kind == "F32" and self.options.get("trained", True):
            return m.parameter(width, cells, self.shared, batches)
        values = m.rng.uniform(-1, 1, (batches, self.shared, cells, width))
        return m.context.tensor(kind, (width, cells, self.shared, batches)).set(values)


def causal(tokens: int, length: int, window: int = 1 << 20) -> list[list[int]]:
    """Ranges of packed sequences of some length, each token seeing itself and at most `window - 1` before it."""
    return [[max(t // length * length, t + 1 - window), t + 1] for t in range(tokens)]


def attention_cases() -> None:
    small = {
        "causal": Attention(5, 2, 2, 4, 4, ranges=causal(5, 5)),
        "without ranges": Attention(3, 2, 1, 4, 6, cells=5),
        "two sequences, shared keys": Attention(6, 3, 1, 4, 2, ranges=causal(6, 3)),
        "window and cap": Attention(5, 2, 1, 4, 4, ranges=[[0, 2], [0, 3], [1, 4], [2, 5], [3, 5]], cap=0.7),
        "two groups": Attention(4, 4, 2, 3, 5, ranges=causal(4, 4)),
        "mask": Attention(4, 2, 1, 4, 4, mask=()),
        "mask per head, bias": Attention(4, 2, 2, 3, 3, mask=(2,), max_bias=8.0),
        "closed mask and ranges": Attention(
            3, 3, 1, 3, 3, cells=6, mask=(), closed=3, half=True, ranges=[[0, 4], [1, 6], [2, 6]]
        ),
        "sinks": Attention(4, 2, 1, 4, 4, ranges=causal(4, 2), sinks=True),
        "sinks, mask and cap": Attention(3, 4, 2, 3, 3, sinks=True, mask=(), cap=0.5),
        "batches": Attention(3, 2, 1, 3, 3, batches=2, ranges=causal(3, 3), sinks=True),
        "leaves": Attention(5, 2, 1, 4, 4, kind="F32", ranges=causal(5, 5)),
        "leaves, masked": Attention(4, 2, 2, 4, 3, kind="F32", mask=(), sinks=True, cap=0.9),
        "over F16 keys": Attention(4, 4, 2, 4, 4, kind="F16", cells=9, ranges=[[0, 3], [2, 9], [0, 1], [5, 8]]),
    }
    for name, build in small.items():
        case(Op.FLASH_ATTN_EXT, name, tolerance=ATTENTION)(build)
    wide = {
        f"{kind} {name}": Attention(*shape, kind=kind, trained=False, **options)
        for kind in ("computed", "F32", "F16", "Q8_0", "Q4_0")
        for name, shape, options in (
            ("packed", (70, 4, 2, 64, 32), {"ranges": causal(70, 23)}),
            ("masked", (37, 2, 1, 32, 64), {"mask": (2,), "sinks": True, "max_bias": 4.0}),
            ("closed", (33, 2, 2, 32, 32), {"mask": (), "closed": 3, "cap": 2.0, "cells": 150}),
        )
    }
    # Runs of cells that nobody sees between those of two tokens, and a token that sees nothing.
    gaps = [[200, 260], [0, 5], [5, 5], [64, 128], [250, 300]] * 8
    wide |= {
        "computed odd sizes": Attention(45, 3, 3, 20, 36, trained=False, ranges=causal(45, 45, 7)),
        "computed gaps": Attention(40, 2, 1, 16, 16, trained=False, cells=300, ranges=gaps),
        "computed long": Attention(600, 2, 1, 16, 48, trained=False, ranges=causal(600, 600)),
        "computed batches": Attention(35, 2, 1, 16, 16, trained=False, batches=2, mask=(1, 2)),
    }
    for name, build in wide.items():
        case(Op.FLASH_ATTN_EXT, name, tolerance=ATTENTION, smooth=False)(build)
        if build.options.get("kind") not in ("Q8_0", "Q4_0"):
            case(Op.FLASH_ATTN_BACK, name, tolerance=ATTENTION, smooth=False)(way_back(build))


def way_back(build: Attention) -> Callable[[Maker], Tensor]:
    def gradient(m: Maker) -> Tensor:
        y = build(m)
        q, k, v, ranges, mask, sinks = y.sources
        scale, cap, max_bias = y.params
        g = m.leaf(*y.ne)
        return g.flash_attn_back(q, k, v, y, ranges, scale, cap, mask=mask, sinks=sinks, max_bias=max_bias)

    return gradient


attention_cases()


# --- Convolution and the delta rule -------------------------------------------------------------------------


def convolution_cases() -> None:
    for channels, tokens, taps, sequences in ((3, 4, 2, 1), (5, 3, 4, 2), (18, 1, 3, 2)):

        def convolved(
            m: Maker, channels: int = channels, tokens: int = tokens, taps: int = taps, sequences: int = sequences
        ) -> Tensor:
            return m.parameter(channels, tokens, sequences).causal_conv(m.parameter(taps, channels))

        def along(
            m: Maker, channels: int = channels, tokens: int = tokens, taps: int = taps, sequences: int = sequences
        ) -> Tensor:
            return m.parameter(taps - 1 + tokens, channels, sequences).ssm_conv(m.parameter(taps, channels))

        def inputs(
            m: Maker, channels: int = channels, tokens: int = tokens, taps: int = taps, sequences: int = sequences
        ) -> Tensor:
            return m.parameter(channels, tokens, sequences).ssm_conv_back(m.parameter(taps, channels), 0)

        def weights(
            m: Maker, channels: int = channels, tokens: int = tokens, taps: int = taps, sequences: int = sequences
        ) -> Tensor:
            x = m.parameter(taps - 1 + tokens, channels, sequences)
            return m.parameter(channels, tokens, sequences).ssm_conv_back(x, 1)

        name = f"{channels} channels, {tokens} tokens, {taps} taps, {sequences} sequences"
        case(Op.CAUSAL_CONV, name, tolerance=FUNCTIONS)(convolved)
        case(Op.SSM_CONV, name)(along)
        case(Op.SSM_CONV_BACK, f"inputs, {name}")(inputs)
        case(Op.SSM_CONV_BACK, f"weights, {name}")(weights)

    @case(Op.CAUSAL_CONV, "with a state", tolerance=FUNCTIONS, smooth=False)
    def _(m: Maker) -> Tensor:
        return m.leaf(50, 9).causal_conv(m.leaf(4, 50), m.leaf(50, 3))

    for channels, tokens, taps, sequences in ((50, 70, 4, 2), (16, 1, 2, 1), (33, 130, 5, 3)):

        def back(
            m: Maker, channels: int = channels, tokens: int = tokens, taps: int = taps, sequences: int = sequences
        ) -> Tensor:
            x, g = (m.leaf(tokens, channels, sequences).permute(1, 0, 2, 3) for _ in range(2))
            return g.causal_conv_back(x, m.leaf(taps, channels, low=-2.0, high=2.0))

        case(Op.CAUSAL_CONV_BACK, f"{channels} × {tokens}, {taps} taps", tolerance=FUNCTIONS, smooth=False)(back)


convolution_cases()


def delta_operands(
    m: Maker, leaf: Callable[..., Tensor], size: int, width: int, shared: int, heads: int, tokens: int, sequences: int
) -> list[Tensor]:
    """Queries, keys, values, gates below 0, betas between 0 and 1."""
    reach = size**-0.5
    q, k = (leaf(size, shared, tokens, sequences, low=-reach, high=reach) for _ in range(2))
    v = leaf(width, heads, tokens, sequences)
    return [q, k, v, leaf(heads, tokens, sequences, low=-2.0, high=0.0), leaf(heads, tokens, sequences, low=0.0)]


def delta_cases() -> None:
    for shape in ((3, 2, 1, 1, 4, 1), (2, 3, 2, 4, 3, 1), (4, 2, 1, 3, 2, 2), (5, 3, 2, 2, 2, 1)):

        def rule(m: Maker, shape: tuple[int, ...] = shape) -> Tensor:
            q, *rest = delta_operands(m, m.parameter, *shape)
            return q.gated_delta_net(*rest)

        case(Op.GATED_DELTA_NET, "S {} V {} h {}/{} {} tokens × {}".format(*shape))(rule)
    for shape in ((16, 16, 2, 6, 1, 1), (20, 40, 1, 3, 17, 2), (128, 32, 2, 2, 50, 1)):

        def wide(m: Maker, shape: tuple[int, ...] = shape) -> Tensor:
            q, *rest = delta_operands(m, m.leaf, *shape)
            return q.gated_delta_net(*rest)

        def back(m: Maker, shape: tuple[int, ...] = shape) -> Tensor:
            sources = delta_operands(m, m.leaf, *shape)
            return m.leaf(*sources[2].ne).gated_delta_net_back(*sources)

        name = "S {} V {} h {}/{} {} tokens × {}".format(*shape)
        case(Op.GATED_DELTA_NET, f"wide {name}", smooth=False)(wide)
        case(Op.GATED_DELTA_NET_BACK, name, smooth=False)(back)

    @case(Op.GATED_DELTA_NET, "with a state", smooth=False)
    def _(m: Maker) -> Tensor:
        q, *rest = delta_operands(m, m.leaf, 20, 12, 2, 4, 7, 1)
        return q.gated_delta_net(*rest, m.leaf(20, 12, 4))


delta_cases()
