"""The command line in this process: what goes to stdout and stderr, exit statuses, and the same options everywhere."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prism_inference
from prism_inference.cli import COMMANDS, main
from prism_inference.errors import ModelError
from prism_inference.gguf import GGUFWriter
from prism_inference.runtime import pull
from prism_inference.sampling import SamplingParams
from stand_ins import TEMPLATE, StandInModel

Captured = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """Text that is typed."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> StandInModel:
    """The model that every command of the test loads."""
    stand_in = StandInModel()
    monkeypatch.setattr(prism_inference, "load", stand_in.load, raising=False)
    monkeypatch.setattr(prism_inference, "load_tokenizer", lambda path: stand_in.tokenizer, raising=False)
    return stand_in


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that a model's name may stand for."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    return str(file)


# --- The top ----------------------------------------------------------------------------------------------------------


def test_help_lists_every_command(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name} " in out
        assert command.help in out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(name: str, capsys: Captured) -> None:
    assert main([name, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"usage: prism {name}")
    assert captured.err == ""


def test_version(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"prism {prism_inference.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--nope"],
        ["nope"],
        ["run"],
        ["run", "a", "b", "c"],
        ["run", "x", "--threads", "many"],
        ["run", "x", "--nope"],
        ["tokenize", "model.gguf"],
        ["tokenize", "model.gguf", "x", "--special", "maybe"],
        ["inspect"],
        ["run", "missing.gguf", "x"],
        ["pull", "missing"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_status_2_with_a_word_on_stderr(arguments: list[str], capsys: Captured) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err
    assert "Traceback" not in captured.err


def test_a_mistyped_command_is_guessed(capsys: Captured) -> None:
    assert main(["chatt"]) == 2
    assert "Did you mean `prism chat`?" in capsys.readouterr().err


def test_an_error_is_one_line_and_its_hint(model: StandInModel, path: str, capsys: Captured) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ModelError("no such thing", where="file", hint="Do this.")

    prism_inference.load = fail
    assert main(["run", path, "x"]) == 1
    assert capsys.readouterr().err == "prism: file: no such thing\nDo this.\n"


COMMON = ["--threads", "--context", "--memory", "--cache-type", "--deterministic", "--template"]
GENERATION = ["--max-tokens", "--temperature", "--top-k", "--top-p", "--min-p", "--seed", "--stop", "--stats"]
SPELLINGS = {
    "run": [*COMMON, *GENERATION, "--json", "--raw"],
    "chat": [*COMMON, *GENERATION, "--system"],
    "inspect": ["--json", "--tensors"],
    "tokenize": ["--json", "--special", "--insert"],
    "pull": ["--json"],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_options_are_spelled_the_same_everywhere(name: str, capsys: Captured) -> None:
    main([name, "--help"])
    out = capsys.readouterr().out
    assert [flag for flag in SPELLINGS[name] if flag not in out] == []


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_answers_the_prompt_as_one_message(model: StandInModel, path: str, capsys: Captured) -> None:
    assert main(["run", path, "Hi"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("Hello!\n", "")
    assert model.prompts == ["[user]Hi[assistant]"]
    assert model.loaded == (Path(path), {"deterministic": False})
    assert model.closed


def test_run_with_one_argument_takes_the_default_model(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(pull, "resolve", lambda name, progress=None: Path(f"/resolved/{name}"))
    assert main(["run", "Hi"]) == 0
    assert model.loaded is not None
    assert model.loaded[0] == Path("/resolved/default")


def test_run_raw_and_without_a_template(model: StandInModel, path: str, capsys: Captured) -> None:
    model.replies = ["a", "b"]
    assert main(["run", path, "Once", "--raw"]) == 0
    model.template = None
    assert main(["run", path, "upon"]) == 0
    assert model.prompts == ["Once", "upon"]


def test_run_passes_on_what_is_given_and_nothing_else(model: StandInModel, path: str, capsys: Captured) -> None:
    model.replies = ["x", "x"]
    arguments = ["--threads", "2", "--context", "64", "--memory", "2GiB", "--cache-type", "Q8_0", "--deterministic"]
    arguments += ["--max-tokens", "5", "--temperature", "0.5", "--top-k", "9", "--top-p", "0.9", "--min-p", "0.1"]
    arguments += ["--seed", "7", "--stop", "A", "--stop", "B"]
    assert main(["run", path, *arguments, "Hi"]) == 0
    assert model.loaded is not None
    assert model.loaded[1] == {
        "threads": 2,
        "context": 64,
        "memory": "2GiB",
        "cache_type": "Q8_0",
        "deterministic": True,
    }
    assert model.options[0] == {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_k": 9,
        "top_p": 0.9,
        "min_p": 0.1,
        "seed": 7,
        "stop": ["A", "B"],
    }
    assert main(["run", path, "Hi"]) == 0
    assert model.options[1] == {"max_tokens": None, "stop": ()}


def test_every_parameter_of_sampling_has_an_option(model: StandInModel, path: str, capsys: Captured) -> None:
    values: dict[str, Any] = {
        "temperature": 0.5, "top_k": 9, "top_p": 0.9, "min_p": 0.1, "seed": 7, "typical_p": 0.8, "top_n_sigma": 1.5,
        "xtc_probability": 0.2, "xtc_threshold": 0.3, "dynatemp_range": 0.1, "dynatemp_exponent": 2.0,
        "repeat_penalty": 1.1, "frequency_penalty": -0.5, "presence_penalty": 0.5, "repeat_last_n": -1,
        "dry_multiplier": 0.8, "dry_base": 1.5, "dry_allowed_length": 3, "dry_penalty_last_n": 99, "mirostat": 0,
        "mirostat_tau": 4.0, "mirostat_eta": 0.2, "adaptive_target": 0.4, "adaptive_decay": 0.8, "min_tokens": 1,
        "samplers": "top-k;temp",
    }  # fmt: skip
    arguments = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    arguments += ["--ignore-eos", "--max-tokens", "2", "--dry-sequence-breaker", "x", "--dry-sequence-breaker", "y"]
    arguments += ["--logit-bias", "5+1.5", "--logit-bias", "6-inf", "--bad-words", "1,2", "--bad-words", "3"]
    assert main(["run", path, "Hi", *arguments]) == 0
    lists = {
        "ignore_eos": True,
        "dry_sequence_breakers": ["x", "y"],
        "logit_bias": {5: 1.5, 6: -math.inf},
        "bad_words": [(1, 2), (3,)],
    }
    passed = model.options[0]
    assert passed == {**values, **lists, "max_tokens": 2, "stop": ()}
    assert set(passed) - {"max_tokens", "stop"} == {field.name for field in fields(SamplingParams)}


def test_run_gives_several_answers(model: StandInModel, path: str, capsys: Captured) -> None:
    model.replies = ["Hello", "Hi there"]
    assert main(["run", path, "Hi", "--n", "2"]) == 0
    assert capsys.readouterr().out == "--- answer 1 of 2\nHello\n--- answer 2 of 2\nHi there\n"
    model.replies = ["H", "Hi", "H"]
    assert main(["run", path, "Hi", "--n", "3", "--stop", "H"]) == 0
    assert (
        capsys.readouterr().out
        == "".join(f"{'' if n == 1 else chr(10)}--- answer {n} of 3\n" for n in (1, 2, 3)) + "\n"
    )
    model.replies = ["Hello", "Hi there"]
    assert main(["run", path, "Hi", "--n", "2", "--json", "--logprobs", "2", "--echo"]) == 0
    result = json.loads(capsys.readouterr().out)
    prompt = "[user]Hi[assistant]"
    assert (result["text"], result["alternatives"][0]["text"]) == (f"{prompt}Hello", f"{prompt}Hi there")
    assert result["logprobs"][0] == {"token": ord("["), "logprob": None, "top": []}
    assert len(result["logprobs"]) == len(prompt) + len("Hello")
    assert [len(entry["top"]) for entry in result["logprobs"][1:]] == [2] * (len(prompt) + 4)


def test_run_options_may_stand_between_the_arguments(model: StandInModel, path: str, capsys: Captured) -> None:
    assert main(["run", "--max-tokens", "2", path, "--seed", "1", "--", "--Hi"]) == 0
    assert model.prompts == ["[user]--Hi[assistant]"]
    assert capsys.readouterr().out == "He\n"


def test_run_json(model: StandInModel, path: str, capsys: Captured) -> None:
    assert main(["run", path, "Hi", "--json", "--stop", "!", "--seed", "5"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert captured.err == ""
    assert result["text"] == "Hello"
    assert result["ids"] == list(b"Hello!")
    assert (result["finish_reason"], result["stop"], result["seed"]) == ("stop", "!", 5)
    assert result["usage"] == {"prompt_tokens": len("[user]Hi[assistant]"), "completion_tokens": 6}
    assert set(result["timings"]) == {"prompt_seconds", "decode_seconds"}


def test_run_stats_go_to_stderr(model: StandInModel, path: str, capsys: Captured) -> None:
    assert main(["run", path, "Hi", "--stats", "--seed", "5"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hello!\n"
    assert "prompt 19 tokens, " in captured.err
    assert "answer 7 tokens, " in captured.err
    assert captured.err.count("tokens/s") == 2
    assert "seed 5" in captured.err


def test_run_reads_stdin(model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines\n"))
    assert main(["run", path, "-"]) == 0
    assert model.prompts == ["[user]two\nlines\n[assistant]"]


def test_run_with_a_template_of_ones_own(model: StandInModel, path: str, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("<{{ messages[0].content }}>")
    assert main(["run", path, "Hi", "--template", str(file)]) == 0
    assert model.prompts == ["<Hi>"]
    assert main(["run", path, "Hi", "--template", str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "0"], "top_p"),
        (["--max-tokens", "-1"], "max_tokens"),
        (["--stop", ""], "stop"),
        (["--repeat-penalty", "0"], "repeat_penalty"),
        (["--samplers", "top_k;magic"], "samplers"),
        (["--logit-bias", "3+nan"], "logit_bias"),
        (["--logit-bias", "3"], "logit-bias"),
        (["--bad-words", "a,b"], "bad-words"),
        (["--n", "0"], "n: "),
        (["--n", "3", "--best-of", "2"], "best_of"),
        (["--logprobs", "3"], "--json"),
    ],
)
def test_run_with_a_value_out_of_range_is_wrong_use(
    model: StandInModel, path: str, arguments: list[str], word: str, capsys: Captured
) -> None:
    assert main(["run", path, "Hi", *arguments]) == 2
    assert word in capsys.readouterr().err


def test_run_that_does_not_fit_fails(model: StandInModel, path: str, capsys: Captured) -> None:
    model.context = 10
    assert main(["run", path, "Hi"]) == 1
    err = capsys.readouterr().err
    assert "at most 10 tokens" in err
    assert "found 20 tokens" in err


def test_an_interruption_is_status_130(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def interrupt(ids: Any) -> Any:
        raise KeyboardInterrupt

    generate = model.generate

    def started(prompt: str, **options: Any) -> Any:
        stream = generate(prompt, **options)
        model.evaluators[0].evaluate = interrupt  # type: ignore[method-assign]
        return stream

    monkeypatch.setattr(model, "generate", started)
    assert main(["run", path, "Hi"]) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert model.evaluators[0].closed == 1
    assert model.closed


def test_a_reader_that_goes_ends_the_command(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    assert main(["run", path, "Hi"]) == 141
    assert capsys.readouterr().err == ""
    assert model.evaluators[0].closed == 1


def test_a_pipe_that_closes_leaves_no_traceback() -> None:
    code = "import sys; from prism_inference.cli import main; sys.exit(main(['run', '--help']))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_letters_that_the_terminal_lacks_are_escaped(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    model.replies = ["naïve"]
    assert main(["run", path, "Hi"]) == 0
    assert raw.getvalue() == b"na\\xefve\n"


# --- chat -------------------------------------------------------------------------------------------------------------


def test_chat_keeps_the_history(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    model.replies = ["One", "Two", "Three"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n\nb\n/reset\nc\n/quit\nnever\n"))
    assert main(["chat", path, "--system", "Be brief."]) == 0
    captured = capsys.readouterr()
    assert captured.out == "One\nTwo\nThree\n"
    assert captured.err == "", "no prompt sign where nobody types"
    assert model.prompts == [
        "[system]Be brief.[user]a[assistant]",
        "[system]Be brief.[user]a[assistant]One[user]b[assistant]",
        "[system]Be brief.[user]c[assistant]",
    ]
    assert model.closed


def test_chat_ends_with_its_input(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a"))
    assert main(["chat", path]) == 0
    assert capsys.readouterr().out == "Hello!\n"


def test_chat_on_a_terminal_goes_on_after_a_failure(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    model.context = 40
    model.replies = ["no", "Fine"]
    monkeypatch.setattr(sys, "stdin", Terminal(f"{'x' * 50}\nok\n"))
    assert main(["chat", path]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Fine\n"
    assert "/quit" in captured.err
    assert captured.err.count("> ") == 3
    assert "at most 40 tokens" in captured.err
    assert model.prompts[-1] == "[user]ok[assistant]", "what failed is not part of the conversation"


def test_chat_from_a_file_fails_with_the_first_failure(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    model.context = 40
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{'x' * 50}\nok\n"))
    assert main(["chat", path]) == 1
    assert capsys.readouterr().out == ""


def test_chat_on_a_terminal_goes_on_after_an_interrupted_answer(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    model.replies = ["long answer", "Fine"]
    chat_stream = model.chat_stream
    calls: list[Any] = []

    def interrupted_once(messages: Any, **options: Any) -> Any:
        stream = chat_stream(messages, **options)
        calls.append(messages)
        if len(calls) == 1:
            queue = model.evaluators[0]
            evaluate = queue.evaluate

            def interrupt(ids: Any) -> np.ndarray:
                if len(queue.calls) == 4:
                    raise KeyboardInterrupt
                return evaluate(ids)

            queue.evaluate = interrupt  # type: ignore[method-assign]
        return stream

    monkeypatch.setattr(model, "chat_stream", interrupted_once)
    monkeypatch.setattr(sys, "stdin", Terminal("a\nb\n"))
    assert main(["chat", path]) == 0
    assert capsys.readouterr().out == "longFine\n"
    assert calls[1] == [{"role": "user", "content": "b"}]
    assert model.evaluators[0].closed == 1


def test_chat_without_a_template_says_what_to_do(model: StandInModel, path: str, capsys: Captured) -> None:
    model.template, model.metadata = None, {}
    assert main(["chat", path]) == 1
    assert "--template" in capsys.readouterr().err


# --- tokenize, inspect, pull ------------------------------------------------------------------------------------------


def test_tokenize(model: StandInModel, path: str, capsys: Captured) -> None:
    assert main(["tokenize", path, "a\n<end>"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == ["97\t'a'", "10\t'\\n'", "60\t'<'"]
    assert main(["tokenize", path, "--json", "aß<end>", "--special", "parse", "--insert", "model"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "count": 5,
        "ids": [0, 97, 0xC3, 0x9F, 256],
        "pieces": ["\0", "a", "\\xc3", "\\x9f", "<end>"],
    }


def test_tokenize_stdin_exactly(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n"))
    assert main(["tokenize", path, "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ids"] == [97, 10]


def test_stdin_that_is_no_text_is_refused(
    model: StandInModel, path: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    assert main(["tokenize", path, "-"]) == 2
    assert "UTF-8" in capsys.readouterr().err


@pytest.fixture
def gguf_file(tmp_path: Path) -> str:
    file = tmp_path / "tiny.gguf"
    writer = GGUFWriter(file)
    writer.add("general.architecture", "llama")
    writer.add("general.name", "A tiny one")
    writer.add("llama.block_count", 2)
    writer.add("llama.rope.freq_base", 10000.0)
    writer.add("tokenizer.ggml.add_bos_token", True)
    writer.add("tokenizer.ggml.tokens", [f"t{number}" for number in range(100)])
    writer.add("tokenizer.ggml.scores", np.arange(100, dtype=np.float32))
    writer.add("tokenizer.chat_template", TEMPLATE * 3 + "\n")
    writer.add("short", [1, 2, 3])
    writer.add_tensor("a", "F32", (4, 3), np.zeros(48, np.uint8))
    writer.add_tensor("b", "F32", (8,), np.zeros(32, np.uint8))
    writer.add_tensor("c", "Q8_0", (64, 2), np.zeros(136, np.uint8))
    writer.write()
    return str(file)


def test_inspect_json(gguf_file: str, capsys: Captured) -> None:
    assert main(["inspect", gguf_file, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["paths"] == [gguf_file]
    assert described["bytes"] == Path(gguf_file).stat().st_size
    assert described["gguf_version"] == 3
    assert described["parameters"] == 12 + 8 + 128
    assert described["tensor_types"] == {
        "F32": {"tensors": 2, "elements": 20, "bytes": 80},
        "Q8_0": {"tensors": 1, "elements": 128, "bytes": 136},
    }
    metadata = described["metadata"]
    assert metadata["general.name"] == "A tiny one"
    assert metadata["llama.block_count"] == 2
    assert metadata["tokenizer.ggml.add_bos_token"] is True
    assert metadata["short"] == [1, 2, 3]
    assert metadata["tokenizer.chat_template"] == TEMPLATE * 3 + "\n"
    assert metadata["tokenizer.ggml.tokens"] == {"length": 100, "first": [f"t{number}" for number in range(8)]}
    assert metadata["tokenizer.ggml.scores"] == {"length": 100, "first": [float(number) for number in range(8)]}
    assert "tensors" not in described

    assert main(["inspect", gguf_file, "--json", "--tensors"]) == 0
    tensors = {tensor["name"]: tensor for tensor in json.loads(capsys.readouterr().out)["tensors"]}
    assert {name: (tensor["type"], tensor["ne"], tensor["bytes"]) for name, tensor in tensors.items()} == {
        "a": ("F32", [4, 3], 48),
        "b": ("F32", [8], 32),
        "c": ("Q8_0", [64, 2], 136),
    }


def test_inspect_for_people(gguf_file: str, capsys: Captured) -> None:
    assert main(["inspect", gguf_file, "--tensors"]) == 0
    out = capsys.readouterr().out
    assert "general.name" in out
    assert "100 items: 't0', 't1'" in out
    assert "Q8_0" in out
    assert "148" in out
    assert all(len(line) < 160 for line in out.splitlines())


def test_inspect_what_is_no_model(path: str, capsys: Captured) -> None:
    assert main(["inspect", path]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_pull(monkeypatch: pytest.MonkeyPatch, path: str, capsys: Captured) -> None:
    asked: list[str] = []

    def stand_in(name: str, progress: Any = None) -> Path:
        asked.append(name)
        return Path(path)

    monkeypatch.setattr(pull, "pull", stand_in)
    assert main(["pull"]) == 0
    assert main(["pull", "owner/name:file.gguf", "--json"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == path
    assert json.loads(second) == {"path": path, "bytes": 4}
    assert asked == ["default", "owner/name:file.gguf"]


def test_a_folder_that_is_not_there_is_a_message(tmp_path: Path, capsys: Captured) -> None:
    assert main(["synth", "bonsai-1.7b", str(tmp_path / "none" / "m.gguf")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("prism: ")
    assert "No such file" in captured.err
