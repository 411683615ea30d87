"""Sets of files that hold one model: `PREFIX-00001-of-00003.gguf`, and the keys that tell each its place.

Paths never come from metadata: the names of the others follow from the name of the one that was given.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import FormatError, LimitError, MetadataError
from ..limits import GGUF_MAX_SHARDS, GGUF_MAX_TENSORS
from .metadata import MISSING, Metadata, Missing

NUMBER_KEY = "split.no"  # counted from 0; file names count from 1
COUNT_KEY = "split.count"
TENSORS_KEY = "split.tensors.count"  # of the whole set

_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL | re.ASCII)
_NAMED_MISSING = 4  # missing shards that an error lists


def shard_name(prefix: str, number: int, count: int) -> str:
    """Return the file name of a shard, `number` counted from 0."""
    return f"{prefix}-{number + 1:05d}-of-{count:05d}.gguf"


def find_shards(path: Path, metadata: Metadata) -> list[Path]:
    """Return the paths of the set that a file belongs to, in order; the file alone if it is not split.

    Raises:
        FormatError: the name does not say which shard it is, or a shard is missing.
        LimitError: too many shards, or too many tensors in all.
    """
    count = _integer(metadata, COUNT_KEY, 0)
    if count <= 1:
        return [path]
    for key, number, limit in (
        (COUNT_KEY, count, GGUF_MAX_SHARDS),
        (TENSORS_KEY, _integer(metadata, TENSORS_KEY), GGUF_MAX_TENSORS),
    ):
        if number > limit:
            raise LimitError("the set is too large", where=f"{path}, {key}", expected=f"at most {limit}", found=number)
    name = _NAME.fullmatch(path.name)
    if name is None or int(name["count"]) != count or not 1 <= int(name["number"]) <= count:
        raise FormatError(
            "the name of a shard does not tell its place",
            where=str(path),
            expected=f"PREFIX-NNNNN-of-{count:05d}.gguf",
            found=path.name,
            hint="Give the shards back the names under which they were published.",
        )
    paths = [path.with_name(shard_name(name["prefix"], number, count)) for number in range(count)]
    missing = [other.name for other in paths if not other.exists()]
    if missing:
        raise FormatError(
            "shards are missing",
            where=str(path),
            expected=f"{count} files",
            found=f"no {', '.join(missing[:_NAMED_MISSING])}{' …' if len(missing) > _NAMED_MISSING else ''}",
            hint="Put all shards into one folder.",
        )
    return paths


def check_place(path: Path, metadata: Metadata, number: int, count: int) -> None:
    """Refuse a shard that says it belongs to another place or set than its name does."""
    found = _integer(metadata, NUMBER_KEY), _integer(metadata, COUNT_KEY)
    if found != (number, count):
        raise FormatError(
            "the shard does not belong to this set or place",
            where=str(path),
            expected=f"{NUMBER_KEY} {number} of {count}",
            found=f"{found[0]} of {found[1]}",
            hint="Give the shards back the names under which they were published.",
        )


def check_total(path: Path, metadata: Metadata, found: int) -> None:
    """Refuse a set that has more or fewer tensors than its first shard says."""
    total = _integer(metadata, TENSORS_KEY)
    if found != total:
        raise FormatError(
            "the shards hold another number of tensors than the set should",
            where=f"{path}, {TENSORS_KEY}",
            expected=total,
            found=found,
        )


def _integer(metadata: Metadata, key: str, default: int | Missing = MISSING) -> int:
    """Read a key of the container: what is wrong with it is a fault of the file's format."""
    try:
        return metadata.integer(key, default, low=0)
    except MetadataError as error:
        raise FormatError(
            error.problem, where=error.where, expected=error.expected, found=error.found, hint=error.hint
        ) from error
