"""The filters of the sampling chain and its temperatures, each a function from candidates to candidates.

A filter knows logits and ids, and always leaves at least one candidate. It does not know parameters' ranges, the order
of the chain, what was chosen before, or random numbers.
"""

from __future__ import annotations

import math

import numpy as np

from .candidates import Candidates, down_to, falling, highest, probabilities, weights

# Probabilities come from float32 logits, so a sum that should meet top_p exactly may miss it by their rounding.
ROUNDING = 1e-6
HUGE = 1e30  # far above every logit, and within float32
# How many of the likeliest tokens top-p looks at before it sorts them all: a peaked distribution needs no more.
FIRST_LOOKS = (256, 4_096)


def top_k(candidates: Candidates, k: int) -> Candidates:
    """Keep the `k` highest logits; of equal ones the lower ids. 0 keeps all."""
    return candidates if k == 0 else highest(candidates, k)


def top_p(candidates: Candidates, p: float) -> Candidates:
    """Keep the likeliest tokens up to the one with which their probabilities reach `p`; at least one."""
    if p >= 1:
        return candidates
    size = candidates.logits.size
    peak = candidates.logits.max()
    goal = (p - ROUNDING) * float(weights(candidates).sum(dtype=np.float64))
    for look in (*(look for look in FIRST_LOOKS if look < size), size):
        head = falling(candidates, look)
        reached = np.cumsum(np.exp(head - peak).astype(np.float64))  # the cast first: three times as fast
        if reached[-1] >= goal:
            keep = int(np.searchsorted(reached, goal)) + 1
            return down_to(candidates, keep, head[keep - 1])
    return candidates  # p is 1 but for rounding, and so is the sum


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Keep tokens with at least `p` times the likeliest one's probability; at least that one."""
    if p <= 0:
        return candidates
    # Probabilities p_i >= p * p_max, taken as logits: l_i >= l_max + ln p. A p above 1 would leave none.
    border = candidates.logits.max() + min(math.log(p), 0.0)
    return candidates.kept(np.flatnonzero(candidates.logits >= border))


def typical(candidates: Candidates, p: float) -> Candidates:
    """Keep the tokens whose surprise is nearest to the entropy, up to the one with which their probabilities exceed
    `p`; at least one. Forbidden tokens are never kept.

    Meister and others, "Locally Typical Sampling" (2023): |-ln p_i - H|, H = -sum p ln p.
    """
    if p >= 1:
        return candidates
    shares = probabilities(candidates)
    possible = np.flatnonzero(shares > 0)
    shares = shares[possible]
    surprises = -np.log(shares)
    entropy = float((shares * surprises).sum())
    order = np.argsort(np.abs(surprises - entropy).astype(np.float32), kind="stable")
    reached = np.cumsum(shares[order])
    keep = int(np.searchsorted(reached, p, side="right")) + 1
    return candidates.kept(possible[np.sort(order[:keep])])


def top_n_sigma(candidates: Candidates, n: float) -> Candidates:
    """Keep tokens whose logit is at most `n` standard deviations below the highest; 0 keeps all.

    Tang and others, "Top-nσ: Not All Logits Are You Need" (2024). Forbidden tokens do not count for the deviation.
    """
    if n <= 0 or candidates.logits.size < 2:
        return candidates
    logits = candidates.logits
    counted = logits[logits > -np.inf] if logits.min() == -np.inf else logits
    border = np.float32(float(logits.max()) - n * float(counted.std(dtype=np.float64)))
    return candidates.kept(np.flatnonzero(logits >= border))


def xtc(candidates: Candidates, threshold: float) -> Candidates:
    """Exclude the top choices: of the tokens that reach the probability `threshold`, keep only the least likely one."""
    shares = probabilities(candidates)
    reaching = np.flatnonzero(shares >= threshold)
    if reaching.size < 2:
        return candidates
    logits = candidates.logits[reaching]
    last = reaching[np.flatnonzero(logits == logits.min())[-1]]  # of equal ones the higher id ranks lower
    keep = shares < threshold
    keep[last] = True
    return candidates.kept(np.flatnonzero(keep))


def temperature(candidates: Candidates, value: float) -> Candidates:
    """Divide the logits; 0 keeps the highest alone, of equal ones that with the lowest id."""
    if value == 1:
        return candidates
    logits = candidates.logits
    if value <= 0:
        best = int(logits.argmax())
        return Candidates(candidates.ids[best : best + 1], logits[best : best + 1])
    peak = logits.max()
    if value > 1 / HUGE and abs(float(peak)) / value < HUGE:
        return Candidates(candidates.ids, logits / np.float32(min(value, HUGE)))
    # A tiny temperature: from the peak down, so that all below it are driven to minus infinity, and it is not.
    with np.errstate(over="ignore"):
        return Candidates(candidates.ids, ((logits - peak) / np.float64(value)).astype(np.float32))


def dynamic_temperature(candidates: Candidates, middle: float, spread: float, exponent: float) -> Candidates:
    """Divide the logits by a temperature between `middle - spread` (not below 0) and `middle + spread`.

    It rises with the entropy H of the n candidates that are not forbidden: lowest + (highest - lowest)·(H / ln n)^e.
    """
    shares = probabilities(candidates)
    shares = shares[shares > 0]
    count = int(np.count_nonzero(candidates.logits > -np.inf))
    if count < 2:
        return candidates
    entropy = -float((shares * np.log(shares)).sum())
    lowest, most = max(0.0, middle - spread), middle + spread
    return temperature(candidates, lowest + (most - lowest) * (entropy / math.log(count)) ** exponent)
