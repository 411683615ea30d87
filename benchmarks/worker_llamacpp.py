"""Measures llama.cpp in the same way as `worker_prism.py`; run by an interpreter that has llama-cpp-python."""

from __future__ import annotations

import ctypes
import json
import random
import sys
import time


def main(path: str, threads: int, prompt: int, generated: int, repetitions: int) -> None:
    import llama_cpp as lib

    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    start = time.perf_counter()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    params.n_ctx = max(prompt, generated) + 8
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = threads
    context = lib.llama_init_from_model(model, params)
    memory = lib.llama_get_memory(context)
    generator = random.Random(1)
    ids = [generator.randrange(10, 30_000) for _ in range(prompt)]

    def evaluate(tokens: list[int]) -> None:
        array = (lib.llama_token * len(tokens))(*tokens)
        assert lib.llama_decode(context, lib.llama_batch_get_one(array, len(tokens))) == 0
        lib.llama_synchronize(context)

    evaluate(ids[:8])
    loaded = time.perf_counter() - start
    prompts, generations = [], []
    for _ in range(repetitions):
        lib.llama_memory_clear(memory, True)
        start = time.perf_counter()
        evaluate(ids)
        prompts.append(prompt / (time.perf_counter() - start))
        lib.llama_memory_clear(memory, True)
        start = time.perf_counter()
        for token in ids[:generated]:
            evaluate([token])
        generations.append(generated / (time.perf_counter() - start))
    print(json.dumps({"prompt": prompts, "generation": generations, "load_seconds": loaded}))


if __name__ == "__main__":
    main(sys.argv[1], *(int(value) for value in sys.argv[2:6]))
