"""Weights that remember single judgments are refuted, and those of randomized answers are not.

Everything that is random has a fixed seed. An audit refutes a true claim with a chance of 1e-3: of
three such audits below at most 3e-3. Weights that fit every canary are missed with a chance far
below that.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from torch.nn.functional import logsigmoid

import sordino
from sordino import cli
from sordino.errors import UsageError
from sordino.language.dp_sgd.training import TokenPair, log_ratio_gaps, reward_margins
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.promises import CheckpointPromise
from sordino.language.models.tokens import DialogueTokens

N = 160  # canaries


@pytest.fixture(scope="module")
def canaries(word_pairs):
    """Return pairs of texts, each with a label that a fair coin chose."""
    labels = np.random.default_rng(5).integers(0, 2, N)
    return replace(word_pairs(N, seed=21), labels=labels)


@pytest.fixture
def overfitted(tiny_llama, tmp_path):
    """Return a maker of folders whose weights fit some answers as well as they can."""

    def make(pairs, answers, *, kind="reward", steps=60):
        load = load_reward_checkpoint if kind == "reward" else load_causal_model
        margins = reward_margins if kind == "reward" else log_ratio_gaps
        model, tokenizer = load(tiny_llama, device="cpu"), load_tokenizer(tiny_llama)
        model.config.pad_token_id = tokenizer.pad_token_id
        first, second, _ = DialogueTokens(tokenizer, 64).pairs(pairs)
        both = [TokenPair.of(*one, 1.0) for one in zip(first, second, strict=True)]
        torch.manual_seed(0)
        signs = torch.tensor(2.0 * np.asarray(answers) - 1)
        steer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(steps):
            steer.zero_grad()
            found = margins(model, both, padding=tokenizer.pad_token_id)
            (-logsigmoid(signs * found)).mean().backward()
            steer.step()
        model.save_pretrained(tmp_path / kind)
        tokenizer.save_pretrained(tmp_path / kind)
        return tmp_path / kind

    return make


def write(path, pairs, rows):
    """Write raw pairs as a user would, in the order that their labels are about."""
    told = [
        {"prompt": pairs.prompts[i], "first": pairs.first[i], "second": pairs.second[i],
         "label": int(pairs.labels[i])}
        for i in rows
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in told))
    return str(path)


@pytest.mark.deep
def test_a_reward_that_remembers_labels_is_refuted(
    overfitted, canaries, tiny_llama, tmp_path, capsys
):
    raw = overfitted(canaries, canaries.labels)
    file = write(tmp_path / "canaries.jsonl", canaries, range(N))
    words = ["audit", "model", str(raw), "--canaries", file, "--reference", str(tiny_llama)]
    assert cli.run(words) == 2  # nothing is claimed
    capsys.readouterr()
    assert cli.run([*words, "--epsilon", "0.5", "--json"]) == 5
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["refuted_by"]) == ("model", ["preference-ratio"])
    assert told["lower_bound"] > 2
    assert told["confidential"] is True
    assert {one["attack"]: one["outcome"] for one in told["findings"]} == {
        "preference-ratio": "refutes", "canary-control": "clear",
    }  # fmt: skip


@pytest.mark.deep
def test_a_reward_of_answers_of_a_coin_is_not_refuted(
    overfitted, canaries, open_ledger, tiny_llama
):
    coin = sordino.RandomizedResponse(0.5)
    private = sordino.privatize(canaries, coin, ledger=open_ledger(0.5), simulate_seed=3)
    kept = overfitted(private, private.answers == 1)
    CheckpointPromise.of(private, kind="reward").write(kept, title="A private reward")
    found = sordino.audit(kept, canaries=canaries, reference=tiny_llama)
    assert found.claim.epsilon == 0.5
    assert not found.refuted, found.to_dict()
    assert found.lower_bound <= 0.5
    assert sordino.audit(kept, canaries=canaries, epsilon=0.01).lower_bound == found.lower_bound


@pytest.mark.deep
def test_a_policy_that_remembers_who_was_there_is_refuted(
    overfitted, canaries, tiny_llama, word_pairs
):
    """Nobody's preferences are coins here: only who was trained on is."""
    liked = word_pairs(N, seed=22)
    there = np.random.default_rng(6).integers(0, 2, N) == 1
    inside, outside = (liked.part(np.flatnonzero(side).tolist()) for side in (there, ~there))
    policy = overfitted(inside, inside.labels, kind="policy")
    terms = {"canaries": inside, "held_out": outside, "reference": tiny_llama, "epsilon": 0.5}
    found = sordino.audit(policy, **terms)
    assert found.refuted_by == ("preference-ratio",)
    assert (found.claim.unit, found.claim.neighbors.name) == ("record", "ADD_OR_REMOVE_ONE")
    start = sordino.audit(tiny_llama, **terms)  # which has seen neither
    assert not start.refuted
    # A reference that was trained on them tells that the audit is none.
    spoiled = overfitted(inside, inside.labels)
    found = sordino.audit(policy, **terms | {"reference": spoiled})
    assert (found.verdict, found.refuted_by) == ("cannot tell", ())
    with pytest.raises(UsageError, match="Fair coins"):
        sordino.audit(policy, **terms | {"held_out": outside.part(range(20))})
    with pytest.raises(UsageError, match="at least 50"):
        sordino.audit(policy, **terms | {"canaries": inside.part(range(9)), "held_out": None})


def test_who_was_there_is_no_claim_about_labels(overfitted, canaries, open_ledger):
    ledger = open_ledger(1.0)
    private = sordino.privatize(canaries, sordino.RandomizedResponse(1.0), ledger=ledger)
    kept = overfitted(private, private.answers == 1, steps=0)
    CheckpointPromise.of(private, kind="reward").write(kept, title="A private reward")
    with pytest.raises(UsageError, match=r"does not hide who is there.*Flip the labels"):
        sordino.audit(kept, canaries=canaries, held_out=canaries)
    with pytest.raises(UsageError, match="raw pairs"):
        sordino.audit(kept, canaries=private)
