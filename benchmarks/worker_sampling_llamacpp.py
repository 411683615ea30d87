"""Times llama.cpp's samplers at the work of `sampling.py`; run by an interpreter that has llama-cpp-python.

    python worker_sampling_llamacpp.py VOCABULARY CHAIN

The array of candidates is filled anew for every token, as llama.cpp's own loop does. Prints microseconds for a token.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

import llama_cpp
import numpy as np

from sampling import STEPS, WINDOW, inputs

LIBRARY = llama_cpp.llama_cpp._lib
FLOAT, INT, SIZE, POINTER = ctypes.c_float, ctypes.c_int32, ctypes.c_size_t, ctypes.c_void_p
DRY_TESTING = "_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE"


class Data(ctypes.Structure):
    """llama_token_data_array."""

    _fields_ = (("data", POINTER), ("size", SIZE), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool))


def make(name: str, *arguments: object) -> int:
    function = getattr(LIBRARY, name)
    function.restype, function.argtypes = POINTER, None
    return POINTER(function(*arguments))


def main(vocabulary: int, chain: dict[str, float]) -> None:
    logits, history = inputs(vocabulary)
    samplers = []
    if "repeat_penalty" in chain:
        numbers = [FLOAT(chain[key]) for key in ("repeat_penalty", "frequency_penalty", "presence_penalty")]
        samplers.append(make("llama_sampler_init_penalties", INT(vocabulary), INT(WINDOW), *numbers))
        no_breakers = (POINTER * 3)(None, None, None)
        samplers.append(make(DRY_TESTING, FLOAT(0.8), FLOAT(1.75), INT(2), INT(WINDOW), ctypes.byref(no_breakers)))
    if "top_k" in chain:
        samplers.append(make("llama_sampler_init_top_k", INT(40)))
        samplers.append(make("llama_sampler_init_top_p", FLOAT(0.95), SIZE(0)))
        samplers.append(make("llama_sampler_init_min_p", FLOAT(0.05), SIZE(0)))
        samplers.append(make("llama_sampler_init_temp_ext", FLOAT(0.8), FLOAT(0), FLOAT(1)))
        samplers.append(make("llama_sampler_init_dist", INT(7)))
    else:
        samplers.append(make("llama_sampler_init_greedy"))
    accept, apply = LIBRARY.llama_sampler_accept, LIBRARY.llama_sampler_apply
    accept.argtypes, apply.argtypes = [POINTER, INT], [POINTER, POINTER]
    for token in history:
        for sampler in samplers:
            accept(sampler, token)
    cells = np.zeros(vocabulary, [("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    ids = np.arange(vocabulary, dtype=np.int32)
    seconds = 0.0
    for step in range(STEPS + 1):
        started = time.perf_counter()
        cells["id"], cells["logit"] = ids, logits[step % len(logits)]
        data = Data(cells.ctypes.data, vocabulary, -1, False)
        for sampler in samplers:
            apply(sampler, ctypes.byref(data))
        token = int(cells["id"][data.selected])
        for sampler in samplers:
            accept(sampler, token)
        if step:
            seconds += time.perf_counter() - started
    print(seconds / STEPS * 1e6)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
