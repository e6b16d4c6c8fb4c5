"""The audit of a trainer measures what it claims, and finds what is planted in it.

Everything that is random has a fixed seed. Each audit refutes a sound trainer with a chance of at
most 1e-3, shared by a game on one step, the noise of each tensor, five binomials and, if asked for,
one whole run: about a dozen sound audits below, together at most .02. What is planted is missed
with a chance that each test states.
"""

import hashlib
import itertools
from functools import partial

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

import sordino
from sordino import _random
from sordino.auditing import training as made
from sordino.auditing.canaries import _detectable_in_one_run
from sordino.auditing.statistical.distinguishing import Sure
from sordino.auditing.training import (
    _one_run_claim,
    _one_run_finding,
    _sampling_finding,
    audit_training,
)
from sordino.errors import UsageError
from sordino.language.dp_sgd import training as steps
from sordino.language.dp_sgd.clipping import ClippedSum, without_dropout
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.dp_sgd.training import CentralRewardTrainer
from sordino.language.models.loading import quiet
from sordino.language.references.tiny import TinyModel, train_tokenizer
from sordino.language.training.private_training import CentralRewardConfig
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_SPECIAL

TEXTS = ["the answer is about bread", "music and water", "paper is kind", "a warm clear voice"]


@pytest.fixture(scope="module")
def tokenizer():
    size = TinyModel(architecture="llama", vocabulary=300, width=16, layers=1, heads=2, context=32)
    return train_tokenizer(TEXTS, size)


PRODUCTS = {}


@pytest.fixture(autouse=True)
def _the_same_search_once(monkeypatch):
    """Compute what a made-up pair does to the same weights once: all searches go the same way."""
    honest = made._row_products

    def products(trainer, pair):
        weights = torch.cat([one.detach().flatten() for one in trainer.model.parameters()])
        key = hashlib.sha256(weights.numpy().tobytes()).digest(), repr(pair)
        if key not in PRODUCTS:
            PRODUCTS[key] = honest(trainer, pair)
        return PRODUCTS[key]

    monkeypatch.setattr(made, "_row_products", products)


@pytest.fixture
def make(tmp_path, tokenizer):
    """Return a maker of trainers of a tiny reward, whose head starts at 0 as the trainer's do."""
    made_so_far = itertools.count()

    def make(*, unit="record", neighbors=ADD_OR_REMOVE_ONE, seed=1, head=0.0, **terms):
        usual = {"sampling_probability": 1.0, "steps": 1, "expected_batch": 10.0}
        if unit == "person":
            usual["cap"] = 2
        settings = {**usual, **terms}
        privacy = CentralPrivacy(
            settings.pop("epsilon", 4.0), 1e-5, unit=unit, neighbors=neighbors, **settings
        )
        budget = sordino.Guarantee(
            100.0, delta=1e-5, unit=unit, neighbors=neighbors, trust="central"
        )
        path = tmp_path / f"{next(made_so_far)}.db"
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=32, num_labels=1,
            pad_token_id=tokenizer.pad_token_id, initializer_range=0.2,
        )  # fmt: skip
        model = LlamaForSequenceClassification(config)
        with torch.no_grad():
            model.score.weight.normal_(std=1.0).mul_(head)
        records = [
            {"prompt": "tell", "first": TEXTS[i % 4], "second": TEXTS[(i + 1) % 4], "label": i % 2,
             "person": f"p{i}"}
            for i in range(8)
        ]  # fmt: skip
        return CentralRewardTrainer(
            model,
            CentralRewardConfig(
                str(tmp_path / "run"), save_strategy="no", disable_tqdm=True,
            ),
            train_dataset=sordino.read_pairs(records),
            privacy=privacy,
            ledger=sordino.Ledger.open(path, data="test", budget=budget),
            processing_class=tokenizer,
            declare_unread=True,
            simulate_seed=seed,
        )  # fmt: skip

    return make


class RowByRow(ClippedSum):
    """What a library that knows rows and no pairs does: each row of the batch is clipped alone."""

    def __init__(self, model, bound):
        super().__init__(model, bound)
        self._model = model

    def add(self, losses):
        for loss in losses:
            for row in range(2):
                hook = self._model.register_forward_hook(partial(only_row, row))
                super().add([loss])
                hook.remove()


def only_row(row, model, given, found):
    """Let gradients through to one row alone."""
    fixed = found.logits.detach().clone()
    fixed[row] = found.logits[row]
    found.logits = fixed
    return found


class PairByPair(ClippedSum):
    """What a library that knows pairs and no people does."""

    def add(self, losses):
        for loss in losses:
            super().add([loss])


def cautious(trainer, model, units, bound):
    """Add to each norm what rounding may take from a whole batch, padded to its longest unit.

    This was so once: what everybody added depended on who else was read with them.
    """
    total = WithAllowance(model, bound)
    size = 8
    tokens = [sum(len(one.first) + len(one.second) for one in unit) for unit in units]
    with without_dropout(model):
        for at, unit in enumerate(units):
            start = at - at % size
            batch = tokens[start : start + size]
            total.allowance = 1 + 1e-4 * max(batch) * len(batch)
            total.add(partial(trainer._loss, model, pair) for pair in unit)
    return total


class WithAllowance(ClippedSum):
    """Clips by a norm and an allowance."""

    allowance = 1.0

    def _clipped(self):
        before = [one.clone() for one in self.counts]
        norm = super()._clipped()
        for one, old in zip(self.counts, before, strict=True):
            one.copy_(old + ((one - old) / self.allowance).long())
        return norm


def audited(trainer, **how):
    return audit_training(trainer, trials=4000, simulate_seed=1, **how)


def outcomes(audit):
    return {found.attack: found.outcome for found in audit.findings}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("unit", "neighbors"),
    [("record", ADD_OR_REMOVE_ONE), ("person", REPLACE_SPECIAL)],
)
def test_one_step_shows_what_it_claims_and_no_more(make, unit, neighbors):
    # On 16 seeds with 10,000 trials a side the bound was from .90 to 1.00; with 4,000 it was from
    # .84 to .95, once below .85.
    trainer = make(unit=unit, neighbors=neighbors)
    audit = audit_training(trainer, trials=10_000, simulate_seed=1)
    assert set(outcomes(audit).values()) == {"clear"}
    (mu,) = audit.measured
    assert 0.85 <= mu.lower <= mu.claimed == 1.0
    assert mu.power < 1.3
    assert (audit.kind, audit.confidential, audit.claim.simulated) == ("training", False, True)
    assert not trainer._ledger.spends


@pytest.mark.deep
@pytest.mark.parametrize("unit", ["record", "person"])
def test_rows_clipped_one_by_one_are_measured_far_above_the_claim(make, monkeypatch, unit):
    # On 16 seeds the canary of a record moved the sum by 1.88 to 1.97 C, and the bound was from
    # 1.79 to 1.93 (4,000 and 10,000 trials a side).
    monkeypatch.setattr(steps, "ClippedSum", RowByRow)
    audit = audited(make(unit=unit))
    assert {"worst-canary", "gradients"} <= set(audit.refuted_by)
    assert audit.measured[0].claimed == 1.0
    assert audit.measured[0].lower > 1.5
    with pytest.raises(sordino.AuditRefuted):
        audit.require()


@pytest.mark.deep
def test_rows_clipped_one_by_one_are_refuted_on_a_model_with_a_head(make, monkeypatch):
    # Behind a head that is not 0 the rows of no pair that was found pull quite one way: on 16
    # seeds by 1.59 to 1.71 C, and the bound was from 1.49 to 1.68, above 1.5 on 15 of them.
    monkeypatch.setattr(steps, "ClippedSum", RowByRow)
    audit = audited(make(head=0.2))
    assert {"worst-canary", "gradients"} <= set(audit.refuted_by)
    assert audit.measured[0].lower > 1.4
    assert audit.findings[0].details["moved"] > 1.5


@pytest.mark.deep
def test_pairs_of_a_person_clipped_one_by_one_are_found(make, monkeypatch):
    monkeypatch.setattr(steps, "ClippedSum", PairByPair)
    audit = audited(make(unit="person"))
    assert "worst-canary" in audit.refuted_by
    assert audit.measured[0].lower > 1.5


@pytest.mark.deep
def test_half_the_noise_is_found_by_the_game_and_on_every_tensor(make, monkeypatch):
    # mu is 2 and a tensor has a quarter of the squares: a miss is below 1e-9.
    real = steps.add_gradient_noise
    monkeypatch.setattr(
        steps, "add_gradient_noise",
        lambda of, size, *, entropy: real(of, size / 2, entropy=entropy),
    )  # fmt: skip
    audit = audited(make())
    assert {"worst-canary", "noise"} <= set(audit.refuted_by)
    assert audit.measured[0].lower > 1.5


@pytest.mark.deep
def test_one_tensor_without_noise_is_found(make, monkeypatch):
    real = steps.add_gradient_noise

    def all_but_one(sums, size, *, entropy):
        of = list(sums)
        real(of[1:] or of, size, entropy=entropy)

    monkeypatch.setattr(steps, "add_gradient_noise", all_but_one)
    audit = audited(make())
    assert audit.refuted_by == ("noise",)


@pytest.mark.deep
def test_wrong_gradients_are_found(make, monkeypatch):
    """Gradients half as long as they are, which are then clipped less than they should be."""
    loss = CentralRewardTrainer._loss
    monkeypatch.setattr(CentralRewardTrainer, "_loss", lambda *given: loss(*given) / 2)
    audit = audited(make())
    assert "gradients" in audit.refuted_by


@pytest.mark.deep
@pytest.mark.parametrize("unit", ["record", "person"])
def test_shares_that_depend_on_partners_are_refuted(make, monkeypatch, unit):
    """No draw decides: of 16 seeds each moved a sum by at least 1.2 C. It is no wrong gradient."""
    monkeypatch.setattr(CentralRewardTrainer, "_own_sum", cautious)
    trainer = make(unit=unit)
    audit = audited(trainer, partners=64)
    assert "partners" in audit.refuted_by
    (found,) = [one for one in audit.findings if one.attack == "partners"]
    assert found.details["moved"] > 1.1
    assert found.details["shared"] > 0.1


def poisson(q):
    return lambda units, entropy: steps.poisson_sample(units, q, entropy=entropy)


class Shuffled:
    """A loader that shuffles everybody, and cuts batches of one size."""

    def __init__(self, q):
        self.q, self.rest, self.rng = q, [], np.random.default_rng(0)

    def __call__(self, units, _):
        size = max(1, round(self.q * len(units)))
        if len(self.rest) < size:
            self.rest = list(self.rng.permutation(len(units)))
        batch, self.rest = self.rest[:size], self.rest[size:]
        return [units[i] for i in batch]


class Epochs(Shuffled):
    """A loader whose batches vary as a binomial, but that sees nobody twice in an epoch."""

    def __call__(self, units, _):
        size = self.rng.binomial(len(units), self.q)
        if len(self.rest) < size:
            self.rest = list(self.rng.permutation(len(units)))
        batch, self.rest = self.rest[:size], self.rest[size:]
        return [units[i] for i in batch]


def never_empty(units, entropy):
    return poisson(0.1)(units, entropy) or [units[0]]


def all_or_none(units, entropy):
    return list(units) if poisson(0.1)([0], entropy) else []


@pytest.mark.parametrize("q", [1e-3, 0.1, 0.5, 1.0])
def test_a_poisson_sampler_is_not_refuted_and_its_batches_are(q):
    # The false alarm rate of each is at most 1e-3; 2,000 batches miss a shuffled loader never.
    entropy = _random.entropy(3)
    sound = _sampling_finding(poisson(q), q, level=1e-3, entropy=entropy)
    assert sound.outcome == "clear"
    assert "would have been" in sound.summary
    if q < 1:
        shuffled = _sampling_finding(Shuffled(q), q, level=1e-3, entropy=entropy)
        assert (shuffled.outcome, shuffled.p_value < 1e-9) == ("refutes", True)


@pytest.mark.parametrize(
    ("sampler", "worst"),
    [
        (poisson(0.12), "inclusions"),
        (never_empty, "empty batches"),
        (all_or_none, "usual sizes"),
        (Epochs(0.1), "drawn again"),
    ],
)
def test_other_samplers_are_refuted(sampler, worst):
    # The mildest is a chance of .12 for .1: inclusions are 13 standard errors off.
    found = _sampling_finding(sampler, 0.1, level=1e-3, entropy=_random.entropy(4))
    assert found.outcome == "refutes"
    assert found.details["tests"][worst]["p_value"] < 1e-3


def test_a_unit_that_is_drawn_twice_is_no_sample():
    found = _sampling_finding(lambda units, _: [0, 0], 0.5, level=1e-3, entropy=_random.entropy(4))
    assert (found.outcome, found.p_value) == ("refutes", 0.0)


@pytest.mark.deep
def test_a_sound_sampler_is_refuted_as_rarely_as_said():
    # 400 audits at a level of .05: 40 or more have probability below 1e-4 at exactly .05. Tests
    # that share the level are conservative (measured: 14).
    refuted = sum(
        _sampling_finding(poisson(0.25), 0.25, level=0.05, entropy=_random.entropy(s), trials=200)
        .outcome == "refutes"
        for s in range(400)
    )  # fmt: skip
    assert refuted < 40


@pytest.mark.deep
def test_a_sampler_planted_in_the_trainer_is_refuted(make, monkeypatch):
    # Twice the stated chance.
    real = steps.poisson_sample
    monkeypatch.setattr(
        steps, "poisson_sample", lambda units, q, *, entropy: real(units, 2 * q, entropy=entropy)
    )  # fmt: skip
    assert audited(make(sampling_probability=0.25)).refuted_by == ("sampler",)


pair_canaries = partial(made.person_canaries, pairs=1)
KINDS = {"pair": pair_canaries, "label": made.label_canaries, "person": made.person_canaries}


def guessed(trainer, kind, n=300, seed=5):
    entropy = _random.entropy(seed)
    chosen = KINDS[kind](trainer, n, entropy=entropy)
    with quiet():
        return _one_run_finding(trainer, chosen, Sure(0.95, 1e-3), entropy)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_one_run_stays_below_its_claim(make, kind):
    # Each bound is above a sound claim in at most 5 of 100 runs; seeds fixed.
    unit = "person" if kind == "person" else "record"
    trainer = make(unit=unit, epsilon=1.0, steps=2, head=0.3)
    own = list(trainer._units)
    found, measured = guessed(trainer, kind)
    assert found.outcome == "clear"
    assert measured.lower <= measured.claimed == (2.0 if kind == "label" else 1.0)
    assert len(trainer._ledger.spends) == 1
    assert trainer._units == own


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["pair", "label"])
def test_one_run_without_noise_is_refuted(make, monkeypatch, kind):
    real = steps.add_gradient_noise
    monkeypatch.setattr(
        steps, "add_gradient_noise",
        lambda of, size, *, entropy: real(of, 1e-6 * size, entropy=entropy),
    )  # fmt: skip
    found, _ = guessed(make(epsilon=0.25, head=0.3), kind)
    assert found.outcome == "refutes"


def test_a_flipped_label_is_two_changes(make):
    trainer = make()
    flips = made.label_canaries(trainer, 3, entropy=_random.entropy(0))
    there = pair_canaries(trainer, 3, entropy=_random.entropy(0))
    claim = trainer._run.promise
    assert _one_run_claim(claim, there) == (4.0, 1e-5)
    epsilon, delta = _one_run_claim(claim, flips)
    assert epsilon == 8.0
    assert delta == pytest.approx(1e-5 * (1 + np.exp(4)))
    assert all(one[0].liked == 1 - other[0].liked for one, other in flips)


def test_what_one_run_can_see_is_said():
    assert _detectable_in_one_run(1.0, 1000, 800, delta=1e-5, confidence=0.999) < 1.6
    assert _detectable_in_one_run(8.0, 100, 80, delta=1e-5, confidence=0.999) == np.inf


@pytest.mark.deep
def test_an_audit_leaves_the_trainer_as_it_was(make):
    trainer = make()
    before = {name: one.clone() for name, one in trainer.model.named_parameters()}
    audited(trainer)
    assert all(torch.equal(before[n], p) for n, p in trainer.model.named_parameters())
    assert all(p.grad is None for p in trainer.model.parameters())
    assert len(trainer._units) == 8


@pytest.mark.deep
def test_one_name_audits_a_trainer_and_one_run_can_be_a_part_of_it(make):
    trainer = make(epsilon=1.0)
    chosen = pair_canaries(trainer, 60, entropy=_random.entropy(0))
    with quiet():
        audit = sordino.audit(trainer, canaries=chosen, trials=4000, simulate_seed=1)
    assert outcomes(audit).keys() >= {"worst-canary", "one-run-steps"}
    assert [one.metric for one in audit.measured] == ["mu", "epsilon"]
    assert "not refuted" in str(audit)
    for wrong in ({"trials": 100}, {"level": 0}, {"confidence": 1}, {"canaries": chosen[:3]}):
        with pytest.raises(UsageError):
            audit_training(trainer, **wrong)
