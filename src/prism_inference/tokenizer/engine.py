"""What the engines of all vocabulary kinds share: pieces remembered, merged, and looked up.

Knows a vocabulary and the merge engine. Does not know special tokens, insertion, or how a kind spells text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

from ..limits import TOKENIZER_CACHE_PIECE_CHARACTERS, TOKENIZER_CACHE_PIECES
from .merge import merge
from .vocab import TokenType, Vocabulary


def ranks(merges: Sequence[bytes]) -> dict[bytes, float]:
    """Return each merge rule's place as its priority; of equal rules the first counts."""
    return dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))


class Engine(ABC):
    """Turns text without special tokens into ids, and ids into bytes.

    All tables are set up at the first use, so that a tokenizer that only decodes does not pay for them.
    """

    joint: ClassVar[bytes]  # what stands between the two texts in the keys of `priorities`

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._cache: dict[str, list[int]] = {}

    @cached_property
    @abstractmethod
    def priorities(self) -> dict[bytes, float]:
        """Return the pairs that may be joined, as `merge` takes them."""

    @abstractmethod
    def pieces(self, text: str) -> Iterator[str]:
        """Cut text into pieces that merges do not span."""

    @abstractmethod
    def symbols(self, piece: str) -> list[bytes]:
        """Return the units that merging starts from, spelled as in tokens."""

    @abstractmethod
    def fallback(self, symbol: bytes) -> list[int]:
        """Return the ids of a symbol that is no token.

        Raises:
            TokenizerError: there are none, and no token for unknown text either.
        """

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token of type NORMAL or BYTE stands for."""

    def whole(self, piece: str) -> int | None:
        """Return the id of a piece that is taken as it is, without merges."""
        return None

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """Ids by spelling, without those that text never becomes: control tokens and the one for unknown text."""
        ids = dict(self.vocabulary.ids)
        for token in self.vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN):
            ids.pop(self.vocabulary.tokens[token], None)
        return ids

    def encode(self, text: str) -> list[int]:
        """Return the ids of text in which no special token is looked for.

        Raises:
            TokenizerError: the vocabulary cannot spell a character of the text.
        """
        ids: list[int] = []
        cache = self._cache
        for piece in self.pieces(text):
            found = cache.get(piece)
            if found is None:
                found = self._encode_piece(piece)
                if len(piece) <= TOKENIZER_CACHE_PIECE_CHARACTERS:
                    if len(cache) >= TOKENIZER_CACHE_PIECES:
                        cache.clear()
                    cache[piece] = found
            ids += found
        return ids

    def _encode_piece(self, piece: str) -> list[int]:
        token = self.whole(piece)
        if token is not None:
            return [token]
        ids: list[int] = []
        for symbol in merge(self.symbols(piece), self.priorities, self.joint):
            token = self.ids.get(symbol)
            if token is None:
                ids += self.fallback(symbol)
            else:
                ids.append(token)
        return ids
