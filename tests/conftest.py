"""What all tests share: a seeded generator, the folder of golden data, a cache folder of the suite's own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("PRISM_SHARED", ROOT.parent / "shared"))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed: a failing case can be repeated."""
    return np.random.default_rng(20261201)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"reference data not found at {SHARED}: set PRISM_SHARED to its folder")
    return SHARED


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of the real models that `fetch_models.py` brings; tests that need one skip where it is absent."""
    from prism_inference.settings import settings

    folder = Path(os.environ.get("PRISM_TEST_MODELS") or settings().cache / "models")
    if not folder.is_dir():
        pytest.skip(f"no models at {folder}: run tests/fetch_models.py, or set PRISM_TEST_MODELS to their folder")
    return folder
