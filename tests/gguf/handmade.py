"""GGUF files packed by hand from the format's description: shares no code with the package's reader or writer."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

# Value types, as the format numbers them.
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}

# Tensor types: number, weights of a block, bytes of a block.
TENSOR_F32 = (0, 1, 4)
TENSOR_Q4_0 = (2, 32, 18)
TENSOR_Q4_K = (12, 256, 144)
TENSOR_Q1_0 = (41, 128, 18)
TENSOR_Q2_0 = (42, 64, 18)
TENSOR_Q2_0_G128 = (42, 128, 34)


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def string(text: str | bytes, length: int | None = None) -> bytes:
    """A length (true unless another is given) and the bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw) if length is None else length) + raw


def scalar(kind: int, value: object) -> bytes:
    """Type and value."""
    raw = string(value) if kind == STRING else struct.pack(f"<{CODES[kind]}", value)  # type: ignore[arg-type]
    return u32(kind) + raw


def array(kind: int, items: Sequence[object], count: int | None = None) -> bytes:
    """Type ARRAY, type of the items, count (true unless another is given), items."""
    pack = [string(item) if kind == STRING else struct.pack(f"<{CODES[kind]}", item) for item in items]  # type: ignore[arg-type]
    return u32(ARRAY) + u32(kind) + u64(len(items) if count is None else count) + b"".join(pack)


def pair(key: str | bytes, value: bytes) -> bytes:
    """A key and a value with its type."""
    return string(key) + value


def tensor(name: str | bytes, ne: Sequence[int], kind: int, offset: int, dims: int | None = None) -> bytes:
    """A row of the tensor table."""
    head = string(name) + u32(len(ne) if dims is None else dims)
    return head + b"".join(map(u64, ne)) + u32(kind) + u64(offset)


def file(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes | None = None,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file of these parts; counts are true unless others are given. `data` starts at a multiple of the alignment."""
    raw = magic + u32(version)
    raw += u64(len(tensors) if tensor_count is None else tensor_count)
    raw += u64(len(pairs) if key_count is None else key_count)
    raw += b"".join(pairs) + b"".join(tensors)
    return raw if data is None else raw + bytes(-len(raw) % alignment) + data


def padded(size: int, alignment: int = 32) -> int:
    return size + -size % alignment


def laid_out(
    tensors: Sequence[tuple[str, Sequence[int], tuple[int, int, int]]], alignment: int = 32
) -> tuple[list[bytes], int]:
    """Rows of tensors without gaps, and the bytes of all their data, padding after the last included."""
    rows, offset = [], 0
    for name, ne, (kind, block, nbytes) in tensors:
        rows.append(tensor(name, ne, kind, offset))
        elements = 1
        for extent in ne:
            elements *= extent
        offset = padded(offset + elements // block * nbytes, alignment)
    return rows, offset


def shard_name(number: int, count: int) -> str:
    """The published rule for names: counted from one, five digits."""
    return f"model-{number + 1:05d}-of-{count:05d}.gguf"


def shard(
    number: int, names: Sequence[str], keys: Mapping[str, bytes] | None = None, *, count: int, total: int
) -> bytes:
    """A shard whose tensors hold its number; `keys` replaces or, where empty, takes away the keys of the set."""
    values = {
        "split.no": scalar(U16, number),
        "split.count": scalar(U16, count),
        "split.tensors.count": scalar(I32, total),
    } | dict(keys or {})
    if number == 0:
        values["general.architecture"] = scalar(STRING, "qwen3")
    rows, _ = laid_out([(name, (8,), TENSOR_F32) for name in names])
    data = struct.pack("<8f", *[number] * 8) * len(names)
    return file([pair(key, value) for key, value in values.items() if value], rows, data)
