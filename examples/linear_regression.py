"""Fit a line to noisy points: a graph, its gradient, and AdamW, in thirty lines."""

from __future__ import annotations

import numpy as np

from prism_inference.graph import Context, Graph

SLOPE, OFFSET, POINTS, STEPS = 1.5, -0.5, 64, 300


def main() -> None:
    """Fit and print the line."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, POINTS)
    heights = SLOPE * points + OFFSET + rng.normal(0, 0.02, POINTS)

    ctx = Context()
    x = ctx.tensor("F32", (1, POINTS)).set(points[:, None])  # ne = (1, 64): 64 rows of one value
    y = ctx.tensor("F32", (1, POINTS)).set(heights[:, None])
    slope, offset = (ctx.parameter("F32", (1,), name=name).set([0.0]) for name in ("slope", "offset"))
    loss = x.mul(slope).add(offset).sub(y).sqr().sum().scale(1 / POINTS).mark_loss()

    graph = Graph(ctx, gradients=True)
    graph.expand(loss)
    graph.build_backward()
    # alpha, beta1, beta2, eps, weight decay, and the corrections 1 / (1 - beta^t), which change with the step
    numbers = ctx.tensor("F32", (7,))
    for parameter in (slope, offset):
        gradient = graph.gradient(parameter)
        assert gradient is not None
        m, v = (ctx.tensor("F32", (1,)) for _ in range(2))
        graph.expand(parameter.opt_step_adamw(gradient, m, v, numbers))

    graph.reset()  # losses count once, moments start at zero
    for step in range(1, STEPS + 1):
        numbers.set([0.05, 0.9, 0.999, 1e-8, 0.0, 1 / (1 - 0.9**step), 1 / (1 - 0.999**step)])
        graph.compute()
    print(f"y = {slope.numpy()[0]:.3f}·x {offset.numpy()[0]:+.3f}, mean squared error {loss.numpy()[0]:.2e}")


if __name__ == "__main__":
    main()
