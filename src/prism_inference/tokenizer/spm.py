"""SentencePiece-style vocabularies ("llama": merges by score; "gemma4": by rules): how text is cut and spelled.

Tokens are spelled in UTF-8 with U+2581 for a space; what has no token becomes byte tokens `<0x00>` to `<0xFF>`. U+2581
in text is not told from a space, as in the reference. Does not know special tokens or insertion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np

from ..errors import TokenizerError
from .engine import Engine, ranks
from .merge import SPACE_MARK, boundary_pattern
from .vocab import TokenType

_MARK: Final = SPACE_MARK.encode()
_LINES: Final = re.compile(r"[^\n]+|\n+")


class ScoredPieces(Engine):
    """The "llama" kind: any two neighbours whose joined text is a token may be joined, the highest score first."""

    joint = b""

    @cached_property
    def priorities(self) -> dict[bytes, float]:
        vocabulary = self.vocabulary
        priorities: dict[bytes, float] = dict(
            zip(vocabulary.tokens, np.negative(vocabulary.scores).tolist(), strict=True)
        )
        for token in vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN, TokenType.BYTE):
            priorities.pop(vocabulary.tokens[token], None)
        return priorities

    @cached_property
    def _boundary(self) -> re.Pattern[str]:
        return boundary_pattern(self.priorities, self.joint)

    def pieces(self, text: str) -> Iterator[str]:
        yield from self._boundary.split(text.replace(" ", SPACE_MARK))

    def symbols(self, piece: str) -> list[bytes]:
        return [character.encode() for character in piece]

    def fallback(self, symbol: bytes) -> list[int]:
        ids = [token for byte in symbol if (token := self.ids.get(b"<0x%02X>" % byte)) is not None]
        if len(ids) == len(symbol):
            return ids
        if "unk" not in self.vocabulary.roles:
            raise TokenizerError("the vocabulary has no token for a character of the text", found=repr(symbol.decode()))
        return [self.vocabulary.roles["unk"]]

    def token_bytes(self, token: int) -> bytes:
        spelling = self.vocabulary.tokens[token]
        if self.vocabulary.types[token] == TokenType.BYTE:
            return bytes([int(spelling[3:5], 16)])
        return spelling.replace(_MARK, b" ")


class RankedPieces(ScoredPieces):
    """The "gemma4" kind: spelled like the "llama" kind, joined by merge rules, which do not reach across line ends."""

    joint = b" "

    @cached_property
    def priorities(self) -> dict[bytes, float]:
        return ranks(self.vocabulary.merges)

    def pieces(self, text: str) -> Iterator[str]:
        for line in _LINES.findall(text.replace(" ", SPACE_MARK)):
            yield from self._boundary.split(line)

    def whole(self, piece: str) -> int | None:
        return self.ids.get(piece.encode()) if piece[0] == "\n" else None
