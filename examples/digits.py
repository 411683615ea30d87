"""Classify images of digits, 28 by 28 as MNIST's but drawn here: two dense layers, cross-entropy, AdamW."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prism_inference.graph import Context, Graph, Tensor

SIDE, CLASSES, HIDDEN, BATCH, STEPS = 28, 10, 128, 64, 300
RATE, BETA1, BETA2 = 2e-3, 0.9, 0.999

# Each digit on five columns and seven rows.
FONT = """
.###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ...#. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
"""


def draw(rng: np.random.Generator, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return images [count, 784] of digits, moved about, dimmed and noisy, and which digits they are."""
    glyphs = np.array([[[c == "#" for c in cell] for cell in line.split()] for line in FONT.split("\n")[1:-1]])
    glyphs = glyphs.transpose(1, 0, 2).repeat(3, 1).repeat(3, 2)  # [10, 21, 15]
    which = rng.integers(0, CLASSES, count)
    images = rng.uniform(0, 0.4, (count, SIDE, SIDE))
    for image, digit in zip(images, which, strict=True):
        top, left = rng.integers(0, SIDE - 21 + 1), rng.integers(0, SIDE - 15 + 1)
        image[top : top + 21, left : left + 15] += rng.uniform(0.4, 0.8) * glyphs[digit]
    return images.reshape(count, -1).astype(np.float32), which


def main() -> None:
    """Train, and print how many of 1,000 new images are recognized."""
    rng = np.random.default_rng(0)
    ctx = Context()

    def weights(*ne: int) -> Tensor:
        values = rng.normal(0, 1 / np.sqrt(ne[0]), tuple(reversed(ne)))
        return ctx.parameter("F32", ne).set(values)

    images, labels = ctx.tensor("F32", (SIDE * SIDE, BATCH)), ctx.tensor("F32", (CLASSES, BATCH))
    first, second = weights(SIDE * SIDE, HIDDEN), weights(HIDDEN, CLASSES)
    offsets = [ctx.parameter("F32", (n,)).set(np.zeros(n)) for n in (HIDDEN, CLASSES)]
    hidden = first.mul_mat(images).add(offsets[0]).relu()
    scores = second.mul_mat(hidden).add(offsets[1]).mark_output()
    loss = scores.cross_entropy_loss(labels).mark_loss()

    graph = Graph(ctx, gradients=True)
    graph.expand(loss)
    forward = Graph(ctx)
    forward.expand(scores)
    graph.build_backward()
    numbers = ctx.tensor("F32", (7,))
    for parameter in (first, second, *offsets):
        gradient = graph.gradient(parameter)
        assert gradient is not None
        m, v = (ctx.tensor("F32", parameter.ne) for _ in range(2))
        graph.expand(parameter.opt_step_adamw(gradient, m, v, numbers))

    graph.reset()
    for step in range(1, STEPS + 1):
        pictures, which = draw(rng, BATCH)
        images.set(pictures)
        labels.set(np.eye(CLASSES)[which])
        numbers.set([RATE, BETA1, BETA2, 1e-8, 0.0, 1 / (1 - BETA1**step), 1 / (1 - BETA2**step)])
        graph.compute()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.numpy()[0]:.4f}")

    right = 0
    for _ in range(16):
        pictures, which = draw(rng, BATCH)
        images.set(pictures)
        forward.compute()
        right += int((scores.numpy().argmax(-1) == which).sum())
    print(f"{right} of {16 * BATCH} new digits recognized")


if __name__ == "__main__":
    main()
