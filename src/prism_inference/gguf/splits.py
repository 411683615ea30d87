"""Names of the files of a set: `PREFIX-00001-of-00003.gguf`. Paths never come from metadata."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import FormatError, LimitError
from ..limits import GGUF_MAX_SHARDS
from .metadata import Metadata

_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf\Z", re.DOTALL)


def shard_path(folder: Path, prefix: str, number: int, count: int) -> Path:
    """Return the path of a shard, `number` counted from 0."""
    return folder / f"{prefix}-{number + 1:05d}-of-{count:05d}.gguf"


def find_shards(path: Path, metadata: Metadata) -> list[Path]:
    """Return the paths of the set that a file belongs to, in order; the file alone if it is not split.

    Raises:
        FormatError: the name does not say which shard it is, or a shard is missing.
    """
    count = metadata.integer("split.count", 0, low=0)
    if count <= 1:
        return [path]
    if count > GGUF_MAX_SHARDS:
        raise LimitError(
            "too many shards", where=f"{path}, split.count", expected=f"at most {GGUF_MAX_SHARDS}", found=count
        )
    name = _NAME.match(path.name)
    if name is None or int(name["count"]) != count:
        raise FormatError(
            "the name of a shard does not tell its place",
            where=str(path),
            expected=f"PREFIX-NNNNN-of-{count:05d}.gguf",
            found=path.name,
            hint="Give the shards back the names under which they were published.",
        )
    paths = [shard_path(path.parent, name["prefix"], number, count) for number in range(count)]
    missing = [other.name for other in paths if not other.exists()]
    if missing:
        raise FormatError(
            "shards are missing",
            where=str(path),
            expected=f"{count} files",
            found=f"no {', '.join(missing[:4])}{' …' if len(missing) > 4 else ''}",
            hint="Put all shards into one folder.",
        )
    return paths
