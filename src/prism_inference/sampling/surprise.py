"""Samplers that steer by what they drew: they end the chain, and learn from each choice.

Knows candidates and the place that was drawn. Knows no random numbers.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from .candidates import Candidates, falling, highest, probabilities

MIROSTAT_LOOK = 100  # of how many of the likeliest tokens mirostat 1 estimates the decline
# Adaptive-p's curve over probabilities: its peak, how fast it falls, and the distance at which it bends from a parabola
# to a line.
PEAK, SHARPNESS, WIDTH = 5.0, 10.0, 0.3


class Steering(Protocol):
    """The last step of a chain."""

    def __call__(self, candidates: Candidates) -> Candidates:
        """Return the candidates to draw from."""

    def drawn(self, candidates: Candidates, place: int) -> None:
        """Learn which of them was drawn."""


class _Mirostat:
    """Keeps the surprise of what is drawn, -log2 p, near `tau`: `mu` bounds it and moves by `eta` times the error.

    Basu and others, "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity" (2021).
    """

    def __init__(self, tau: float, eta: float) -> None:
        self._tau, self._eta = tau, eta
        self.mu = 2 * tau

    def drawn(self, candidates: Candidates, place: int) -> None:
        surprise = -math.log2(probabilities(candidates)[place])
        self.mu -= self._eta * (surprise - self._tau)


class Mirostat1(_Mirostat):
    """Draws among the k likeliest; k follows from `mu` if the probabilities decline by a power law (algorithm 1)."""

    def __init__(self, tau: float, eta: float, vocabulary: int) -> None:
        super().__init__(tau, eta)
        self._vocabulary = vocabulary

    def __call__(self, candidates: Candidates) -> Candidates:
        return highest(candidates, self._count(falling(candidates, MIROSTAT_LOOK).astype(np.float64)))

    def _count(self, logits: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
        """Return k for falling logits: ŝ = Σ t·b / Σ t², ε = ŝ - 1, k = (ε·2^μ / (1 - N^-ε))^(1/ŝ)."""
        logits = logits[logits > -np.inf]
        if logits.size < 2:
            return 1
        ranks = np.arange(1, logits.size)
        t, b = np.log((ranks + 1) / ranks), -np.diff(logits)
        slope = float((t * b).sum() / (t * t).sum())
        if slope <= 0:  # all the same: no decline to go by
            return self._vocabulary
        excess = slope - 1
        # In logarithms, since both sides may be huge. As ε goes to 0, ε / (1 - N^-ε) goes to 1 / ln N.
        log_n = math.log(self._vocabulary)
        if abs(excess * log_n) < 1e-9:
            ratio = -math.log(log_n)
        elif excess > 0:
            ratio = math.log(excess) - math.log(-math.expm1(-excess * log_n))
        else:
            ratio = math.log(-excess) + excess * log_n - math.log(-math.expm1(excess * log_n))
        log_k = (ratio + self.mu * math.log(2)) / slope
        return max(1, int(math.exp(log_k))) if log_k < log_n else self._vocabulary


class Mirostat2(_Mirostat):
    """Draws among the tokens with a surprise of at most `mu` bits, or the likeliest one (algorithm 2)."""

    def __call__(self, candidates: Candidates) -> Candidates:
        shares = probabilities(candidates)
        keep = np.flatnonzero(shares >= 2.0**-self.mu)
        return candidates.kept(keep) if keep.size else highest(candidates, 1)


class AdaptiveP:
    """Draws tokens whose own probability is near a target, which is moved against the average of those drawn before.

    The average fades by `decay` a token. llama.cpp's adaptive-p (its pull request 17927).
    """

    def __init__(self, target: float, decay: float) -> None:
        self._target, self._decay = target, decay
        self._sum, self._weight = target / (1 - decay), 1 / (1 - decay)
        self._shares = np.zeros(0)

    def __call__(self, candidates: Candidates) -> Candidates:
        aim = min(max(2 * self._target - self._sum / self._weight, 0.0), 1.0)
        self._shares = probabilities(candidates)
        distance = np.abs(self._shares - aim) / WIDTH
        logits = (PEAK - SHARPNESS * distance**2 / (1 + distance)).astype(np.float32)
        logits[candidates.logits == -np.inf] = -np.inf
        return Candidates(candidates.ids, logits)

    def drawn(self, candidates: Candidates, place: int) -> None:
        self._sum = float(self._shares[place]) + self._decay * self._sum
        self._weight = 1 + self._decay * self._weight
