"""The merge engine that all vocabulary kinds share: join the best pair of neighbours until no pair is in the table.

Knows byte strings and priorities only: neither tokens nor ids. A heap keeps the cost at n log n for any input; ties go
to the leftmost pair, as in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

SPACE_MARK = "▁"  # U+2581: how SentencePiece spells a space inside tokens
_MARK = SPACE_MARK.encode()
_BETWEEN = b"\xff"  # never part of UTF-8, so that no match runs from one key into the next


def merge(symbols: list[bytes], priorities: Mapping[bytes, float], joint: bytes) -> list[bytes]:
    """Join neighbouring symbols, the pair with the lowest priority first.

    Args:
        symbols: the pieces to start from, in order; used up by the call.
        priorities: the pairs that may be joined; the key of a pair is `left + joint + right`.
        joint: `b" "` where the table holds merge rules ("left right"), `b""` where it holds the joined texts.

    Returns:
        The remaining pieces, in order; joined they are what the symbols were.
    """
    find = priorities.get
    count = len(symbols)
    following = list(range(1, count + 1))
    preceding = list(range(-1, count - 1))
    heap: list[tuple[float, int, bytes, bytes]] = []
    for index in range(count - 1):
        left, right = symbols[index], symbols[index + 1]
        if (priority := find(left + joint + right)) is not None:
            heap.append((priority, index, left, right))
    heapify(heap)
    while heap:
        _, index, left, right = heappop(heap)
        neighbour = following[index]
        if symbols[index] != left or neighbour >= count or symbols[neighbour] != right:
            continue  # one of the two has been joined to another symbol meanwhile
        symbols[index] = left = left + right
        symbols[neighbour] = b""
        after = following[index] = following[neighbour]
        if after < count:
            preceding[after] = index
            right = symbols[after]
            if (priority := find(left + joint + right)) is not None:
                heappush(heap, (priority, index, left, right))
        before = preceding[index]
        if before >= 0:
            right, left = left, symbols[before]
            if (priority := find(left + joint + right)) is not None:
                heappush(heap, (priority, before, left, right))
    return [symbol for symbol in symbols if symbol]


def boundary_pattern(keys: Iterable[bytes], joint: bytes) -> re.Pattern[str]:
    """Return a zero-width pattern of the places in marked text that no joined pair can span.

    Such a place lies before a space mark whose left neighbour is followed by a mark in no key. Cutting there leaves the
    result of `merge` unchanged, keeps the heaps small, and makes words repeat, so that they can be remembered.

    Args:
        keys: the keys of a priority table, in UTF-8.
        joint: the joint of these keys.
    """
    text = _BETWEEN.join(keys)
    if joint:
        text = text.replace(joint, b"")
    # Most marks open a key; taking these away first leaves few places to look at.
    befores = text.replace(_BETWEEN + _MARK, _BETWEEN).split(_MARK)[:-1]
    joined = {SPACE_MARK}
    for before in befores:
        if before and not before.endswith(_BETWEEN):
            joined.add(before[-4:].decode(errors="ignore")[-1:])
    return re.compile(f"(?<=[^{re.escape(''.join(sorted(joined)))}])(?={SPACE_MARK})")
