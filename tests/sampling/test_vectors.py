"""The whole chain against llama.cpp's samplers, step by step: `make_vectors.py` says how the vectors came about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_inference.sampling import Breakers, Sampler, SamplingParams
from prism_inference.sampling.candidates import Candidates, probabilities

with np.load(Path(__file__).with_name("vectors.npz")) as archive:
    VECTORS = dict(archive)
PLAN = json.loads(str(VECTORS["runs"]))
RUNS: list[dict[str, Any]] = PLAN["runs"]
PARTS = 512  # logits are stored as multiples of 1/512
TOLERANCE = 1e-5
SINGLE_STEPS = {"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"}
assert sum(len(run["order"]) > 2 and "adaptive_p" not in run["order"] for run in RUNS) >= 10, "ten orders of the chain"
assert {run["order"][0] for run in RUNS if len(run["order"]) == 1} >= SINGLE_STEPS, "every step alone"
assert sum(len(VECTORS[f"drawn_{number}"]) == 200 for number in range(len(RUNS))) >= 11


def sampler_of(run: dict[str, Any]) -> Sampler:
    """A sampler with a run's parameters, and no step that the run does not name."""
    params = {key: value for key, value in run["params"].items() if key != "breakers"}
    order = run["order"]
    if order[-1].startswith("mirostat"):
        params["mirostat"] = int(order[-1][-1])
    elif order == ["logit_bias"]:
        params = {"logit_bias": {int(token): bias for token, bias in params["logit_bias"].items()}, "samplers": []}
    else:
        params["samplers"] = order
    params.setdefault("temperature", 1.0)
    sampler = Sampler(SamplingParams(**params), breakers=Breakers(run["params"].get("breakers", [])))
    sampler.accept(run["history"])
    return sampler


def dense(candidates: Candidates, size: int) -> np.ndarray:
    shares = np.zeros(size)
    shares[candidates.ids] = probabilities(candidates)
    return shares


@pytest.mark.parametrize("number", range(len(RUNS)), ids=lambda n: f"{n}-{'+'.join(RUNS[n]['order'])[:40]}")
def test_the_chain_leaves_what_llama_cpp_leaves(number: int) -> None:
    logits = VECTORS[f"parts_{number}"].astype(np.float32) / PARTS
    sampler = sampler_of(RUNS[number])
    narrowed = False
    for row, expected, drawn in zip(
        logits, VECTORS[f"shares_{number}"], VECTORS[f"drawn_{number}"].tolist(), strict=True
    ):
        before = row.copy()
        candidates = sampler.candidates(row)
        np.testing.assert_array_equal(row, before, "the logits are the caller's")
        np.testing.assert_allclose(dense(candidates, row.size), expected, atol=TOLERANCE)
        plain = np.exp(row - row.max())
        narrowed |= bool(np.abs(plain / plain.sum() - expected).max() > 10 * TOLERANCE)
        sampler.take(candidates, int(np.searchsorted(candidates.ids, drawn)))
    assert narrowed != RUNS[number]["off"], "a vector that tests nothing"


@pytest.mark.parametrize("case", PLAN["published_dry"], ids=str)
def test_published_vectors_of_dry(case: list[Any]) -> None:
    shares, before, expected, multiplier, base, allowed, last_n, breakers = case
    params = SamplingParams(
        temperature=1.0,
        dry_multiplier=multiplier,
        dry_base=base,
        dry_allowed_length=allowed,
        dry_penalty_last_n=last_n,
    )
    sampler = Sampler(params, breakers=Breakers(breakers))
    sampler.accept(before)
    left = sampler.candidates(np.log(np.array(shares, np.float32)))
    np.testing.assert_allclose(dense(left, len(shares)), expected, atol=TOLERANCE)


@pytest.mark.parametrize("number", range(3))
def test_breakers_as_text(number: int, models: Path) -> None:
    """Penalties behind every prefix of a text that repeats itself, for breakers as text: what llama.cpp takes off."""
    import prism_inference as prism
    from prism_inference.runtime.breakers import text_breakers
    from prism_inference.runtime.defaults import DEFAULT_MODEL, KNOWN_MODELS

    path = models / KNOWN_MODELS[DEFAULT_MODEL].file_name
    if not path.exists():
        pytest.skip(f"{path.name} was not fetched: python tests/fetch_models.py")
    tokenizer = prism.load_tokenizer(path)
    breakers = text_breakers(tokenizer, tuple(PLAN["text"]["breakers"][number]))
    params = SamplingParams(
        temperature=1.0, dry_multiplier=1.0, dry_base=1.5, dry_allowed_length=1, dry_penalty_last_n=400
    )
    sampler = Sampler(params, breakers=breakers)
    found = []
    for step, token in enumerate(PLAN["text"]["ids"]):
        sampler.accept([token])
        logits = sampler.candidates(np.zeros(len(tokenizer), np.float32)).logits
        found += [(step, int(token), float(logits[token])) for token in np.flatnonzero(logits)]
    np.testing.assert_allclose(found, VECTORS[f"text_{number}"], rtol=1e-6)
