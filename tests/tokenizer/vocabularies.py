"""Small vocabularies built in code, and slow, obvious encoders for them that share nothing with the package."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence

import numpy as np

from prism_inference.gguf import Metadata, StringArray
from prism_inference.tokenizer import Tokenizer, from_metadata

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def strings(items: Sequence[str | bytes]) -> StringArray:
    raw = [item.encode() if isinstance(item, str) else item for item in items]
    lengths = np.array([len(item) for item in raw], dtype=np.int64)
    ends = np.cumsum(lengths)
    return StringArray(memoryview(b"".join(raw)), ends - lengths, ends)


def metadata(values: Mapping[str, object]) -> Metadata:
    """Metadata as a file would give it; keys without a dot get the tokenizer's prefix, lists become arrays."""
    stored: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, list):
            if value and isinstance(value[0], str | bytes):
                value = strings(value)
            else:
                value = np.array(value, dtype=np.float32 if any(isinstance(v, float) for v in value) else np.int32)
        stored[key if "." in key else f"tokenizer.ggml.{key}"] = value
    return Metadata(stored, "test")


# --- Byte-level BPE --------------------------------------------------------------------------------------------------


def alphabet() -> list[str]:
    """GPT-2's published table: printable Latin-1 bytes keep their character, the others follow from U+0100."""
    kept = [byte for byte in range(256) if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255]
    table = {byte: chr(byte) for byte in kept}
    for number, byte in enumerate(byte for byte in range(256) if byte not in table):
        table[byte] = chr(256 + number)
    return [table[byte] for byte in range(256)]


LETTERS = alphabet()


def spell(text: str) -> str:
    return "".join(LETTERS[byte] for byte in text.encode())


def byte_level_values(
    merges: Sequence[tuple[str, str]],
    special: Mapping[str, int] | None = None,
    extra: Sequence[str] = (),
    pre: str = "gpt-2",
    **keys: object,
) -> dict[str, object]:
    """Keys of a vocabulary: the 256 bytes, what the merges make, more tokens, special tokens with their types."""
    special = special or {}
    products = list(dict.fromkeys([left + right for left, right in merges] + list(extra)))
    tokens = LETTERS + [product for product in products if product not in LETTERS] + list(special)
    types = [NORMAL] * (len(tokens) - len(special)) + list(special.values())
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": types,
        "merges": [f"{left} {right}" for left, right in merges] or strings([]),
        **keys,
    }


def byte_level(*arguments: object, **keys: object) -> Tokenizer:
    return from_metadata(metadata(byte_level_values(*arguments, **keys)))


GPT2_ASCII = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
)  # the published pattern, for ASCII text


def naive_merge(symbols: list[str], ranks: Mapping[tuple[str, str], float]) -> list[str]:
    """Join the pair of the lowest rank, the leftmost among equals, one at a time."""
    symbols = list(symbols)
    while True:
        pairs = [(ranks[pair], place) for place, pair in enumerate(itertools.pairwise(symbols)) if pair in ranks]
        if not pairs:
            return symbols
        place = min(pairs)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


def naive_byte_level(text: str, values: Mapping[str, object]) -> list[int]:
    ids = {token: number for number, token in enumerate(values["tokens"])}
    ranks: dict[tuple[str, str], float] = {}
    for rank, rule in enumerate(values["merges"]):
        left, right = rule.split(" ")
        ranks.setdefault((left, right), rank)
    pieces = GPT2_ASCII.findall(text)
    return [ids[symbol] for piece in pieces for symbol in naive_merge([LETTERS[b] for b in piece.encode()], ranks)]


def random_merges(seed: int, letters: str, count: int) -> list[tuple[str, str]]:
    """Merge rules that build on each other, as training makes them."""
    rng = random.Random(seed)
    known = [spell(letter) for letter in letters]
    merges: dict[tuple[str, str], None] = {}
    while len(merges) < count:
        pair = (rng.choice(known), rng.choice(known))
        if len("".join(pair)) <= 8:
            merges[pair] = None
            known.append("".join(pair))
    return list(merges)


# --- SentencePiece ---------------------------------------------------------------------------------------------------


def scored_values(
    pieces: Mapping[str, float], special: Mapping[str, int] | None = None, byte_tokens: bool = True, **keys: object
) -> dict[str, object]:
    """Keys of a vocabulary: <unk>, <s>, </s>, the byte tokens, pieces with their scores, special tokens."""
    special = special or {}
    head = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)] if byte_tokens else []
    tokens = [*head, *bytes_, *pieces, *special]
    types = [*head.values(), *[BYTE] * len(bytes_), *[NORMAL] * len(pieces), *special.values()]
    scores = [0.0] * (len(head) + len(bytes_)) + list(pieces.values()) + [0.0] * len(special)
    return {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, **keys}


def scored(*arguments: object, **keys: object) -> Tokenizer:
    return from_metadata(metadata(scored_values(*arguments, **keys)))


def naive_scored(text: str, values: Mapping[str, object]) -> list[int]:
    """Join the neighbours whose text has the highest score, the leftmost among equals, over the whole text."""
    ids = {token: number for number, token in enumerate(values["tokens"])}
    scores = {
        token: score
        for token, score, kind in zip(values["tokens"], values["scores"], values["token_type"], strict=True)
        if kind in (NORMAL, USER_DEFINED)
    }
    symbols = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [
            (-scores[left + right], place)
            for place, (left, right) in enumerate(itertools.pairwise(symbols))
            if left + right in scores
        ]
        if not pairs:
            break
        place = min(pairs)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
    result = []
    for symbol in symbols:
        if symbol in scores:
            result.append(ids[symbol])
        else:
            result += [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return result


def random_scored(seed: int, letters: str, count: int, levels: int) -> dict[str, float]:
    """Pieces that build on each other, the letters included; scores on few levels, so that there are ties."""
    rng = random.Random(seed)
    pieces = {letter: -1000.0 - number for number, letter in enumerate(letters)}
    while len(pieces) < count:
        piece = rng.choice(list(pieces)) + rng.choice(list(pieces))
        if len(piece) <= 8:
            pieces.setdefault(piece, -float(rng.randrange(levels)))
    return pieces


def random_texts(seed: int, letters: str, count: int, longest: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(letters, k=rng.randint(1, longest))) for _ in range(count)]
