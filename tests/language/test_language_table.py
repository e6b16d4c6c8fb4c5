"""The table of language models: its measures, its page, and a run of it on small sizes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import language_table
from language_table import LINEAR, TINY, Bench, Candidate, drawn_pairs

from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.tokens import DialogueTokens
from sordino.language.references.tiny import pretrain

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "benchmarks" / "results" / "language_table.json"


@pytest.fixture
def bench(tmp_path, tiny_llama):
    texts = ["one", "two words", "now three words", "here are four words"]
    held_out = [
        [Candidate(f"prompt {p}", f"{text} {p}", i / 4) for i, text in enumerate(texts)]
        for p in range(12)
    ]
    tokens = DialogueTokens(load_tokenizer(tiny_llama), 64)
    return Bench(tmp_path, TINY, held_out, held_out, tokens)


def test_the_judge_itself_is_always_right(bench):
    liked = np.array([one.preference for some in bench.held_out for one in some])
    for scores, accuracy, chosen in ((liked, 1, 0.75), (-liked, 0, 0), (0 * liked, 0.5, 0.375)):
        found = bench.by_scores(scores)
        assert found["accuracy"]["mean"] == pytest.approx(accuracy)
        assert found["chosen"]["mean"] == pytest.approx(chosen)


def test_an_answer_is_as_likely_whoever_stands_beside_it(bench, tiny_llama):
    model = load_causal_model(tiny_llama, device="cpu")
    every = bench.log_probabilities(model)
    alone = Bench(bench.folder, TINY, [], bench.held_out[3:4], bench.tokens)
    np.testing.assert_allclose(alone.log_probabilities(model), every[12:16], atol=1e-3)
    assert every.max() < 0


def test_no_judgment_is_asked_for_twice(bench):
    pairs = drawn_pairs(bench.held_out, 60, seed=5)
    assert len(pairs) == 60
    assert len({frozenset((one.text, other.text)) for one, other in pairs}) == 60
    assert all(one.prompt == other.prompt for one, other in pairs)
    firsts = sum(one.preference > other.preference for one, other in pairs)
    assert 15 < firsts < 45  # who is preferred does not stand first


def test_the_rate_grows_from_little(tiny_llama):
    moved = []
    for warm_up in (0, 9):
        model = load_causal_model(tiny_llama, device="cpu")
        before = [one.detach().clone() for one in model.parameters()]
        texts = [("what is it", "this is an answer")]
        settings = {"steps": 1, "batch_size": 2, "warm_up": warm_up, "learning_rate": 1e-2}
        pretrain(model, load_tokenizer(tiny_llama), texts, **settings)
        after = (one.detach().cpu() for one in model.parameters())
        gaps = (one - other for one, other in zip(after, before, strict=True))
        moved.append(sum(float(one.square().sum()) for one in gaps) ** 0.5)
    assert moved[0] == pytest.approx(10 * moved[1], rel=1e-3)


def test_the_page_says_what_was_measured():
    page = (ROOT / "docs" / "language_models.md").read_text(encoding="utf-8")
    found = json.loads(STORED.read_text(encoding="utf-8"))

    def cell(share):
        ends = (f"{share[name]:.3f}".removeprefix("0") for name in ("mean", "low", "high"))
        return "{} [{}, {}]".format(*ends)

    assert f"{found['loss']:.2f} nats" in page
    assert cell(found["longer"]["accuracy"]) in page
    assert cell(found["judge"]["accuracy"]) in page
    assert len({row["row"] for row in found["rows"]}) == 5
    for row in found["rows"]:
        for name in ("accuracy", "chosen", "win"):
            if name in row and (row["row"], name) != ("SFT", "accuracy"):
                assert cell(row[name]) in page, (row["row"], row["epsilon"], name)


@pytest.mark.deep
def test_a_run_on_small_sizes(tmp_path, shared_data):
    script = [sys.executable, language_table.__file__, "--tiny", "--out", str(tmp_path)]
    script += ["--data", str(shared_data), "--at-once", "2"]
    done = subprocess.run(script, capture_output=True, check=True)
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "language_table.json").read_text())
    assert len(printed["rows"]) == 17
    assert [row["row"] for row in printed["rows"][:2]] == ["SFT", LINEAR]
    flips = {row["epsilon"]: row["flip_probability"] for row in printed["rows"][1:]}
    assert flips[None] == 0
    assert flips[2.0] == pytest.approx(1 / (1 + np.exp(2.0)))
