"""A vocabulary of one's own: byte-level BPE learned from texts, as a model file's tokenizer keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ParameterError
from ..limits import TOKENIZER_MAX_TOKENS

END = "<|endoftext|>"
BYTES = 256
NORMAL, CONTROL = 1, 3  # token types, as GGUF numbers them


def train_vocabulary(texts: Iterable[str], size: int) -> dict[str, Any]:
    """Learn a vocabulary of `size` tokens: 256 bytes, merges by frequency, and one token that ends a text.

    Words are split as GPT-2 does (`tokenizer.ggml.pre` = `gpt-2`), so that every engine tokenizes alike.

    Raises:
        ParameterError: a size that does not hold the bytes, or more tokens than the texts give.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    least = BYTES + 1
    if not least <= size <= TOKENIZER_MAX_TOKENS:
        expected = f"{least} to {TOKENIZER_MAX_TOKENS}"
        raise ParameterError("wrong size of a vocabulary", where="vocabulary", expected=expected, found=size)
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    learned.train_from_iterator(texts, trainer)
    ids = learned.get_vocab()
    if len(ids) < size - 1:
        raise ParameterError(
            "the texts give fewer tokens", where="vocabulary", expected=size, found=len(ids) + 1, hint="Ask for fewer."
        )
    tokens = sorted(ids, key=ids.__getitem__)
    merges = _merges(learned.to_str())
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens, END],
        "tokenizer.ggml.token_type": [NORMAL] * len(tokens) + [CONTROL],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens),
        "tokenizer.ggml.eos_token_id": len(tokens),
        "tokenizer.ggml.add_bos_token": False,
    }


def _merges(text: str) -> list[str]:
    """Return the merge rules of a serialized tokenizer, two tokens each with a space between."""
    import json

    return [rule if isinstance(rule, str) else " ".join(rule) for rule in json.loads(text)["model"]["merges"]]
