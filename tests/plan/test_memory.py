"""Arena and barriers against brute force, on random programs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from prism_inference.graph import Storage
from prism_inference.plan.memory import ALIGNMENT, lay_out
from prism_inference.plan.steps import Operand, Region, Step


def whole(region: Region) -> Operand:
    n = region.nbytes
    return Operand(region, 0, (n, 1, 1, 1), (1, n, n, n), n)


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Steps that each write a new region, or an older one again, and read some older ones."""
    import numpy as np

    regions = [Region(64, "leaf", storage=Storage(np.zeros(64, np.uint8)))]
    steps = []
    for number in range(draw(st.integers(1, 25))):
        if len(regions) > 2 and draw(st.integers(0, 4)) == 0:
            target = draw(st.sampled_from(regions))
        else:
            target = Region(draw(st.integers(1, 500)), f"r{number}", pinned=draw(st.integers(0, 5)) == 0)
            regions.append(target)
        sources = draw(st.lists(st.sampled_from([r for r in regions if r is not target] or regions), max_size=3))
        steps.append(Step("k", (whole(target), *map(whole, sources))))
    return steps


@given(programs())
@settings(max_examples=200, deadline=None)
def test_live_regions_never_overlap(steps: list[Step]) -> None:
    plan = lay_out(steps)
    arena = [region for region in plan.regions if not region.fixed]
    for region in arena:
        assert region.offset % ALIGNMENT == 0
        assert region.offset >= 0
        assert region.offset + region.nbytes <= plan.arena
    for number, a in enumerate(arena):
        for b in arena[number + 1 :]:
            last_a = len(steps) if a.pinned else a.last
            last_b = len(steps) if b.pinned else b.last
            if a.first <= last_b and b.first <= last_a:
                apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
                assert apart, (a, b)


@given(programs())
@settings(max_examples=200, deadline=None)
def test_conflicting_steps_are_parted_by_a_barrier(steps: list[Step]) -> None:
    lay_out(steps)

    def touched(operand: Operand) -> set[tuple[int, int]]:
        base = 0 if operand.region.fixed else operand.region.offset
        space = id(operand.region) if operand.region.fixed else 0
        return {(space, base + byte) for byte in range(operand.nbytes)}

    writes = [touched(step.operands[0]) for step in steps]
    reads = [set().union(*(touched(o) for o in step.operands[1:])) for step in steps]
    for later in range(len(steps)):
        for earlier in range(later):
            conflict = writes[later] & (writes[earlier] | reads[earlier]) or reads[later] & writes[earlier]
            if conflict:
                assert any(step.barrier for step in steps[earlier + 1 : later + 1])


def test_memory_is_reused() -> None:
    regions = [Region(1000, str(number)) for number in range(50)]
    steps = [Step("k", (whole(regions[0]),))]
    steps += [Step("k", (whole(b), whole(a))) for a, b in pairwise(regions)]
    assert lay_out(steps).arena == 2 * 1024
