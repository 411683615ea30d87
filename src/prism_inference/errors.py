"""The one exception tree of the package.

Every error says what was wrong, where, what was expected, what was found and what to do next, and keeps each of these
as a field. Knows nothing of files, models or kernels: callers fill the fields in.
"""

from __future__ import annotations


class PrismError(Exception):
    """Base of all errors that the package raises on purpose.

    Args:
        problem: one sentence without a full stop that says what is wrong.
        where: the address of the fault: a path, a key, a tensor, an operation.
        expected: what would have been right.
        found: what was there instead.
        hint: what the reader can do next.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.problem = problem
        self.where = where
        self.expected = expected
        self.found = found
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        text = f"{self.where}: {self.problem}" if self.where else self.problem
        facts = []
        if self.expected is not None:
            facts.append(f"expected {self.expected}")
        if self.found is not None:
            facts.append(f"found {self.found}")
        if facts:
            text += f": {', '.join(facts)}"
        return f"{text}\n{self.hint}" if self.hint else text


class PrismWarning(UserWarning):
    """Something that is done as asked and is probably not what was wanted."""


class FormatError(PrismError, ValueError):
    """A file breaks the rules of its format."""


class LimitError(PrismError, ValueError):
    """A count or size exceeds a named limit of `prism_inference.limits`."""


class MetadataError(PrismError, KeyError):
    """A metadata key is missing, or holds a value of another kind than needed."""

    __str__ = Exception.__str__  # KeyError would print the repr of the message


class UnsupportedError(PrismError, ValueError):
    """A valid input asks for something that this package does not do."""


class ModelError(PrismError, ValueError):
    """A file's tensors or hyper-parameters do not make the model that it names."""


class TokenizerError(PrismError, ValueError):
    """A vocabulary is unusable, or a text or id cannot be tokenized."""


class TemplateError(PrismError, ValueError):
    """A chat template is refused, fails, or rejects the conversation."""


class TemplateLimitError(TemplateError, LimitError):
    """A chat template would use more steps, bytes or time than one rendering may."""


class SamplingError(PrismError, ValueError):
    """Logits leave nothing to choose from: none, not numbers, or not one above minus infinity."""


class ParameterError(PrismError, ValueError):
    """An argument of the caller is out of its range."""


class ContextError(PrismError, ValueError):
    """A request needs more positions than the context has.

    Fields: `needed` and `available`, both in tokens.
    """

    def __init__(self, needed: int, available: int, *, hint: str | None = None) -> None:
        self.needed = needed
        self.available = available
        super().__init__(
            "the request does not fit the context",
            expected=f"at most {available} tokens",
            found=f"{needed} tokens",
            hint=hint or "Shorten the input, ask for fewer new tokens, or load the model with a larger context.",
        )


class MemoryBudgetError(PrismError, MemoryError):
    """The planned memory exceeds the budget; nothing was allocated.

    Fields: `needed` and `budget` in bytes, `parts` maps each part to its bytes.
    """

    def __init__(self, needed: int, budget: int, parts: dict[str, int], *, hint: str | None = None) -> None:
        self.needed = needed
        self.budget = budget
        self.parts = parts
        listing = ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in parts.items())
        super().__init__(
            f"the plan needs more memory than the budget allows ({listing})",
            expected=f"at most {budget / 2**20:.1f} MiB",
            found=f"{needed / 2**20:.1f} MiB",
            hint=hint or "Choose a smaller context, or raise the memory budget.",
        )


class GraphError(PrismError, ValueError):
    """An operation of the tensor graph is refused; names operation, tensor and input."""


class DatasetError(PrismError, ValueError):
    """Data for training cannot be used; names the file and the place."""


class TrainingError(PrismError, RuntimeError):
    """A training cannot go on; parameters and optimizer are as they were before the step."""


class KernelError(PrismError, RuntimeError):
    """A kernel is missing, does not compile, or cannot be loaded."""


class CancelledError(PrismError):
    """The caller cancelled the work; the state is as it was before the call."""


class DownloadError(PrismError, OSError):
    """A model could not be fetched, or what came is not what was asked for."""


class UsageError(PrismError):
    """A command was called the wrong way; the command line ends with status 2."""
