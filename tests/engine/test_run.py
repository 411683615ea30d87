"""The executor: varying extents, cancelling, refusals, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from prism_inference.engine.objects import Library
from prism_inference.engine.run import prepare
from prism_inference.engine.team import Team, default_threads
from prism_inference.errors import CancelledError, GraphError, KernelError, ParameterError
from prism_inference.graph import Context, Dim, Graph
from prism_inference.kernels.target import NAMED_TARGETS, choose, host_features, target


def chain(length: int, width: int = 64, rows: int = 4):
    """A graph of dependent additions: y = x · 2^length."""
    ctx = Context()
    x = ctx.tensor("F32", (width, rows)).set(np.ones((rows, width)))
    y = x
    for _ in range(length):
        y = y.add(y)
    graph = Graph(ctx, capacity=length)
    graph.expand(y.mark_output())
    return graph, y


def test_bind_sets_a_varying_extent_in_place(rng) -> None:
    ctx = Context()
    tokens = Dim(16, "tokens")
    x = ctx.tensor("F32", (8, tokens)).set(rng.standard_normal((16, 8)))
    w = ctx.tensor("F32", (8, 5)).set(rng.standard_normal((5, 8)))
    y = w.mul_mat(x).mark_output()
    graph = Graph(ctx)
    graph.expand(y)
    executable = prepare(graph, 1)
    full = x.numpy() @ w.numpy().T
    y.storage.array[:] = 0
    executable.bind(tokens=3)
    executable.run()
    np.testing.assert_allclose(y.numpy()[:3], full[:3], rtol=1e-5, atol=1e-6)
    assert not y.numpy()[3:].any(), "rows beyond the bound extent were computed"
    executable.bind(tokens=16)
    executable.run()
    np.testing.assert_allclose(y.numpy(), full, rtol=1e-5, atol=1e-6)
    for wrong in (0, 17):
        with pytest.raises(ParameterError, match="1 to 16"):
            executable.bind(tokens=wrong)
    with pytest.raises(ParameterError, match="no such extent"):
        executable.bind(cells=1)


def test_compute_through_the_graph() -> None:
    graph, y = chain(5)
    graph.compute(threads=2)
    np.testing.assert_array_equal(y.numpy(), np.full((4, 64), 32.0))


def test_a_leaf_without_data_is_named() -> None:
    ctx = Context()
    graph = Graph(ctx)
    graph.expand(ctx.tensor("F32", (3,), name="forgotten").scale(2.0))
    with pytest.raises(GraphError, match="forgotten"):
        graph.compute(1)


@pytest.mark.parametrize("threads", [1, 2])
def test_timed_steps_add_up_and_compute_the_same(threads: int) -> None:
    ctx = Context()
    large = ctx.tensor("F32", (4096, 512)).set(np.ones((512, 4096)))
    small = ctx.tensor("F32", (64, 1)).set(np.ones((1, 64)))
    graph = Graph(ctx)
    outputs = [large.add(large).mark_output(), small.add(small).mark_output()]
    for output in outputs:
        graph.expand(output)
    executable = prepare(graph, threads)
    executable.run()
    start = time.perf_counter()
    seconds = executable.time_steps()
    elapsed = time.perf_counter() - start
    assert len(seconds) == len(executable.plan.steps) == 2
    # Which step takes longer is the machine's affair; that the parts fit into the whole is not.
    assert np.all(seconds > 0)
    assert seconds.sum() <= elapsed
    for output in outputs:
        assert (output.numpy() == 2).all()
    executable.cancel()
    with pytest.raises(CancelledError):
        executable.time_steps()


@pytest.mark.parametrize("threads", [1, 2])
def test_cancel_stops_at_a_barrier_and_the_next_run_is_whole(threads: int) -> None:
    graph, y = chain(100, 4096, 256)
    executable = prepare(graph, threads)
    executable.run()
    start = time.perf_counter()
    executable.run()
    whole = time.perf_counter() - start
    stopped = 0
    for attempt in range(20):
        executable.resume()
        timer = threading.Timer(whole * (attempt + 1) / 40, executable.cancel)
        timer.start()
        try:
            executable.run()
        except CancelledError:
            stopped += 1
        timer.join()
    assert stopped > 0, "no run was ever cancelled"
    executable.cancel()
    with pytest.raises(CancelledError):
        executable.run()
    executable.resume()
    executable.run()
    np.testing.assert_array_equal(y.numpy()[0, :4], np.float32(2.0) ** np.full(4, 100))


INTERRUPTED = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from test_run import chain
from prism_inference.engine.run import prepare
from prism_inference.plan.descriptor import CONTROL_DONE
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
graph, y = chain(3000, 4096, 64)
executable = prepare(graph, 2)
executable.run()
start = time.perf_counter()
executable.run()
whole = time.perf_counter() - start
interrupted = early = 0
for attempt in range(40):
    timer = threading.Timer(whole * attempt / 40, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        executable.run()
        timer.join()
    except KeyboardInterrupt:
        interrupted += 1
        early += int(executable._flags[CONTROL_DONE]) < len(executable.plan.steps)
    timer.join()
    executable.resume()
    y.storage.array[:] = 0
    executable.run()
    assert (y.numpy()[:, :8] == float("inf")).all(), attempt
print(interrupted, early)
"""


def test_an_interrupt_ends_a_run_early_and_leaves_the_team_whole() -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    interrupted, early = map(int, done.stdout.split())
    assert interrupted > 20
    assert early > 0  # how many is up to the machine's scheduler; if interrupts did not end runs, none would


def test_more_threads_than_cores_still_finish() -> None:
    graph, y = chain(200)
    prepare(graph, 4 * (os.cpu_count() or 1)).run()
    np.testing.assert_array_equal(y.numpy()[0, 0], np.inf)


def test_two_python_threads_share_a_team() -> None:
    graphs = [chain(50, rows=n + 1) for n in range(4)]
    executables = [prepare(graph, 2) for graph, _ in graphs]

    def work(executable) -> None:
        for _ in range(50):
            executable.run()

    workers = [threading.Thread(target=work, args=(executable,)) for executable in executables]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for _, y in graphs:
        assert (y.numpy() == np.float32(2.0) ** 50).all()


def test_threads_are_counted_and_checked() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)
    with pytest.raises(ParameterError, match="1 to 256"):
        Team(0)


def test_a_forked_child_is_refused() -> None:
    code = (
        "import os, sys\n"
        "from prism_inference.engine.team import Team\n"
        "from prism_inference.errors import ParameterError\n"
        "t = Team(2)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        t.run(0, 0, lambda: None)\n"
        "    except ParameterError:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60).returncode == 7


def test_a_warm_start_imports_no_compiler(tmp_path: Path) -> None:
    code = (
        "import numpy as np, sys, time\n"
        "from prism_inference.graph import Context, Graph\n"
        "ctx = Context(); x = ctx.tensor('F32', (8,)).set(np.ones(8)); y = x.add(x)\n"
        "g = Graph(ctx); g.expand(y); g.compute(1)\n"
        "assert (y.numpy() == 2).all()\n"
        "print('numba' in sys.modules)\n"
    )
    environment = {**os.environ, "PRISM_CACHE": str(tmp_path)}
    outcomes = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert outcomes == ["True\n", "False\n"]


def test_kernels_of_another_instruction_set_are_refused(tmp_path: Path) -> None:
    library = Library(choose("generic"), tmp_path)
    with pytest.raises(KernelError, match="not for this processor"):
        library.addresses(["matmul.q4_0@avx512vnni"])
    with pytest.raises(KernelError, match="unknown kernel"):
        library.addresses(["matmul.q9_9@generic"])


@pytest.mark.parametrize("damage", [b"", b"not an object", None])
def test_a_damaged_object_is_compiled_again(tmp_path: Path, damage: bytes | None) -> None:
    Library(target(), tmp_path).addresses(["elementwise.scale"])
    (path,) = tmp_path.rglob("elementwise.scale.o")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] if damage is None else damage)
    compiled: list[str] = []
    addresses = Library(target(), tmp_path).addresses(
        ["elementwise.scale"], lambda done, total, key: compiled.append(key)
    )
    assert addresses["elementwise.scale"]
    assert "elementwise.scale" in compiled
    compiled.clear()
    Library(target(), tmp_path).addresses(["elementwise.scale"], lambda done, total, key: compiled.append(key))
    assert compiled == [], "the cache was not repaired"


def test_targets_beyond_the_host_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="unknown processor"):
        choose("pentium")
    monkeypatch.setattr("prism_inference.kernels.target.host_features", lambda: dict.fromkeys(host_features(), False))
    for name, needs in NAMED_TARGETS.items():
        if needs:
            with pytest.raises(ParameterError, match="cannot run"):
                choose(name)
