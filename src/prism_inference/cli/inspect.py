"""`prism inspect`: what a model file holds, from its header alone; no weights are read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .options import add_json, add_model, print_json, print_table

if TYPE_CHECKING:
    from ..gguf import GGUFFile

ARRAY_ITEMS = 8  # shown of a longer array
TEXT_CHARACTERS = 100  # shown of a longer text, where a person reads

# What a name or number of a type does not tell.
VARIANTS = {
    "Q1_0": "one bit, groups of 128",
    "Q2_0": "two bits, groups of 64 (the mainline layout of type 42)",
    "Q2_0_G128": "two bits, groups of 128 (Prism's older layout under the number of Q2_0, told by the file's geometry)",
    "PQ2_0": "two bits, groups of 128 (Prism, type 142)",
    "PTQ1_0": "ternary digits in base 3, groups of 128 (Prism, type 143)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_model(parser)
    parser.add_argument("--tensors", action="store_true", help="list the tensors too")
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the description."""
    from .. import gguf
    from ..runtime.progress import byte_progress
    from ..runtime.pull import resolve

    with byte_progress("Fetching the model") as progress:
        path = resolve(args.model, progress)
    with gguf.open(path) as file:
        description = describe(file, args.tensors)
    if args.json:
        print_json(description)
    else:
        _print_description(description)
    return 0


def describe(file: GGUFFile, tensors: bool) -> dict[str, Any]:
    """Return a description as JSON data; of arrays longer than ARRAY_ITEMS, their length and first items."""
    types: dict[str, dict[str, int]] = {}
    for info in file.tensors.values():
        row = types.setdefault(info.type.name, {"tensors": 0, "elements": 0, "bytes": 0})
        row["tensors"] += 1
        row["elements"] += info.elements
        row["bytes"] += info.nbytes
    description: dict[str, Any] = {
        "paths": [str(path) for path in file.paths],
        "bytes": file.size,
        "gguf_version": file.version,
        "alignment": file.alignment,
        "parameters": sum(row["elements"] for row in types.values()),
        "tensor_types": types,
        "metadata": {key: _plain(value) for key, value in file.metadata.items()},
    }
    description["notes"] = [f"{name}: {VARIANTS[name]}" for name in types if name in VARIANTS]
    if "prism.hadamard.weight_names" in file.metadata:
        count = len(file.metadata.strings("prism.hadamard.weight_names"))
        description["notes"].append(f"prism.hadamard: {count} weights are rotated")
    if tensors:
        description["tensors"] = [
            {
                "name": info.name,
                "type": info.type.name,
                "ne": list(info.ne),
                "offset": info.offset,
                "bytes": info.nbytes,
            }
            for info in file.tensors.values()
        ]
    return description


def _plain(value: Any) -> Any:
    """Turn a metadata value into JSON data: NumPy scalars and arrays become numbers and lists."""
    if isinstance(value, str | bool | int | float) or value is None:
        return _json_number(value)
    if hasattr(value, "tolist"):
        if value.ndim == 0:
            return _json_number(value.tolist())
        head = value[:ARRAY_ITEMS].tolist()
    else:
        head = list(value[:ARRAY_ITEMS])
    items = [_plain(item) for item in head]
    return items if len(value) <= ARRAY_ITEMS else {"length": len(value), "first": items}


def _json_number(value: Any) -> Any:
    """Spell what JSON has no number for."""
    return str(value) if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


def _print_description(description: Mapping[str, Any]) -> None:
    rows = [("file", path) for path in description["paths"]]
    rows += [
        ("size", f"{description['bytes']:,} bytes"),
        ("format", f"GGUF {description['gguf_version']}, alignment {description['alignment']}"),
        ("parameters", f"{description['parameters']:,}"),
    ]
    rows += [
        (name, f"{row['tensors']} tensors, {row['elements']:,} elements, {row['bytes']:,} bytes")
        for name, row in description["tensor_types"].items()
    ]
    rows += [("note", note) for note in description["notes"]]
    print_table(rows)
    print()
    print_table([(key, _short(value)) for key, value in description["metadata"].items()])
    if "tensors" in description:
        print()
        tensors = description["tensors"]
        print_table(
            [(tensor["name"], f"{tensor['type']:8} {tensor['ne']}  {tensor['bytes']:,} bytes") for tensor in tensors]
        )


def _short(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        return f"{value['length']} items: {', '.join(map(repr, value['first']))}, …"
    if isinstance(value, str) and (len(value) > TEXT_CHARACTERS or not value.isprintable()):
        return repr(value if len(value) <= TEXT_CHARACTERS else f"{value[:TEXT_CHARACTERS]}…")
    return str(value)
