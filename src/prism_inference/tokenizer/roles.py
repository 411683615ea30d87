"""What single tokens are for: ids by role from the metadata, and the ids that end a generation.

Knows metadata keys and the spellings that models are published with. Does not know how text becomes tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ..errors import TokenizerError

if TYPE_CHECKING:
    from ..gguf import Metadata

PREFIX: Final = "tokenizer.ggml."

ROLE_KEYS: Final = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # the format's own spelling
    "pad": "padding_token_id",
    "mask": "mask_token_id",
    "fim_pre": "fim_pre_token_id",
    "fim_suf": "fim_suf_token_id",
    "fim_mid": "fim_mid_token_id",
    "fim_pad": "fim_pad_token_id",
    "fim_rep": "fim_rep_token_id",
    "fim_sep": "fim_sep_token_id",
}

# Spellings that models are published with, by role, the likeliest first: metadata often leaves roles out.
ROLE_SPELLINGS: Final = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<turn|>",
        "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<|end_of_text|>",
        "<|endoftext|>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}

# Roles whose token ends a generation, and spellings that end one without a role.
_END_ROLES: Final = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_END_SPELLINGS: Final = (
    *ROLE_SPELLINGS["eot"],
    *ROLE_SPELLINGS["eom"],
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|tool_response>",
    "</s>",
    "<eos>",
    "[EOS]",
    "[e~[",
)
# A vocabulary that has both of a pair makes replies of several parts; `<|end|>` only separates them.
_MULTIPART_REPLIES: Final = (("<|return|>", "<|call|>"), ("<|call|>", "<|flush|>"), ("<|calls|>", "<|flush|>"))

# Spellings with a bar, and these two, cannot be ordinary text: a token spelled so is a control token whatever type the
# file gives it. All others count only where the file says control: `</s>` also closes struck-out HTML, and vocabularies
# hold it as an ordinary or user-defined token.
_UNMISTAKABLE: Final = frozenset({"<end_of_turn>", "<end_of_utterance>"})


def control_spellings() -> Iterator[str]:
    """Yield the spellings whose tokens are control tokens even where a file says otherwise."""
    for spelling in (*(text for texts in ROLE_SPELLINGS.values() for text in texts), *_END_SPELLINGS):
        if "|" in spelling or "｜" in spelling or spelling in _UNMISTAKABLE:
            yield spelling


def read_roles(
    metadata: Metadata, defaults: Mapping[str, int], ids: Mapping[bytes, int], control: frozenset[int], count: int
) -> dict[str, int]:
    """Return the ids that have roles, by the names of `ROLE_KEYS`; roles without a token are left out.

    Args:
        metadata: of the file.
        defaults: ids of roles that the file may leave out; those outside the vocabulary are ignored.
        ids: every spelling's id.
        control: the ids of type CONTROL.
        count: number of tokens.

    Raises:
        TokenizerError: the metadata names an id outside the vocabulary.
    """
    roles = {role: token for role, token in defaults.items() if token < count}
    for role, spellings in ROLE_SPELLINGS.items():
        for spelling in spellings:
            token = ids.get(spelling.encode())
            if token in control:
                roles.setdefault(role, token)
    for role, name in ROLE_KEYS.items():
        key = PREFIX + name
        if key not in metadata:
            continue
        token = metadata.integer(key)
        if not 0 <= token < count:
            raise TokenizerError(
                "the id is outside the vocabulary", where=key, expected=f"0 to {count - 1}", found=token
            )
        roles[role] = token
    return roles


def end_ids(roles: Mapping[str, int], ids: Mapping[bytes, int], control: frozenset[int]) -> frozenset[int]:
    """Return the ids after which a generation is over.

    Args:
        roles: from `read_roles`.
        ids: every spelling's id.
        control: the ids of type CONTROL.
    """
    ends = {roles[role] for role in _END_ROLES if role in roles}
    ends.update(token for spelling in _END_SPELLINGS if (token := ids.get(spelling.encode())) in control)
    if any(first.encode() in ids and second.encode() in ids for first, second in _MULTIPART_REPLIES):
        ends.discard(ids.get(b"<|end|>", -1))
    return frozenset(ends)
