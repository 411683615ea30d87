"""The tokenizer of one model: text to ids under stated policies, ids to text, and what single ids are.

Built from GGUF metadata alone. Does not know models, chat templates or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, get_args

from ..errors import LimitError, ParameterError, TokenizerError
from ..limits import TOKENIZER_MAX_TEXT_BYTES
from .bpe import ByteLevelBpe
from .engine import Engine
from .special import SpecialPolicy, SpecialSplitter, special_splitter
from .spm import RankedPieces, ScoredPieces
from .stream import StreamDecoder
from .vocab import TokenType, Vocabulary, read_vocabulary

if TYPE_CHECKING:
    from ..gguf import Metadata

InsertPolicy = Literal["none", "model"]

ENGINES: Final[dict[str, type[Engine]]] = {"gpt2": ByteLevelBpe, "llama": ScoredPieces, "gemma4": RankedPieces}

_HIDDEN: Final = (TokenType.CONTROL, TokenType.UNKNOWN)


def from_metadata(metadata: Metadata) -> Tokenizer:
    """Build the tokenizer that a file's metadata describes; no tensor is read.

    Raises:
        MetadataError: a needed key is missing or has another type.
        UnsupportedError: the vocabulary's kind or pretokenizer is none that this package has.
        LimitError: a list or a token is larger than the named limits allow.
        TokenizerError: the lists contradict each other.
    """
    return Tokenizer(read_vocabulary(metadata))


class Tokenizer:
    """Encodes and decodes with one vocabulary.

    Ids agree with the reference engine. Two differences are deliberate: text never becomes a control token unless the
    caller asks for parsing, and a byte without a token is an error where the reference drops it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._engine = ENGINES[vocabulary.kind](vocabulary)
        self._splitters: dict[SpecialPolicy, SpecialSplitter] = {}

    def __len__(self) -> int:
        """Return the number of ids: valid ids are 0 up to this, exclusive."""
        return len(self.vocabulary.tokens)

    # --- Single ids -------------------------------------------------------------------------------------------------

    @property
    def bos_id(self) -> int | None:
        """The id that begins a sequence."""
        return self.vocabulary.roles.get("bos")

    @property
    def eos_id(self) -> int | None:
        """The id that ends a sequence; `end_ids` has all that end a generation."""
        return self.vocabulary.roles.get("eos")

    @property
    def eot_id(self) -> int | None:
        """The id that ends a turn of a conversation."""
        return self.vocabulary.roles.get("eot")

    @property
    def unk_id(self) -> int | None:
        """The id of text that has no other."""
        return self.vocabulary.roles.get("unk")

    @property
    def pad_id(self) -> int | None:
        """The id that fills up batches."""
        return self.vocabulary.roles.get("pad")

    @property
    def end_ids(self) -> frozenset[int]:
        """The ids after which a generation is over."""
        return self.vocabulary.end_ids

    @property
    def add_bos(self) -> bool:
        """Whether `insert="model"` puts the BOS token first."""
        return self.vocabulary.add_bos

    @property
    def add_eos(self) -> bool:
        """Whether `insert="model"` puts the EOS token last."""
        return self.vocabulary.add_eos

    def id_of(self, spelling: str) -> int | None:
        """Return the id of the special token (control, user-defined or unknown) that is spelled so, or None."""
        token = self.vocabulary.ids.get(spelling.encode(errors="surrogatepass"))
        return token if token is not None and self._is_special(token) else None

    def is_control(self, token: int) -> bool:
        """Return whether `decode` hides the id: control tokens, and the one for unknown text.

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        return self.vocabulary.types[self._check(token)] in _HIDDEN

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that an id stands for; of special tokens their spelling, of unused ones none.

        A sequence's bytes are these joined, but for the prefix space that `decode_bytes` takes away.

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        kind = self.vocabulary.types[self._check(token)]
        if kind == TokenType.UNUSED:
            return b""
        if kind in (TokenType.NORMAL, TokenType.BYTE):
            return self._engine.token_bytes(token)
        return self.vocabulary.tokens[token]

    def piece(self, token: int) -> str:
        """Return the id's bytes as text for display; parts of characters become U+FFFD.

        Raises:
            TokenizerError: the id is outside the vocabulary.
        """
        return self.token_bytes(token).decode(errors="replace")

    # --- Text to ids ------------------------------------------------------------------------------------------------

    def encode(self, text: str, special: SpecialPolicy = "literal", insert: InsertPolicy = "none") -> list[int]:
        """Return the ids of a text.

        Args:
            text: any text without lone surrogates. It is not normalized: composed and decomposed letters differ.
            special: "literal" takes the spellings of control tokens as ordinary text, "parse" turns them into their
                ids. User-defined tokens are found under both, as in the reference.
            insert: "none" adds nothing; "model" adds BOS and EOS as the file says, but never a second one where the ids
                already begin or end so.

        Raises:
            LimitError: the text is too long.
            ParameterError: a policy is none of the above.
            TokenizerError: the text is not Unicode, or has a byte for which the vocabulary has no token.
        """
        _check_policy("special", special, get_args(SpecialPolicy))
        _check_policy("insert", insert, get_args(InsertPolicy))
        _check_text(text)
        ids: list[int] = []
        after_special = True
        for part in self._splitter(special).split(text):
            if isinstance(part, int):
                ids.append(part)
                after_special = True
            else:
                ids += self._engine.encode(f" {part}" if after_special and self._has_prefix else part)
                after_special = False
        if insert == "model":
            if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
                ids.insert(0, self.bos_id)
            if self.add_eos and self.eos_id is not None and ids[-1:] != [self.eos_id]:
                ids.append(self.eos_id)
        return ids

    # --- Ids to text ------------------------------------------------------------------------------------------------

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """Return the text of ids; bytes that are no UTF-8 become U+FFFD.

        Args:
            ids: of this vocabulary.
            special: whether control tokens show as their spelling; otherwise they are hidden.

        Raises:
            TokenizerError: an id is outside the vocabulary.
        """
        return self.decode_bytes(ids, special).decode(errors="replace")

    def decode_bytes(self, ids: Iterable[int], special: bool = False) -> bytes:
        """Return the bytes of ids, as `decode` but without loss.

        Where encoding puts a space before text (at the start and after special tokens), one space is taken away, so
        that the text that was encoded comes back.
        """
        push_bytes = self._byte_pusher(special, previous=None)
        return b"".join([push_bytes(token) for token in ids])

    def stream(self, special: bool = False, previous: int | None = None) -> StreamDecoder:
        """Return a decoder of ids that come one by one.

        Args:
            special: as for `decode`.
            previous: the id that precedes the first; None where the first begins the text. Matters only to vocabularies
                that put a space before text: what continues a text keeps it.
        """
        return StreamDecoder(self._byte_pusher(special, previous))

    # --- Inside -----------------------------------------------------------------------------------------------------

    @cached_property
    def _has_prefix(self) -> bool:
        return self.vocabulary.add_space_prefix and self.vocabulary.kind == "llama"

    def _is_special(self, token: int) -> bool:
        return self.vocabulary.types[token] in (*_HIDDEN, TokenType.USER_DEFINED)

    def _check(self, token: int) -> int:
        if not 0 <= token < len(self):
            raise TokenizerError("the id is outside the vocabulary", expected=f"0 to {len(self) - 1}", found=token)
        return token

    def _splitter(self, policy: SpecialPolicy) -> SpecialSplitter:
        if policy not in self._splitters:
            self._splitters[policy] = special_splitter(self.vocabulary, policy)
        return self._splitters[policy]

    def _byte_pusher(self, special: bool, previous: int | None) -> Callable[[int], bytes]:
        """Return a function of the next id that gives the bytes which it adds to a sequence."""
        after_special = previous is None or self._is_special(self._check(previous))

        def push_bytes(token: int) -> bytes:
            nonlocal after_special
            data = b"" if not special and self.is_control(token) else self.token_bytes(token)
            if self._is_special(token):
                after_special = True
            elif data:
                if after_special and self._has_prefix:
                    data = data.removeprefix(b" ")
                after_special = False
            return data

        return push_bytes


def _check_policy(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ParameterError("not a policy", where=name, expected=" or ".join(map(repr, allowed)), found=repr(value))


def _check_text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise TokenizerError(
            "the text is not Unicode: it has half of a surrogate pair, or bytes that were not UTF-8",
            where=f"character {error.start}",
            found=repr(text[error.start]),
        ) from None
    if size > TOKENIZER_MAX_TEXT_BYTES:
        raise LimitError("the text is too long", expected=f"at most {TOKENIZER_MAX_TEXT_BYTES} bytes", found=size)
