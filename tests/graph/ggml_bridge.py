"""Cases of operations run by libggml, in a process of its own: it ends the process where it refuses something, and
clashes with other copies of ggml.

A graph of ours is walked generically; what each operation is there, and what is left out, is said in `ggml_rows`.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from differences import weighted_sum
from extra_cases import EXTRA
from ggml_library import Ggml, Pointer, folder
from ggml_rows import BACKWARD, FORWARD_LIMITS, ROWS, UNKNOWN_TYPES, Limit
from op_cases import Maker, OpCase, all_cases
from upstream_calls import CALLS

from prism_inference.graph import Graph, Op, RopeMode, RopeParameters, Tensor
from prism_inference.graph.table import IGNORED

Array = npt.NDArray[Any]


@dataclass
class Answer:
    """What libggml made of a case: the result, the leaves that the graph wrote to (by their place in the graph's list),
    the gradients of the parameters in the order of that list; or how the process ended."""

    result: Array | None = None
    leaves: dict[int, Array] = field(default_factory=dict)
    gradients: list[Array] | None = None
    failure: str = ""


def _half_infinite(m: Maker) -> Tensor:
    """A view of the finite half of a parameter."""
    values = np.arange(1.0, 9.0).reshape(2, 4) / 8
    values[1] = np.inf
    return m.values(values).mark_parameter().view((4, 1), (16,)).sqr()


# Where libggml's derivative is wrong: a case, and what goes wrong there. The last ends its process.
DIFFERS: list[tuple[OpCase, str]] = [
    (
        OpCase(Op.ADD1, "one value to a row", lambda m: m.parameter(5).add1(m.parameter(1))),
        "ggml gives the added value the mean of the gradient, and it is part of every element: the sum",
    ),
    (
        OpCase(Op.VIEW, "beside infinite values", _half_infinite),
        "ggml makes the zeros outside the view as 0·source, which is NaN where the source is not finite",
    ),
    (
        OpCase(Op.VIEW, "overlapping rows", lambda m: m.parameter(13).view((4, 3), (8,)).cont()),
        "ggml adds each row of a view to the zeros instead of to the rows before it: the last row alone remains",
    ),
    (
        OpCase(
            Op.CROSS_ENTROPY_LOSS,
            "labels of any sum",
            lambda m: m.parameter(5, 3).cross_entropy_loss(m.leaf(5, 3, low=0.0)),
        ),
        "ggml leaves the sum of the labels out: p - labels where it is p·Σ labels - labels",
    ),
    (
        OpCase(Op.ADD1, "one value to rows", lambda m: m.parameter(5, 3).add1(m.parameter(1))),
        "ggml gives the added value the mean of each row, which has not its shape",
    ),
]

# Pairs 4, 5 and 7 would belong to the height and the width, whose sections end before them.
BEYOND_SECTIONS = OpCase(
    Op.ROPE,
    "pairs beyond the sections",
    lambda m: m.leaf(16, 1, 2).rope(
        m.integers([[3, 5], [7, 2], [4, 1], [40, 90]]), RopeParameters(16, RopeMode.NEOX, sections=(6, 1, 1))
    ),
    smooth=False,
)


# --- What can be asked ---------------------------------------------------------------------------------------


def has_forward(graph: Graph) -> bool:
    """Whether libggml has all types and operations of a graph."""
    known = not any(leaf.type.name in UNKNOWN_TYPES for leaf in graph.leafs)
    return known and all(node.op in ROWS and _takes(FORWARD_LIMITS, node, frozenset()) for node in graph.nodes)


def has_backward(graph: Graph) -> bool:
    """Whether libggml also differentiates all nodes through which a gradient flows."""
    flows = differentiated(graph)
    return has_forward(graph) and all(node.op in BACKWARD and _takes(BACKWARD, node, flows[node]) for node in flows)


def differentiates(case: OpCase, graph: Graph) -> bool:
    """Whether libggml is asked for a case's gradients."""
    return case.smooth and (has_backward(graph) or case in (differing for differing, _ in DIFFERS))


def _takes(limits: Mapping[Op, Limit], node: Tensor, flows: frozenset[int]) -> bool:
    return node.op not in limits or limits[node.op].takes(node, flows)


def differentiated(graph: Graph) -> dict[Tensor, frozenset[int]]:
    """The nodes between the parameters and the result, with the numbers of the sources that a gradient flows to."""
    reached = {leaf.index for leaf in graph.leafs if leaf.is_parameter}
    flows: dict[Tensor, frozenset[int]] = {}
    for node in graph.nodes:
        numbers = (n for n, source in enumerate(node.sources) if source is not None and source.index in reached)
        wanted = frozenset(numbers) - IGNORED.get(node.op, frozenset())
        if wanted:
            reached.add(node.index)
            flows[node] = wanted
    return flows


# --- In the child ------------------------------------------------------------------------------------------------


def translate(g: Ggml, graph: Graph) -> dict[int, Pointer]:
    """Make a graph's tensors in a new context of libggml, by their indices here."""
    g.begin()
    made: dict[int, Pointer] = {}
    for leaf in graph.leafs:
        assert leaf.storage is not None, leaf
        extents = tuple(int(extent) for extent in leaf.ne)
        made[leaf.index] = g.leaf(leaf.type.id, extents, leaf.storage.array[: leaf.nbytes])
        if leaf.is_parameter:
            g.plain("set_param", made[leaf.index])
    for node in graph.nodes:
        sources = [None if source is None else made[source.index] for source in node.sources]
        made[node.index] = ROWS[node.op](g, node, sources)
        ne = made[node.index].contents.ne[:]
        assert tuple(ne) == tuple(node.ne), f"{node}: ggml's result is {ne}"
    return made


def run(g: Ggml, case: OpCase) -> Answer:
    """Compute a case, and its gradients if libggml can."""
    graph, result = case.graph()
    made = translate(g, graph)
    g.compute(g.graph([made[result.index], *g.aside]))
    answer = Answer(g.values(made[result.index]))
    for number, leaf in enumerate(graph.leafs):
        values = g.values(made[leaf.index])
        before = leaf.storage.array[: leaf.nbytes]
        if values.tobytes() != before.tobytes():
            answer.leaves[number] = values
    if differentiates(case, graph):
        answer.gradients = gradients(g, case)
    return answer


def gradients(g: Ggml, case: OpCase) -> list[Array]:
    """Differentiate the weighted sum of a case's result."""
    graph, result = case.graph()
    loss = weighted_sum(graph, result)
    graph.expand(loss)
    made = translate(g, graph)
    g.plain("set_loss", made[loss.index])
    built = g.graph([made[loss.index]], gradients=True)
    g.compute(built)
    parameters = [made[leaf.index] for leaf in graph.leafs if leaf.is_parameter]
    return [g.values(g.plain("graph_get_grad", built, parameter)) for parameter in parameters]


def call(g: Ggml, name: str) -> Answer:
    """Call a function of ggml's C interface with the arguments of its example."""
    maker = Maker()
    arguments = CALLS[name].arguments(maker)
    graph = Graph(maker.context)
    for argument in arguments:
        if isinstance(argument, Tensor):
            graph.expand(argument)
    made = translate(g, graph)

    def converted(value: Any) -> Any:
        if isinstance(value, Tensor):
            return made[value.index]
        # The only lists of C's are sections (int) and extents (int64_t) of im2col_back.
        kind = ctypes.c_int64 if name == "ggml_im2col_back" else ctypes.c_int
        return (kind * len(value))(*value) if isinstance(value, tuple) else value

    result = g(name.removeprefix("ggml_"), *map(converted, arguments))
    g.compute(g.graph([result]))
    return Answer(g.values(result))


def child(names: str, answers: str) -> None:
    """Run the cases and functions that a file names and append to another, for each, its name and then its answer."""
    path = folder()
    assert path is not None
    g = Ggml(path)
    differing = (BEYOND_SECTIONS, *(case for case, _ in DIFFERS))
    cases = {str(case): case for case in (*all_cases(), *EXTRA, *differing)}
    with Path(answers).open("ab", buffering=0) as file:
        for name in json.loads(Path(names).read_text()):
            pickle.dump(name, file)
            pickle.dump(run(g, cases[name]) if name in cases else call(g, name), file)


# --- In the parent ----------------------------------------------------------------------------------------------


def ask(names: list[str]) -> dict[str, Answer]:
    """Have libggml run cases, or functions by their names; where it ends the process, that is the answer to the one at
    hand, and the rest is asked of a new one."""
    found: dict[str, Answer] = {}
    while waiting := [name for name in names if name not in found]:
        with tempfile.TemporaryDirectory() as temporary:
            asked, answers = Path(temporary) / "names.json", Path(temporary) / "answers.pickle"
            asked.write_text(json.dumps(waiting))
            answers.touch()
            code = f"import ggml_bridge; ggml_bridge.child({str(asked)!r}, {str(answers)!r})"
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"}
            command = [sys.executable, "-c", code]
            ended = subprocess.run(command, cwd=temporary, env=environment, capture_output=True, text=True)
            records = list(_records(answers))
        found |= dict(zip(records[::2], records[1::2], strict=False))
        if len(records) % 2:
            found[records[-1]] = Answer(failure=f"status {ended.returncode}: {ended.stderr[-1000:]}")
        elif ended.returncode:
            raise RuntimeError(f"libggml's process failed outside of any case:\n{ended.stderr}")
    return found


def _records(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return
