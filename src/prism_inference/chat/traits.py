"""What a template does with content, read off its syntax tree: decides the shape in which content is passed to it."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import nodes


@dataclass(frozen=True)
class Traits:
    """How a template looks at content.

    Attributes:
        knows_none: it asks whether content is none, so None may be passed.
        knows_parts: it loops over content, so a list of parts may be passed.
        only_parts: it loops over content and never asks whether it is text: text alone would be taken letter by letter.
    """

    knows_none: bool
    knows_parts: bool
    only_parts: bool


def read_traits(tree: nodes.Template) -> Traits:
    """Read the traits off a parsed template."""
    tests = {test.name for test in tree.find_all(nodes.Test) if _leaf(test.node) == "content"}
    compares_none = any(
        _leaf(compare.expr) == "content" and isinstance(operand.expr, nodes.Const) and operand.expr.value is None
        for compare in tree.find_all(nodes.Compare)
        for operand in compare.ops
    )
    loops = any(_leaf(loop.iter) == "content" for loop in tree.find_all(nodes.For))
    return Traits(
        knows_none=compares_none or "none" in tests,
        knows_parts=loops,
        only_parts=loops and not tests & {"string", "iterable", "sequence", "mapping"},
    )


def _leaf(node: nodes.Node | None) -> str | None:
    """Return the last name of `content`, `message.content`, `message["content"]`, with or without filters behind it."""
    while isinstance(node, nodes.Filter):
        node = node.node
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        return node.arg.value
    return node.name if isinstance(node, nodes.Name) else None
