"""Products do not change with the batch: each token's results have the same bits alone and among others."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from prism_inference import codecs
from prism_inference.engine.objects import library
from prism_inference.engine.run import Executable
from prism_inference.engine.team import team
from prism_inference.graph import Context, Graph, Storage
from prism_inference.kernels.target import target
from prism_inference.plan import make_plan
from prism_inference.plan.layouts import FLOATS, QUANTIZED

K, M = 768, 70  # more than one depth of a panel; two strips of 32 rows and six more
BATCHES = (1, 2, 3, 4, 5, 7, 8, 300)


@pytest.mark.parametrize("isa", sorted({"generic", target().isa}))
@pytest.mark.parametrize("kind", [*QUANTIZED, *FLOATS])
def test_a_batch_changes_no_bit(kind: str, isa: str, rng: np.random.Generator) -> None:
    data = random_rows(kind, K, M, rng)
    x = rng.standard_normal((max(BATCHES), K)).astype(np.float32)

    def product(tokens: np.ndarray, threads: int) -> np.ndarray:
        ctx = Context()
        w = ctx.tensor(kind, (K, M), storage=Storage(data))
        y = w.mul_mat(ctx.tensor("F32", (K, len(tokens))).set(tokens)).mark_output()
        graph = Graph(ctx)
        graph.expand(y)
        Executable(make_plan(graph, isa), team(threads), library()).run()
        return y.numpy().reshape(len(tokens), M)

    whole = product(x, 2)
    exact = x.astype(np.float64) @ codecs.decode(kind, data, M * K).reshape(M, K).T.astype(np.float64)
    assert np.abs(whole - exact).max() < 0.02 * np.abs(exact).max()  # what the rounding of x to eight bits leaves
    for count in BATCHES:
        for threads in (1, 2):
            found = product(x[:count], threads)
            np.testing.assert_array_equal(found, whole[:count], f"{count} tokens, {threads} threads")
