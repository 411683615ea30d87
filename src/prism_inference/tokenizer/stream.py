"""Text from ids as they come: whole characters only, the same text as decoding all ids at once.

Knows how ids become bytes only through the function that it is given.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Decodes one sequence of ids; the concatenation of all it returns is the decoding of the whole.

    Bytes that begin a character are held back until it is complete; bytes that cannot become one turn into U+FFFD.

    Args:
        push_bytes: returns the bytes that the next id of this sequence adds.
    """

    def __init__(self, push_bytes: Callable[[int], bytes]) -> None:
        self._push_bytes = push_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Return the text that is complete with this id; it may be empty.

        Raises:
            TokenizerError: the id is outside the vocabulary; the decoder is as before.
        """
        return self._decoder.decode(self._push_bytes(token))

    def flush(self) -> str:
        """Return what is left at the end of the sequence: U+FFFD for an unfinished character, else nothing."""
        return self._decoder.decode(b"", final=True)
