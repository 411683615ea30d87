"""Every environment variable that the package reads, in one frozen record. Knows nothing of what it is used for.

| variable | meaning | default |
| --- | --- | --- |
| `PRISM_CPU` | processor to compile for: `native`, `generic`, `x86-64-v2`, `x86-64-v3` … | `native` |
| `PRISM_CACHE` | folder of compiled kernels and fetched models | the user's cache folder |
| `PRISM_THREADS` | threads where the caller names no number | physical cores that the process may use |
| `PRISM_PROGRESS` | `0` turns progress bars off | `1` |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import ParameterError
from .limits import MAX_THREADS


@dataclass(frozen=True)
class Settings:
    """The environment as the package sees it; `threads` is None where the variable is unset."""

    cpu: str
    cache: Path
    threads: int | None
    progress: bool


def user_cache(environment: Mapping[str, str], platform: str) -> Path:
    """Return the folder where this platform's users expect caches."""
    home = Path.home()
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA", home / "AppData" / "Local")) / "prism-inference" / "cache"
    if platform == "darwin":
        return home / "Library" / "Caches" / "prism-inference"
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "prism-inference"


def read(environment: Mapping[str, str], platform: str = sys.platform) -> Settings:
    """Build the record from a mapping of environment variables.

    Raises:
        ParameterError: a variable holds a value outside its range.
    """
    threads: int | None = None
    if text := environment.get("PRISM_THREADS"):
        if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
            raise ParameterError(
                "not a number of threads", where="PRISM_THREADS", expected=f"1 to {MAX_THREADS}", found=repr(text)
            )
        threads = int(text)
    progress = environment.get("PRISM_PROGRESS", "1")
    if progress not in ("0", "1"):
        raise ParameterError("not a switch", where="PRISM_PROGRESS", expected="0 or 1", found=repr(progress))
    cache_folder = environment.get("PRISM_CACHE")
    return Settings(
        cpu=environment.get("PRISM_CPU") or "native",
        cache=Path(cache_folder) if cache_folder else user_cache(environment, platform),
        threads=threads,
        progress=progress == "1",
    )


@cache
def settings() -> Settings:
    """Return the process's settings: the environment is read at the first call only."""
    return read(os.environ)
