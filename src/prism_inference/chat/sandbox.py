"""The template engine's sandbox: Jinja as Hugging Face's templates expect it, with everything it does counted.

Three things keep a hostile template in: a table of what may be called, guards before calls that can grow, and a syntax
tree rewritten so that loops, comparisons, slices and concatenations report to the budget. Knows no messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache, wraps
from typing import Any, Final

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import FILTERS, do_indent, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import pass_environment
from jinja2.visitor import NodeTransformer

from ..errors import TemplateError
from ..limits import TEMPLATE_MAX_RANGE
from . import guards
from .budget import CONTAINERS, SIZED, budget, exceeded


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Methods that a template may call. Lists and mappings are copies made for the rendering, so changing them is harmless,
# and some templates keep queues in lists.
_METHODS: Final[dict[type, frozenset[str]]] = {
    str: _words(
        "capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit islower"
        " isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex"
        " rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"
    ),
    dict: _words("copy get items keys pop setdefault update values"),
    list: _words("append copy count index insert pop remove reverse"),
    tuple: _words("count index"),
    int: frozenset(),
    float: frozenset(),
}

# Jinja's own filters that templates may use, by what must happen before a call. "plain" ones do work in proportion to
# their subject; "text" ones print it first; "lazy" ones take its items one by one; "whole" ones visit or compare all.
_FILTERS: Final[dict[str, frozenset[str]]] = {
    "plain": _words("abs count d default first float items last length"),
    "text": _words("capitalize e escape lower safe title trim truncate upper"),
    "lazy": _words("list map reject rejectattr select selectattr"),
    "whole": _words("dictsort groupby max min reverse sort unique"),
}

_COMPARING_TESTS: Final = _words("in == eq equalto != ne > gt greaterthan >= ge < lt lessthan <= le")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a table of callable methods, and a budget for every call and operator."""

    intercepted_binops = frozenset(guards.OPERATORS)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow the methods of the table; of other objects (loops, namespaces, macros) what Jinja's sandbox allows."""
        for kind, names in _METHODS.items():
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        """Refuse at once: an undefined value would print as nothing and hide the attempt."""
        raise SecurityError(f"access to {attribute!r} of a {type(obj).__name__} is not allowed")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Count the call, guard it, and charge its result. The first names are mangled to leave keywords free."""
        current = budget()
        current.step()
        method = getattr(__obj, "__wrapped__", __obj)  # str.format comes wrapped by Jinja's own guard
        owner = getattr(method, "__self__", None)
        if isinstance(owner, SIZED) and (guard := guards.METHODS.get(method.__name__)):
            guard(current, owner, [*args, *kwargs.values()])
        return current.made(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Guard an operator and charge its result."""
        current = budget()
        current.step()
        left, right = guards.OPERATORS[operator](current, left, right)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Weigh an unusual subscript: its hash, or the message that it is not there, visits all of it."""
        return super().getitem(obj, budget().weigh(argument))


@cache
def environment() -> Sandbox:
    """Return the one environment of the process; it holds nothing of any rendering."""
    sandbox = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
        finalize=_finalize,
    )
    del sandbox.globals["lipsum"]
    sandbox.globals.update(dict=_dict, range=_range, strftime_now=_strftime_now, raise_exception=_raise_exception)
    wrappers = {"plain": _plain, "text": _text_filter, "lazy": _lazy, "whole": _whole}
    sandbox.filters = {name: wrappers[kind](FILTERS[name]) for kind in _FILTERS for name in _FILTERS[kind]}
    sandbox.filters |= _OWN_FILTERS
    tests: dict[str, Any] = dict(TESTS)
    sandbox.tests = tests | {name: _weighing(tests[name]) for name in _COMPARING_TESTS}
    return sandbox


def bounded(tree: nodes.Template) -> nodes.Template:
    """Rewrite a parsed template so that its loops, comparisons, slices and concatenations report to the budget."""
    tree = _Rewriter().visit(tree)
    tree.set_environment(environment())
    return tree


class _Generation(Extension):
    """`{% generation %}` marks what a model should learn; to render is to leave the marks out."""

    tags = {"generation"}  # noqa: RUF012  (declared so by the base class)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return what stands between the marks."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Rewriter(NodeTransformer):
    """Puts calls of the hidden filters round what Jinja compiles to bare Python operators."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        """Count each turn, and charge the literal text that it writes."""
        self.generic_visit(node)
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        node.iter = _hidden("turns", node.iter, nodes.Const(text))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        """`a ~ b`."""
        self.generic_visit(node)
        return _hidden("concat", node.nodes[0], *node.nodes[1:])

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        """`a[b:c]`."""
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        limits: list[nodes.Expr] = [
            part or nodes.Const(None) for part in (node.arg.start, node.arg.stop, node.arg.step)
        ]
        return _hidden("slice", node.node, *limits)

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:
        """Weigh a computed key of a mapping: the hash of a tuple visits all of it."""
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = _hidden("weigh", node.key)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        """Weigh both sides, unless one is a literal: equality of nested lists visits all of both."""
        self.generic_visit(node)
        literal = len(node.ops) == 1 and any(isinstance(side, nodes.Const) for side in (node.expr, node.ops[0].expr))
        if not literal:
            node.expr = _hidden("weigh", node.expr)
            for operand in node.ops:
                if not isinstance(operand.expr, nodes.List | nodes.Tuple):
                    member = operand.op in ("in", "notin")
                    operand.expr = _hidden("weigh_items" if member else "weigh", operand.expr)
        return node


def _hidden(name: str, subject: nodes.Node, *args: nodes.Node) -> nodes.Filter:
    """Call a filter whose name no template can spell."""
    node = nodes.Filter(subject, f" {name}", list(args), [], None, None)
    return node.set_lineno(subject.lineno)  # type: ignore[return-value]


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        budget().step()
        return budget().made(function(*args, **kwargs))

    return call


def _preparing(prepare: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a wrapper that prepares a filter's subject, which follows the context if Jinja passes one."""

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        place = 1 if hasattr(function, "jinja_pass_arg") else 0
        plain = _plain(function)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return plain(*args[:place], prepare(args[place]), *args[place + 1 :], **kwargs)

        return call

    return wrapper


def _turns(items: Iterable[Any], text: int = 0) -> Iterator[Any]:
    return budget().turns(items, text)


def _settled(items: Any) -> Any:
    """Weigh a value; take a generator's items into a list first, or weighing would use them up."""
    return budget().weigh(items if isinstance(items, SIZED) else list(_turns(items)))


def _taken_singly(items: Any) -> Any:
    """Count items as they are taken; nothing at all (None, undefined) stays what it is, as Jinja's filters take it."""
    return _turns(items) if items else items


def _weigh(value: Any) -> Any:
    return budget().weigh(value)


_text_filter = _preparing(_weigh)
_lazy = _preparing(_taken_singly)
_whole = _preparing(_settled)


def _weighing(test: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(test)
    def call(*args: Any) -> Any:
        budget().step()
        for value in args:
            budget().weigh(value)
        return test(*args)

    return call


def _weigh_items(container: Any) -> Any:
    """Weigh what `in` would compare with; a mapping is looked up, not searched."""
    return container if isinstance(container, dict) else budget().weigh(container)


def _text(value: Any) -> str:
    return str(budget().made(str(budget().weigh(value))))


def _finalize(value: Any) -> Any:
    """Charge what is written out."""
    if isinstance(value, CONTAINERS):
        return _text(value)
    return budget().made(value)


def _concat(*values: Any) -> str:
    text: str = budget().made("".join([_text(value) for value in values]))
    return text


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:
    budget().step()
    return budget().made(value[start:stop:step])


def _replace(text: Any, old: Any, new: Any, count: int = -1) -> str:
    text, old, new = _text(text), _text(old), _text(new)
    guards.replaced(budget(), text, (old, new))
    return str(budget().made(text.replace(old, new, count)))


@pass_environment
def _join(sandbox: Sandbox, items: Any, separator: Any = "", attribute: str | None = None) -> str:
    get = make_attrgetter(sandbox, attribute) if attribute is not None else None
    texts = [_text(get(item) if get else item) for item in _turns(items)]
    separator = _text(separator)
    guards.joined(budget(), separator, [texts])
    return str(budget().made(separator.join(texts)))


@pass_environment
def _sum(sandbox: Sandbox, items: Any, attribute: str | None = None, start: Any = 0) -> Any:
    get = make_attrgetter(sandbox, attribute) if attribute is not None else None
    total = start
    for item in _turns(items):
        total = budget().made(total + (get(item) if get else item))
    return total


def _format(text: Any, *args: Any, **kwargs: Any) -> str:
    values = kwargs or args
    guards.percent(budget(), _text(text), values)
    return str(budget().made(str(text) % values))


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    guards.refuse_padding(width)
    budget().charge((text.count("\n") + 1) * (len(width) if isinstance(width, str) else width))
    return str(budget().made(do_indent(text, width, first, blank)))


def _int(value: Any, default: Any = 0, base: int = 10) -> Any:
    """Jinja's filter, but for texts longer than any number that arithmetic may make."""
    if isinstance(value, str) and len(value) > guards.INTEGER_BITS:
        return default
    return FILTERS["int"](value, default, base)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's templates expect it: no HTML escapes, all letters as they are, keys in their order."""
    guards.refuse_padding(indent or 0, *(separators or ()))
    budget().weigh(value)
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return str(budget().made(text))


def _range(*args: int) -> range:
    items = range(*args)
    # By arithmetic: len() overflows for the ranges that matter here.
    if (items.stop - items.start) // items.step > TEMPLATE_MAX_RANGE:
        raise exceeded("TEMPLATE_MAX_RANGE", f"{TEMPLATE_MAX_RANGE} items of range()")
    return items


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*budget().weigh(args), **kwargs)


def _raise_exception(message: object) -> None:
    raise TemplateError(_text(message), where="chat template")


_OWN_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "format": _format,
    "indent": _indent,
    "int": _int,
    "join": _join,
    "replace": _replace,
    "string": _text,
    "sum": _sum,
    "tojson": _tojson,
    " turns": _turns,
    " concat": _concat,
    " slice": _slice,
    " weigh": _weigh,
    " weigh_items": _weigh_items,
}
