"""Lifetimes, the arena, and where barriers are needed. Knows no kernels.

Regions are placed in the order in which steps define them, each in the smallest gap that fits; a region's bytes are
free again after the last step that reads them.
"""

from __future__ import annotations

from bisect import insort

from .steps import Operand, Plan, Region, Step

ALIGNMENT = 64  # one cache line, one vector


def lay_out(steps: list[Step]) -> Plan:
    """Give every arena region its offset and every step its barrier flag."""
    regions = _lifetimes(steps)
    arena = _place(regions, len(steps))
    _barriers(steps)
    scratch = max((step.scratch for step in steps), default=0)
    return Plan(steps, regions, arena, -(-scratch // ALIGNMENT) * ALIGNMENT)


def _lifetimes(steps: list[Step]) -> list[Region]:
    regions: dict[int, Region] = {}
    for number, step in enumerate(steps):
        for operand in step.operands:
            region = operand.region
            if id(region) not in regions:
                regions[id(region)] = region
                region.first = number
            region.last = number
    return list(regions.values())


def _place(regions: list[Region], count: int) -> int:
    """Assign offsets; return the size of the arena."""
    ends: list[list[Region]] = [[] for _ in range(count + 1)]
    starts: list[list[Region]] = [[] for _ in range(count + 1)]
    for region in regions:
        if not region.fixed:
            starts[region.first].append(region)
            if not region.pinned:
                ends[region.last].append(region)
    free: list[tuple[int, int]] = []  # (offset, size), in order of offset
    top = 0
    for number in range(count):
        for region in starts[number]:
            size = -(-max(region.nbytes, 1) // ALIGNMENT) * ALIGNMENT
            fitting = [(length, offset) for offset, length in free if length >= size]
            if fitting:
                length, offset = min(fitting)
                free.remove((offset, length))
                if length > size:
                    insort(free, (offset + size, length - size))
            else:
                # Grow the arena, starting in the gap at its end if there is one.
                offset = top
                if free and free[-1][0] + free[-1][1] == top:
                    offset = free.pop()[0]
                top = offset + size
            region.offset = offset
        for region in ends[number]:
            _release(free, region.offset, -(-max(region.nbytes, 1) // ALIGNMENT) * ALIGNMENT)
    return top


def _release(free: list[tuple[int, int]], offset: int, size: int) -> None:
    """Return bytes to the free list, joined with neighbouring gaps."""
    insort(free, (offset, size))
    place = free.index((offset, size))
    if place + 1 < len(free) and offset + size == free[place + 1][0]:
        size += free.pop(place + 1)[1]
        free[place] = (offset, size)
    if place > 0 and free[place - 1][0] + free[place - 1][1] == offset:
        before = free[place - 1]
        free[place - 1] = (before[0], before[1] + size)
        free.pop(place)


def _barriers(steps: list[Step]) -> None:
    """Set each step's flag: it needs a barrier if it touches bytes that a step since the last barrier wrote, or writes
    bytes that one of them read."""
    read: list[tuple[int, int, int]] = []
    written: list[tuple[int, int, int]] = []
    for number, step in enumerate(steps):
        spans = [_span(operand) for operand in step.operands]
        results, sources = spans[: step.written], spans[step.written :]
        clash = any(_overlaps(span, written) for span in spans) or any(_overlaps(result, read) for result in results)
        step.barrier = number == 0 or clash
        if step.barrier:
            read, written = [], []
        written += results
        read += sources


def _span(operand: Operand) -> tuple[int, int, int]:
    """Return (space, first byte, last byte + 1): the arena is one space, every fixed region one of its own."""
    if operand.region.fixed:
        return id(operand.region), operand.offset, operand.offset + operand.nbytes
    start = operand.region.offset + operand.offset
    return 0, start, start + operand.nbytes


def _overlaps(span: tuple[int, int, int], others: list[tuple[int, int, int]]) -> bool:
    space, start, end = span
    return any(space == other[0] and start < other[2] and other[1] < end for other in others)
