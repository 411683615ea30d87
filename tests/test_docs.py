"""The documentation is what the code says: generated pages are fresh, links lead somewhere, the first program runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
assert len(PAGES) > 6


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the pages were made with 3.11: argparse wraps differently elsewhere"
)
def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "docs" / "make_reference.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", ["README.md", "docs/guides/sampling.md"])
def test_a_page_s_programs_run(page: str, models: Path) -> None:
    """Every Python block of a page, in order, as one program."""
    from prism_inference.runtime.defaults import DEFAULT_MODEL, KNOWN_MODELS

    path = models / KNOWN_MODELS[DEFAULT_MODEL].file_name
    if not path.exists():
        pytest.skip(f"{path.name} was not fetched: python tests/fetch_models.py")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 2
    program = "\n".join(blocks).replace('"default"', repr(str(path)))
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.parametrize("page", ["graph", "derivatives"])
def test_a_concept_s_program_prints_what_it_says(page: str) -> None:
    text = (ROOT / "docs" / "concepts" / f"{page}.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (promised,) = re.findall(r"print\(.*\) +# (.*)", block)
    result = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == promised.split()
