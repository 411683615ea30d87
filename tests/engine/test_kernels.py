"""Every kernel against its NumPy twin (the interpreter), for each instruction set, with one thread and with two.

A case builds a graph; its outputs are compared with the interpreter's. The last test fails if a kernel has no case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from op_cases import all_cases

from helpers import random_rows
from prism_inference.engine.objects import library
from prism_inference.engine.run import Executable
from prism_inference.engine.team import team
from prism_inference.gguf import tensor_type
from prism_inference.graph import Context, Graph, RopeMode, RopeParameters, Storage, Tensor
from prism_inference.graph.interpret import interpret
from prism_inference.kernels import table
from prism_inference.kernels.target import target
from prism_inference.plan import make_plan
from prism_inference.plan.layouts import QUANTIZED as QUANTIZED_TYPES
from tolerances import ATTENTION, ELEMENTS, FUNCTIONS, QUANTIZED, SUMS, Tolerance, check


@dataclass
class Case:
    """A graph to build and the budget of its result."""

    name: str
    build: Callable[[Context, np.random.Generator], Tensor]
    tolerance: Tolerance


def normal(ctx: Context, rng: np.random.Generator, *ne: int, kind: str = "F32", scale: float = 1.0) -> Tensor:
    return ctx.tensor(kind, ne).set(rng.standard_normal(tuple(reversed(ne))) * scale)


def integers(ctx: Context, values: object) -> Tensor:
    array = np.asarray(values, np.int32)
    return ctx.tensor("I32", tuple(reversed(array.shape))).set(array)


def weights(ctx: Context, rng: np.random.Generator, kind: str, *ne: int) -> Tensor:
    rows = int(np.prod(ne[1:]))
    return ctx.tensor(kind, ne, storage=Storage(random_rows(kind, ne[0], rows, rng)))


def elementwise_cases() -> list[Case]:
    shapes = [
        ((16,), (16,)),
        ((37, 3), (37,)),
        ((5, 4, 3, 2), (5, 4, 3, 2)),
        ((6, 4, 3), (1, 4)),
        ((300, 2, 2), (300, 1, 2)),
    ]
    cases = []
    for a, b in shapes:
        for op in ("add", "mul", "div"):
            cases.append(
                Case(
                    f"{op} {a} {b}",
                    lambda ctx, rng, a=a, b=b, op=op: getattr(normal(ctx, rng, *a), op)(normal(ctx, rng, *b)),
                    ELEMENTS,
                )
            )
    for ne in ((7,), (16, 2), (700, 3), (257, 2, 2)):
        cases += [
            Case(f"scale {ne}", lambda ctx, rng, ne=ne: normal(ctx, rng, *ne).scale(-1.5, 0.25), ELEMENTS),
            Case(
                f"swiglu {ne}",
                lambda ctx, rng, ne=ne: normal(ctx, rng, *ne, scale=8).swiglu(normal(ctx, rng, *ne)),
                FUNCTIONS,
            ),
            Case(
                f"geglu {ne}",
                lambda ctx, rng, ne=ne: normal(ctx, rng, *ne, scale=3).geglu(normal(ctx, rng, *ne)),
                FUNCTIONS,
            ),
            Case(f"rms_norm {ne}", lambda ctx, rng, ne=ne: normal(ctx, rng, *ne).rms_norm(1e-5), SUMS),
            Case(
                f"rms_norm_mul {ne}",
                lambda ctx, rng, ne=ne: normal(ctx, rng, *ne).rms_norm(1e-6).mul(normal(ctx, rng, ne[0])),
                SUMS,
            ),
        ]
    cases.append(
        Case("add strided", lambda ctx, rng: normal(ctx, rng, 5, 7).transpose().add(normal(ctx, rng, 7, 5)), ELEMENTS)
    )
    cases.append(Case("scale strided", lambda ctx, rng: normal(ctx, rng, 5, 7).transpose().scale(2.0), ELEMENTS))
    return cases


def copy_cases() -> list[Case]:
    cases = []
    for source in ("F32", "F16", "BF16"):
        for result in ("F32", "F16"):

            def copied(ctx, rng, source=source, result=result):
                a = weights(ctx, rng, source, 21, 4, 3)
                return a.permute(1, 0, 2, 3).cpy(normal(ctx, rng, 4, 63, kind=result)).view((4, 63), ())

            def straight(ctx, rng, source=source, result=result):
                a = weights(ctx, rng, source, 50, 4)
                return a.cpy(normal(ctx, rng, 50, 4, kind=result)).view((50, 4), ())

            cases += [
                Case(f"copy {source} {result} permuted", copied, ELEMENTS),
                Case(f"copy {source} {result}", straight, ELEMENTS),
            ]
    for result in ("F32", "F16", "Q8_0", "Q4_0"):

        def rows(ctx, rng, result=result):
            index = integers(ctx, rng.permutation(9)[:4])
            return normal(ctx, rng, 64, 9, 3, kind=result).set_rows(
                normal(ctx, rng, 64, 3, 4).permute(0, 2, 1, 3), index
            )

        cases.append(Case(f"set_rows {result}", rows, ELEMENTS))
    return cases


def product_cases() -> list[Case]:
    cases = []
    for kind in (*QUANTIZED_TYPES, "F32", "F16", "BF16"):
        block = tensor_type(kind).block
        least = max(block, 64)
        sizes = [block, 5 * block, 3 * 256] if block > 1 else [1, 31, 96, 200]
        for k in sizes:
            for m, n in ((1, 1), (33, 3), (7, 4), (5, 70), (70, 11)):

                def product(ctx, rng, kind=kind, k=k, m=m, n=n):
                    return weights(ctx, rng, kind, k, m).mul_mat(normal(ctx, rng, k, n))

                cases.append(Case(f"mul_mat {kind} k{k} m{m} n{n}", product, SUMS if block == 1 else QUANTIZED))

        def huge(ctx, rng, kind=kind, k=least):
            return weights(ctx, rng, kind, k, 6).mul_mat(normal(ctx, rng, k, 3, scale=1e9))

        def faint(ctx, rng, kind=kind, k=least):
            return weights(ctx, rng, kind, k, 6).mul_mat(normal(ctx, rng, k, 3, scale=1e-9))

        def batched(ctx, rng, kind=kind, k=least):
            return weights(ctx, rng, kind, k, 6, 2).mul_mat(normal(ctx, rng, k, 5, 4, 3))

        def looked_up(ctx, rng, kind=kind, k=3 * block):
            return weights(ctx, rng, kind, k, 11).get_rows(integers(ctx, [3, 10, 0, 3, 7]))

        cases.append(Case(f"mul_mat {kind} huge", huge, QUANTIZED))
        cases.append(Case(f"mul_mat {kind} faint", faint, QUANTIZED))
        cases.append(Case(f"mul_mat {kind} batched", batched, QUANTIZED))
        cases.append(Case(f"get_rows {kind}", looked_up, Tolerance(0.0, "decoding is exact")))
    return cases


def rope_cases() -> list[Case]:
    parameters = {
        "norm": RopeParameters(32, RopeMode.NORM, 10000.0),
        "neox": RopeParameters(32, RopeMode.NEOX, 1e6),
        "partial": RopeParameters(12, RopeMode.NEOX, 500.0),
        "partial norm": RopeParameters(12, RopeMode.NORM, 500.0),
        "linear": RopeParameters(32, RopeMode.NEOX, 1e4, scale=0.25),
        "yarn": RopeParameters(32, RopeMode.NEOX, 1e6, scale=0.25, extension=1.0, original_context=64),
        "yarn norm": RopeParameters(
            32, RopeMode.NORM, 1e4, scale=0.5, extension=0.7, magnitude=1.1, original_context=2048
        ),
    }
    cases = []
    for name, p in parameters.items():
        for factors in (False, True):

            def rotated(ctx, rng, p=p, factors=factors):
                positions = integers(ctx, [0, 1, 5, 4095, 130_000])
                divisors = (
                    ctx.tensor("F32", (p.rotated // 2,)).set(rng.uniform(1, 8, p.rotated // 2)) if factors else None
                )
                return normal(ctx, rng, 32, 3, 5).rope(positions, p, divisors)

            cases.append(Case(f"rope {name}{' factors' if factors else ''}", rotated, SUMS))

    def sections(ctx, rng):
        p = RopeParameters(32, RopeMode.NEOX, 1e4, sections=(6, 5, 4, 0))
        return normal(ctx, rng, 40, 3, 5).rope(integers(ctx, rng.integers(0, 50, (4, 5))), p)

    cases.append(Case("rope sections", sections, SUMS))
    return cases


def attention_cases() -> list[Case]:
    cases = []
    for kind in ("F32", "F16", "Q8_0", "Q4_0"):
        for d, dv, heads, shared in ((64, 64, 4, 2), (16, 16, 3, 3), (20, 36, 2, 1), (128, 256, 2, 1)):
            if kind.startswith("Q") and (d % 32 or dv % 32):
                continue
            for window in (1000, 5):

                def attended(ctx, rng, kind=kind, d=d, dv=dv, heads=heads, shared=shared, window=window):
                    tokens, cells = 6, 40
                    last = np.array([1, 7, 16, 17, 33, 40])
                    ranges = np.stack([np.maximum(0, last - window), last], 1)
                    keys, values = (normal(ctx, rng, size, cells, shared, kind=kind) for size in (d, dv))
                    queries = normal(ctx, rng, d, heads, tokens).permute(0, 2, 1, 3)
                    cap = 2.0 if window == 5 else 0.0
                    return queries.flash_attn_ext(keys, values, integers(ctx, ranges), d**-0.5, cap)

                cases.append(Case(f"attention {kind} d{d} dv{dv} h{heads}/{shared} w{window}", attended, ATTENTION))
    return cases


def hadamard_cases() -> list[Case]:
    cases = []
    for block in (1, 2, 8, 16, 32, 64, 256, 1024):
        for signed in (False, True):
            for inverse in (False, True):

                def turned(ctx, rng, block=block, signed=signed, inverse=inverse):
                    n = 3 * block
                    signs = ctx.tensor("F32", (n,)).set(rng.choice([-1.0, 1.0], n)) if signed else None
                    return normal(ctx, rng, n, 3, 2).hadamard(block, signs, inverse=inverse)

                cases.append(Case(f"hadamard {block} signs {signed} inverse {inverse}", turned, SUMS))
    for kind in ("PQ2_0", "Q8_0"):
        for signed in (False, True):

            def product(ctx, rng, kind=kind, signed=signed):
                signs = ctx.tensor("F32", (512,)).set(rng.choice([-1.0, 1.0], 512)) if signed else None
                x = normal(ctx, rng, 512, 5).hadamard(256, signs)
                return weights(ctx, rng, kind, 512, 7).mul_mat(x).add(weights(ctx, rng, kind, 512, 7).mul_mat(x))

            cases.append(Case(f"rotated product {kind} signs {signed}", product, QUANTIZED))
    return cases


def unary_cases() -> list[Case]:
    return [
        Case(f"{name} {ne}", lambda ctx, rng, n=name, ne=ne: getattr(normal(ctx, rng, *ne, scale=6), n)(), FUNCTIONS)
        for name in ("sigmoid", "silu", "softplus", "tanh")
        for ne in ((7,), (64, 3), (100, 2, 2))
    ]


def recurrent_cases() -> list[Case]:
    """The states begin with something, and are themselves results: see `test_states_are_updated_in_place`."""
    cases = []
    for channels, tokens, taps in ((16, 1, 4), (50, 9, 4), (160, 2, 2), (33, 5, 3)):

        def convolved(ctx, rng, channels=channels, tokens=tokens, taps=taps):
            state = normal(ctx, rng, channels, taps - 1)
            return normal(ctx, rng, channels, tokens).causal_conv(normal(ctx, rng, taps, channels), state)

        cases.append(Case(f"causal_conv c{channels} t{tokens} k{taps}", convolved, FUNCTIONS))
    for size, width, shared, heads, tokens in (
        (16, 16, 2, 6, 1),
        (16, 20, 2, 4, 7),
        (128, 128, 1, 3, 5),
        (20, 8, 3, 3, 12),
    ):

        def delta(ctx, rng, size=size, width=width, shared=shared, heads=heads, tokens=tokens):
            q, k = (normal(ctx, rng, size, shared, tokens, scale=size**-0.5) for _ in range(2))
            gate = ctx.tensor("F32", (heads, tokens)).set(-rng.uniform(0, 2, (tokens, heads)))
            beta = ctx.tensor("F32", (heads, tokens)).set(rng.uniform(0, 1, (tokens, heads)))
            state = normal(ctx, rng, size, width, heads)
            return q.gated_delta_net(k, normal(ctx, rng, width, heads, tokens), gate, beta, state)

        cases.append(Case(f"gated_delta_net s{size} v{width} h{shared}/{heads} t{tokens}", delta, SUMS))
    return cases


def expert_cases() -> list[Case]:
    cases = []
    for ne in ((7,), (64, 3), (100, 2, 2)):
        cases += [
            Case(f"soft_max {ne}", lambda ctx, rng, ne=ne: normal(ctx, rng, *ne, scale=4).soft_max(), FUNCTIONS),
            Case(f"sum_rows {ne}", lambda ctx, rng, ne=ne: normal(ctx, rng, *ne).sum_rows(), ELEMENTS),
        ]
    for ne, count in (((7,), 7), ((64, 3), 8), ((100, 2, 2), 1)):

        def largest(ctx, rng, ne=ne, count=count):
            return ctx.tensor("F32", ne).set(rng.integers(-9, 9, tuple(reversed(ne)))).top_k(count)

        cases.append(Case(f"top_k {ne} {count}", largest, Tolerance(0.0, "indices")))
    for kind in (*QUANTIZED_TYPES, "F32", "F16", "BF16"):
        k = max(64, tensor_type(kind).block)
        for shared, tokens in ((True, 1), (False, 5)):

            def picked(ctx, rng, kind=kind, k=k, shared=shared, tokens=tokens):
                x = normal(ctx, rng, k, 1 if shared else 3, tokens)
                index = integers(ctx, np.stack([rng.permutation(6)[:3] for _ in range(tokens)]))
                return weights(ctx, rng, kind, k, 9, 6).mul_mat_id(x, index)

            cases.append(Case(f"mul_mat_id {kind} shared {shared}", picked, QUANTIZED))
    return cases


CASES = [
    *expert_cases(),
    *unary_cases(),
    *recurrent_cases(),
    *hadamard_cases(),
    *elementwise_cases(),
    *copy_cases(),
    *product_cases(),
    *rope_cases(),
    *attention_cases(),
]
SEEN: set[str] = set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_equals_twin(case: Case, rng: np.random.Generator) -> None:
    ctx = Context()
    result = case.build(ctx, rng).mark_output()
    graph = Graph(ctx)
    graph.expand(result)
    expected = interpret(graph)[result.index].reshape(result.shape)
    states = {leaf.index: leaf.storage.array.copy() for leaf in graph.leafs if leaf.storage is not None}
    for isa in sorted({"generic", target().isa}):
        outcomes = []
        for threads in (1, 2):
            executable = Executable(make_plan(graph, isa), team(threads), library())
            SEEN.update(executable.plan.kernels())
            for leaf in graph.leafs:  # some are written: every run begins with the same bytes
                leaf.storage.array[:] = states[leaf.index]
            executable.run()
            outcomes.append(result.numpy())
            check(outcomes[-1], expected, case.tolerance)
        np.testing.assert_array_equal(outcomes[0], outcomes[1], "the number of threads changed a result")


@pytest.mark.parametrize("name", ["causal_conv c50 t9 k4", "gated_delta_net s16 v20 h2/4 t7"])
def test_states_are_updated_in_place(name: str, rng: np.random.Generator) -> None:
    """One run over all tokens leaves the state, and gives the results, of a run for each token."""
    case = next(case for case in CASES if case.name == name)
    ctx = Context()
    whole = case.build(ctx, rng)
    inputs, state = whole.sources[:-1], whole.sources[-1]
    begin = state.numpy()
    graph = Graph(ctx)
    graph.expand(whole)
    graph.compute(2)
    expected, end = whole.numpy(), state.numpy()
    state.set(begin)
    tokens = expected.shape[0]
    for t in range(tokens):
        one = Context()
        parts = []
        for leaf in inputs:
            values = leaf.numpy()
            varying = values.shape[0] == tokens
            values = values[t : t + 1] if varying else values
            ne = (*leaf.ne[: len(values.shape) - 1], 1) if varying else leaf.ne
            parts.append(one.tensor("F32", ne).set(values))
        kept = one.tensor("F32", state.ne, storage=state.storage)
        step = getattr(parts[0], name.partition(" ")[0])(*parts[1:], kept)
        single = Graph(one)
        single.expand(step)
        single.compute(1)
        np.testing.assert_array_equal(step.numpy().reshape(-1), expected[t].reshape(-1))
    np.testing.assert_array_equal(state.numpy(), end)
    assert np.abs(end - begin).max() > 0.01


def test_every_kernel_has_a_case() -> None:
    """The cases here, and those of the operations (`tests/graph/op_cases`)."""
    if len(SEEN) == 0:
        pytest.skip("runs after the cases only")
    able = {"generic", target().isa}
    planned = {key for case in all_cases() for isa in able for key in make_plan(case.graph()[0], isa).kernels()}
    mine = {key for key in table.all_keys() if key.partition("@")[2] in {"", *able} and not key.startswith("executor.")}
    assert mine - SEEN - planned == set()
