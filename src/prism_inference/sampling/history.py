"""The tokens of one request so far, prompt and answer, in a buffer that grows. Knows nothing of what they mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

WHOLE = -1  # a window of this size is as long as the history
_FIRST_ROOM = 256


class History:
    """Token ids in their order."""

    def __init__(self) -> None:
        self._buffer = np.empty(_FIRST_ROOM, np.int64)
        self.length = 0

    def extend(self, ids: Sequence[int]) -> None:
        """Append ids."""
        needed = self.length + len(ids)
        if needed > self._buffer.size:
            grown = np.empty(max(needed, 2 * self._buffer.size), np.int64)
            grown[: self.length] = self.tail(WHOLE)
            self._buffer = grown
        self._buffer[self.length : needed] = ids
        self.length = needed

    def tail(self, window: int) -> npt.NDArray[np.int64]:
        """Return the last `window` ids, or as many as there are; a view that the next `extend` may leave behind."""
        start = 0 if window == WHOLE else max(0, self.length - window)
        return self._buffer[start : self.length]
