"""`prism train` and `prism lora` on a tiny model: what is written, reported and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prism_inference.cli import main
from prism_inference.training.create import Sizes, create
from prism_inference.training.vocabulary import train_vocabulary

Captured = pytest.CaptureFixture[str]
SIZES = Sizes(width=128, blocks=1, heads=4, key_heads=2, head_size=32, feed_forward=128, context=64, tied=False)
TEXT = "one two three four five six seven eight nine ten " * 100


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A model and a text."""
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    return str(create(tmp_path / "m.gguf", SIZES, train_vocabulary([TEXT], 280))), str(data)


def test_adapters_are_trained_applied_shown_and_merged(
    files: tuple[str, str], tmp_path: Path, capsys: Captured
) -> None:
    adapter, merged = str(tmp_path / "a.gguf"), str(tmp_path / "merged.gguf")
    options = ["--steps", "20", "--length", "16", "--rate", "1e-2", "--json"]
    assert main(["train", *files, "-o", adapter, *options]) == 0
    out, err = capsys.readouterr()
    reports = [json.loads(line) for line in out.splitlines()]
    assert [report["step"] for report in reports] == list(range(1, 21))
    assert reports[-1]["loss"] < reports[0]["loss"]
    assert f"20 steps, loss {reports[-1]['loss']:.4f}" in err
    assert main(["lora", "inspect", adapter, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["architecture"], shown["alpha"], shown["ranks"]) == ("qwen3", 16.0, {"8": len(shown["targets"])})
    assert main(["lora", "merge", files[0], adapter, "-o", merged]) == 0
    replies = []
    for arguments in ([files[0]], [files[0], "--lora", adapter], [merged]):
        call = ["run", *arguments, "one two", "--raw", "--max-tokens", "8", "--temperature", "0"]
        assert main(call) == 0
        replies.append(capsys.readouterr().out)
    assert replies[0] != replies[1] == replies[2]


def test_a_kept_training_is_taken_up_and_not_overwritten(
    files: tuple[str, str], tmp_path: Path, capsys: Captured
) -> None:
    state = str(tmp_path / "state")
    call = ["train", *files, "--length", "16", "--schedule", "constant", "--checkpoint", state, "--json"]
    assert main([*call, "--steps", "3", "-o", str(tmp_path / "a.gguf")]) == 0
    before = Path(state).read_bytes()
    capsys.readouterr()
    assert main([*call, "--steps", "6", "-o", str(tmp_path / "b.gguf")]) == 2
    assert "--resume" in capsys.readouterr().err
    assert Path(state).read_bytes() == before
    assert main([*call, "--steps", "6", "-o", str(tmp_path / "b.gguf"), "--resume"]) == 0
    steps = [json.loads(line)["step"] for line in capsys.readouterr().out.splitlines()]
    assert steps == [4, 5, 6]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--steps", "0"], "steps"),
        (["--rank", "0"], "rank"),
        (["--targets", "nothing"], "no matrix"),
        (["--rounding", "Q1_0"], "--method full"),
        (["--resume"], "--checkpoint"),
        (["--memory", "1MiB"], "memory"),
    ],
)
def test_wrong_use_writes_nothing(
    options: list[str], text: str, files: tuple[str, str], tmp_path: Path, capsys: Captured
) -> None:
    output = tmp_path / "a.gguf"
    assert main(["train", *files, "-o", str(output), "--length", "16", *options]) != 0
    out, err = capsys.readouterr()
    assert text in err
    assert "Traceback" not in err
    assert not out
    assert not output.exists()
