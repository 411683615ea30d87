"""Log-probabilities of a model's own distribution, before any step of the chain. Knows ids, not text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .candidates import Logits, all_tokens, highest


@dataclass(frozen=True)
class TokenLogprob:
    """A token's log-probability, and the likeliest tokens in its place.

    Attributes:
        token: the id.
        logprob: ln p; None for the first token of a prompt, which nothing precedes.
        top: pairs of id and ln p, the likeliest first, of equal ones the lower id first.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


def log_total(logits: Logits) -> float:
    """Return ln Σ exp(logits), taken from the highest so that nothing overflows."""
    peak = float(logits.max())
    return peak + float(np.log(np.exp(logits - np.float32(peak)).sum(dtype=np.float64)))


def token_logprob(logits: Logits, token: int, top: int = 0) -> TokenLogprob:
    """Return ln soft-max of logits float32 [vocabulary] for a token and for the `top` likeliest, in float32."""
    total = log_total(logits)
    pairs: list[tuple[int, float]] = []
    if top:
        best = highest(all_tokens(logits), top)
        order = np.argsort(-best.logits, kind="stable")
        values = (best.logits[order].astype(np.float64) - total).astype(np.float32)
        pairs = list(zip(best.ids[order].tolist(), values.tolist(), strict=True))
    return TokenLogprob(token, float(np.float32(float(logits[token]) - total)), tuple(pairs))
