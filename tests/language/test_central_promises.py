"""What weights say of themselves: after a resume, as an object, shared, and handed out early."""

import json
from dataclasses import replace

import pytest
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from tests.language.conftest import PLAIN

import sordino
from sordino.language import (
    PrivateRewardConfig,
    PrivateRewardTrainer,
)
from sordino.language.dp_sgd import training as steps
from sordino.language.dp_sgd.privacy import _counted_once
from sordino.language.models.checkpoints import load_causal_model, load_reward_checkpoint
from sordino.language.models.loading import quiet
from sordino.language.models.promises import Answers, CheckpointPromise, folder_promises
from sordino.language.user_level import CentralPolicyConfig, CentralPolicyTrainer, SlotPrivacy
from sordino.privacy.guarantee import REPLACE_SPECIAL

from ._training import Killed, privacy, trained

SLOTS = SlotPrivacy(4.0, 1e-6, neighbors=REPLACE_SPECIAL, slots=2, batches=3)
SAVING = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": None}
TEXTS = ["tell me about bread"], ["kind clear"]


@pytest.fixture
def settings(tmp_path):
    """Return a maker of settings of any trainer."""

    def make(kind, **changed):
        quietly = {"save_strategy": "no", "disable_tqdm": True, "learning_rate": 3e-3}
        return kind(str(tmp_path / "run"), **{**quietly, **changed})

    return make


@pytest.fixture
def reward(tiny_llama, central):
    """Return a maker of trainers of a reward."""

    def make(model=None, *, saving=None, **more):
        model = load_reward_checkpoint(tiny_llama) if model is None else model
        given = {"declare_unread": False, **more}
        return central(model=model, terms=privacy(steps=4), args=saving, **given)

    return make


@pytest.fixture
def policy(tiny_llama, ledger_of, settings):
    """Return a maker of trainers of a policy on people."""
    rows = [{"person": i, "prompt": f"tell me about {PLAIN[i]}"} for i in range(6)]

    def make(ledger=None, *, args=None, **more):
        return CentralPolicyTrainer(
            str(tiny_llama),
            settings(CentralPolicyConfig, max_completion_length=3, **(args or {})),
            reward_funcs=lambda completions, **_: [float(len(one) % 7) for one in completions],
            declare_unread=True,
            train_dataset=rows,
            privacy=SLOTS,
            ledger=ledger or ledger_of(delta=1e-6, unit="person", neighbors=REPLACE_SPECIAL),
            **more,
        )

    return make


def killed(trainer, **how):
    with pytest.raises(KeyboardInterrupt):
        trained(trainer, **how)
    return trainer


def said(model):
    """Return what a model says it was trained on, as one promise."""
    first, *others = folder_promises(model)
    return first.with_those_of(*others)


def ids(ledger):
    return {row.release_id for row in ledger.spends}


@pytest.mark.deep
def test_what_was_drawn_with_a_seed_stays_simulated_when_resumed_without(
    reward, ledger_of, tmp_path
):
    ledger = ledger_of()
    killed(reward(ledger=ledger, saving=SAVING, simulate_seed=1, callbacks=[Killed(3)]))
    again = trained(reward(ledger=ledger, saving=SAVING), resume_from_checkpoint=True)
    found = CheckpointPromise.read(tmp_path / "run" / "checkpoint-4")
    assert found.guarantee.simulated
    assert "simulated" in found.guarantee.caveats
    assert {row.randomness for row in ledger.spends} == {"simulated"}
    again.save_model(str(tmp_path / "final"))
    assert "SIMULATED" in (tmp_path / "final" / "README.md").read_text()
    assert again.text_reward().guarantee.simulated


@pytest.mark.deep
def test_the_seed_of_steps_that_were_lost_stays_too(reward, ledger_of, tmp_path):
    """The checkpoint was drawn with system entropy, and an entry after it was not."""
    ledger = ledger_of()
    killed(reward(ledger=ledger, saving=SAVING, callbacks=[Killed(2)]))
    how = {"saving": SAVING, "ledger": ledger}
    seeded = reward(simulate_seed=1, callbacks=[Killed(3)], **how)
    killed(seeded, resume_from_checkpoint=True)
    assert not CheckpointPromise.read(tmp_path / "run" / "checkpoint-2").guarantee.simulated
    last = trained(reward(**how), resume_from_checkpoint=True)
    assert last._promise.guarantee.simulated
    assert set(last._promise.release_ids) == ids(ledger)


@pytest.mark.deep
def test_a_caveat_about_people_survives_pairs_that_name_nobody(reward, ledger_of, word_pairs):
    ledger, pairs = ledger_of(), word_pairs(40)
    named = replace(pairs, persons=tuple(f"p{i % 9}" for i in range(40)))
    killed(reward(pairs=named, ledger=ledger, saving=SAVING, callbacks=[Killed(3)]))
    again = trained(reward(ledger=ledger, saving=SAVING), resume_from_checkpoint=True)
    assert "person-group" in again._promise.guarantee.caveats
    assert all("person-group" in json.loads(row.payload)["caveats"] for row in ledger.spends)


@pytest.mark.parametrize("adapters", few([False, True], first=1))
def test_a_trained_reward_says_so_as_an_object(reward, ledger_of, tmp_path, adapters):
    ledger = ledger_of()
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS")
    trainer = trained(reward(ledger=ledger, peft_config=lora if adapters else None))
    assert said(trainer.model) == trainer._promise
    assert set(said(trainer.model).release_ids) == ids(ledger)
    if not adapters:
        trainer.model.save_pretrained(tmp_path / "bare")
        assert said(tmp_path / "bare") == trainer._promise


def test_a_model_is_marked_before_anybody_is_drawn(reward, ledger_of, monkeypatch):
    """Whoever kills the run in any step finds a model that speaks for all that was paid."""
    ledger, found, sample = ledger_of(), [], steps.poisson_sample
    trainer = reward(ledger=ledger, saving=SAVING)

    def look(*given, **named):
        found.append(set(said(trainer.model).release_ids) == ids(ledger))
        return sample(*given, **named)

    monkeypatch.setattr(steps, "poisson_sample", look)
    trained(trainer)
    assert found == [True] * 4


@pytest.mark.deep
def test_two_trainers_of_one_model_add_up(reward, ledger_of, tmp_path):
    """Both are made before either trains, and they take turns: each release counts once."""
    one, other = ledger_of(), ledger_of()
    first = reward(ledger=one)
    second = reward(first.model, ledger=other, processing_class=first.processing_class)
    trained(first)
    assert ids(one) < set(second.text_reward().release_ids)
    second.save_model(str(tmp_path / "second"))  # it trained nothing, and hands out what it holds
    assert said(tmp_path / "second").guarantee.epsilon == said(first.model).guarantee.epsilon
    trained(second)
    assert 7.9 < second._promise.guarantee.epsilon <= 8.0
    trained(first)
    trained(second)
    total = one.total().epsilon + other.total().epsilon
    assert second._promise.guarantee.epsilon == pytest.approx(total, rel=1e-6)
    assert second._promise.guarantee.delta == pytest.approx(2e-5)
    assert set(second._promise.release_ids) == ids(one) | ids(other)


@pytest.mark.deep
def test_a_run_counts_itself_once_when_it_goes_on(reward, ledger_of):
    """In a second training, and resumed on the model that it left behind."""
    ledger = ledger_of()
    trainer = reward(ledger=ledger, saving=SAVING, callbacks=[Killed(3)])
    with quiet():
        trainer.save_model()  # before anything was drawn
    killed(trainer)
    kept = {"processing_class": trainer.processing_class, "saving": SAVING}
    kept["declare_unread"] = True  # its weights are those of no checkpoint
    again = reward(trainer.model, ledger=ledger, **kept)
    trained(again, resume_from_checkpoint=True)
    for _ in range(2):
        assert len(again._promise.sources) == 1
        assert again._promise.guarantee.epsilon == pytest.approx(ledger.total().epsilon)
        assert again._promise.guarantee.delta == 1e-5
        assert said(again.model) == again._promise
        trained(again)


@pytest.mark.deep
def test_a_second_trainer_on_a_trained_policy_adds_up(tiny_llama, central):
    def make(model, **more):
        given = {"kind": "dpo", "terms": privacy(steps=4), "declare_unread": False, **more}
        return central(model=model, **given)

    first = trained(make(load_causal_model(tiny_llama)))
    second = make(first.model, processing_class=first.processing_class)
    assert 3.9 < second._promise.guarantee.epsilon <= 4.0
    assert 7.9 < trained(second)._promise.guarantee.epsilon <= 8.0


@pytest.mark.parametrize("adapters", few([True, False], first=1))
def test_what_is_handed_out_stays_as_it_is(reward, adapters):
    """A reward of which nothing was spent never scores as one that was trained."""
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS")
    trainer = reward(peft_config=lora if adapters else None)
    early, bare = trainer.text_reward(), trainer.merged()
    weights = [one.clone() for one in bare.parameters()]
    before = early.score(*TEXTS)
    trained(trainer)
    for one in trainer.model.parameters():
        one.grad = torch.ones_like(one)  # as a run that was killed before its noise leaves it
    late = trainer.text_reward()
    assert early.score(*TEXTS) == before
    assert early.guarantee.epsilon == said(bare).guarantee.epsilon == 0
    assert all(map(torch.equal, weights, bare.parameters()))
    assert late.score(*TEXTS) != before
    assert late.promise.guarantee == trainer._promise.guarantee == said(trainer.merged()).guarantee
    assert all(one.grad is None for one in late.model.parameters())
    after = late.score(*TEXTS)
    trained(trainer)
    assert late.score(*TEXTS) == after


def test_randomized_answers_that_are_resumed_do_not_reach_what_was_handed_out(
    tiny_llama, word_pairs, open_ledger, settings, tmp_path
):
    """The checkpoint started from another release, which the second trainer does not know."""

    def answers(epsilon, seed):
        coin = sordino.RandomizedResponse(epsilon=epsilon)
        pairs = word_pairs(16, seed=seed)
        return sordino.privatize(pairs, coin, ledger=open_ledger(epsilon), simulate_seed=1)

    def make(model, pairs, **saving):
        args = settings(PrivateRewardConfig, max_steps=2, **saving)
        return PrivateRewardTrainer(str(model), args, train_dataset=pairs)

    with quiet():
        make(tiny_llama, answers(1.0, 0)).save_model(str(tmp_path / "first"))
    pairs, saving = answers(2.0, 3), {"save_strategy": "steps", "save_steps": 1}
    killed_run = make(tmp_path / "first", pairs, **saving)
    killed_run.add_callback(Killed(1))
    killed(killed_run)
    other = make(tiny_llama, pairs, **saving)
    early = other.text_reward()
    before = early.score(*TEXTS)
    trained(other, resume_from_checkpoint=True)
    assert early.score(*TEXTS) == before
    assert other.text_reward().score(*TEXTS) != before
    assert early.guarantee.epsilon == pytest.approx(2.0)
    assert other.text_reward().guarantee.epsilon == pytest.approx(3.0)


def test_sources_are_counted_once_and_none_is_lost():
    """Another run counts as it was last; parts of answers that people randomized all count."""
    run = privacy(steps=4).guarantee

    def source(entries, guarantee=run, artifact="", **changed):
        changed = replace(guarantee, **changed)
        return Answers(guarantee=changed, release_ids=tuple(entries), artifact=artifact)

    def kept(*others):
        own, *rest = _counted_once(source("ab", artifact="now"), others)
        assert own.release_ids == ("a", "b")
        return rest

    earlier, later = source("x", epsilon=2.0, artifact="1"), source("xy", artifact="2")
    assert kept(earlier, later) == [later]
    assert kept(later, earlier, later) == [later]
    assert kept(source("xy"), later) == [later]
    assert kept(source("a", artifact="old"), source("", epsilon=0.0)) == []
    assert kept(earlier, source("z")) == [earlier, source("z")]
    unlike = [source("xy", artifact="1"), later]
    assert kept(*unlike) == unlike
    for changed in (
        {"epsilon": 5.0}, {"delta": 1e-3}, {"randomness": "simulated"}, {"trust": "local"},
        {"caveats": (*run.caveats, "simulated")},
    ):  # fmt: skip
        apart = replace(earlier, guarantee=replace(earlier.guarantee, **changed))
        assert kept(apart, later) == [apart, later]
    labels = replace(run, caveats=("labels-only",))
    parts = [source("x", labels, artifact="1"), source("xy", labels, artifact="2")]
    assert kept(*parts) == parts
    assert kept(source("", labels, epsilon=0.0)) == [source("", labels, epsilon=0.0)]
