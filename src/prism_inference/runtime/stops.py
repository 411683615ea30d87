"""Stop strings in a text that comes piece by piece, each of which may end in a later piece. Knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LimitError, ParameterError
from ..limits import STOP_MAX_BYTES, STOP_MAX_STRINGS


class StopMatcher:
    """Passes text on as soon as it can no longer be the beginning of a stop string.

    The stop that is complete first ends the text; of two complete at once, the longer. So the outcome is the same for
    every way of cutting the text into pieces.
    """

    def __init__(self, stops: str | Sequence[str] | None = None) -> None:
        """Prepare the search.

        Raises:
            ParameterError: a stop is empty or not text.
            LimitError: too many stops, or one too long.
        """
        self._patterns = [_Pattern(stop) for stop in _checked(stops)]
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Take the next piece.

        Returns:
            What may be shown now, and the stop string that has ended the text, or None. Nothing may be pushed after a
            stop.
        """
        if not self._patterns:
            return text, None
        self._held += text
        for place in range(len(self._held) - len(text), len(self._held)):
            character = self._held[place]
            # All must take the character, so the list comes before the choice.
            complete = [pattern.stop for pattern in self._patterns if pattern.advance(character)]
            if complete:
                stop = max(complete, key=len)
                shown, self._held = self._held[: place + 1 - len(stop)], ""
                return shown, stop
        hidden = max(pattern.matched for pattern in self._patterns)
        border = len(self._held) - hidden
        shown, self._held = self._held[:border], self._held[border:]
        return shown, None

    def flush(self) -> str:
        """Return the text held back: it has ended, so no stop can follow."""
        shown, self._held = self._held, ""
        return shown


class _Pattern:
    """One stop string, and how many of its characters the text ends with: Knuth, Morris and Pratt's automaton."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        # borders[n]: length of the longest proper prefix of stop[:n + 1] that is also its suffix.
        self._borders = [0] * len(stop)
        for place in range(1, len(stop)):
            self._borders[place] = self._extend(self._borders[place - 1], stop[place])

    def advance(self, character: str) -> bool:
        """Take a character; return whether the stop is complete."""
        if self.matched == len(self.stop):
            self.matched = self._borders[-1]
        self.matched = self._extend(self.matched, character)
        return self.matched == len(self.stop)

    def _extend(self, length: int, character: str) -> int:
        while length and self.stop[length] != character:
            length = self._borders[length - 1]
        return length + 1 if self.stop[length] == character else 0


def _checked(stops: str | Sequence[str] | None) -> list[str]:
    if stops is None:
        return []
    listed = [stops] if isinstance(stops, str) else list(stops)
    if len(listed) > STOP_MAX_STRINGS:
        raise LimitError(
            "too many stop strings",
            where="stop",
            expected=f"at most {STOP_MAX_STRINGS} (STOP_MAX_STRINGS)",
            found=len(listed),
        )
    for stop in listed:
        if not isinstance(stop, str) or not stop:
            raise ParameterError("not a stop string", where="stop", expected="text, not empty", found=repr(stop))
        size = len(stop.encode("utf-8", "replace"))
        if size > STOP_MAX_BYTES:
            raise LimitError(
                "a stop string is too long",
                where="stop",
                expected=f"at most {STOP_MAX_BYTES} bytes (STOP_MAX_BYTES)",
                found=f"{size} bytes",
            )
    return listed
