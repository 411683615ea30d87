"""Run, differentiate and train GGUF language models on ordinary CPUs.

The public names load on first use, so that `import prism_inference` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import codecs, gguf, graph
    from .errors import PrismError
    from .runtime.model import Model, load, load_tokenizer

__version__ = "0.1.0"

__all__ = ["Model", "PrismError", "__version__", "codecs", "gguf", "graph", "load", "load_tokenizer"]

_LAZY = {
    "PrismError": ("errors", "PrismError"),
    "Model": ("runtime.model", "Model"),
    "load": ("runtime.model", "load"),
    "load_tokenizer": ("runtime.model", "load_tokenizer"),
    "codecs": ("codecs", None),
    "gguf": ("gguf", None),
    "graph": ("graph", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    module = import_module(f"{__name__}.{module_name}")
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
