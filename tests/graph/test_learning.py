"""Optimizer steps over several steps, with their moments, against the published formulas and PyTorch; losses at their
edges."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from prism_inference.graph import Context, Graph

STEPS, SIZE = 5, 1037
ALPHA, BETA1, BETA2, EPS, DECAY = 1e-2, 0.9, 0.99, 1e-6, 0.1

Wide = npt.NDArray[np.float64]


def gradients(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    return rng.standard_normal((STEPS, SIZE)).astype(np.float32)


def run_adamw(start: npt.NDArray[np.float32], given: npt.NDArray[np.float32], factor: float | None) -> list[Wide]:
    """Return parameters and moments after all steps."""
    context = Context()
    w, g, m, v = (context.tensor("F32", (SIZE,)).set(values) for values in (start, start, 0 * start, 0 * start))
    numbers = context.tensor("F32", (7,)).set(np.zeros(7))
    scale = None if factor is None else context.tensor("F32", (1,)).set([factor])
    graph = Graph(context)
    graph.expand(w.opt_step_adamw(g, m, v, numbers, scale).mark_output())
    for t in range(1, STEPS + 1):
        g.set(given[t - 1])
        numbers.set([ALPHA, BETA1, BETA2, EPS, DECAY, 1 / (1 - BETA1**t), 1 / (1 - BETA2**t)])
        graph.compute(2)
    return [tensor.numpy().astype(np.float64) for tensor in (w, m, v)]


@pytest.mark.parametrize("factor", [None, 0.25])
def test_adamw_follows_the_paper(factor: float | None, rng: np.random.Generator) -> None:
    """Algorithm 2 of arXiv 1711.05101 with the schedule multiplier 1, in float64."""
    start, given = rng.standard_normal(SIZE).astype(np.float32), gradients(rng)
    w, m, v = start.astype(np.float64), np.zeros(SIZE), np.zeros(SIZE)
    for t in range(1, STEPS + 1):
        g = given[t - 1].astype(np.float64) * (1.0 if factor is None else factor)
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2
        w = w - ALPHA * DECAY * w - ALPHA * (m / (1 - BETA1**t)) / (np.sqrt(v / (1 - BETA2**t)) + EPS)
    for actual, expected in zip(run_adamw(start, given, factor), (w, m, v), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(w - start).max() > 0.02


def test_adamw_agrees_with_pytorch(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    start, given = rng.standard_normal(SIZE).astype(np.float32), gradients(rng)
    w = torch.tensor(start.copy(), requires_grad=True)
    optimizer = torch.optim.AdamW([w], lr=ALPHA, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY)
    for gradient in given:
        w.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(run_adamw(start, given, None)[0], w.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor", [None, 0.25])
def test_sgd_follows_its_formula(factor: float | None, rng: np.random.Generator) -> None:
    start, given = rng.standard_normal(SIZE).astype(np.float32), gradients(rng)
    context = Context()
    w, g = context.tensor("F32", (SIZE,)).set(start), context.tensor("F32", (SIZE,)).set(start)
    numbers = context.tensor("F32", (2,)).set([ALPHA, DECAY])
    scale = None if factor is None else context.tensor("F32", (1,)).set([factor])
    graph = Graph(context)
    graph.expand(w.opt_step_sgd(g, numbers, scale).mark_output())
    expected = start.astype(np.float64)
    for gradient in given:
        g.set(gradient)
        graph.compute(2)
        expected = expected - ALPHA * DECAY * expected - ALPHA * gradient * (1.0 if factor is None else factor)
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5, atol=1e-6)


# --- Losses -----------------------------------------------------------------------------------------------------


def token_loss(logits: object, labels: object, threads: int = 2) -> tuple[float, npt.NDArray[np.float32]]:
    """Return the loss and its gradient."""
    context = Context()
    values = np.asarray(logits, np.float32)
    leaf = context.tensor("F32", tuple(reversed(values.shape))).set(values).mark_parameter()
    loss = leaf.token_loss(context.tensor("I32", (values.shape[0],)).set(np.asarray(labels, np.int32)))
    graph = Graph(context, gradients=True)
    graph.expand(loss.mark_output().mark_loss())
    graph.build_backward()
    graph.reset()
    graph.compute(threads)
    gradient = graph.gradient(leaf)
    assert gradient is not None
    return float(loss.numpy().item()), gradient.numpy()


def test_large_logits_overflow_nothing() -> None:
    """A certain answer costs nothing, a wrong one the distance; labels below 0 neither cost nor pull."""
    logits = np.zeros((3, 40), np.float32)
    logits[:, 7] = [1e4, 1e4, np.inf]
    loss, gradient = token_loss(logits, [7, 3, -1])
    assert loss == 1e4
    expected = np.zeros((3, 40))
    expected[1, [7, 3]] = [1, -1]
    np.testing.assert_allclose(gradient, expected, atol=1e-30)


def test_what_is_not_a_number_is_not_hidden() -> None:
    logits = np.zeros((2, 70), np.float32)
    logits[1, 69] = np.nan
    loss, gradient = token_loss(logits, [0, 0])
    assert np.isnan(loss)
    assert np.isnan(gradient[1]).any()
    assert np.isfinite(gradient[0]).all()


def test_a_label_beyond_the_vocabulary_is_seen_in_the_loss() -> None:
    loss, gradient = token_loss(np.zeros((2, 20)), [20, 3])
    assert np.isnan(loss)
    assert np.isnan(gradient[0]).all()
    assert np.isfinite(gradient[1]).all()


def test_the_total_is_exact_over_many_rows(rng: np.random.Generator) -> None:
    """Equal rows add up to their number times one, whatever the number of threads."""
    row = rng.standard_normal(100).astype(np.float32)
    wide = row.astype(np.float64)
    one = float(np.log(np.exp(wide).sum()) - wide[17])
    for threads in (1, 2, 3):
        loss, _ = token_loss(np.tile(row, (3000, 1)), [17] * 3000, threads)
        assert loss == pytest.approx(3000 * one, rel=3e-7)
