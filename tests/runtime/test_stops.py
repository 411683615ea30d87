"""Stop strings across pieces: against the plain search in the whole text, however the text is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prism_inference.errors import LimitError, ParameterError
from prism_inference.limits import STOP_MAX_BYTES, STOP_MAX_STRINGS
from prism_inference.runtime.stops import StopMatcher


def whole(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The rule word for word: the first place at which a stop is complete; of those complete there, the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


def piecewise(pieces: list[str], stops: list[str]) -> tuple[str, str | None, list[str]]:
    matcher = StopMatcher(stops)
    shown = []
    for piece in pieces:
        text, stop = matcher.push(piece)
        shown.append(text)
        if stop is not None:
            return "".join(shown), stop, shown
    shown.append(matcher.flush())
    return "".join(shown), None, shown


letters = st.text("abc", max_size=30)


@given(st.lists(letters, max_size=12), st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4))
@example(["a", "b", "c", "d"], ["bcd", "c"])
@example(["aab"], ["ab", "aab"])
@example(["ababab", "ac"], ["ababac"])
def test_every_cut_gives_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    text, stop, _ = piecewise(pieces, stops)
    assert (text, stop) == whole("".join(pieces), stops)


def test_a01_a_stop_across_pieces() -> None:
    text, stop, shown = piecewise(["L M N", " O", " P", " Q", " R"], ["O P Q"])
    assert (text, stop) == ("L M N ", "O P Q")
    assert shown == ["L M N", " ", "", ""], "no piece holds part of the stop"


def test_a03_text_before_a_stop_in_the_same_piece_comes_once() -> None:
    assert piecewise(["Why", "?\n", "never"], ["\n"]) == ("Why?", "\n", ["Why", "?"])


def test_text_is_passed_on_as_soon_as_it_can_be() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.push("abc") == ("abc", None)
    assert matcher.push("xE") == ("x", None)
    assert matcher.push("N") == ("", None)
    assert matcher.push("T") == ("ENT", None)
    assert matcher.push("E") == ("", None)
    assert matcher.flush() == "E"
    assert matcher.flush() == ""


@pytest.mark.parametrize("stops", [None, [], ()])
def test_without_stops_everything_passes(stops: Any) -> None:
    matcher = StopMatcher(stops)
    assert matcher.push("text") == ("text", None)
    assert matcher.flush() == ""


def test_a_single_text_is_one_stop() -> None:
    assert StopMatcher("ab").push("xaby") == ("x", "ab")


def test_stops_beyond_letters() -> None:
    text, stop, _ = piecewise(["👨‍", "👩", "‍👧 ", "한"], ["👩‍👧"])
    assert (text, stop) == ("👨‍", "👩‍👧")


@pytest.mark.parametrize("stops", ["", [""], ["a", ""], [1], [None]])
def test_refuses_what_is_no_stop(stops: Any) -> None:
    with pytest.raises(ParameterError):
        StopMatcher(stops)


def test_refuses_too_many_and_too_long() -> None:
    StopMatcher(["x"] * STOP_MAX_STRINGS)
    with pytest.raises(LimitError, match="STOP_MAX_STRINGS"):
        StopMatcher(["x"] * (STOP_MAX_STRINGS + 1))
    StopMatcher(["ß" * (STOP_MAX_BYTES // 2)])
    with pytest.raises(LimitError, match="STOP_MAX_BYTES"):
        StopMatcher(["ß" * (STOP_MAX_BYTES // 2) + "x"])
