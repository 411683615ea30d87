"""Writes `vectors.npz`: what llama.cpp's samplers leave of logits, step by step. Run by an interpreter that has
llama-cpp-python (made with 0.3.36):

    python tests/sampling/make_vectors.py MODEL.gguf

MODEL gives the vocabulary for DRY's breakers as text (SmolLM2-135M-Instruct). Every run has the parameters by this
package's names, ids accepted beforehand, and for each step the logits (as parts of 1/512), the probabilities left and
the id drawn.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

VOCABULARY, STEPS = 40, 8
PARTS = 512  # logits are multiples of 1/512
LIBRARY = llama_cpp.llama_cpp._lib
FLOAT, INT, SIZE, POINTER = ctypes.c_float, ctypes.c_int32, ctypes.c_size_t, ctypes.c_void_p


class Datum(ctypes.Structure):
    _fields_ = [("id", INT), ("logit", FLOAT), ("p", FLOAT)]


class Data(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.POINTER(Datum)), ("size", SIZE), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool),
    ]  # fmt: skip


class Bias(ctypes.Structure):
    _fields_ = [("token", INT), ("bias", FLOAT)]


class Vector(ctypes.Structure):
    """A C++ vector: where it begins, ends, and where its room ends."""

    _fields_ = [("begin", POINTER), ("end", POINTER), ("room", POINTER)]


def make(name: str, *arguments: object) -> int:
    """Call a constructor of a sampler."""
    function = getattr(LIBRARY, name)
    function.restype = POINTER
    function.argtypes = None
    return function(*arguments)


def made_of(items: list[int]) -> Vector:
    array = (INT * len(items))(*items)
    start = ctypes.addressof(array)
    vector = Vector(start, start + ctypes.sizeof(array), start + ctypes.sizeof(array))
    vector.array = array  # keeps it alive
    return vector


def dry(p: dict, breakers: list[list[int]]) -> int:
    inner = (Vector * max(1, len(breakers)))(*[made_of(items) for items in breakers])
    keep = [made_of(items) for items in breakers]
    for place, vector in enumerate(keep):
        inner[place] = vector
    start = ctypes.addressof(inner)
    end = start + len(breakers) * ctypes.sizeof(Vector)
    outer = Vector(start, end, end)
    name = "_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE"
    numbers = FLOAT(p["dry_multiplier"]), FLOAT(p["dry_base"]), INT(p["dry_allowed_length"])
    return make(name, *numbers, INT(p["dry_penalty_last_n"]), ctypes.byref(outer))


def penalties(p: dict) -> int:
    numbers = (FLOAT(p[key]) for key in ("repeat_penalty", "frequency_penalty", "presence_penalty"))
    return make("llama_sampler_init_penalties", INT(VOCABULARY), INT(p["repeat_last_n"]), *numbers)


def logit_bias(p: dict) -> int:
    pairs = (Bias * len(p["logit_bias"]))(*[Bias(int(token), bias) for token, bias in p["logit_bias"].items()])
    return make("llama_sampler_init_logit_bias", INT(VOCABULARY), INT(len(pairs)), pairs)


ONE = SIZE(1)
STEPS_OF_CHAIN = {
    "penalties": penalties,
    "dry": lambda p: dry(p, p.get("breakers", [])),
    "top_n_sigma": lambda p: make("llama_sampler_init_top_n_sigma", FLOAT(p["top_n_sigma"])),
    "top_k": lambda p: make("llama_sampler_init_top_k", INT(p["top_k"])),
    "typ_p": lambda p: make("llama_sampler_init_typical", FLOAT(p["typical_p"]), ONE),
    "top_p": lambda p: make("llama_sampler_init_top_p", FLOAT(p["top_p"]), ONE),
    "min_p": lambda p: make("llama_sampler_init_min_p", FLOAT(p["min_p"]), ONE),
    "xtc": lambda p: make(
        "llama_sampler_init_xtc", FLOAT(p["xtc_probability"]), FLOAT(p["xtc_threshold"]), ONE, INT(1)
    ),
    "temperature": lambda p: make(
        "llama_sampler_init_temp_ext",
        FLOAT(p["temperature"]), FLOAT(p.get("dynatemp_range", 0)), FLOAT(p.get("dynatemp_exponent", 1)),
    ),
    "logit_bias": logit_bias,
    "dist": lambda p: make("llama_sampler_init_dist", INT(7)),
    "mirostat1": lambda p: make(
        "llama_sampler_init_mirostat",
        INT(VOCABULARY), INT(7), FLOAT(p["mirostat_tau"]), FLOAT(p["mirostat_eta"]), INT(100),
    ),
    "mirostat2": lambda p: make(
        "llama_sampler_init_mirostat_v2", INT(7), FLOAT(p["mirostat_tau"]), FLOAT(p["mirostat_eta"])
    ),
    "adaptive_p": lambda p: make(
        "llama_sampler_init_adaptive_p", FLOAT(p["adaptive_target"]), FLOAT(p["adaptive_decay"]), INT(7)
    ),
}  # fmt: skip


def apply(sampler: int, data: Data) -> None:
    LIBRARY.llama_sampler_apply.argtypes = [POINTER, POINTER]
    LIBRARY.llama_sampler_apply(sampler, ctypes.byref(data))


def accept(samplers: list[int], token: int) -> None:
    LIBRARY.llama_sampler_accept.argtypes = [POINTER, INT]
    for sampler in samplers:
        LIBRARY.llama_sampler_accept(sampler, token)


def array_of(logits: np.ndarray) -> tuple[Data, object]:
    cells = (Datum * logits.size)(*[Datum(token, float(logit), 0) for token, logit in enumerate(logits)])
    return Data(cells, logits.size, -1, False), cells


def run(samplers: list[int], logits: np.ndarray, history: list[int]) -> tuple[np.ndarray, np.ndarray]:
    for token in history:
        accept(samplers, token)
    shares, drawn = np.zeros_like(logits), np.zeros(len(logits), np.int32)
    for step, row in enumerate(logits):
        data, _cells = array_of(row)
        for sampler in samplers:
            apply(sampler, data)
        left = [data.data[place] for place in range(data.size)]
        shares[step, [datum.id for datum in left]] = [datum.p for datum in left]
        drawn[step] = left[data.selected].id
        accept(samplers, int(drawn[step]))
    return shares, drawn


FULL = {
    "repeat_penalty": 1.3, "frequency_penalty": 0.1, "presence_penalty": 0.2, "repeat_last_n": 16,
    "dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 1, "dry_penalty_last_n": 24,
    "top_n_sigma": 1.7, "top_k": 20, "typical_p": 0.9, "top_p": 0.9, "min_p": 0.05,
    "xtc_probability": 1.0, "xtc_threshold": 0.15, "temperature": 0.8,
}  # fmt: skip
DEFAULT = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
ORDERS = [
    DEFAULT,
    DEFAULT[::-1],
    ["temperature", *DEFAULT[:-1]],
    ["top_k", "top_p", "min_p", "temperature"],
    ["min_p", "penalties", "top_p", "dry", "temperature"],
    ["xtc", "top_k", "dry", "penalties", "typ_p"],
    ["top_p", "temperature", "xtc", "top_n_sigma"],
    ["typ_p", "top_n_sigma", "temperature", "penalties"],
    ["dry", "temperature", "min_p", "top_k", "xtc", "penalties"],
    ["top_k", "penalties", "top_k", "temperature", "typ_p", "min_p"],
    ["top_n_sigma", "top_k", "top_p", "min_p", "xtc", "temperature", "penalties", "dry"],
]


def params_of(order: list[str]) -> dict:
    """All parameters; but top-nσ leaves tokens of probability 0 there, of which llama.cpp's typical makes NaN."""
    both = "top_n_sigma" in order and "typ_p" in order
    return {**FULL, "top_n_sigma": 0.0} if both and order.index("top_n_sigma") < order.index("typ_p") else FULL


# Each sampler by itself: the order, the parameters.
ALONE: list[tuple[list[str], dict]] = [
    *[(["top_k"], {"top_k": k}) for k in (1, 3, 39, 40, 100)],
    *[(["top_p"], {"top_p": p}) for p in (0.01, 0.55, 0.95)],
    *[(["min_p"], {"min_p": p}) for p in (0.01, 0.3, 0.9)],
    *[(["typ_p"], {"typical_p": p}) for p in (0.05, 0.4, 0.95)],
    *[(["top_n_sigma"], {"top_n_sigma": n}) for n in (0.1, 1.0, 2.5)],
    *[(["xtc"], {"xtc_probability": 1.0, "xtc_threshold": t}) for t in (0.02, 0.1, 0.15)],
    *[(["temperature"], {"temperature": t}) for t in (0.1, 0.7, 1.0, 1.9)],
    *[
        (["temperature"], {"temperature": t, "dynatemp_range": r, "dynatemp_exponent": e})
        for t, r, e in ((1.0, 0.5, 1.0), (0.8, 0.8, 2.0), (0.5, 2.0, 0.7))
    ],
    *[
        (["penalties"], {"repeat_penalty": r, "frequency_penalty": f, "presence_penalty": p, "repeat_last_n": n})
        for r, f, p, n in ((1.5, 0.0, 0.0, 8), (1.0, 0.4, 0.0, 30), (1.0, 0.0, 0.9, 4), (0.8, -0.3, 0.1, 64))
    ],
    (["logit_bias"], {"logit_bias": {"3": 1.5, "7": -2.0, "39": float("-inf")}}),
]
OFF: list[dict] = [{"top_k": 40}, {"top_k": 100}, {"temperature": 1.0}]  # those of them that leave all as it was
# Over 200 steps: what learns from what is drawn.
DRY = {"dry_multiplier": 0.7, "dry_base": 1.4, "dry_allowed_length": 2, "dry_penalty_last_n": 48}
LONG: list[tuple[list[str], dict]] = [
    (["temperature", "mirostat1"], {"temperature": 1.0, "mirostat_tau": 2.0, "mirostat_eta": 0.1}),
    (["temperature", "mirostat1"], {"temperature": 1.3, "mirostat_tau": 3.0, "mirostat_eta": 0.3}),
    (["temperature", "mirostat2"], {"temperature": 1.0, "mirostat_tau": 2.0, "mirostat_eta": 0.1}),
    (["temperature", "mirostat2"], {"temperature": 0.7, "mirostat_tau": 5.0, "mirostat_eta": 0.5}),
    (["min_p", "adaptive_p"], {"min_p": 0.02, "adaptive_target": 0.3, "adaptive_decay": 0.9}),
    (["temperature", "adaptive_p"], {"temperature": 1.2, "adaptive_target": 0.05, "adaptive_decay": 0.5}),
    (["dry"], DRY),
    (["dry"], {**DRY, "dry_allowed_length": 1, "dry_penalty_last_n": 500}),
    (["dry"], {**DRY, "dry_multiplier": 3.0, "dry_base": 1.0, "breakers": [[5]]}),
    (["dry"], {**DRY, "breakers": [[1, 2], [2], [3, 1, 1], [3, 1], [0, 4]]}),
    (["penalties"], {"repeat_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.1, "repeat_last_n": 32}),
]
# llama.cpp's own tests (tests/test-sampling.cpp of the same version): parameters, probabilities, ids before, expected.
PUBLISHED_DRY = [
    ([0.25] * 4, [0, 1], [0.25] * 4, 1.0, 1.1, 2, 4, []),
    ([0.25] * 4, [0, 1, 2, 0, 1], [0.296923, 0.296923, 0.109232, 0.296923], 1.0, 1.1, 2, 5, []),
    ([0.2] * 5, [0, 1, 3, 4, 0, 1], [0.2] * 5, 1.0, 1.1, 2, 6, [[3]]),
    ([0.2] * 5, [0, 1, 2, 0, 1], [0.241818, 0.241818, 0.032727, 0.241818, 0.241818], 2.0, 1.1, 2, 5, []),
    ([0.2] * 5, [0, 1, 2, 3, 4, 0, 1], [0.2] * 5, 1.0, 1.1, 4, 7, []),
]
TEXT = 'He said: "one two\n* three" and then he said: "one two\n* three" and then he said: "one'
BREAKERS = ["\n", ":", '"', "*", "said:", " and"]


def text_breakers(model: str, arrays: dict[str, np.ndarray]) -> dict:
    """DRY's penalties behind a text that repeats itself, with breakers as text; each prefix of the ids is a step."""
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    loaded = llama_cpp.llama_model_load_from_file(model.encode(), parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(loaded)
    room = (INT * 512)()
    count = llama_cpp.llama_tokenize(vocabulary, TEXT.encode(), len(TEXT.encode()), room, 512, False, False)
    ids = list(room[:count])
    size = llama_cpp.llama_vocab_n_tokens(vocabulary)
    for number, breakers in enumerate(([], BREAKERS[:4], BREAKERS)):
        texts = (ctypes.c_char_p * max(1, len(breakers)))(*[text.encode() for text in breakers])
        LIBRARY.llama_sampler_init_dry.argtypes = [POINTER, FLOAT, FLOAT, INT, INT, POINTER, SIZE]
        sampler = LIBRARY.llama_sampler_init_dry(vocabulary, 1.0, 1.5, 1, 400, texts, len(breakers))
        rows = []
        for step, token in enumerate(ids):
            accept([sampler], token)
            data, _cells = array_of(np.zeros(size, np.float32))
            apply(sampler, data)
            left = np.ctypeslib.as_array(ctypes.cast(data.data, ctypes.POINTER(FLOAT)), (size, 3))[:, 1]
            rows += [(step, token, left[token]) for token in np.flatnonzero(left)]
        assert rows
        arrays[f"text_{number}"] = np.array(rows, np.float64)
    return {"ids": ids, "breakers": [[], BREAKERS[:4], BREAKERS]}


def main(model: str) -> None:
    rng = np.random.default_rng(3)
    arrays: dict[str, np.ndarray] = {}
    runs = []
    plans = [(order, params_of(order), STEPS) for order in ORDERS]
    plans += [(order, p, STEPS) for order, p in ALONE] + [(order, p, 200) for order, p in LONG]
    for number, (order, p, steps) in enumerate(plans):
        repeating = steps == 200 and order == ["dry"]
        parts = rng.normal(0, 2 * PARTS, (steps, VOCABULARY)).astype(np.int16)
        for row in parts:
            while len(set(row.tolist())) < VOCABULARY:  # the order of equal ones is nobody's
                row += rng.integers(-1, 2, VOCABULARY).astype(np.int16)
        if repeating:
            parts[:, 6:] -= 6 * PARTS  # a few tokens that come again and again
        logits = parts.astype(np.float32) / PARTS
        history = rng.integers(0, 6 if repeating else VOCABULARY, 40).tolist()
        names = order if order[-1] in ("mirostat1", "mirostat2", "adaptive_p") else [*order, "dist"]
        shares, drawn = run([STEPS_OF_CHAIN[name](p) for name in names], logits, history)
        arrays |= {f"parts_{number}": parts, f"shares_{number}": shares, f"drawn_{number}": drawn}
        runs.append({"order": order, "params": p, "history": history, "off": p in OFF})
    for p, before, expected, multiplier, base, allowed, last_n, breakers in PUBLISHED_DRY:
        names = ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n")
        params = dict(zip(names, (multiplier, base, allowed, last_n), strict=True))
        logits = np.log(np.array([p], np.float32))
        shares, _ = run([dry(params, breakers), make("llama_sampler_init_dist", INT(7))], logits, before)
        np.testing.assert_allclose(shares[0], expected, atol=1e-5)
    text = text_breakers(model, arrays)
    arrays["runs"] = np.array(json.dumps({"runs": runs, "text": text, "published_dry": PUBLISHED_DRY}))
    np.savez_compressed(Path(__file__).with_name("vectors.npz"), **arrays)
    print(len(runs), "runs")


if __name__ == "__main__":
    main(sys.argv[1])
