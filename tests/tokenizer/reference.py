"""The reference engine as an oracle: a llama.cpp server from the package `xllamacpp`, loaded with a tiny random model.

Run as a program it writes `reference_ids.json` anew: what the engine makes of `TEXTS` under every pretokenizer, and of
random texts under random vocabularies of the other kinds. The tests compare with that file; where `xllamacpp` is
installed they also ask the engine itself.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
from vocabularies import (
    CONTROL,
    LETTERS,
    USER_DEFINED,
    byte_level_values,
    metadata,
    random_scored,
    random_texts,
    scored_values,
    spell,
)

from prism_inference.gguf import GGUFWriter
from prism_inference.tokenizer.pretokenize import PRETOKENIZERS

RECORDED = Path(__file__).with_name("reference_ids.json")

TEXTS = (
    "Hello world, it's the DOG's they'LL don't I'm we've you'RE 'S 's",
    "x1 22 333 4444 55555 3.14159 $1,000.00 2024-01-01 a1b2c3",
    "  two   spaces    four\ttab \t mixed\u00a0nbsp\u2003em\u3000wide",
    "line\nend\r\nboth\n\n\ntriple \n space\n  indent\n\tx \n",
    "trailing spaces   ",
    "\n",
    "   ",
    "a  b\n\n  c",
    "foo_bar(baz)[0]{x: y};  // !!! ... ==> <= >= != && || #tag @me 50% ~/a\\b|c^d`e`",
    (
        "camelCase HTTPServer XMLHttpRequest ABC abC ABc \u00e9\u00c9cole \u00c9COLE \u00c9cole "
        "na\u00efve \u00dcber STRA\u00dfE"
    ),
    (
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! "
        "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac 12 \u0433\u043e\u0434"
    ),
    "\u6f22\u5b57\u304b\u306a\u30ab\u30bf\u30ab\u30ca 123 \u5b57\uff01\uff1f\u3002\u3001 \uff21\uff22\uff23",
    (
        "\ud55c\uad6d\uc5b4 \uc548\ub155 \u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940 "
        "\u0627\u0644\u0639\u0631\u0628\u064a\u0629\u060c \u05e9\u05dc\u05d5\u05dd"
    ),
    "e\u0301 o\u0308 \u0301x a\u0301\u0302b \u00bd\u00b2 \u2167 \u0663\u0664\u0665 \ufb01 \U0001d400\U0001d41b",
    (
        "\U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \u00a9\u00ae\u2122 "
        "\u2190\u2192 \u20ac5 \u00a33 +1 a+b=c"
    ),
    "'\u017f 'Re '\u212a \u2018quote\u2019 \u201cdouble\u201d \u2026 \u2014 \u00bfqu\u00e9? \u00a1s\u00ed!",
    "<div class=\"a\">x</div>\n\n\n    return {'k': [1, 2]}\n",
    "'reward 'Dogs 'times o'clock x;\ny !\n;\n\n)\r\n} \n",
    "http://example.com/a?b=c&d=1#e user@mail.org /usr/bin C:\\x",
    "\u200b zero \ufeff bom \u0085 next \u2028 line \x0b vt \x0c ff \x1c fs \x00 nul",
    "10D7 \u10d0\u10d1\u10d2 \u0531\u0561 \u1e9e \u2c00 \uab70 \u1d400 \ua78b\ua7a0 Ǆǅǆ \u1f88",
)


MARKED_LETTERS = "ab\u2581"  # what pieces are made of; texts have a space for the mark


def marked_vocabularies() -> dict[str, dict[str, object]]:
    """Keys of random vocabularies of the kinds that spell a space as U+2581: by scores with ties, and by rules."""
    found: dict[str, dict[str, object]] = {}
    special = {"<|ctl|>": CONTROL, "bab": USER_DEFINED, "ba": USER_DEFINED}
    for seed in range(4):
        pieces = random_scored(seed, MARKED_LETTERS, 40, levels=8)
        for spelling in special:
            pieces.pop(spelling, None)
        prefix = {"add_space_prefix": seed % 2 == 0}
        found[f"scored {seed}"] = scored_values(pieces, special, **prefix)
        rules = [
            f"{piece[:cut]} {piece[cut:]}"
            for piece in sorted(pieces, key=lambda piece: -pieces[piece])
            for cut in range(1, len(piece))
            if piece[:cut] in pieces and piece[cut:] in pieces
        ]
        keys = scored_values({**pieces, "\n": 0.0, "\n\n": 0.0}, special, **prefix)
        found[f"ruled {seed}"] = {**keys, "model": "gemma4", "merges": rules, "bos_token_id": 1, "eos_token_id": 2}
    return found


def marked_texts() -> list[str]:
    """Random texts for these vocabularies: their letters, line ends, and characters that only byte tokens spell."""
    letters = "aabb  " * 3 + "\n\u00e9\U0001f600"
    return [*random_texts(5, letters, 24, 40), "<|ctl|>ab", "a<|ctl|> b", "", " ", "babab", "\n\n\n"]


def vocabulary(pre: str) -> dict[str, object]:
    """Keys of a vocabulary in which any two neighbouring bytes of `TEXTS` merge, so that ids show where pieces end.

    Words that no merge makes are tokens too: they show whether whole pieces are looked up.
    """
    used = sorted({byte for text in TEXTS for byte in text.encode() if byte < 0x80 or byte % 3 == 0})
    merges = [(LETTERS[left], LETTERS[right]) for left in used for right in used]
    words = [spell(word) for word in ("Hello", " world", "dog", " two", "4444", "333", " the", "camelCase")]
    special = {"<|ctl|>": CONTROL, "<|fin|>": CONTROL, "<mark>": USER_DEFINED}
    return byte_level_values(
        merges, special, extra=words, pre=pre, bos_token_id=0, eos_token_id=1, add_bos_token=False, add_eos_token=False
    )


def write_model(path: Path, values: Mapping[str, object]) -> None:
    """Write a random model of one small block that has the vocabulary."""
    writer = GGUFWriter(path)
    writer.add("general.architecture", "llama")
    for key, value in {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 32,
        "feed_forward_length": 32,
        "attention.head_count": 1,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }.items():
        writer.add(f"llama.{key}", value)
    stored = metadata(values)
    for key in stored:
        writer.add(key, stored[key])
    shapes = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), (32, 32))
    shapes |= {"attn_norm": (32,), "ffn_norm": (32,)}
    tensors = {f"blk.0.{name}.weight": shape for name, shape in shapes.items()}
    tensors |= {"token_embd.weight": (32, len(stored["tokenizer.ggml.tokens"])), "output_norm.weight": (32,)}
    rng = np.random.default_rng(1)
    for name, shape in tensors.items():
        data = rng.standard_normal(int(np.prod(shape)), dtype=np.float32)
        writer.add_tensor(name, "F32", shape, data.view(np.uint8))
    writer.write()


class ReferenceServer:
    """A running server; `encode` asks it for ids."""

    def __init__(self, path: Path) -> None:
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = 64
        parameters.n_parallel = 1
        parameters.warmup = False
        parameters.verbosity = -1
        self._server = xllamacpp.Server(parameters)

    def encode(self, text: str, parse: bool) -> list[int]:
        body = json.dumps({"content": text, "add_special": False, "parse_special": parse}).encode()
        request = urllib.request.Request(
            f"{self._server.listening_address}/tokenize", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["tokens"]


def main() -> None:
    recorded: dict[str, list[list[int]]] = {}
    same: dict[str, str] = {}
    for name in PRETOKENIZERS:
        if name in ("gemma4", "none"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write_model(path, vocabulary(name))
            server = ReferenceServer(path)
            ids = [server.encode(text, parse=False) for text in TEXTS]
            del server
        twin = next((other for other, found in recorded.items() if found == ids), None)
        if twin is None:
            recorded[name] = ids
        else:
            same[name] = twin
        print(name, "as", twin)
    marked: dict[str, list[list[int]]] = {}
    for name, values in marked_vocabularies().items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write_model(path, values)
            server = ReferenceServer(path)
            marked[name] = [server.encode(text, parse) for text in marked_texts() for parse in (False, True)]
            del server
    document = {"engine": f"xllamacpp {version('xllamacpp')}", "same": same, "ids": recorded, "marked": marked}
    RECORDED.write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
