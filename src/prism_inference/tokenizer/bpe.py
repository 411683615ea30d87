"""Byte-level byte-pair encoding (`tokenizer.ggml.model` = "gpt2"): how text is cut and spelled, what tokens stand for.

Tokens are spelled in an alphabet of 256 printable characters, one per byte. Does not know special tokens or insertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

from ..errors import TokenizerError
from .engine import Engine, ranks
from .pretokenize import splitter


def _alphabet() -> list[str]:
    """Return the character of each byte: printable Latin-1 stands for itself, the rest for U+0100 and on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


ALPHABET: Final = _alphabet()
_SYMBOLS: Final = [character.encode() for character in ALPHABET]
_BYTES: Final = {character: byte for byte, character in enumerate(ALPHABET)}


class ByteLevelBpe(Engine):
    """Pieces by the pretokenizer's patterns, symbols by byte, priorities by the rank of the merge rule."""

    joint = b" "

    @cached_property
    def priorities(self) -> dict[bytes, float]:
        return ranks(self.vocabulary.merges)

    @cached_property
    def _split(self) -> Callable[[str], Iterator[str]]:
        return splitter(self.vocabulary.pretokenizer.patterns)

    def pieces(self, text: str) -> Iterator[str]:
        return self._split(text)

    def symbols(self, piece: str) -> list[bytes]:
        return [_SYMBOLS[byte] for byte in piece.encode()]

    def whole(self, piece: str) -> int | None:
        if not self.vocabulary.pretokenizer.whole_pieces:
            return None
        return self.ids.get(b"".join(self.symbols(piece)))

    def fallback(self, symbol: bytes) -> list[int]:
        ids = []
        for character in symbol.decode():  # merge rules can build what is no token
            token = self.ids.get(character.encode(), self.vocabulary.roles.get("unk"))
            if token is None:
                raise TokenizerError(
                    "the vocabulary has no token for a byte of the text", found=f"0x{_BYTES[character]:02X}"
                )
            ids.append(token)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """Characters outside the alphabet, which some files have in added tokens, stand for themselves."""
        text = self.vocabulary.tokens[token].decode(errors="surrogateescape")
        try:
            return bytes([_BYTES[character] for character in text])
        except KeyError:
            return b"".join(
                bytes([_BYTES[character]]) if character in _BYTES else character.encode(errors="surrogateescape")
                for character in text
            )
