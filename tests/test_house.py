"""The rules of the house: import direction, light imports, one door to the compiler, size of files, a docstring
each."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "prism_inference"
FILES = sorted(SOURCE.rglob("*.py"))
assert len(FILES) > 40

# A module may import from its own folder and from those before it.
ORDER = [
    "errors",
    "limits",
    "settings",
    "gguf",
    "codecs",
    "graph",
    "plan",
    "kernels",
    "engine",
    "models",
    "tokenizer",
    "chat",
    "sampling",
    "runtime",
    "training",
    "serving",
    "tools",
    "cli",
]
TOP = {"__init__", "__main__"}  # the package's own face may import anything, lazily
COMPILERS = {"numba", "llvmlite"}


def name_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(SOURCE).with_suffix("").parts


def imported(path: Path) -> list[tuple[str, int]]:
    """Modules that a file imports, relative ones made absolute, with their lines."""
    package = ("prism_inference", *name_of(path)[:-1])
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                found.append((node.module or "", node.lineno))
                continue
            base = package[: len(package) - (node.level - 1)]
            if node.module:
                found.append((".".join((*base, node.module)), node.lineno))
            else:
                found += [(".".join((*base, alias.name)), node.lineno) for alias in node.names]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(name_of(path)))
def test_imports_point_up(path):
    stage = name_of(path)[0]
    if stage in TOP:
        return
    assert stage in ORDER, f"{stage} has no place in the order of the house"
    for module, line in imported(path):
        parts = module.split(".")
        if parts[0] == "prism_inference" and len(parts) > 1:
            assert parts[1] in ORDER, f"{path}:{line} imports {module}"
            assert ORDER.index(parts[1]) <= ORDER.index(stage), (
                f"{path}:{line}: {stage} imports {module}, which comes later"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(name_of(path)))
def test_one_door_to_the_compiler(path):
    parts = name_of(path)
    for module, line in imported(path):
        if module.split(".")[0] == "numba":
            assert parts == ("kernels", "jit"), f"{path}:{line} imports numba"
        if module.split(".")[0] == "llvmlite":
            allowed = parts[:2] in {
                ("kernels", "jit"),
                ("kernels", "simd"),
                ("kernels", "target"),
                ("kernels", "symbols"),
            }
            assert allowed or parts == ("engine", "objects"), f"{path}:{line} imports llvmlite"


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(name_of(path)))
def test_small_and_described(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 600
    assert ast.get_docstring(ast.parse(text)), "every module says what it does"


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(name_of(path)))
def test_functions_are_short(path):
    kernels = name_of(path)[0] == "kernels"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if kernels and any(isinstance(inner, ast.FunctionDef) for inner in ast.walk(node) if inner is not node):
                continue  # a factory: its parts are looked at one by one
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= (80 if kernels else 60), f"{node.name} has {length} lines"


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(result.stdout.splitlines()[-1].split())


HEAVY = COMPILERS | {"tokenizers", "jinja2", "starlette", "uvicorn", "rich", "llguidance", "psutil"}


def test_importing_the_package_is_light():
    assert loaded_by("import prism_inference") & (HEAVY | {"numpy"}) == set()


def test_help_is_light():
    code = "from prism_inference.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_by(code) & (HEAVY | {"numpy"}) == set()


def test_reading_a_graph_imports_no_compiler():
    assert (
        loaded_by("import prism_inference.graph, prism_inference.plan, prism_inference.engine.run") & {"numba"} == set()
    )
