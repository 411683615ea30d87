"""The hybrid architecture, tiny and random, against a NumPy model of its formulas; its states; its rotation."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from test_rotation import BLOCK, turned
from test_rotation import feed as feed_batch

import prism_inference as prism
from naive_models import feed, mixed, rms, rotate, silu
from prism_inference import gguf
from prism_inference.errors import CancelledError, MemoryBudgetError, ModelError
from prism_inference.graph.interpret import interpret
from prism_inference.runtime.runner import ModelGraph, Runner, SessionOptions
from prism_inference.runtime.weights import check as check_file
from tiny import write_keys
from tolerances import QUANTIZED, check


@dataclass(frozen=True)
class Hybrid:
    """Sizes of a tiny qwen35 model; the defaults let every width be rotated in blocks of 64."""

    blocks: int = 4
    width: int = 64
    feed_forward: int = 128
    heads: int = 4
    key_heads: int = 2
    head: int = 32
    rotated: int = 16
    vocabulary: int = 61
    context: int = 512
    interval: int = 4
    taps: int = 4
    s_key_heads: int = 2
    s_value_heads: int = 6
    s_size: int = 32
    s_value: int = 32
    experts: int = 0
    used: int = 0
    shared: int = 0
    eps: float = 1e-6
    base: float = 1e7

    @property
    def inner(self) -> int:
        return self.s_value_heads * self.s_value

    @property
    def channels(self) -> int:
        return 2 * self.s_key_heads * self.s_size + self.inner

    def attends(self, block: int) -> bool:
        return (block + 1) % self.interval == 0


H = Hybrid()
IDS = np.random.default_rng(11).integers(0, 61, 45).tolist()


def hybrid_weights(h: Hybrid, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (h.vocabulary, h.width),
        "output_norm.weight": (h.width,),
        "output.weight": (h.vocabulary, h.width),
    }
    for b in range(h.blocks):
        part: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (h.width,),
            "post_attention_norm.weight": (h.width,),
            "ffn_gate.weight": (h.feed_forward, h.width),
            "ffn_up.weight": (h.feed_forward, h.width),
            "ffn_down.weight": (h.width, h.feed_forward),
        }
        if h.experts:
            for name in ("ffn_gate", "ffn_up", "ffn_down"):
                shape = part.pop(f"{name}.weight")
                part[f"{name}_exps.weight"] = (h.experts, *shape)
                part[f"{name}_shexp.weight"] = tuple(h.shared if n == h.feed_forward else n for n in shape)
            part["ffn_gate_inp.weight"] = (h.experts, h.width)
            part["ffn_gate_inp_shexp.weight"] = (h.width,)
        if h.attends(b):
            part |= {
                "attn_q.weight": (2 * h.heads * h.head, h.width),
                "attn_k.weight": (h.key_heads * h.head, h.width),
                "attn_v.weight": (h.key_heads * h.head, h.width),
                "attn_output.weight": (h.width, h.heads * h.head),
                "attn_q_norm.weight": (h.head,),
                "attn_k_norm.weight": (h.head,),
            }
        else:
            part |= {
                "attn_qkv.weight": (h.channels, h.width),
                "attn_gate.weight": (h.inner, h.width),
                "ssm_conv1d.weight": (h.channels, h.taps),
                "ssm_dt.bias": (h.s_value_heads,),
                "ssm_a": (h.s_value_heads,),
                "ssm_alpha.weight": (h.s_value_heads, h.width),
                "ssm_beta.weight": (h.s_value_heads, h.width),
                "ssm_norm.weight": (h.s_value,),
                "ssm_out.weight": (h.width, h.inner),
            }
        shapes |= {f"blk.{b}.{name}": shape for name, shape in part.items()}
    weights = {
        name: (rng.standard_normal(s) / (np.sqrt(s[-1]) if len(s) > 1 else 4) + (len(s) == 1)).astype(np.float32)
        for name, s in shapes.items()
    }
    for name in weights:
        if name.endswith("ssm_a"):
            weights[name] = -np.abs(weights[name])
    return weights


def naive(h: Hybrid, weights: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """Logits of every position, token by token, float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    keys = [[] for _ in range(h.blocks)]
    values = [[] for _ in range(h.blocks)]
    inputs = [np.zeros((h.taps - 1, h.channels)) for _ in range(h.blocks)]
    matrix = [np.zeros((h.s_value_heads, h.s_size, h.s_value)) for _ in range(h.blocks)]
    out = []
    for position, token in enumerate(ids):
        x = w["token_embd.weight"][token]
        for b in range(h.blocks):

            def p(name, b=b):
                return w[f"blk.{b}.{name}"]

            n = rms(x, p("attn_norm.weight"), h.eps)
            if h.attends(b):
                both = (p("attn_q.weight") @ n).reshape(h.heads, 2, h.head)
                q, gate = both[:, 0], both[:, 1]
                k, v = ((p(f"attn_{name}.weight") @ n).reshape(-1, h.head) for name in "kv")
                q, k = rms(q, p("attn_q_norm.weight"), h.eps), rms(k, p("attn_k_norm.weight"), h.eps)
                for part in (q, k):
                    part[:, : h.rotated] = rotate(part[:, : h.rotated], position, h.base, False)
                keys[b].append(k)
                values[b].append(v)
                heads = []
                for i in range(h.heads):
                    shared = i // (h.heads // h.key_heads)
                    scores = np.array([q[i] @ key[shared] for key in keys[b]]) / np.sqrt(h.head)
                    soft = np.exp(scores - scores.max())
                    heads.append(sum(a * v[shared] for a, v in zip(soft / soft.sum(), values[b], strict=True)))
                gated = np.concatenate(heads) / (1 + np.exp(-gate.reshape(-1)))
                y = p("attn_output.weight") @ gated
            else:
                u = p("attn_qkv.weight") @ n
                window = np.concatenate([inputs[b], u[None]])
                inputs[b] = window[1:]
                c = silu((window * p("ssm_conv1d.weight").T).sum(0))
                split = h.s_key_heads * h.s_size
                q, k = c[:split].reshape(-1, h.s_size), c[split : 2 * split].reshape(-1, h.s_size)
                q, k = (part / np.sqrt((part**2).sum(-1, keepdims=True) + h.eps) for part in (q, k))
                v = c[2 * split :].reshape(-1, h.s_value)
                beta = 1 / (1 + np.exp(-(p("ssm_beta.weight") @ n)))
                decay = np.exp(p("ssm_a") * np.log1p(np.exp(p("ssm_alpha.weight") @ n + p("ssm_dt.bias"))))
                z = (p("attn_gate.weight") @ n).reshape(-1, h.s_value)
                parts = []
                for r in range(h.s_value_heads):
                    key, query = k[r % h.s_key_heads], q[r % h.s_key_heads]
                    m = matrix[b][r] * decay[r]
                    m = m + np.outer(key, beta[r] * (v[r] - m.T @ key))
                    matrix[b][r] = m
                    parts.append(rms(m.T @ query / np.sqrt(h.s_size), p("ssm_norm.weight"), h.eps) * silu(z[r]))
                y = p("ssm_out.weight") @ np.concatenate(parts)
            x = x + y
            f = rms(x, p("post_attention_norm.weight"), h.eps)
            if h.experts:
                names = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
                x = x + mixed(h, {name: p(f"{name}.weight") for name in names}, f)
                gate = 1 / (1 + np.exp(-(p("ffn_gate_inp_shexp.weight") @ f)))
                x = x + gate * feed(*(p(f"ffn_{name}_shexp.weight") for name in ("gate", "up", "down")), f)
            else:
                x = x + feed(*(p(f"ffn_{name}.weight") for name in ("gate", "up", "down")), f)
        out.append(w["output.weight"] @ rms(x, w["output_norm.weight"], h.eps))
    return np.array(out)


def write_hybrid(path: Path, h: Hybrid, weights: dict[str, np.ndarray], kind: str = "F32", **keys: object) -> Path:
    metadata = {
        "block_count": h.blocks,
        "context_length": h.context,
        "embedding_length": h.width,
        "feed_forward_length": h.feed_forward,
        "attention.head_count": h.heads,
        "attention.head_count_kv": h.key_heads,
        "attention.key_length": h.head,
        "attention.value_length": h.head,
        "attention.layer_norm_rms_epsilon": h.eps,
        "rope.freq_base": h.base,
        "rope.dimension_count": h.rotated,
        "full_attention_interval": h.interval,
        "ssm.conv_kernel": h.taps,
        "ssm.state_size": h.s_size,
        "ssm.group_count": h.s_key_heads,
        "ssm.time_step_rank": h.s_value_heads,
        "ssm.inner_size": h.inner,
        **keys,
    }
    if h.experts:
        metadata |= {
            "expert_count": h.experts,
            "expert_used_count": h.used,
            "expert_feed_forward_length": h.feed_forward,
        }
        metadata["expert_shared_feed_forward_length"] = h.shared
    return write_keys(
        path,
        "qwen35moe" if h.experts else "qwen35",
        metadata,
        weights,
        lambda name: "F32" if "ssm_conv1d" in name else kind,
    )


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return hybrid_weights(H, np.random.default_rng(2))


@pytest.fixture(scope="module")
def path(tmp_path_factory, weights) -> Path:
    return write_hybrid(tmp_path_factory.mktemp("hybrid") / "tiny.gguf", H, weights)


@pytest.mark.parametrize("chunk", [1, 7, 45])
def test_golden_logits_within_1e_4(shared, chunk: int) -> None:
    reference = np.load(shared / "golden" / "ref_qwen35.npz")
    ids = reference["toks"].tolist()
    session = prism.load(shared / "golden" / "tiny_qwen35.gguf", cache_type="F32").session()
    parts = [session.evaluate(ids[i : i + chunk], logits="all") for i in range(0, len(ids), chunk)]
    assert np.abs(np.concatenate(parts) - reference["a"]).max() < 1e-4


def test_logits_equal_the_naive_model_s(path, weights) -> None:
    logits = prism.load(path, cache_type="F32").session().evaluate(IDS, logits="all")
    expected = naive(H, weights, IDS)
    assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()


def test_experts_and_the_shared_one(tmp_path, rng) -> None:
    h = Hybrid(experts=5, used=2, shared=96)
    weights = hybrid_weights(h, rng)
    logits = prism.load(write_hybrid(tmp_path / "m.gguf", h, weights), cache_type="F32").session().evaluate(IDS, "all")
    expected = naive(h, weights, IDS)
    assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()


def test_as_many_experts_as_published_models_use(tmp_path, rng) -> None:
    """Ten of them, a shared one and many blocks: the graph has room for all."""
    h = Hybrid(blocks=12, experts=12, used=10, shared=64)
    model = prism.load(write_hybrid(tmp_path / "m.gguf", h, hybrid_weights(h, rng)))
    assert np.isfinite(model.session().evaluate(IDS)).all()


def test_chunks_and_threads_change_no_bit(path) -> None:
    whole = prism.load(path, threads=1).session().evaluate(IDS, logits="all")
    session = prism.load(path, threads=2).session()
    for chunk in (1, 7, 30):
        assert session.rewind(0) == 0
        parts = [session.evaluate(IDS[i : i + chunk], logits="all") for i in range(0, len(IDS), chunk)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_state_that_was_kept_gives_the_same_continuation(path) -> None:
    session = prism.load(path).session()
    whole = session.evaluate(IDS, logits="all")
    session.rewind(0)
    session.evaluate(IDS[:20])
    for token in IDS[20:30]:
        session.evaluate([token])
    session.checkpoint()
    session.evaluate(IDS[30:])
    assert session.rewind(35) == 30
    np.testing.assert_array_equal(session.evaluate(IDS[30:], logits="all"), whole[30:])
    assert session.rewind(29) == 20, "single steps keep no state of their own"
    assert session.position == 20
    np.testing.assert_array_equal(session.evaluate(IDS[20:], logits="all"), whole[20:])
    assert session.rewind(10) == 0
    np.testing.assert_array_equal(session.evaluate(IDS, logits="all"), whole)


def test_no_more_states_are_kept_than_fit(path) -> None:
    from prism_inference.limits import STATE_COPIES

    session = prism.load(path).session()
    for i in range(0, 2 * (STATE_COPIES + 2), 2):
        session.evaluate(IDS[i : i + 2])
    end = session.position
    kept = []
    while session.position > 0:
        kept.append(session.rewind(session.position - 1))
    assert kept == [end - 2 * i for i in range(1, STATE_COPIES)] + [0], "the state at the end is kept too"


def test_a_cancelled_prompt_leaves_the_state_as_it_was(path) -> None:
    big = Hybrid(blocks=8, width=128, feed_forward=512, context=4096)
    file = write_hybrid(path.parent / "big.gguf", big, hybrid_weights(big, np.random.default_rng(4)))
    session = prism.load(file, threads=2).session()
    ids = [i % 61 for i in range(1200)]
    session.evaluate(IDS)
    expected = prism.load(file, threads=1).session().evaluate([*IDS, 7])
    cancelled = 0
    for attempt in range(8):
        timer = threading.Timer(0.004 * (attempt + 1), session.cancel)
        timer.start()
        try:
            session.evaluate(ids)
        except CancelledError:
            cancelled += 1
        timer.join()
        if session.position > len(IDS):
            session.rewind(len(IDS))
        assert session.position == len(IDS)
        np.testing.assert_array_equal(session.evaluate([7]), expected)
        assert session.rewind(len(IDS)) == len(IDS)
    assert cancelled > 0, "no call was ever cancelled"


def test_a_repair_that_is_cancelled_loses_nothing(path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a cancelled run the state is evaluated again; cancelling that too must not move the position."""
    session = prism.load(path).session()
    session.evaluate(IDS[:10])
    for token in IDS[10:14]:
        session.evaluate([token])
    expected = prism.load(path).session().evaluate([*IDS[:14], 7])
    run = Runner.run

    def fail(runner: Runner, *args: object) -> np.ndarray:
        run(runner, *args)  # the state changes, the call fails
        raise CancelledError("cancelled")

    monkeypatch.setattr(Runner, "run", fail)
    for _ in range(3):
        with pytest.raises(CancelledError):
            session.evaluate([1, 2, 3])
        assert session.ids == tuple(IDS[:14])
    monkeypatch.setattr(Runner, "run", run)
    np.testing.assert_array_equal(session.evaluate([7]), expected)


def test_copies_of_the_state_leave_room_for_the_graph_of_all_logits(path) -> None:
    with pytest.raises(MemoryBudgetError) as first:
        prism.load(path, context=64, memory=1)
    with pytest.raises(MemoryBudgetError) as second:
        prism.load(path, context=64, memory=first.value.needed).session().evaluate(IDS[:2], logits="all")
    copy = 4 * 3 * (H.channels * (H.taps - 1) + H.s_size * H.s_value * H.s_value_heads)  # 3 recurrent blocks, F32
    session = prism.load(path, context=64, memory=second.value.needed + copy * 3 // 2).session()
    for start in (0, 2, 4):
        session.evaluate(IDS[start : start + 2])
    session.evaluate(IDS[6:8], logits="all")
    assert session.rewind(7) == 0, "only the newest copy, at 8, had room"


def test_a_prompt_that_extends_a_former_one_is_not_evaluated_from_zero(path) -> None:
    model = prism.load(path)
    lease = model.take(IDS[:20])
    lease.evaluate(IDS[:20])
    model.give_back(lease)
    again = model.take(IDS[:30])
    assert again is lease
    assert again.position == 20
    model.give_back(again)
    other = model.take([*IDS[:20], 60, 60])
    assert other.position == 20


@pytest.mark.parametrize("grouped", [False, True])
def test_a_folded_hybrid_gives_the_logits_of_the_unfolded_one(grouped: bool, tmp_path, weights, rng) -> None:
    folded, keys = fold(H, weights, rng, grouped)
    file = write_hybrid(tmp_path / "m.gguf", H, folded, **keys)
    logits = prism.load(file, cache_type="F32").session().evaluate(IDS, logits="all")
    assert np.abs(logits - naive(H, weights, IDS)).max() < 1e-4
    keys["prism.hadamard.gdn_v_grouped"] = not grouped
    wrong = write_hybrid(tmp_path / "w.gguf", H, folded, **keys)
    other = prism.load(wrong, cache_type="F32").session().evaluate(IDS, logits="all")
    assert np.abs(other - logits).max() > 1e-2, "the order of the value heads makes no difference"


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0"])
def test_low_bit_rotated_hybrids_equal_their_twin(kind: str, tmp_path, rng) -> None:
    h = Hybrid(width=128, feed_forward=256, s_value_heads=8)
    weights, keys = fold(h, hybrid_weights(h, rng), rng, grouped=True)
    file = write_hybrid(tmp_path / "m.gguf", h, weights, kind, **keys)
    logits = prism.load(file, context=len(IDS), cache_type="F32").session().evaluate(IDS, logits="all")
    graph = ModelGraph(check_file(gguf.open(file)), SessionOptions(len(IDS), cache_type="F32"), "all")
    feed_batch(graph.batch, IDS)
    twin = interpret(graph.graph)[graph.logits.index].reshape(len(IDS), -1)
    check(logits[:8], twin[:8], QUANTIZED)  # until a rounding flips and enters the state


def fold(h: Hybrid, weights: dict[str, np.ndarray], rng, grouped: bool) -> tuple[dict, dict]:
    """Rotate all foldable weights; `ssm_out` in grouped order of the value heads if asked for."""
    foldable = (
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_qkv",
        "attn_gate",
        "attn_output",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
        "ssm_out",
    )
    names = [n for n in weights if n == "output.weight" or (n.startswith("blk") and n.split(".")[2] in foldable)]
    widths = sorted({weights[name].shape[1] for name in [*names, "token_embd.weight"]})
    signs = {width: rng.choice([-1, 1], width) for width in widths}
    out = dict(weights)
    for name in [*names, "token_embd.weight"]:
        rows = weights[name]
        if grouped and "ssm_out" in name:
            # x_g[(k·R + r)·hd + d] = x_t[(r·nk + k)·hd + d]
            shared = h.s_value_heads // h.s_key_heads
            tiled = rows.reshape(len(rows), shared, h.s_key_heads, h.s_value)
            rows = tiled.transpose(0, 2, 1, 3).reshape(len(rows), -1)
        out[name] = turned(rows, signs[rows.shape[1]]).astype(np.float32)
    return out, {
        "prism.hadamard.version": 1,
        "prism.hadamard.block_size": BLOCK,
        "prism.hadamard.transform": "normalized-sylvester-walsh-hadamard",
        "prism.hadamard.axis": "input-last-dimension",
        "prism.hadamard.sign_mode": "explicit",
        "prism.hadamard.sign_widths": widths,
        "prism.hadamard.sign_values": [int(s) for width in widths for s in signs[width]],
        "prism.hadamard.weight_names": names,
        "prism.hadamard.inverse_weight_names": ["token_embd.weight"],
        "prism.hadamard.gdn_v_grouped": grouped,
    }


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ssm.time_step_rank", 5, "time_step_rank"),
        ("ssm.group_count", 4, "multiple of 4"),
        ("ssm.conv_kernel", 1, "conv_kernel"),
        ("full_attention_interval", 0, "full_attention_interval"),
    ],
)
def test_recurrent_sizes_that_do_not_fit_are_refused(key: str, value: int, words: str, tmp_path, weights) -> None:
    with pytest.raises(prism.PrismError, match=words):
        prism.load(write_hybrid(tmp_path / "m.gguf", H, weights, **{key: value}))


def test_a_flag_per_layer_overrides_the_interval(tmp_path, weights) -> None:
    flags = [not H.attends(block) for block in range(H.blocks)]
    keys = {"attention.recurrent_layers": flags, "full_attention_interval": 2}
    model = prism.load(write_hybrid(tmp_path / "m.gguf", H, weights, **keys))
    assert model.file.config.recurrent_layers == tuple(flags)
    with pytest.raises(ModelError, match="too few"):
        prism.load(write_hybrid(tmp_path / "n.gguf", H, weights, **{"attention.recurrent_layers": flags[:2]}))
