"""Malformed files: each is refused with a typed error for the right reason, fast, and without taking memory.

The list follows the handcrafted cases of ggml's own test of its reader, the public reports of faults in other readers
(named where they apply), and the rules that a safe reader keeps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ggml_reader import read_all
from handmade import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    TENSOR_F32,
    TENSOR_Q2_0,
    TENSOR_Q2_0_G128,
    U8,
    U16,
    U32,
    U64,
    array,
    file,
    laid_out,
    pair,
    scalar,
    shard,
    shard_name,
    string,
    tensor,
    u32,
    u64,
)
from resident import peak_memory

from prism_inference import gguf, limits
from prism_inference.errors import FormatError, LimitError, PrismError, UnsupportedError

SECONDS = 0.050
MEMORY = 16 * limits.MIB
NAME = "general.name"
ALIGN = "general.alignment"
ONE = laid_out([("a", (8,), TENSOR_F32)])[0]
DATA = bytes(32)
MIB_STRING = limits.GGUF_MAX_STRING_BYTES


@dataclass(frozen=True)
class Case:
    """A file, and the error that it must meet: its type, and what its text must say; its name and others beside it."""

    raw: bytes
    error: type[PrismError]
    says: str
    name: str = "hostile.gguf"
    beside: Mapping[str, bytes] = field(default_factory=dict)


def fault(raw: bytes, says: str) -> Case:
    return Case(raw, FormatError, says)


def excess(raw: bytes, says: str) -> Case:
    return Case(raw, LimitError, says)


def unknown(raw: bytes, says: str) -> Case:
    return Case(raw, UnsupportedError, says)


def one_key(value: bytes, key: str | bytes = NAME) -> bytes:
    return file([pair(key, value)])


def one_tensor(row: bytes, data: bytes = DATA, pairs: list[bytes] | None = None, alignment: int = 32) -> bytes:
    return file(pairs or [], [row], data, alignment=alignment)


def typed(number: int) -> bytes:
    return one_tensor(tensor("a", (256,), number, 0), bytes(1024), [pair(NAME, scalar(STRING, "somebody's model"))])


HEADERS = {
    "empty file": fault(b"", "the file is empty"),
    "one byte": fault(b"G", "the file ends too early"),
    "magic alone": fault(b"GGUF", "version: the file ends too early"),
    "other magic": fault(file(magic=b"GGXF"), "not a GGUF file"),
    "magic in small letters": fault(file(magic=b"gguf"), "not a GGUF file"),
    "older format": fault(file(magic=b"tjgg"), "older than GGUF"),
    "web page": fault(b"<!DOCTYPE html><html></html>", "web page"),
    "pointer of git lfs": fault(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    "zip archive": fault(b"PK\x03\x04" + bytes(40), "zip archive"),
    "only zeros": fault(bytes(64), "not a GGUF file"),
    "version 0": unknown(file(version=0), "version 0"),
    "version 1": unknown(file(version=1), "found version 1"),
    "version 4": unknown(file(version=4), "found version 4"),
    "version of all ones": unknown(file(version=2**32 - 1), "found version 4294967295"),
    "big-endian 2": unknown(file(version=2 << 24), "found big-endian, version 2"),
    "big-endian 3": unknown(file(version=3 << 24), "found big-endian, version 3"),
    "ends after the version": fault(b"GGUF" + u32(3), "number of tensors: the file ends too early"),
    "ends within the tensor count": fault(b"GGUF" + u32(3) + bytes(5), "number of tensors: the file ends too early"),
    "ends within the key count": fault(b"GGUF" + u32(3) + bytes(12), "number of keys: the file ends too early"),
    "tensors 2^64-1": excess(file(tensor_count=2**64 - 1), "number of tensors: too many items"),
    "tensors 2^63": excess(file(tensor_count=2**63), "number of tensors: too many items"),
    "tensors whose size wraps (CVE-2024-21836)": excess(file(tensor_count=2**61 + 1), "found 2305843009213693953"),
    "tensors above the limit": excess(file(tensor_count=100_001), "expected at most 100000, found 100001"),
    "tensors for which there is no room": fault(file(tensor_count=100_000), "more items than the file has room for"),
    "one tensor too many": fault(file([], ONE, tensor_count=2) + bytes(16), "name of tensor 1"),
    "keys 2^64-1": excess(file(key_count=2**64 - 1), "number of keys: too many items"),
    "keys 2^63": excess(file(key_count=2**63), "number of keys: too many items"),
    "keys whose size wraps (CVE-2024-23605)": excess(file(key_count=2**62 + 1), "found 4611686018427387905"),
    "keys above the limit": excess(file(key_count=100_001), "expected at most 100000, found 100001"),
    "keys for which there is no room": fault(file(key_count=100_000), "more items than the file has room for"),
    "one key too many": fault(file([pair(NAME, scalar(U64, 1))], key_count=2), "key 1"),
}

KEYS = {
    "key length 2^64-1": excess(file([string("a", 2**64 - 1) + u32(4)], key_count=1), "key 0: a string is too long"),
    "key length 2^63 (CVE-2024-23496)": excess(
        file([string("a", 2**63) + u32(4)], key_count=1), "a string is too long"
    ),
    "key above the limit": excess(one_key(scalar(U8, 1), "k" * 65_536), "expected at most 65535, found 65536"),
    "key beyond the file": fault(file([string("a", 1000) + u32(4)], key_count=1), "expected 1000 more bytes"),
    "empty key": fault(one_key(scalar(U32, 1), ""), "key 0: a name is empty"),
    "key not UTF-8": fault(one_key(scalar(U32, 1), b"a\xff\xfe"), "a name is not UTF-8"),
    "the same key twice": fault(file([pair("a.b", scalar(U32, 1))] * 2), "a.b: a key occurs twice"),
    "key of control characters twice": fault(file([pair("\x1b[2J", scalar(U32, 1))] * 2), r"'\x1b[2J': a key occurs"),
    "value type 13": fault(one_key(u32(13) + bytes(8)), "unknown type of value: expected 0 to 12, found 13"),
    "value type of all ones": fault(one_key(u32(2**32 - 1) + bytes(8)), "found 4294967295"),
    "no value": fault(one_key(u32(U32) + b"\1\2"), "expected 4 more bytes, found 2"),
    "half a value": fault(one_key(u32(U64) + bytes(7)), "expected 8 more bytes, found 7"),
    "truth value 2": fault(one_key(u32(BOOL) + b"\2"), "not a truth value: expected 0 or 1, found 2"),
    "truth value 255": fault(one_key(u32(BOOL) + b"\xff"), "found 255"),
    "string length 2^64-1": excess(one_key(u32(STRING) + string("a", 2**64 - 1)), "a string is too long"),
    "string length 2^63": excess(one_key(u32(STRING) + string("a", 2**63)), "a string is too long"),
    "string above the limit": excess(one_key(u32(STRING) + string("a", MIB_STRING + 1)), "found 16777217"),
    "string just below the limit (ggml#1516)": fault(
        one_key(u32(STRING) + string("a" * 100, MIB_STRING)), "expected 16777216 more bytes, found 100"
    ),
    "string one byte beyond the file": fault(one_key(u32(STRING) + string("abc", 4)), "expected 4 more bytes, found 3"),
}

ARRAYS = {
    "array 2^63 of bytes (llama.cpp#27188)": excess(one_key(array(U8, [], 2**63)), "too many items"),
    "array 2^64-1": excess(one_key(array(U8, [1], 2**64 - 1)), "found 18446744073709551615"),
    "array whose size wraps": excess(one_key(array(U64, [1], 2**61 + 1)), "found 2305843009213693953"),
    "array above the limit": excess(one_key(array(U8, [1], 4_000_001)), "expected at most 4000000, found 4000001"),
    "array beyond the file": fault(one_key(array(F32, [1.0], 2)), "expected at most 1, found 2"),
    "array of 4,000,000 in a small file": fault(
        one_key(array(U64, [1], 4_000_000)), "expected at most 1, found 4000000"
    ),
    "array of an unknown type": fault(one_key(u32(ARRAY) + u32(13) + u64(1) + bytes(8)), "unknown type of value"),
    "array of arrays": unknown(one_key(u32(ARRAY) + u32(ARRAY) + u64(1) + array(U8, [1])[4:]), "an array of arrays"),
    "array of 2^62 arrays (llama.cpp#27188)": unknown(
        one_key(u32(ARRAY) + u32(ARRAY) + u64(2**62) + bytes(12)), "an array of arrays"
    ),
    "arrays a thousand deep": unknown(
        one_key(u32(ARRAY) + (u32(ARRAY) + u64(1)) * 1000 + u32(U8) + u64(0)), "an array of arrays"
    ),
    "array without a count": fault(one_key(u32(ARRAY) + u32(U8) + bytes(3)), "expected 8 more bytes, found 3"),
    "array without a type": fault(one_key(u32(ARRAY) + b"\0"), "the file ends too early"),
    "array with a truth value 2": fault(one_key(array(BOOL, [1, 0, 2])), "not a truth value"),
    "strings 2^63": excess(one_key(array(STRING, [], 2**63)), "too many items"),
    "strings for which there is no room": fault(one_key(array(STRING, ["a"], 2)), "expected at most 1, found 2"),
    "string 2^63 in an array": excess(
        one_key(u32(ARRAY) + u32(STRING) + u64(3) + string("a", 2**63) + bytes(16)), f"{NAME}[0]: a string is too long"
    ),
    "last string of an array beyond the file": fault(
        one_key(array(STRING, ["a"] * 999, 1000) + string("b", 100)), f"{NAME}[999]: the file ends too early"
    ),
    "string above the limit in an array": excess(
        one_key(array(STRING, ["a"], 2) + string("b", MIB_STRING + 1)), f"{NAME}[1]: a string is too long"
    ),
    "half a length in an array": fault(
        one_key(array(STRING, ["a" * 20], 3) + string("b") + bytes(3)), f"{NAME}[2]: the file ends too early"
    ),
}

ALIGNMENTS = {
    "alignment 0": fault(one_key(scalar(U32, 0), ALIGN), "general.alignment: not a power of two: found 0"),
    "alignment 3": fault(one_key(scalar(U32, 3), ALIGN), "not a power of two: found 3"),
    "alignment 48": fault(one_key(scalar(U32, 48), ALIGN), "not a power of two: found 48"),
    "alignment 2^32-1": fault(one_key(scalar(U32, 2**32 - 1), ALIGN), "not a power of two"),
    "alignment 2^17": excess(one_key(scalar(U32, 1 << 17), ALIGN), "expected at most 65536, found 131072"),
    "alignment 2^30 (ggml#1516)": excess(one_tensor(ONE[0], DATA, [pair(ALIGN, scalar(U32, 1 << 30))]), "too large"),
    "alignment of 64 bits": fault(one_key(scalar(U64, 32), ALIGN), "expected UINT32, found UINT64"),
    "alignment with a sign": fault(one_key(scalar(I32, 32), ALIGN), "expected UINT32, found INT32"),
    "alignment as text": fault(one_key(scalar(STRING, "32"), ALIGN), "expected UINT32, found STRING"),
    "alignment as a float": fault(one_key(scalar(F32, 32.0), ALIGN), "expected UINT32, found FLOAT32"),
    "alignment as an array": fault(one_key(array(U32, [32]), ALIGN), "expected UINT32, found ARRAY"),
    "two alignments": fault(file([pair(ALIGN, scalar(U32, 32)), pair(ALIGN, scalar(U32, 64))]), "a key occurs twice"),
}

ROWS = {
    "tensor name of 65 bytes": excess(one_tensor(tensor("a" * 65, (8,), 0, 0)), "expected at most 64, found 65"),
    "tensor name 2^63 (CVE-2024-21802)": excess(
        one_tensor(string("a", 2**63) + u32(1) + u64(8) + u32(0) + u64(0)), "name of tensor 0: a string is too long"
    ),
    "tensor name beyond the file": fault(file([], [string("a", 60) + bytes(20)]), "expected 60 more bytes, found 21"),
    "tensor without a name": fault(one_tensor(tensor("", (8,), 0, 0)), "name of tensor 0: a name is empty"),
    "tensor name not UTF-8": fault(one_tensor(tensor(b"\xc3\x28", (8,), 0, 0)), "a name is not UTF-8"),
    "the same tensor twice": fault(
        file([], [tensor("a", (8,), 0, 0), tensor("a", (8,), 0, 32)], bytes(64)), "tensor a: a tensor occurs twice"
    ),
    "5 extents": excess(one_tensor(tensor("a", (1,) * 5, 0, 0)), "too many extents: expected at most 4, found 5"),
    "9 extents (gguf-tools#25)": excess(one_tensor(tensor("a", (1,) * 9, 0, 0)), "expected at most 4, found 9"),
    "2^32-1 extents": excess(one_tensor(tensor("a", (8,), 0, 0, dims=2**32 - 1)), "found 4294967295"),
    "extent -1": excess(one_tensor(tensor("a", (2**64 - 1,), 0, 0)), "tensor a: an extent is too large"),
    "extent -2^63": excess(one_tensor(tensor("a", (8, 2**63), 0, 0)), "found 9223372036854775808"),
    "extent above the limit": excess(one_tensor(tensor("a", (2**31 + 1,), 0, 0)), "found 2147483649"),
    "elements above the limit": excess(one_tensor(tensor("a", (2**31, 2**10), 0, 0)), "too many elements"),
    "elements that wrap to 0 (CVE-2026-33298)": excess(
        one_tensor(tensor("a", (2**31, 2**31, 4), 0, 0)), "found 18446744073709551616"
    ),
    "elements that wrap to 8 (llama.cpp#18674)": excess(
        one_tensor(tensor("a", (2**31, 2**31, 2**31, 2**31), 0, 0)), "too many elements"
    ),
    "bytes that no file has (CVE-2025-53630)": fault(
        one_tensor(tensor("a", (2**30, 2**10), 0, 0)), "expected 4398046511104 bytes of F32 at offset 0, found 32"
    ),
    "row of the table cut short": fault(file([], [tensor("a", (8,), 0, 0)[:-4] + bytes(3)]), "found 7"),
    "extents cut short": fault(file([], [tensor("aaaaaaaa", (8,), 0, 0, dims=4)[:-8]]), "the file ends too early"),
    "type 4": unknown(typed(4), "tensor type Q4_2 was removed"),
    "type 5": unknown(typed(5), "tensor type Q4_3 was removed"),
    "type 31": unknown(typed(31), "tensor type Q4_0_4_4 was removed"),
    "type 32": unknown(typed(32), "tensor type Q4_0_4_8 was removed"),
    "type 33": unknown(typed(33), "tensor type Q4_0_8_8 was removed"),
    "type 36": unknown(typed(36), "tensor type IQ4_NL_4_4 was removed"),
    "type 37": unknown(typed(37), "tensor type IQ4_NL_4_8 was removed"),
    "type 38": unknown(typed(38), "tensor type IQ4_NL_8_8 was removed"),
    "type 43": unknown(typed(43), 'type number 43 in a file with general.name = "somebody\'s model"'),
    "type 144": unknown(typed(144), "type number 144"),
    "type of all ones": unknown(one_tensor(tensor("a", (8,), 2**32 - 1, 0)), "tensor a: unknown tensor type"),
    "row of half a block of Q4_0": fault(one_tensor(tensor("a", (48,), 2, 0)), "whole blocks of Q4_0: expected a mult"),
    "row of half a block of Q4_K": fault(one_tensor(tensor("a", (128, 2), 12, 0), bytes(288)), "whole blocks of Q4_K"),
    "row of half a block of Q1_0": fault(one_tensor(tensor("a", (64, 2), 41, 0)), "whole blocks of Q1_0"),
    "row of half a block of PTQ1_0": fault(one_tensor(tensor("a", (64, 2), 143, 0)), "whole blocks of PTQ1_0"),
}

TWO = (("a", (8,), TENSOR_F32), ("b", (8,), TENSOR_F32))
LEGACY_ROWS, LEGACY_SIZE = laid_out([("a", (512, 4), TENSOR_Q2_0_G128), ("b", (256, 4), TENSOR_Q2_0_G128)])
MAINLINE_ROWS, MAINLINE_SIZE = laid_out([("a", (512, 40), TENSOR_Q2_0)])


def second_row(offset: int) -> bytes:
    return tensor("b", (8,), 0, offset)


def second(offset: int) -> bytes:
    return file([], [tensor("a", (8,), 0, 0), second_row(offset)], bytes(64))


LAYOUTS = {
    "first offset not 0": fault(one_tensor(tensor("a", (8,), 0, 32), bytes(64)), "tensor a: wrong offset of a tensor"),
    "offset not aligned": fault(second(36), "expected 32, where the one before it ends, found 36"),
    "gap": fault(file([], [tensor("a", (8,), 0, 0), tensor("b", (8,), 0, 64)], bytes(96)), "found 64"),
    "overlap": fault(second(0), "tensor b: wrong offset of a tensor"),
    "offset 2^63 (CVE-2026-7482)": fault(second(2**63), "found 9223372036854775808"),
    "offset -32": fault(second(2**64 - 32), "found 18446744073709551584"),
    "offsets in another order": fault(
        file([], [tensor("a", (8,), 0, 32), tensor("b", (8,), 0, 0)], bytes(64)), "tensor a: wrong offset of a tensor"
    ),
    "offsets for another alignment": fault(
        file([pair(ALIGN, scalar(U32, 64))], laid_out(TWO)[0], bytes(128), alignment=64), "expected 64, where the one"
    ),
    "alignment shifts the data": fault(
        file([pair(ALIGN, scalar(U32, 4096))], ONE, DATA), "the file ends before the tensor does"
    ),
    "no data": fault(file([], ONE), "expected 32 bytes of F32 at offset 0, found 0 bytes"),
    "data one byte short": fault(one_tensor(ONE[0], bytes(31)), "found 31 bytes"),
    "second tensor cut short": fault(file([], laid_out(TWO)[0], bytes(40)), "tensor b: the file ends before"),
    "type 42 in neither layout (llama.cpp#25833)": fault(
        file([], [tensor("a", (256,), 42, 0), tensor("b", (256,), 42, 128)], bytes(256)), "fit neither Q2_0"
    ),
    "type 42 in the older layout, cut short": fault(
        file([], LEGACY_ROWS, bytes(LEGACY_SIZE - 40)),
        "tensor b: the file ends before the tensor does: expected 272 bytes of Q2_0_G128 at offset 544, found 248",
    ),
    "type 42 of one tensor, shorter than either": fault(
        file([], MAINLINE_ROWS, bytes(MAINLINE_SIZE - 352)), "as the older layout: 32 bytes of the last tensor are miss"
    ),
    "type 42 of one tensor, longer than its padding allows": fault(
        file([], MAINLINE_ROWS, bytes(MAINLINE_SIZE + 32)), "as Q2_0: 32 bytes follow the last tensor; as the older"
    ),
    "type 42 in the older layout, then as Q2_0": fault(
        file([], [tensor("a", (512, 40), 42, 0), tensor("b", (512, 40), 42, 5440)], bytes(5440 + 5760)),
        "as the older layout: 320 bytes follow the last tensor",
    ),
    "type 42 as Q2_0, then in the older layout": fault(
        file([], [tensor("a", (512, 40), 42, 0), tensor("b", (512, 40), 42, 5760)], bytes(5760 + 5440)),
        "expected 5760 bytes of Q2_0 at offset 5760, found 5440",
    ),
    "type 142 in another program's blocks": fault(
        file([pair(NAME, scalar(STRING, "theirs"))], [tensor("a", (2048,), 142, 0), second_row(576)], bytes(608)),
        "Another program may use number 142 for a type of its own; this is a file with general.name = 'theirs'",
    ),
    "type 143 in another program's blocks": fault(
        file([], [tensor("a", (256,), 143, 0), second_row(160)], bytes(192)),
        "Another program may use number 143 for a type of its own; this is a file of unknown origin",
    ),
    "type 142 longer than the file": fault(
        one_tensor(tensor("a", (512,), 142, 0), bytes(128)), "expected 136 bytes of PQ2_0 at offset 0, found 128 bytes"
    ),
    "type 42 as Q2_0, cut short above the older size": fault(
        file([], MAINLINE_ROWS, bytes(MAINLINE_SIZE - 32)), "as the older layout: 288 bytes follow the last tensor"
    ),
    "type 42 in rows of 96": fault(one_tensor(tensor("a", (96, 2), 42, 0), bytes(64)), "whole blocks of Q2_0"),
}

SPLITS = {
    "a thousand and one shards": excess(
        file([pair("split.count", scalar(U16, 1001)), pair("split.tensors.count", scalar(I32, 1))]),
        "split.count: the set is too large: expected at most 1000, found 1001",
    ),
    "a set of too many tensors": excess(
        file([pair("split.count", scalar(U16, 2)), pair("split.tensors.count", scalar(I32, 100_001))]),
        "split.tensors.count: the set is too large",
    ),
    "negative number of shards": fault(one_key(scalar(I32, -1), "split.count"), "split.count: wrong kind of value"),
    "number of shards as text": fault(one_key(scalar(STRING, "../x"), "split.count"), "split.count: wrong kind"),
    "shard without the set's total": fault(one_key(scalar(U16, 2), "split.count"), "split.tensors.count: the file has"),
    "shard whose name tells nothing": fault(
        file([pair("split.count", scalar(U16, 2)), pair("split.tensors.count", scalar(I32, 1))]),
        "the name of a shard does not tell its place",
    ),
}


def one_of_two(other: bytes | None, error: type[PrismError], says: str, first: bytes | None = None) -> Case:
    """The first shard of a set of two, and the second."""
    beside = {shard_name(1, 2): other} if other is not None else {}
    return Case(first or shard(0, ("a",), count=2, total=2), error, says, shard_name(0, 2), beside)


SETS = {
    "shard missing": one_of_two(None, FormatError, "shards are missing: expected 2 files, found no model-00002-of"),
    "999 shards missing": Case(
        shard(0, ("a",), count=1000, total=1000), FormatError, "model-00005-of-01000.gguf …", shard_name(0, 1000)
    ),
    "shard of another place": one_of_two(
        shard(0, ("b",), count=2, total=2), FormatError, "expected split.no 1 of 2, found 0 of 2"
    ),
    "shard of another set": one_of_two(
        shard(1, ("b",), count=3, total=2), FormatError, "expected split.no 1 of 2, found 1 of 3"
    ),
    "shard that is the first one again": one_of_two(
        shard(0, ("a",), count=2, total=2), FormatError, "expected split.no 1 of 2, found 0 of 2"
    ),
    "shard without a place": one_of_two(
        shard(1, ("b",), {"split.no": b""}, count=2, total=2), FormatError, "split.no: the file has no such key"
    ),
    "shard with a negative place": one_of_two(
        shard(1, ("b",), {"split.no": scalar(I32, -1)}, count=2, total=2), FormatError, "split.no: wrong kind of value"
    ),
    "tensor in two shards": one_of_two(
        shard(1, ("a",), count=2, total=2), FormatError, "tensor 'a': a tensor occurs in two shards"
    ),
    "set of too few tensors": one_of_two(
        shard(1, ("b",), count=2, total=2),
        FormatError,
        "split.tensors.count: the shards hold another number of tensors than the set should: expected 3, found 2",
        shard(0, ("a",), count=2, total=3),
    ),
    "shard with an array of 2^63": one_of_two(
        one_key(array(U8, [], 2**63)), LimitError, f"{shard_name(1, 2)}, byte 52, general.name: too many items"
    ),
    "shard cut short": one_of_two(shard(1, ("b",), count=2, total=2)[:-1], FormatError, "the file ends before"),
    "shard that is empty": one_of_two(b"", FormatError, f"{shard_name(1, 2)}: the file is empty"),
}

CASES: dict[str, Case] = {}
for group in (HEADERS, KEYS, ARRAYS, ALIGNMENTS, ROWS, LAYOUTS, SPLITS, SETS):
    assert not CASES.keys() & group.keys()
    CASES |= group
assert len(CASES) >= 80


@dataclass
class Worst:
    """What the slowest and the greediest case used."""

    seconds: float = 0.0
    slowest: str = ""
    memory: int = 0
    greediest: str = ""


@pytest.fixture(scope="module")
def worst() -> Iterator[Worst]:
    kept = Worst()
    yield kept
    print(f"\n{len(CASES)} malformed files")
    print(f"slowest: {kept.seconds * 1e3:.2f} ms ({kept.slowest})")
    print(f"greediest: {kept.memory / limits.KIB:.0f} KiB more resident memory ({kept.greediest})")


def refuse(path: Path) -> PrismError:
    with pytest.raises(PrismError) as caught:
        gguf.open(path)
    return caught.value


@pytest.mark.parametrize("case_name", CASES)
def test_malformed_files_are_refused(case_name: str, tmp_path: Path, worst: Worst) -> None:
    case = CASES[case_name]
    path = tmp_path / case.name
    for name, raw in {case.name: case.raw, **case.beside}.items():
        (tmp_path / name).write_bytes(raw)
    with peak_memory() as memory:
        error = refuse(path)
    assert type(error) is case.error, error
    assert case.says in str(error)
    assert str(tmp_path if case.beside else path) in str(error.where)
    assert str(error).isprintable() or str(error).replace("\n", "").isprintable()
    seconds = min(elapsed(path) for _ in range(3))
    if seconds > worst.seconds:
        worst.seconds, worst.slowest = seconds, case_name
    if memory.growth > worst.memory:
        worst.memory, worst.greediest = memory.growth, case_name
    assert seconds < SECONDS
    assert memory.growth < MEMORY


def elapsed(path: Path) -> float:
    """Seconds of one refusal."""
    started = time.perf_counter()
    try:
        gguf.open(path)
    except PrismError:
        return time.perf_counter() - started
    raise AssertionError("opened")


# What ggml's own reader lets pass, and why it is refused here.
STRICTER = {
    "key above the limit": "the specification's bound",
    "key not UTF-8": "the specification's rule",
    "tensor name not UTF-8": "the specification's rule",
    "tensor without a name": "nothing could ask for it",
    "truth value 2": "the specification's rule",
    "truth value 255": "the specification's rule",
    "array with a truth value 2": "the specification's rule",
    "alignment 2^17": "a limit",
    "extent above the limit": "a limit",
    "elements above the limit": "a limit",
    "elements that wrap to 0 (CVE-2026-33298)": "a limit",
    "elements that wrap to 8 (llama.cpp#18674)": "a limit",
    "bytes that no file has (CVE-2025-53630)": "ggml looks at the end of the file when it reads the data",
    "data one byte short": "ggml looks at the end of the file when it reads the data",
    "second tensor cut short": "ggml looks at the end of the file when it reads the data",
    "type 42 as Q2_0, then in the older layout": "ggml looks at the end of the file when it reads the data",
    "type 42 of one tensor, shorter than either": "ggml looks at the end of the file when it reads the data",
    "type 42 as Q2_0, cut short above the older size": "ggml looks at the end of the file when it reads the data",
    "type 42 of one tensor, longer than its padding allows": "ggml knows one layout of type 42 and need not choose",
    **dict.fromkeys((*SPLITS, *SETS), "ggml's reader knows no sets"),
}
assert STRICTER.keys() <= CASES.keys()


def test_ggml_refuses_them_too(tmp_path: Path) -> None:
    """The cases are malformed by the judgement of the reference, but for those that are listed with a reason."""
    paths = [tmp_path / f"{number}.gguf" for number in range(len(CASES))]
    for path, case in zip(paths, CASES.values(), strict=True):
        path.write_bytes(case.raw)
    accepted = {name for name, found in zip(CASES, read_all(paths), strict=True) if found is not None}
    assert accepted <= STRICTER.keys()


def _faulty_end(count: int, item: Callable[[int], bytes]) -> bytes:
    return file([*(item(number) for number in range(count - 1)), item(0)])


# Files of megabytes whose only fault is at the end: reading that far is work that a good file would need as well.
LARGE = {
    "keys up to the limit": lambda: _faulty_end(100_000, lambda number: pair(f"k{number}", scalar(U8, 1))),
    "texts up to the limit": lambda: _faulty_end(100_000, lambda number: pair(f"k{number}", scalar(STRING, "x" * 100))),
    "tensors up to the limit": lambda: file(
        [],
        [*laid_out([(f"t{number}", (8,), TENSOR_F32) for number in range(99_999)])[0], tensor("x", (8,), 0, 7)],
        bytes(3_200_000),
    ),
    "empty strings up to the limit": lambda: file(
        [pair(NAME, u32(ARRAY) + u32(STRING) + u64(4_000_000) + bytes(32_000_000)), pair("", scalar(U8, 1))]
    ),
    "more strings in all than the limit": lambda: file(
        [
            pair(f"k{number}", u32(ARRAY) + u32(STRING) + u64(1_000_001) + string("abc") * 1_000_001)
            for number in range(4)
        ]
    ),
}
SECONDS_PER_BYTE = 500e-9  # measured: at most 55e-9, for the table of tensors
BYTES_PER_BYTE = 8  # measured: at most 5.4, there too


@pytest.mark.parametrize("name", LARGE)
def test_large_malformed_files_cost_in_proportion(name: str, tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    path.write_bytes(LARGE[name]())
    size = path.stat().st_size
    assert size > limits.MIB
    with peak_memory() as memory:
        refuse(path)
    assert elapsed(path) < SECONDS + size * SECONDS_PER_BYTE
    assert memory.growth < MEMORY + size * BYTES_PER_BYTE


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    """A sparse file: its header asks for more bytes than the limit allows, and the file has them."""
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as out:
        out.write(file(key_count=20))
        for number in range(20):
            out.write(pair(f"array{number}", u32(ARRAY) + u32(U64) + u64(4_000_000)))
            out.truncate(out.tell() + 32_000_000)
            out.seek(0, os.SEEK_END)
    assert path.stat().st_size > limits.GGUF_MAX_HEADER_BYTES
    with peak_memory() as memory:
        error = refuse(path)
    assert type(error) is LimitError
    assert "the header is too long: expected at most 536870912" in str(error)
    assert elapsed(path) < SECONDS
    assert memory.growth < MEMORY
