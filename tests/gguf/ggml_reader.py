"""ggml's own reader of GGUF, as a program of its own: it may end badly on bad files.

python ggml_reader.py FILE ...      prints a line of JSON for each: what ggml read, or null if it refused the file
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SCALARS = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", None, "u64", "i64", "f64"]
_C_TYPES = [
    ctypes.c_uint8,
    ctypes.c_int8,
    ctypes.c_uint16,
    ctypes.c_int16,
    ctypes.c_uint32,
    ctypes.c_int32,
    ctypes.c_float,
    ctypes.c_bool,
    ctypes.c_char_p,
    None,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_double,
]
_STRING, _ARRAY = 8, 9
_RESULTS = {
    "gguf_init_from_file": ctypes.c_void_p,
    "gguf_get_version": ctypes.c_uint32,
    "gguf_get_alignment": ctypes.c_size_t,
    "gguf_get_n_kv": ctypes.c_int64,
    "gguf_get_key": ctypes.c_char_p,
    "gguf_get_kv_type": ctypes.c_int,
    "gguf_get_arr_type": ctypes.c_int,
    "gguf_get_arr_n": ctypes.c_size_t,
    "gguf_get_arr_data": ctypes.c_void_p,
    "gguf_get_arr_str": ctypes.c_char_p,
    "gguf_get_n_tensors": ctypes.c_int64,
    "gguf_get_tensor_name": ctypes.c_char_p,
    "gguf_get_tensor_type": ctypes.c_int,
    "gguf_get_tensor_offset": ctypes.c_size_t,
    "gguf_get_tensor_size": ctypes.c_size_t,
}


class _Parameters(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


def _library() -> Path | None:
    import libggml

    return next(Path(libggml.__file__).parent.rglob("libggml-base.so"), None)


def _read(library: Any, path: str) -> dict[str, Any] | None:
    handle = library.gguf_init_from_file(path.encode(), _Parameters(True, None))
    if not handle:
        return None
    file = ctypes.c_void_p(handle)

    def text(raw: bytes) -> str:
        return raw.decode("utf-8", "surrogateescape")

    def value(number: ctypes.c_int64) -> Any:
        kind = library.gguf_get_kv_type(file, number)
        if kind != _ARRAY:
            found = getattr(library, f"gguf_get_val_{_SCALARS[kind]}")(file, number)
            return text(found) if kind == _STRING else found
        count = library.gguf_get_arr_n(file, number)
        item = library.gguf_get_arr_type(file, number)
        if item == _STRING:
            return [text(library.gguf_get_arr_str(file, number, ctypes.c_size_t(index))) for index in range(count)]
        return list((_C_TYPES[item] * count).from_address(library.gguf_get_arr_data(file, number))) if count else []

    keys = [ctypes.c_int64(number) for number in range(library.gguf_get_n_kv(file))]
    tensors = [ctypes.c_int64(number) for number in range(library.gguf_get_n_tensors(file))]
    return {
        "version": library.gguf_get_version(file),
        "alignment": library.gguf_get_alignment(file),
        "types": {text(library.gguf_get_key(file, key)): library.gguf_get_kv_type(file, key) for key in keys},
        "values": {text(library.gguf_get_key(file, key)): value(key) for key in keys},
        "tensors": [
            [
                text(library.gguf_get_tensor_name(file, tensor)),
                library.gguf_get_tensor_type(file, tensor),
                library.gguf_get_tensor_offset(file, tensor),
                library.gguf_get_tensor_size(file, tensor),
            ]
            for tensor in tensors
        ],
    }


def _main(paths: list[str]) -> None:
    library = ctypes.CDLL(str(_library()))
    for name, kind in _RESULTS.items():
        getattr(library, name).restype = kind
    library.gguf_init_from_file.argtypes = [ctypes.c_char_p, _Parameters]
    for name, kind in zip(_SCALARS, _C_TYPES, strict=True):
        if name:
            getattr(library, f"gguf_get_val_{name}").restype = kind
    for path in paths:
        print(json.dumps(_read(library, path)))


def read_all(paths: list[Path]) -> list[dict[str, Any] | None]:
    """What ggml reads from each file, None where it refuses; skips the test where ggml is not there."""
    pytest.importorskip("libggml", reason="libggml-python is not installed")
    if _library() is None:
        pytest.skip("libggml-python comes without libggml-base.so here")
    command = [sys.executable, __file__, *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


if __name__ == "__main__":
    _main(sys.argv[1:])
