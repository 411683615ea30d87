"""Ranges of the sampling parameters, and what model files may say about them."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from prism_inference.errors import LimitError, MetadataError, ParameterError
from prism_inference.limits import DRY_MAX_BREAKER_BYTES, DRY_MAX_BREAKERS, SAMPLING_MAX_STEPS
from prism_inference.sampling import SamplingOptions, SamplingParams

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
    ("typical_p", 1),
    ("top_n_sigma", 0),
    ("xtc_probability", 1),
    ("xtc_threshold", 1),
    ("dynatemp_range", 1e300),
    ("dynatemp_exponent", 0),
    ("repeat_penalty", 1e-300),
    ("repeat_penalty", 1e300),
    ("frequency_penalty", -2),
    ("presence_penalty", -1e300),
    ("repeat_last_n", -1),
    ("repeat_last_n", 0),
    ("dry_multiplier", 0),
    ("dry_base", 1),
    ("dry_allowed_length", 1),
    ("dry_penalty_last_n", -1),
    ("mirostat", 2),
    ("mirostat_tau", 5e-324),
    ("mirostat_eta", 0),
    ("adaptive_target", None),
    ("adaptive_target", 0),
    ("adaptive_target", 1),
    ("adaptive_decay", 0.99),
    ("min_tokens", 0),
    ("ignore_eos", True),
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
    ("typical_p", 0),
    ("typical_p", 1.01),
    ("top_n_sigma", -1),
    ("top_n_sigma", math.inf),
    ("xtc_probability", 1.1),
    ("xtc_threshold", 0),
    ("dynatemp_range", -0.1),
    ("dynatemp_exponent", -1),
    ("repeat_penalty", 0),
    ("repeat_penalty", -1.1),
    ("repeat_penalty", math.inf),
    ("repeat_penalty", math.nan),
    ("repeat_penalty", 5e-324),
    ("frequency_penalty", math.inf),
    ("presence_penalty", math.nan),
    ("repeat_last_n", -2),
    ("repeat_last_n", 1.0),
    ("dry_multiplier", -1),
    ("dry_base", 0.5),
    ("dry_allowed_length", 0),
    ("dry_penalty_last_n", -2),
    ("mirostat", 3),
    ("mirostat", True),
    ("mirostat_tau", 0),
    ("mirostat_eta", -0.1),
    ("adaptive_target", -0.1),
    ("adaptive_target", 1.1),
    ("adaptive_decay", 1),
    ("min_tokens", -1),
    ("ignore_eos", 1),
    ("ignore_eos", None),
    ("seed", -1),
    ("seed", 2**64),
    ("seed", 1.5),
    ("seed", True),
]
LISTS = {"samplers", "dry_sequence_breakers", "logit_bias", "bad_words"}
NAMES = {field.name for field in fields(SamplingParams)} - LISTS
assert {name for name, _ in GOOD} == {name for name, _ in BAD} == NAMES


def test_the_typed_keywords_are_the_fields() -> None:
    assert list(SamplingOptions.__annotations__) == [field.name for field in fields(SamplingParams)]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("samplers", "top_k;TEMP", ("top_k", "temperature")),
        ("samplers", "top-k,minp, nucleus", ("top_k", "min_p", "top_p")),
        ("samplers", ["typical", "adaptive-p", "dry", "dry"], ("typ_p", "adaptive_p", "dry", "dry")),
        ("samplers", [], ()),
        ("dry_sequence_breakers", ["a" * DRY_MAX_BREAKER_BYTES], ("a" * DRY_MAX_BREAKER_BYTES,)),
        ("logit_bias", {3: -math.inf, 5: 1}, {3: -math.inf, 5: 1.0}),
        ("bad_words", [[1], (2, 3)], ((1,), (2, 3))),
    ],
)
def test_brings_lists_into_one_form(name: str, value: Any, kept: Any) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samplers", "top_q"),
        ("samplers", 5),
        ("samplers", ["top_k"] * (SAMPLING_MAX_STEPS + 1)),
        ("samplers", [1]),
        ("dry_sequence_breakers", "\n"),
        ("dry_sequence_breakers", [""]),
        ("dry_sequence_breakers", ["a" * (DRY_MAX_BREAKER_BYTES + 1)]),
        ("dry_sequence_breakers", ["a"] * (DRY_MAX_BREAKERS + 1)),
        ("logit_bias", {3: math.nan}),
        ("logit_bias", {3: math.inf}),
        ("logit_bias", {3: 1e31}),
        ("logit_bias", {3: "1"}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"3": 1.0}),
        ("logit_bias", [(3, 1.0)]),
        ("bad_words", [3]),
        ("bad_words", [[]]),
        ("bad_words", [[-1]]),
        ("bad_words", ["ab"]),
    ],
)
def test_refuses_wrong_lists(name: str, value: Any) -> None:
    with pytest.raises((ParameterError, LimitError)) as caught:
        SamplingParams(**{name: value})
    assert caught.value.where == name
    assert caught.value.expected


def test_ids_are_held_against_the_vocabulary() -> None:
    params = SamplingParams(logit_bias={9: 1.0}, bad_words=[[3, 12]])
    params.check_ids(13)
    with pytest.raises(ParameterError, match="bad_words"):
        params.check_ids(12)
    with pytest.raises(ParameterError, match="logit_bias"):
        params.check_ids(9)


def test_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(ParameterError, match="temperature") as caught:
        SamplingParams.from_metadata({}, temprature=1.0)
    assert caught.value.where == "temprature"


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


def test_takes_all_of_llama_cpp_s_keys() -> None:
    keys = {
        "sequence": "penalties;temperature", "xtc_probability": 0.5, "xtc_threshold": 0.2, "penalty_last_n": 32,
        "penalty_repeat": 1.1, "mirostat": 2, "mirostat_tau": 4.0, "mirostat_eta": 0.2,
    }  # fmt: skip
    params = SamplingParams.from_metadata({f"general.sampling.{key}": value for key, value in keys.items()})
    assert params == SamplingParams(
        samplers=("penalties", "temperature"), xtc_probability=0.5, xtc_threshold=0.2, repeat_last_n=32,
        repeat_penalty=1.1, mirostat=2, mirostat_tau=4.0, mirostat_eta=0.2,
    )  # fmt: skip
    with pytest.raises(MetadataError, match="sequence"):
        SamplingParams.from_metadata({"general.sampling.sequence": "magic"})


def test_reads_a_negative_top_k_of_a_file_as_off() -> None:
    assert SamplingParams.from_metadata({"general.sampling.top_k": -1}).top_k == 0


@pytest.mark.parametrize("value", [2.0, "0.9", math.nan, None, [0.9]])
def test_refuses_a_wrong_value_of_a_file_unless_it_is_not_needed(value: Any) -> None:
    metadata = {"general.sampling.top_p": value}
    with pytest.raises(MetadataError) as caught:
        SamplingParams.from_metadata(metadata)
    assert caught.value.where == "general.sampling.top_p"
    assert SamplingParams.from_metadata(metadata, top_p=0.5).top_p == 0.5
