"""Text to token ids and back, as a model's GGUF metadata says.

`from_metadata` builds a `Tokenizer`; nothing heavy is imported before the first text is encoded.
"""

from __future__ import annotations

from .special import SpecialPolicy
from .stream import StreamDecoder
from .tokenizer import InsertPolicy, Tokenizer, from_metadata
from .vocab import TokenType, Vocabulary

__all__ = ["InsertPolicy", "SpecialPolicy", "StreamDecoder", "TokenType", "Tokenizer", "Vocabulary", "from_metadata"]
