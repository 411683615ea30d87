"""Every operation of the table against its twin, for each instruction set of this machine, with one thread and two."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import OpCase, all_cases

from prism_inference.engine.objects import library
from prism_inference.engine.run import Executable
from prism_inference.engine.team import team
from prism_inference.graph import Op
from prism_inference.graph.interpret import interpret
from prism_inference.graph.ops import VIEWS
from prism_inference.graph.table import TABLE
from prism_inference.kernels.target import target
from prism_inference.plan import make_plan
from prism_inference.plan.lower import RULES
from tolerances import check

CASES = all_cases()
ISAS = list(dict.fromkeys((target().isa, "generic")))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case: OpCase, isa: str) -> None:
    graph, result = case.graph()
    expected = interpret(graph)[result.index]
    seen = []
    for threads in (1, 2):
        graph, result = case.graph()
        Executable(make_plan(graph, isa), team(threads), library()).run()
        seen.append(result.numpy().reshape(expected.shape))
    np.testing.assert_array_equal(seen[0], seen[1], err_msg="results depend on the number of threads")
    if result.type.name == "F32":
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(np.isinf(seen[0]), infinite)
        check(np.where(infinite, 0, seen[0]), np.where(infinite, 0, expected), case.tolerance)
    else:
        np.testing.assert_array_equal(seen[0], expected)


def test_every_operation_has_a_row_a_kernel_and_a_case() -> None:
    computed = TABLE.keys() - VIEWS
    assert computed == RULES.keys()
    assert {case.op for case in CASES} == TABLE.keys()
    missing = [op.name for op, row in TABLE.items() if row.gradient == "no rule"]
    assert not missing, f"neither a derivative nor a reason for having none: {missing}"


def test_every_derivative_has_a_case() -> None:
    # A rounding's derivative is that of the identity on purpose; `test_round_to.py` holds it against that.
    differentiable = {op for op, row in TABLE.items() if callable(row.gradient)} - {Op.ROUND_TO}
    assert {case.op for case in CASES if case.smooth} >= differentiable


def test_no_operation_of_the_numbering_is_forgotten() -> None:
    from prism_inference.graph.table import REFUSED

    assert set(REFUSED) | set(TABLE) | {Op.NONE} == set(Op)
    assert not set(REFUSED) & set(TABLE)
    assert all(REFUSED.values()), "each refusal says why"
