"""The parameters of sampling, checked when they are made. Knows their ranges, not how they act."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypedDict

from ..errors import LimitError, MetadataError, ParameterError
from ..limits import DRY_MAX_BREAKER_BYTES, DRY_MAX_BREAKERS, MODEL_MAX_VOCABULARY, SAMPLING_MAX_STEPS
from .history import WHOLE

SEED_LIMIT: Final = 1 << 64
BIAS_LIMIT: Final = 1e30  # far above every logit, and far below what float32 can hold
# llama.cpp's default order. `adaptive_p` may be added; like mirostat it is always the last.
DEFAULT_ORDER: Final = (
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature",
)  # fmt: skip
STEP_NAMES: Final = (*DEFAULT_ORDER, "adaptive_p")
_ALIASES: Final = {"typical_p": "typ_p", "typical": "typ_p", "typ": "typ_p", "temp": "temperature", "nucleus": "top_p"}


@dataclass(frozen=True)
class _Range:
    """One row of the table of ranges: a wording for people and a test for the program."""

    wording: str
    holds: Callable[[Any], bool]
    kind: type = float


def _number(wording: str, holds: Callable[[float], bool] = lambda value: True) -> _Range:
    return _Range(wording, lambda value: math.isfinite(value) and holds(value))


def _whole(wording: str, least: int, most: float = math.inf) -> _Range:
    return _Range(wording, lambda value: least <= value <= most, int)


_WINDOW = _whole("an integer: 0 (off) or above, or -1 (the whole context)", WHOLE)
_RANGES: dict[str, _Range] = {
    "temperature": _number("a finite number, 0 (greedy) or above", lambda v: v >= 0),
    "top_k": _whole("an integer, 0 (off) or above", 0),
    "top_p": _number("a number above 0, at most 1 (off)", lambda v: 0 < v <= 1),
    "min_p": _number("a number from 0 (off) to below 1", lambda v: 0 <= v < 1),
    "typical_p": _number("a number above 0, at most 1 (off)", lambda v: 0 < v <= 1),
    "top_n_sigma": _number("a finite number, 0 (off) or above", lambda v: v >= 0),
    "xtc_probability": _number("a number from 0 (off) to 1", lambda v: 0 <= v <= 1),
    "xtc_threshold": _number("a number above 0, at most 1; above 0.5 is off", lambda v: 0 < v <= 1),
    "dynatemp_range": _number("a finite number, 0 (off) or above", lambda v: v >= 0),
    "dynatemp_exponent": _number("a finite number, 0 or above", lambda v: v >= 0),
    # Both the number and its inverse must be finite.
    "repeat_penalty": _number("a finite number above 0; 1 is off", lambda v: v > 0 and math.isfinite(1 / v)),
    "frequency_penalty": _number("a finite number; 0 is off"),
    "presence_penalty": _number("a finite number; 0 is off"),
    "repeat_last_n": _WINDOW,
    "dry_multiplier": _number("a finite number, 0 (off) or above", lambda v: v >= 0),
    "dry_base": _number("a finite number, 1 or above", lambda v: v >= 1),
    "dry_allowed_length": _whole("an integer, 1 or above", 1),
    "dry_penalty_last_n": _WINDOW,
    "mirostat": _whole("0 (off), 1 or 2", 0, 2),
    "mirostat_tau": _number("a finite number above 0", lambda v: v > 0),
    "mirostat_eta": _number("a finite number, 0 or above", lambda v: v >= 0),
    "adaptive_target": _number("none (off), or a number from 0 to 1", lambda v: 0 <= v <= 1),
    "adaptive_decay": _number("a number from 0 to 0.99", lambda v: 0 <= v <= 0.99),
    "min_tokens": _whole("an integer, 0 (off) or above", 0),
    "ignore_eos": _Range("true or false", lambda value: True, bool),
    "seed": _whole(f"none, or an integer from 0 to {SEED_LIMIT - 1}", 0, SEED_LIMIT - 1),
}
_OPTIONAL = ("adaptive_target", "seed")

# Keys that a model file may carry, as llama.cpp defines them; it reads a top_k of 0 or below as "off".
_METADATA_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "repeat_last_n": "penalty_last_n",
    "repeat_penalty": "penalty_repeat",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
    "samplers": "sequence",
}


class SamplingOptions(TypedDict, total=False):
    """The fields of `SamplingParams` as keyword arguments; None stands for the file's default, or the package's."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repeat_last_n: int | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    adaptive_target: float | None
    adaptive_decay: float | None
    logit_bias: Mapping[int, float] | None
    bad_words: Sequence[Sequence[int]] | None
    min_tokens: int | None
    ignore_eos: bool | None
    samplers: str | Sequence[str] | None


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; the defaults take the likeliest one. Names are llama.cpp's.

    Attributes:
        temperature: divides the logits before the draw; 0 takes the likeliest of the tokens that are left.
        top_k: only that many of the likeliest tokens; 0 is off.
        top_p: only the likeliest tokens that together reach this probability; 1 is off.
        min_p: only tokens with at least this share of the likeliest one's probability; 0 is off.
        seed: repeats a draw; None takes a new seed for each request.
        typical_p: only the tokens of most typical surprise that together exceed this probability; 1 is off.
        top_n_sigma: only tokens within so many standard deviations of the highest logit; 0 is off.
        xtc_probability: how often the likeliest tokens are excluded but for the last that reaches `xtc_threshold`.
        xtc_threshold: that probability; above 0.5 no two can reach it.
        dynatemp_range: lets the temperature go so far up and down with the entropy; 0 is off.
        dynatemp_exponent: how it follows the entropy.
        repeat_penalty: divides the logits of tokens seen lately (multiplies those below 0); 1 is off.
        frequency_penalty: is taken off their logits once for each time seen; below 0 it encourages them.
        presence_penalty: is taken off once.
        repeat_last_n: how many tokens, those of the prompt too, count as seen lately; 0 is off, -1 the whole context.
        dry_multiplier: of the penalty on tokens that lengthen a repetition; 0 is off.
        dry_base: by which it grows with each token of the repetition.
        dry_allowed_length: repetitions shorter than this are not penalized.
        dry_penalty_last_n: where repetitions are looked for, as `repeat_last_n`.
        dry_sequence_breakers: texts across which they are not looked for.
        mirostat: 1 or 2 steers by the surprise of what was drawn; replaces every other step but bias and temperature.
        mirostat_tau: the surprise aimed at, in bits.
        mirostat_eta: how fast it is corrected.
        adaptive_target: the probability that drawn tokens should have (adaptive-p, at the chain's end); None is off.
        adaptive_decay: how slowly its average of the tokens drawn before fades.
        logit_bias: numbers added to the logits of ids; minus infinity forbids one.
        bad_words: sequences of ids that never come.
        min_tokens: how many tokens are drawn before the answer may end by itself.
        ignore_eos: never draw a token that ends the answer.
        samplers: the steps of the chain in their order, as names or as one text with `;` or `,` between them. A
            step that is not named is left out.

    Raises:
        ParameterError: a value is out of its range; the message names field and range.
        LimitError: a list is longer than the named limits allow.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float | None = None
    adaptive_decay: float = 0.9
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    samplers: tuple[str, ...] = DEFAULT_ORDER

    def __post_init__(self) -> None:
        """Check every field, and bring lists into one form."""
        for name in _RANGES:
            value = getattr(self, name)
            if name in _OPTIONAL and value is None:
                continue
            if (reason := _fault(name, value)) is not None:
                raise ParameterError("wrong sampling parameter", where=name, expected=reason, found=repr(value))
        for name, normalize in _LISTS.items():
            object.__setattr__(self, name, normalize(name, getattr(self, name)))

    @property
    def greedy(self) -> bool:
        """Whether the likeliest of the tokens left is taken, and nothing is drawn."""
        return self.temperature == 0 and self.dynatemp_range == 0

    def check_ids(self, vocabulary: int) -> None:
        """Refuse ids beyond a vocabulary of that many tokens.

        Raises:
            ParameterError: `logit_bias` or `bad_words` name one.
        """
        named = {"logit_bias": list(self.logit_bias), "bad_words": [token for word in self.bad_words for token in word]}
        for name, ids in named.items():
            if ids and max(ids) >= vocabulary:
                raise ParameterError("no such token", where=name, expected=f"0 to {vocabulary - 1}", found=max(ids))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], **given: Any) -> SamplingParams:
        """Take what is not given (or None) from the `general.sampling.*` keys of a model file, else the defaults.

        Raises:
            MetadataError: a key that is needed holds a value out of range.
            ParameterError: a given value is out of range, or there is no parameter of a name.
        """
        known = [entry.name for entry in fields(cls)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean `{near[0]}`?" if near else "The parameters are those of `SamplingParams`."
                raise ParameterError("no such parameter", where=name, hint=hint)
        values = {name: value for name, value in given.items() if value is not None}
        for name, key in _METADATA_KEYS.items():
            full = f"general.sampling.{key}"
            if name not in values and full in metadata:
                values[name] = _from_file(name, full, metadata[full])
        return cls(**values)


def _from_file(name: str, key: str, value: Any) -> Any:
    if name == "top_k" and isinstance(value, int) and value < 0:
        value = 0
    problem = "wrong sampling parameter in the file"
    if name in _LISTS:
        try:
            return _LISTS[name](name, value)
        except (ParameterError, LimitError) as error:
            raise MetadataError(problem, where=key, expected=error.expected, found=error.found) from error
    if (reason := _fault(name, value)) is not None:
        raise MetadataError(problem, where=key, expected=reason, found=repr(value))
    return value


def _fault(name: str, value: object) -> str | None:
    """Return the wording of the range that a value misses, or None."""
    row = _RANGES[name]
    kinds = (int, float) if row.kind is float else (row.kind,)
    if isinstance(value, bool) != (row.kind is bool) or not isinstance(value, kinds) or not row.holds(value):
        return row.wording
    return None


# --- Lists ------------------------------------------------------------------------------------------------------------


def _step_names(name: str, value: object) -> tuple[str, ...]:
    """Bring the order of the chain into canonical names: `top-k`, `topk` and `top_k` are one."""
    if isinstance(value, str):
        value = [part for part in value.replace(",", ";").split(";") if part.strip()]
    names = []
    plain = {step.replace("_", ""): step for step in STEP_NAMES}
    for part in _items(name, value, str, SAMPLING_MAX_STEPS, "SAMPLING_MAX_STEPS"):
        step = part.strip().lower().replace("-", "_")
        step = _ALIASES.get(step, plain.get(step, step))
        if step not in STEP_NAMES:
            raise ParameterError("no such sampler", where=name, expected=", ".join(STEP_NAMES), found=repr(part))
        names.append(step)
    return tuple(names)


def _breakers(name: str, value: object) -> tuple[str, ...]:
    texts = _items(name, value, str, DRY_MAX_BREAKERS, "DRY_MAX_BREAKERS")
    for text in texts:
        size = len(text.encode("utf-8", "replace"))
        if not 1 <= size <= DRY_MAX_BREAKER_BYTES:
            raise ParameterError(
                "wrong length",
                where=name,
                expected=f"1 to {DRY_MAX_BREAKER_BYTES} bytes (DRY_MAX_BREAKER_BYTES)",
                found=f"{size} bytes",
            )
    return tuple(texts)


def _bias(name: str, value: object) -> dict[int, float]:
    expected = f"ids, and numbers from -{BIAS_LIMIT:g} to {BIAS_LIMIT:g} or -inf (forbids)"
    if not isinstance(value, Mapping):
        raise ParameterError("not a mapping", where=name, expected=expected, found=repr(value))
    _items(name, list(value), int, MODEL_MAX_VOCABULARY, "MODEL_MAX_VOCABULARY")
    for token, bias in value.items():
        number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if token < 0 or not number or not (abs(bias) <= BIAS_LIMIT or bias == -math.inf):
            raise ParameterError("wrong bias", where=name, expected=expected, found=f"{token}: {bias!r}")
    return {int(token): float(bias) for token, bias in value.items()}


def _words(name: str, value: object) -> tuple[tuple[int, ...], ...]:
    words = []
    for word in _items(name, value, object, MODEL_MAX_VOCABULARY, "MODEL_MAX_VOCABULARY"):
        ids = _items(name, word, int, MODEL_MAX_VOCABULARY, "MODEL_MAX_VOCABULARY")
        if not ids or min(ids) < 0:
            raise ParameterError("wrong sequence of ids", where=name, expected="at least one id, 0 or above", found=ids)
        words.append(tuple(ids))
    return tuple(words)


def _items(name: str, value: object, kind: type, most: int, limit: str) -> list[Any]:
    """Return the items of a list, all of one kind."""
    wanted = f"a list of {kind.__name__}" if kind is not object else "a list of lists of int"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ParameterError("not a list", where=name, expected=wanted, found=repr(value))
    items = list(value)
    if len(items) > most:
        raise LimitError("the list is too long", where=name, expected=f"at most {most} ({limit})", found=len(items))
    for item in items:
        if not isinstance(item, kind) or isinstance(item, bool):
            raise ParameterError("a wrong item in the list", where=name, expected=wanted, found=repr(item))
    return items


_LISTS: dict[str, Callable[[str, Any], Any]] = {
    "samplers": _step_names,
    "dry_sequence_breakers": _breakers,
    "logit_bias": _bias,
    "bad_words": _words,
}
