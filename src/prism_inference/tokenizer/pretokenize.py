"""Pretokenizers: how text is cut into pieces that merges never span, by the names that GGUF files use.

The patterns are those of the models' own tokenizers as the reference engine reads them. They are written so that hardly
a step is taken back: the engine behind them gives up after ten million of these. Knows nothing of vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from ..errors import TokenizerError, UnsupportedError


@dataclass(frozen=True)
class Pretokenizer:
    """A row of the table.

    `patterns` apply one after the other, each to the pieces that the ones before it left; what a pattern matches and
    what lies between its matches become pieces. `whole_pieces`: a piece that is a token is taken as it is, not merged.
    `add_bos`: whether models of this name start with their BOS token where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_pieces: bool = False
    add_bos: bool = False


# --- Building blocks: `++` and `*+` never give back what they took ----------------------------------------------------
_SUFFIX = "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"  # English contractions
_LEAD = r"[^\r\n\p{L}\p{N}]?"  # one character before a word: often its space
_WORD = _LEAD + r"\p{L}++"
_MARKED_WORD = _LEAD + r"[\p{L}\p{M}]++"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]++"
_LINE_ENDS = r"(?:[^\S\r\n]*+[\r\n]++)++"  # white space up to its last line end
_SPACES = r"\s+(?!\S)|\s++"  # gives back one character at most: the last one goes to the word after it
_REST = rf"{_SYMBOLS}[\r\n]*+|{_LINE_ENDS}|{_SPACES}"

_DIGIT = r"\p{N}"
_DIGITS = r"\p{N}{1,3}"
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}++| ?\p{{N}}++|{_SYMBOLS}|{_SPACES}"
_LLAMA3 = rf"{_SUFFIX}|{_WORD}|{_DIGITS}|{_REST}"
_QWEN2 = rf"{_SUFFIX}|{_WORD}|{_DIGIT}|{_REST}"
_QWEN35 = rf"{_SUFFIX}|{_MARKED_WORD}|{_DIGIT}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]++[\r\n]*+|{_LINE_ENDS}|{_SPACES}"

# Words that end where a lower-case ASCII letter is followed by an upper-case one; other letters count as either case.
# The branches: letters, then one lower-case at least; up to the last letter outside ASCII; upper-case ASCII alone.
_CASED_WORD = _LEAD + (r"(?:[\p{L}&&[^a-z]]*+[\p{L}&&[^A-Z]]++|(?:[A-Z]*+[\p{L}&&[^A-Za-z]]++)++|[A-Z]++)")
_SLASHED_REST = rf"{_SYMBOLS}[\r\n/]*+|{_LINE_ENDS}|{_SPACES}"
_GPT4O = rf"{_CASED_WORD}(?:{_SUFFIX})?|{_DIGITS}|{_SLASHED_REST}"
_TEKKEN = rf"{_CASED_WORD}|{_DIGIT}|{_SLASHED_REST}"

_PUNCTUATION = r"[\p{P}$+<=>^~|]++"
_KANA_AND_HAN = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]++"
_HAN_AND_HANGUL = r"[\x{0800}-\x{9FA5}\x{AC00}-\x{D7FF}&&\S]++"
# Cased letters as Unicode had them when these models were made: later ones and blocks left out are taken off.
_CASED_LETTERS = (
    r"[\p{Lu}\p{Ll}\p{Lt}&&[^\x{560}-\x{588}\x{10C7}\x{10CD}\x{10D0}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2F}"
    r"\x{A790}-\x{A7FF}\x{AB30}-\x{AB6F}\x{10570}-\x{105BF}\x{10D50}-\x{10D8F}\x{16E40}-\x{16E7F}\x{1D400}-\x{1D7FF}"
    r"\x{1DF00}-\x{1DFFF}]]++"
)
_ASCII_PUNCTUATED_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]++"""
_DEEPSEEK3 = (
    rf"{_ASCII_PUNCTUATED_WORD}|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]++| ?[\p{{P}}\p{{S}}]++[\r\n]*+"
    rf"|{_LINE_ENDS}|{_SPACES}"
)
_SENTENCE_MARKS = r" ?[^(\s|.,!?…。，、।۔،)]++"

# --- The rows ---------------------------------------------------------------------------------------------------------
_ROWS: Final[tuple[tuple[str, Pretokenizer], ...]] = (
    (
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum "
        "modern-bert mpt olmo jais trillion granite-docling exaone4",
        Pretokenizer((_GPT2,)),
    ),
    (
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        Pretokenizer((_DIGIT, _GPT2)),
    ),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        Pretokenizer((_LLAMA3,), whole_pieces=True, add_bos=True),
    ),
    ("dbrx smaug-bpe chatglm-bpe", Pretokenizer((_LLAMA3,))),
    ("glm4", Pretokenizer((_LLAMA3,), whole_pieces=True)),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        Pretokenizer((_QWEN2,)),
    ),
    ("qwen35", Pretokenizer((_QWEN35,))),
    ("laguna", Pretokenizer((r"[^\n]++|\n++", _QWEN2))),
    ("ufakzeka", Pretokenizer((rf"{_WORD}|{_DIGIT}|{_REST}",))),
    (
        "seed-coder",
        Pretokenizer((rf"{_SUFFIX}|{_WORD}|{_DIGIT}|{_SYMBOLS}|{_LINE_ENDS}|{_SPACES}",)),
    ),
    (
        "minicpm5",
        Pretokenizer((_DIGITS, rf"{_SUFFIX}|{_WORD}|\p{{N}}++|{_REST}"), whole_pieces=True),
    ),
    ("default", Pretokenizer((_PUNCTUATION, _GPT2, r"\p{N}++", "[0-9][0-9][0-9]"))),
    ("falcon", Pretokenizer((r"[\p{P}$+<=>^~|`]++", _GPT2, "[0-9][0-9][0-9]"))),
    (
        "deepseek-llm",
        Pretokenizer(
            (
                r"[\r\n]",
                rf"\s?{_CASED_LETTERS}",
                r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}-\x{3002}]++",
                r"(?<!\s)\s++\z",
                _HAN_AND_HANGUL,
                r"\p{N}++",
            )
        ),
    ),
    ("deepseek-coder", Pretokenizer((r"[\r\n]", r"\s?\p{L}++", r"\s?\p{P}++", _HAN_AND_HANGUL, _DIGIT))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", Pretokenizer((_DIGITS, _KANA_AND_HAN, _DEEPSEEK3))),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", Pretokenizer((_GPT4O,))),
    ("tekken", Pretokenizer((_TEKKEN,), whole_pieces=True, add_bos=True)),
    ("poro-chat bloom gpt3-finnish", Pretokenizer((_SENTENCE_MARKS,))),
    ("viking", Pretokenizer((_SENTENCE_MARKS, _DIGIT))),
    # Not a pretokenizer of GGUF's list: the kind's own rule, that merges do not span line ends.
    ("gemma4", Pretokenizer((r"[^\n]++|\n++",))),
    ("none", Pretokenizer(())),
)

PRETOKENIZERS: Final = {name: row for names, row in _ROWS for name in names.split()}


def find_pretokenizer(name: str) -> Pretokenizer:
    """Return the row of a name.

    Raises:
        UnsupportedError: there is none; the text lists the names that are spelled most like it.
    """
    if name not in PRETOKENIZERS:
        nearest = get_close_matches(name, PRETOKENIZERS, n=5, cutoff=0.5)
        raise UnsupportedError(
            "the pretokenizer is not known",
            where="tokenizer.ggml.pre",
            expected=f"a known name, such as {', '.join(nearest or ['default'])}",
            found=repr(name),
        )
    return PRETOKENIZERS[name]


_CHUNK_CHARACTERS: Final = 1 << 16  # the engine needs some fifty bytes of memory for each character that it is given
_CHUNK_END: Final = re.compile(r"(?<=[A-Za-z])(?=\n)")  # no pattern of the table matches across such a place


def _chunks(text: str) -> Iterator[str]:
    """Cut long text into parts of about `_CHUNK_CHARACTERS`, at places where no piece is cut."""
    start = 0
    while len(text) - start > _CHUNK_CHARACTERS and (found := _CHUNK_END.search(text, start + _CHUNK_CHARACTERS)):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def splitter(patterns: tuple[str, ...]) -> Callable[[str], Iterator[str]]:
    """Return a function that cuts text into its pieces, in order; joined, the pieces are the text.

    It raises TokenizerError where a pattern takes more steps back than its engine allows: with the patterns of
    the table that needs millions of line ends in a row.
    """
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Sequence, Split

    split = Sequence([Split(Regex(pattern), "isolated") for pattern in patterns])

    def pieces(text: str) -> Iterator[str]:
        for chunk in _chunks(text):
            try:
                found = split.pre_tokenize_str(chunk)
            except BaseException as error:
                if type(error).__name__ != "PanicException":  # a class that cannot be imported
                    raise
                raise TokenizerError("the pretokenizer gave up on the text", found=str(error)) from None
            for piece, _ in found:
                yield piece

    return pieces
