"""Special tokens in text: which spellings count under a policy, and how text is split at them.

Knows the vocabulary's types and the white space that some models' special tokens swallow. Does not tokenize what lies
between, and inserts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .vocab import TokenType, Vocabulary

SpecialPolicy = Literal["literal", "parse"]

# "literal": control tokens' spellings are ordinary text; user-defined tokens are still found, as they are part of the
# text's own language (runs of spaces, markup). "parse": every special token is found.
FOUND_TYPES: Final[dict[SpecialPolicy, tuple[TokenType, ...]]] = {
    "literal": (TokenType.USER_DEFINED,),
    "parse": (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED),
}

_WHITE_SPACE: Final = " \t\n\v\f\r"


@dataclass(frozen=True)
class Stripping:
    """A row of `STRIPPING`: files do not say which special tokens swallow white space beside them, so names must.

    `left`: spellings that swallow what precedes them. `right_except`: where set, all special tokens but these swallow
    what follows them.
    """

    model_names: tuple[str, ...] = ()  # parts of `general.name` in lower case
    pretokenizers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    right_except: tuple[str, ...] | None = None


STRIPPING: Final = (
    Stripping(pretokenizers=("jina-v2-de", "jina-v2-es", "jina-v2-code"), left=("<mask>",)),
    Stripping(model_names=("phi-3", "phi3"), right_except=("<unk>", "<s>", "<|endoftext|>")),
    Stripping(model_names=("modern-bert",), left=("[MASK]",)),
)


def stripping(vocabulary: Vocabulary) -> Stripping:
    """Return the row of a vocabulary; the empty one for most."""
    name = vocabulary.model_name.lower()
    for row in STRIPPING:
        if vocabulary.pretokenizer_name in row.pretokenizers or any(part in name for part in row.model_names):
            return row
    return Stripping()


class SpecialSplitter:
    """Splits text at spellings; where these overlap the longest counts first, then the leftmost, as in the reference.

    Args:
        spellings: ids by spelling.
        left: ids that swallow white space before them.
        right: ids that swallow white space after them.
    """

    def __init__(self, spellings: Mapping[str, int], left: Collection[int] = (), right: Collection[int] = ()) -> None:
        self._ids = dict(spellings)
        self._left = frozenset(left)
        self._right = frozenset(right)
        # Spellings and their lengths by their first two characters, and a pattern of the places where one may begin:
        # one pass over the text serves thousands of spellings.
        self._spellings: dict[str, list[str]] = {}
        for spelling in self._ids:
            self._spellings.setdefault(spelling[:2], []).append(spelling)
        self._lengths = {
            start: sorted({len(spelling) for spelling in spellings}, reverse=True)
            for start, spellings in self._spellings.items()
        }
        followers: dict[str, set[str]] = {}
        for start in self._spellings:
            followers.setdefault(start[0], set()).add(start[1:])
        self._starts = re.compile("|".join(_place_pattern(first, rest) for first, rest in sorted(followers.items())))

    def split(self, text: str) -> list[str | int]:
        """Return the parts of the text in order: ids of spellings found, and the non-empty text between them."""
        if not self._ids:
            return [text] if text else []
        parts: list[str | int] = []
        pending = ""  # text before the next id: it may begin inside a cluster and end outside
        done = 0
        for start, stop in self._clusters(text):
            pending += text[done:start]
            for part in self._split_cluster(text[start:stop]):
                if isinstance(part, str):
                    pending += part
                    continue
                if pending:
                    parts.append(pending)
                parts.append(part)
                pending = ""
            done = stop
        pending += text[done:]
        if pending:
            parts.append(pending)
        return self._strip(parts) if self._left or self._right else parts

    def _clusters(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the ranges of text that are covered by spellings, overlapping ones as one range."""
        start = stop = 0
        for match in self._starts.finditer(text):
            place = match.start()
            end = self._longest_end(text, place)
            if end is None:
                continue
            if place >= stop:
                if stop > start:
                    yield start, stop
                start = place
            stop = max(stop, end)
        if stop > start:
            yield start, stop

    def _longest_end(self, text: str, place: int) -> int | None:
        for start in (text[place : place + 2], text[place]):
            for length in self._lengths.get(start, ()):
                if text[place : place + length] in self._ids:
                    return place + length
        return None

    def _split_cluster(self, text: str) -> list[str | int]:
        """Split at one spelling after the other, those of most bytes first."""
        if text in self._ids:
            return [self._ids[text]]
        starts = {text[match.start() :][:length] for match in self._starts.finditer(text) for length in (1, 2)}
        present = [spelling for start in starts for spelling in self._spellings.get(start, ()) if spelling in text]
        parts: list[str | int] = [text]
        for spelling in sorted(present, key=lambda spelling: (-len(spelling.encode()), self._ids[spelling])):
            split: list[str | int] = []
            for part in parts:
                split += [part] if isinstance(part, int) else _interleave(part.split(spelling), self._ids[spelling])
            parts = split
        return parts

    def _strip(self, parts: list[str | int]) -> list[str | int]:
        """Take away the white space that special tokens swallow."""
        stripped: list[str | int] = []
        for index, part in enumerate(parts):
            if isinstance(part, str):
                if index > 0 and parts[index - 1] in self._right:
                    part = part.lstrip(_WHITE_SPACE)
                if index + 1 < len(parts) and parts[index + 1] in self._left:
                    part = part.rstrip(_WHITE_SPACE)
            if part != "":
                stripped.append(part)
        return stripped


def _place_pattern(first: str, followers: set[str]) -> str:
    """Return a pattern of the character `first` where one of the followers comes next; an empty one means any."""
    if "" in followers:
        return re.escape(first)
    return f"{re.escape(first)}(?=[{re.escape(''.join(sorted(followers)))}])"


def _interleave(texts: list[str], token: int) -> list[str | int]:
    """Return the non-empty texts with the token between any two of all."""
    parts: list[str | int] = []
    for index, text in enumerate(texts):
        if index > 0:
            parts.append(token)
        if text:
            parts.append(text)
    return parts


def special_splitter(vocabulary: Vocabulary, policy: SpecialPolicy) -> SpecialSplitter:
    """Return the splitter of a vocabulary under a policy. Spellings that are not UTF-8 cannot occur in text."""
    spellings = {}
    for token in vocabulary.of_type(*FOUND_TYPES[policy]):
        try:
            spelling = vocabulary.tokens[token].decode()
        except UnicodeDecodeError:
            continue
        if spelling:
            spellings[spelling] = token
    row = stripping(vocabulary)
    not_right = spellings if row.right_except is None else row.right_except
    return SpecialSplitter(
        spellings,
        left=[token for spelling, token in spellings.items() if spelling in row.left],
        right=[token for spelling, token in spellings.items() if spelling not in not_right],
    )
