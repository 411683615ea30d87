"""The vocabulary of a model as its GGUF metadata states it, checked: tokens, types, scores, merges, roles, defaults.

Knows the metadata keys of the vocabulary kinds that the package tokenizes with. Does not know how text becomes tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ..errors import LimitError, TokenizerError, UnsupportedError
from ..limits import TOKENIZER_MAX_MERGES, TOKENIZER_MAX_SPECIAL, TOKENIZER_MAX_TOKEN_BYTES, TOKENIZER_MAX_TOKENS
from .pretokenize import Pretokenizer, find_pretokenizer
from .roles import PREFIX, ROLE_KEYS, control_spellings, end_ids, read_roles

if TYPE_CHECKING:
    from ..gguf import Metadata


class TokenType(IntEnum):
    """What a token is, as `tokenizer.ggml.token_type` numbers it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Kind:
    """A row of `KINDS`: which lists a kind has, and what it means where a file leaves something out."""

    has_merges: bool  # merge rules; the other kinds have scores
    pre: str | None = None  # the kind's own pretokenizer; None: the file names it
    roles: tuple[tuple[str, int], ...] = ()
    add_bos: bool = False
    add_space_prefix: bool = False


KINDS: Final = {
    "gpt2": Kind(has_merges=True),
    "llama": Kind(
        has_merges=False,
        pre="none",
        roles=(("bos", 1), ("eos", 2), ("unk", 0)),
        add_bos=True,
        add_space_prefix=True,
    ),
    "gemma4": Kind(has_merges=True, pre="gemma4", add_bos=True),
}

_BYTE_TOKEN: Final = re.compile(rb"<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True)
class Vocabulary:
    """A checked vocabulary.

    `tokens[i]` is the spelling of id i as stored (not what it decodes to), `types[i]` its `TokenType`, `ids` the
    inverse of `tokens` without empty ones. `scores` (float64, higher is better) or `merges` (`b"left right"`, the best
    first) say what may be joined; the other is empty. `roles` maps the names of `roles.ROLE_KEYS` to ids.
    """

    kind: str
    pretokenizer: Pretokenizer
    pretokenizer_name: str
    model_name: str
    tokens: Sequence[bytes] = field(repr=False)
    types: bytes = field(repr=False)
    ids: dict[bytes, int] = field(repr=False)
    scores: npt.NDArray[np.float64] = field(repr=False)
    merges: Sequence[bytes] = field(repr=False)
    roles: dict[str, int]
    end_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool

    def of_type(self, *types: TokenType) -> list[int]:
        """Return the ids of these types, ascending."""
        return positions(self.types, types)


def positions(types: bytes | bytearray, wanted: Sequence[TokenType]) -> list[int]:
    """Return where a string of types holds one of the wanted ones, ascending."""
    pattern = b"[" + b"".join(b"\\x%02x" % kind for kind in wanted) + b"]"
    return [match.start() for match in re.finditer(pattern, types)]


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Check a file's tokenizer keys and return them as one record.

    Raises:
        MetadataError: a needed key is missing or has another type.
        UnsupportedError: the vocabulary's kind or pretokenizer is none that this package has.
        LimitError: a list or a token is larger than the named limits allow.
        TokenizerError: the lists contradict each other.
    """
    name = metadata.string(PREFIX + "model")
    if name not in KINDS:
        raise UnsupportedError(
            "the vocabulary is of a kind that this package does not tokenize",
            where=PREFIX + "model",
            expected=", ".join(KINDS),
            found=repr(name),
        )
    kind = KINDS[name]
    pre = kind.pre or metadata.string(PREFIX + "pre", "default")
    pretokenizer = find_pretokenizer(pre)
    tokens = _read_tokens(metadata)
    ids = _invert(tokens)
    types = _read_types(metadata, tokens, ids)
    control = frozenset(positions(types, [TokenType.CONTROL]))
    roles = read_roles(metadata, dict(kind.roles), ids, control, len(tokens))
    add_bos = metadata.boolean(PREFIX + "add_bos_token", kind.add_bos or pretokenizer.add_bos)
    add_bos |= name == "gemma4"  # early files of this kind deny the first token that the models need
    add_eos = metadata.boolean(PREFIX + "add_eos_token", False)
    for role, wanted in (("bos", add_bos), ("eos", add_eos)):
        if wanted and role not in roles:
            raise TokenizerError(f"the file wants a {role} token added but names none", where=PREFIX + ROLE_KEYS[role])
    return Vocabulary(
        kind=name,
        pretokenizer=pretokenizer,
        pretokenizer_name=pre,
        model_name=metadata.string("general.name", ""),
        tokens=tokens,
        types=types,
        ids=ids,
        scores=np.empty(0) if kind.has_merges else _read_scores(metadata, len(tokens)),
        merges=_read_merges(metadata) if kind.has_merges else (),
        roles=roles,
        end_ids=end_ids(roles, ids, control),
        add_bos=add_bos,
        add_eos=add_eos,
        add_space_prefix=metadata.boolean(PREFIX + "add_space_prefix", kind.add_space_prefix),
    )


def _check_limit(count: int, limit: int, what: str, key: str) -> None:
    if count > limit:
        raise LimitError(f"too many {what}", where=PREFIX + key, expected=f"at most {limit}", found=count)


def _check_length(found: int, count: int, key: str) -> None:
    if found != count:
        raise TokenizerError(
            "the list does not fit the tokens", where=PREFIX + key, expected=f"{count} entries", found=found
        )


def _read_tokens(metadata: Metadata) -> Sequence[bytes]:
    tokens = metadata.byte_strings(PREFIX + "tokens")
    if not tokens:
        raise TokenizerError("the vocabulary is empty", where=PREFIX + "tokens")
    _check_limit(len(tokens), TOKENIZER_MAX_TOKENS, "tokens", "tokens")
    _check_limit(max(map(len, tokens)), TOKENIZER_MAX_TOKEN_BYTES, "bytes in one token", "tokens")
    return tokens


def _invert(tokens: Sequence[bytes]) -> dict[bytes, int]:
    """Return the ids by spelling. Empty tokens, which some files use as fillers, have none."""
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        for token, spelling in enumerate(tokens):
            if spelling and ids[spelling] != token:
                raise TokenizerError(
                    "two tokens have the same spelling",
                    where=PREFIX + "tokens",
                    found=f"ids {token} and {ids[spelling]}, both {spelling!r}",
                )
    ids.pop(b"", None)
    return ids


def _read_types(metadata: Metadata, tokens: Sequence[bytes], ids: dict[bytes, int]) -> bytes:
    """Return one byte per token, all normal where the file has no list."""
    key = PREFIX + "token_type"
    if key in metadata:
        values = np.asarray(metadata.integers(key))
        _check_length(len(values), len(tokens), "token_type")
        wrong = np.flatnonzero((values < min(TokenType)) | (values > max(TokenType)))
        if wrong.size:
            raise TokenizerError(
                "not a token type",
                where=f"{key}[{wrong[0]}]",
                expected=f"{min(TokenType)} to {max(TokenType)}",
                found=values[wrong[0]],
            )
        types = bytearray(values.astype(np.uint8).tobytes())
    else:
        types = bytearray([TokenType.NORMAL]) * len(tokens)
    for spelling in control_spellings():
        token = ids.get(spelling.encode())
        if token is not None and types[token] in (TokenType.NORMAL, TokenType.USER_DEFINED):
            types[token] = TokenType.CONTROL
    special = positions(types, (TokenType.CONTROL, TokenType.USER_DEFINED))
    _check_limit(len(special), TOKENIZER_MAX_SPECIAL, "special tokens", "token_type")
    for token in positions(types, [TokenType.BYTE]):
        if not _BYTE_TOKEN.fullmatch(tokens[token]):
            raise TokenizerError(
                "not a byte token",
                where=f"{PREFIX}tokens[{token}]",
                expected="<0x00> to <0xFF>",
                found=repr(tokens[token]),
            )
    return bytes(types)


def _read_scores(metadata: Metadata, count: int) -> npt.NDArray[np.float64]:
    scores = np.asarray(metadata.numbers(PREFIX + "scores"), dtype=np.float64)
    _check_length(len(scores), count, "scores")
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        raise TokenizerError("a score is not finite", where=f"{PREFIX}scores[{wrong[0]}]", found=scores[wrong[0]])
    return scores


def _read_merges(metadata: Metadata) -> Sequence[bytes]:
    merges = metadata.byte_strings(PREFIX + "merges")
    _check_limit(len(merges), TOKENIZER_MAX_MERGES, "merges", "merges")
    return merges
