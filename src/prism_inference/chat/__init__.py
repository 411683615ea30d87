"""From a conversation to the text that a model continues: messages, and the model file's own template in a sandbox.

Knows no token ids and no HTTP.
"""

from __future__ import annotations

from .template import ChatTemplate

__all__ = ["ChatTemplate"]
