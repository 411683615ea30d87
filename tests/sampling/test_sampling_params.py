"""Ranges of the sampling parameters, and what model files may say about them."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from prism_inference.errors import MetadataError, ParameterError
from prism_inference.sampling import SamplingParams

# The ranges are those that the documentation of each parameter states; both borders and what lies just outside.
GOOD: list[tuple[str, Any]] = [
    ("temperature", 0),
    ("temperature", 0.0),
    ("temperature", 5e-324),
    ("temperature", 1e300),
    ("top_k", 0),
    ("top_k", 10**9),
    ("top_p", 5e-324),
    ("top_p", 1),
    ("min_p", 0),
    ("min_p", 0.999999),
    ("seed", None),
    ("seed", 0),
    ("seed", 2**64 - 1),
]
BAD: list[tuple[str, Any]] = [
    ("temperature", -0.1),
    ("temperature", math.inf),
    ("temperature", math.nan),
    ("temperature", None),
    ("temperature", "1"),
    ("temperature", True),
    ("top_k", -1),
    ("top_k", 1.0),
    ("top_k", False),
    ("top_p", 0),
    ("top_p", -0.1),
    ("top_p", 1.0001),
    ("top_p", math.nan),
    ("min_p", -0.1),
    ("min_p", 1),
    ("min_p", math.nan),
    ("seed", -1),
    ("seed", 2**64),
    ("seed", 1.5),
    ("seed", True),
]
assert GOOD
assert BAD


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_accepts_the_range(name: str, value: Any) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), BAD)
def test_refuses_what_lies_outside_and_names_the_field(name: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.where == name
    assert caught.value.expected
    assert caught.value.found == repr(value)


def test_cannot_be_changed() -> None:
    params = SamplingParams()
    with pytest.raises(FrozenInstanceError):
        params.top_k = 3  # type: ignore[misc]


def test_takes_defaults_from_a_model_file() -> None:
    metadata = {
        "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20,
        "general.sampling.top_p": 0.95,
        "general.sampling.min_p": 0.05,
        "general.name": "other",
    }
    assert SamplingParams.from_metadata(metadata) == SamplingParams(0.7, 20, 0.95, 0.05)
    given = SamplingParams.from_metadata(metadata, temperature=0.0, top_k=None, seed=3)
    assert given == SamplingParams(0.0, 20, 0.95, 0.05, 3)
    assert SamplingParams.from_metadata({}) == SamplingParams()


def test_reads_a_negative_top_k_of_a_file_as_off() -> None:
    assert SamplingParams.from_metadata({"general.sampling.top_k": -1}).top_k == 0


@pytest.mark.parametrize("value", [2.0, "0.9", math.nan, None, [0.9]])
def test_refuses_a_wrong_value_of_a_file_unless_it_is_not_needed(value: Any) -> None:
    metadata = {"general.sampling.top_p": value}
    with pytest.raises(MetadataError) as caught:
        SamplingParams.from_metadata(metadata)
    assert caught.value.where == "general.sampling.top_p"
    assert SamplingParams.from_metadata(metadata, top_p=0.5).top_p == 0.5
