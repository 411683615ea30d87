"""The scan for strings finds what a plain walk finds, whatever the strings hold."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_inference.gguf.scan import scan_strings

LONGEST = 100_000


def walk(data: bytes, position: int, end: int, items: int, longest: int) -> tuple[list[int], list[int], int]:
    """The definition: a length of eight bytes, then that many bytes, and so on."""
    starts: list[int] = []
    ends: list[int] = []
    while len(starts) < items:
        if position + 8 > end:
            break
        length = int.from_bytes(data[position : position + 8], "little")
        if length > longest or position + 8 + length > end:
            break
        starts.append(position + 8)
        position += 8 + length
        ends.append(position)
    return starts, ends, position


def assert_same(data: bytes, position: int, end: int, items: int, longest: int = LONGEST) -> None:
    starts, ends, stop = scan_strings(memoryview(data), position, end, items, longest)
    assert (starts.tolist(), ends.tolist(), stop) == walk(data, position, end, items, longest)


def packed(strings: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(item)) + item for item in strings)


ZEROS = st.integers(0, 40).map(bytes)
TEXTS = st.one_of(
    st.binary(max_size=20),
    ZEROS,
    st.sampled_from([b"", b"ab", b"x" * 255, b"y" * 256, b"z" * 700, struct.pack("<Q", 3)]),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(TEXTS, max_size=60),
    st.binary(max_size=9),
    st.binary(max_size=30),
    st.integers(-3, 3),
    st.sampled_from([5, 254, 255, 256, 699, LONGEST]),
)
def test_any_strings(strings: list[bytes], before: bytes, after: bytes, surplus: int, longest: int) -> None:
    data = before + packed(strings) + after
    assert_same(data, len(before), len(data), max(0, len(strings) + surplus), longest)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 50), st.integers(0, 300))
def test_any_bytes(data: bytes, items: int, longest: int) -> None:
    assert_same(data, 0, len(data), items, longest)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=20), st.data())
def test_an_end_anywhere(strings: list[bytes], data: st.DataObject) -> None:
    raw = packed(strings)
    assert_same(raw, 0, data.draw(st.integers(0, len(raw))), len(strings))


MANY = {
    "short": [b"abc"] * 200_000,
    "growing": [b"x" * (number % 256) for number in range(20_000)],
    "all empty": [b""] * 50_000,
    "a long one now and then": [b"x" * (300 if number % 1000 == 999 else 5) for number in range(100_000)],
    "an empty one now and then": [b"" if number % 77 == 0 else b"abcd" for number in range(100_000)],
    "zeros inside": [bytes(number % 20) for number in range(50_000)],
    "all long": [b"x" * 300] * 5_000,
    "what looks like lengths": [struct.pack("<QQ", 1, 2)] * 50_000,
}
assert MANY


@pytest.mark.parametrize("name", MANY)
def test_many_strings(name: str) -> None:
    data = packed(MANY[name])
    assert_same(data, 0, len(data), len(MANY[name]))
