"""Kernels as addresses: object code from the cache on disk, or compiled now and put there.

A warm start links objects by llvmlite alone; only a missing kernel imports the compiler. Writers move finished files
into place, so that several processes may fill one cache.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..errors import KernelError
from ..kernels import table
from ..kernels.symbols import bind
from ..kernels.target import Target
from ..kernels.target import target as host_target
from ..settings import settings

_DIGEST = 32  # bytes of SHA-256 before the code in a cached file

Progress = Callable[[int, int, str], None]  # (kernels done, kernels in all, key of the next)


class Library:
    """Links kernels for one target and keeps them for the life of the process."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target = target
        self.folder = folder / table.fingerprint(target)
        self._addresses: dict[str, int] = {}
        self._engines: list[Any] = []  # an engine owns its code: keep it
        self._lock = threading.Lock()

    def addresses(self, keys: Iterable[str], progress: Progress | None = None) -> dict[str, int]:
        """Return the address of each kernel, compiling those that no cache holds.

        Raises:
            KernelError: a kernel is unknown or does not compile or link.
        """
        with self._lock:
            wanted = list(dict.fromkeys(keys))
            missing = [key for key in wanted if key not in self._addresses]
            codes = {key: self._cached(key) for key in missing}
            uncached = [key for key, code in codes.items() if code is None]
            for number, key in enumerate(uncached):
                if progress is not None:
                    progress(number, len(uncached), key)
                codes[key] = self._compile(key)
            if uncached and progress is not None:
                progress(len(uncached), len(uncached), "")
            for key, code in codes.items():
                self._addresses[key] = self._link(key, code or b"")
            return {key: self._addresses[key] for key in wanted}

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.o"

    def _cached(self, key: str) -> bytes | None:
        """Return a kernel's object code, or None where the cache has none or a damaged one: LLVM would end the process
        over it."""
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        digest, code = data[:_DIGEST], data[_DIGEST:]
        return code if hashlib.sha256(code).digest() == digest else None

    def _compile(self, key: str) -> bytes:
        from ..kernels.jit import compile_object

        isa = key.partition("@")[2]
        if isa not in ("", "generic", self.target.isa):
            # LLVM would end the process over an instruction that the target lacks.
            raise KernelError("not for this processor", where=f"kernel {key}", expected=self.target.isa, found=isa)
        code = compile_object(table.find(key), symbol(key), self.target)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            Path(name).replace(self._path(key))
        except OSError as error:
            raise KernelError(
                "cannot write to the kernel cache",
                where=str(self.folder),
                found=str(error),
                hint="Set PRISM_CACHE to a folder that can be written.",
            ) from error
        return code

    def _link(self, key: str, code: bytes) -> int:
        import llvmlite.binding as llvm

        bind()
        engine = _new_engine(llvm)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address: int = engine.get_function_address(symbol(key))
        if not address:
            raise KernelError("object without the kernel", where=str(self._path(key)), hint="Remove the file.")
        self._engines.append(engine)
        return address


def symbol(key: str) -> str:
    """Return the exported name of a kernel."""
    return "prism_" + "".join(c if c.isalnum() else "_" for c in key)


def _new_engine(llvm: Any) -> Any:
    """Return an LLVM engine that links into this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


_libraries: dict[Target, Library] = {}


def library() -> Library:
    """Return the process's library for the target of `PRISM_CPU`."""
    target = host_target()
    if target not in _libraries:
        _libraries[target] = Library(target, settings().cache / "kernels")
    return _libraries[target]
