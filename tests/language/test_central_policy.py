"""A policy that learns from people: what a batch is, what it pays, and that nothing else shows."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from tests.language.conftest import PLAIN, true_reward
from transformers import TrainerCallback

import sordino
from sordino._random import entropy
from sordino.auditing.statistical.bounds import mu_cut, mu_from_counts
from sordino.errors import BudgetExceeded, DataError, LedgerMismatch, PrivacyError, UsageError
from sordino.language.dp_sgd import training
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.generation import sample_answers
from sordino.language.models.promises import CheckpointPromise
from sordino.language.rewards.text_rewards import RewardFunction
from sordino.language.user_level import CentralPolicyConfig, CentralPolicyTrainer, SlotPrivacy
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.privacy.ledger_chain import event_of

from ._training import (
    QUIETLY,
    assert_only_weights_differ,
    files_of,
    log_probability,
    same_weights,
    trained,
)

REBEL = {"update": "rebel"}


def privacy(epsilon=4.0, **changed):
    usual = {"neighbors": REPLACE_SPECIAL, "slots": 4, "batches": 3}
    return SlotPrivacy(epsilon, 1e-6, **{**usual, **changed})


def people(n, *, prompt="tell me about {}"):
    return [{"person": f"p{i}", "prompt": prompt.format(PLAIN[i % len(PLAIN)])} for i in range(n)]


def good_words(completions, **_):
    return [true_reward(text) for text in completions]


def one_way(completions, **_):
    """First answers are worth 1 and second ones -1, so that every advantage is 2."""
    n = len(completions) // 2
    return [1.0] * n + [-1.0] * n


def never(**_):
    """Nobody may be asked."""
    pytest.fail("somebody was asked")


@pytest.fixture
def ledger_of(ledger_of):
    """Return a maker of ledgers for persons."""

    def make(epsilon=1e9, *, neighbors=REPLACE_SPECIAL, unit="person"):
        return ledger_of(epsilon, delta=1e-6, unit=unit, neighbors=neighbors)

    return make


@pytest.fixture
def make(tiny_llama, ledger_of, tmp_path):
    """Return a maker of trainers."""

    def make(rows=None, *, folder="run", terms=None, ledger=None, model=None, args=None, **more):
        usual = {**QUIETLY, "learning_rate": 3e-3, "max_completion_length": 5}
        terms = terms or privacy()
        return CentralPolicyTrainer(
            str(tiny_llama) if model is None else model,
            CentralPolicyConfig(str(tmp_path / folder), **{**usual, **(args or {})}),
            reward_funcs=more.pop("reward", good_words),
            declare_unread=more.pop("declare_unread", True),
            train_dataset=people(terms.people) if rows is None else rows,
            privacy=terms,
            ledger=ledger or ledger_of(neighbors=terms.neighbors),
            **more,
        )

    return make


def answered(trainer, batch=0, seed=3):
    """Return what the people of a batch contribute, by coins that are always the same."""
    return trainer._answers(trainer.model, trainer._people[batch], entropy(seed))


def summed(trainer, units):
    """Return the clipped sum that a step finds, before its noise."""
    trainer._units = units
    sums = trainer._clipped_sums(trainer.model, range(len(units)))
    return torch.cat([one.flatten() for one in sums])


class Killed(TrainerCallback):
    """Kills a run after an update, before anything of it is saved."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("update", ["pg", "rebel"])
def test_a_sum_is_that_of_the_clipped_gradients_of_whole_people(make, update):
    """Two answers of a person are one contribution; by hand, one person at a time."""
    clip = 0.8
    trainer = make(terms=privacy(clip=clip), args={"update": update, "step": 0.5})
    units = [(one._replace(advantage=a),) for (one,), a in
             zip(answered(trainer), [2.0, -0.5, 1.0, 0.001], strict=True)]  # fmt: skip
    with torch.no_grad():  # REBEL: some way behind the policy that drew
        for one in trainer.model.parameters():
            one.add_(0.01 * torch.randn(one.shape, generator=torch.Generator().manual_seed(1)))
    found = summed(trainer, units)
    trainer.model.eval()
    weights = [one for one in trainer.model.parameters() if one.requires_grad]
    total, norms = 0, []
    for (person,) in units:
        pair, scores = person.pair, []
        for ids, size in ((pair.first, pair.answers[0]), (pair.second, pair.answers[1])):
            split = len(ids) - size
            scores.append(log_probability(trainer.model, ids[:split], ids[split:]))
        gap = scores[0] - scores[1]
        if update == "pg":
            loss = -person.advantage * gap / 2
        else:
            loss = ((gap - pair.reference) / 0.5 - person.advantage) ** 2
        own = torch.cat([g.double().flatten() for g in torch.autograd.grad(loss, weights)])
        norms.append(float(own.norm()))
        total = total + own * min(1.0, clip / norms[-1])
    assert max(norms) > clip
    assert float((found - total).norm() / total.norm()) < 1e-5


@pytest.mark.deep
@pytest.mark.parametrize(
    ("args", "each"),
    [({}, 1), (REBEL, 2)],
)
def test_a_policy_learns_what_people_like(make, tiny_llama, args, each):
    """One seed for each, with next to no noise; the reward rises from 0 to .3 or more."""
    terms = privacy(1e7, slots=32, batches=12, updates_per_batch=each)
    how = {"args": {"learning_rate": 5e-3 / each, **args}}
    trainer = make(terms=terms, simulate_seed=1, **how)
    prompts = [f"tell me about {word}" for word in PLAIN] * 12

    def reward():
        texts = sample_answers(
            trainer.model, trainer.processing_class, prompts, max_new_tokens=5, seed=0
        )
        return np.mean([true_reward(text) for text in texts])

    before = reward()
    trained(trainer)
    after = reward()
    assert after > before + 0.2, (before, after)


@pytest.mark.parametrize("update", ["pg", "rebel"])
@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
def test_one_person_moves_the_sum_by_no_more_than_is_paid_for(make, update, neighbors):
    """The worst neighbor, in a batch of one draw: emptied by C, replaced by 2C, nearly attained."""
    clip = 0.01
    terms = privacy(clip=clip, neighbors=neighbors)
    usual = {"terms": terms, "args": {"update": update}}
    rows = people(terms.people)
    trainer = make(rows, reward=one_way, **usual)
    others = [dict(row) for row in rows]
    if neighbors is REPLACE_SPECIAL:
        others[1]["prompt"] = None
        reward = one_way
    else:  # who says the contrary of everything

        def reward(completions, persons, **_):
            sign = [-1.0 if person == "p1" else 1.0 for person in persons]
            return [a * b for a, b in zip(sign, one_way(completions), strict=True)]

    neighbor = make(others, reward=reward, **usual)
    one, other = summed(trainer, answered(trainer)), summed(neighbor, answered(neighbor))
    moved = float((one - other).norm())
    allowed = terms.sensitivity * clip
    assert allowed == pytest.approx(clip if neighbors is REPLACE_SPECIAL else 2 * clip)
    assert 0.85 * allowed <= moved <= allowed
    assert terms.noise_multiplier * clip >= allowed / terms.event.mu


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
def test_an_update_shows_no_more_of_a_person_than_it_claims(make, neighbors):
    """Audit of one noised sum: μ measured is at most μ claimed, and at least .85 of it.

    8,000 draws a side of the noise of a step, projected on where the worst neighbor moves the
    sum; seeded. False alarm of the upper side: 1e-6. Of 100 simulated audits of normal scores at
    this μ (2.71) the least measured .877 of it, and the mean .916.
    """
    terms = privacy(16.0, clip=0.01, neighbors=neighbors)
    trainer = make(terms=terms, reward=one_way)
    for one in trainer.model.parameters():
        one.requires_grad_(one.shape == (32,) and one is trainer.model.model.norm.weight)
    units = answered(trainer)
    person = units[1][0]
    others = [*units[:1], *units[2:]]
    if neighbors is REPLACE_ONE:
        others.append((person._replace(advantage=-person.advantage),))
    sums = [summed(trainer, some) for some in (units, others)]
    direction, source = (sums[0] - sums[1]) / (sums[0] - sums[1]).norm(), entropy(5)
    scores = []
    for total in sums:
        drawn = []
        for _ in range(8_000):
            noised = total.clone()
            trainer._add_noise([noised], source)
            drawn.append(float(noised @ direction))
        scores.append(np.array(drawn))
    measured = mu_from_counts(*mu_cut(*scores).counts, confidence=1 - 1e-6)
    assert 0.85 * terms.event.mu <= measured <= terms.event.mu


def test_nobody_is_shown_or_worth_anything_else_because_of_somebody(make):
    """A slot that is emptied changes no coin, no answer and no advantage of others."""

    def long(completions, **_):
        return [len(text) / 50 for text in completions]

    rows = people(4)
    rows[2]["prompt"] += " and much more of it"
    emptied = [dict(row) for row in rows]
    emptied[2]["prompt"] = None
    how = {"terms": privacy(batches=1), "reward": long}
    whole, less = (answered(make(r, **how)) for r in (rows, emptied))
    assert len(whole) == 4
    kept, left = (
        [(*one.pair[:2], one.advantage) for (one,) in some]
        for some in ([*whole[:2], *whole[3:]], less)
    )
    assert kept == left
    assert len({one.advantage for (one,) in whole}) > 1


def test_nobody_is_answered_or_counted_otherwise_beside_a_long_prompt(make):
    """Answers, gaps, norms and shares are the same to the last bit, whoever else is asked."""
    rows = people(4)
    other = [dict(row) for row in rows]
    other[0]["prompt"] = "tell me about " + "bread and " * 12
    usual = {"terms": privacy(batches=1, clip=0.01), "reward": one_way}
    trainer = make(rows, **usual)
    units, others = answered(trainer), answered(make(other, **usual))
    assert units[1:] == others[1:]
    change = summed(trainer, others) - summed(trainer, units)
    alone = summed(trainer, others[:1]) - summed(trainer, units[:1])
    assert float((change - alone).norm()) <= 1e-12 * 0.01
    joined = summed(trainer, [*units, *others[:1]]) - summed(trainer, units)
    assert float(joined.norm()) <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize("args", few([{}, REBEL], first=1))
def test_a_batch_of_empty_slots_is_noise_alone(make, args, ledger_of):
    rows = [{"person": i, "prompt": None} for i in range(12)]
    trainer = make(rows, reward=never, args=args)
    assert not summed(trainer, answered(trainer)).any()
    trained(trainer)


def test_enormous_rewards_move_the_sum_as_far_as_the_bound(make):
    def enormous(completions, **_):
        return [1e9 * one for one in one_way(completions)]

    sums = [
        summed(one, answered(one)) for one in (make(reward=one_way), make(reward=enormous))
    ]  # fmt: skip
    assert torch.equal(*sums)
    clip = privacy().clip
    assert float(sums[0].norm()) <= 4 * clip


def test_persons_lose_the_maximum_over_batches(make, ledger_of):
    ledger = ledger_of(4.0)  # room for one batch of each, and no more
    trainer = trained(
        make(ledger=ledger, terms=privacy(batches=5, updates_per_batch=2), args=REBEL)
    )
    assert len(ledger.spends) == 5
    assert [row.count for row in ledger.spends] == [2] * 5
    assert 3.999 < ledger.total().epsilon <= 4.0
    promise = trainer._promise.guarantee
    assert (promise.unit, promise.neighbors, promise.trust) == (
        "person",
        REPLACE_SPECIAL,
        "central",
    )
    assert promise.epsilon == ledger.total().epsilon
    assert promise.caveats == ("declared-disjoint", "real-arithmetic", "texts-declared", "timing")
    assert len(trainer._promise.release_ids) == 5
    with pytest.raises(BudgetExceeded):
        trained(make(ledger=ledger))


def test_nobody_is_asked_where_the_budget_is_too_small(make, ledger_of):
    with pytest.raises(BudgetExceeded):
        trained(make(ledger=ledger_of(3.9), reward=never))
    ledger = ledger_of(1000.0)
    with pytest.raises(BudgetExceeded):
        trained(make(ledger=ledger, reward=never, terms=privacy(1001.0)))
    assert not ledger.spends


def test_relations_that_move_slots_are_refused():
    with pytest.raises(PrivacyError, match="ADD_OR_REMOVE_ONE promises nothing here"):
        privacy(neighbors=ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
@pytest.mark.parametrize("each", [1, 7])
def test_the_noise_is_the_least_that_keeps_the_promise(neighbors, each):
    terms = privacy(2.0, neighbors=neighbors, updates_per_batch=each)
    mu = terms.sensitivity / terms.noise_multiplier
    spent = composed_epsilon([(terms.event, each)], neighbors=neighbors, delta=1e-6)
    assert 2.0 * (1 - 1e-6) < spent <= 2.0
    assert mu <= terms.event.mu <= mu * (1 + 1e-8)
    whole = GaussianMechanism.calibrated(2.0, delta=1e-6, bound=1.0, neighbors=neighbors)
    assert mu * math.sqrt(each) == pytest.approx(whole.event.mu, rel=1e-5)


class Draws:
    """Counts draws of noise by the entry that is the newest on the ledger."""

    def __init__(self, monkeypatch, ledger):
        self.by_entry, self.by_scope, self.left = Counter(), Counter(), math.inf
        self._noise, self._ledger = training.add_gradient_noise, ledger
        monkeypatch.setattr(training, "add_gradient_noise", self)

    def __call__(self, *given, **named):
        self.left -= 1
        if self.left < 0:  # after the entry was written, before the noise
            raise KeyboardInterrupt
        newest = self._ledger.spends[-1]
        self.by_entry[newest.release_id] += 1
        self.by_scope[newest.scope] += 1
        self._noise(*given, **named)

    def check(self):
        rows = {row.release_id: row for row in self._ledger.spends}
        paid = Counter()
        for row in rows.values():
            paid[row.scope] += row.count
        assert all(n <= rows[entry].count for entry, n in self.by_entry.items())
        assert all(n <= paid[scope] for scope, n in self.by_scope.items())


@pytest.mark.deep
@pytest.mark.parametrize("killed", ["reward", "entry", "noise", "second", "saving", "after"])
def test_a_killed_run_never_draws_twice_on_one_entry(make, ledger_of, monkeypatch, killed):
    """Whatever happens in the third batch of two updates each, another process goes on."""
    ledger, asked = ledger_of(), []
    draws = Draws(monkeypatch, ledger)
    terms = privacy(batches=4, updates_per_batch=2)
    how = {"ledger": ledger, "terms": terms, "args": {**REBEL, "save_strategy": "steps"}}

    def reward(completions, **_):
        asked.append(len(completions))
        if killed == "reward" and len(asked) == 10:
            raise KeyboardInterrupt
        return good_words(completions)

    broken = make(reward=reward, callbacks=[Killed(6)] if killed == "after" else [], **how)
    if killed == "entry":
        pay = broken._run.pay

        def cut(*steps):
            pay(*steps)
            if len(ledger.spends) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(broken._run, "pay", cut)
    draws.left = {"noise": 4, "second": 5}.get(killed, math.inf)
    write = CheckpointPromise.write

    def fail(promise, folder, **more):
        if killed == "saving" and folder.name == "checkpoint-6":
            raise KeyboardInterrupt
        write(promise, folder, **more)

    monkeypatch.setattr(CheckpointPromise, "write", fail)
    with pytest.raises(KeyboardInterrupt):
        trained(broken)
    draws.check()
    monkeypatch.setattr(CheckpointPromise, "write", write)
    draws.left = math.inf
    again = trained(make(**how), resume_from_checkpoint=True)
    draws.check()
    assert again.state.global_step == 8
    twice = killed != "reward"
    scopes = Counter(row.scope for row in ledger.spends)
    assert scopes == {f"{again._run.name}/batch-{i}": 1 + (twice and i == 2) for i in range(4)}
    worst = {event_of(row): row.count * (1 + twice) for row in ledger.spends}
    spent = composed_epsilon(worst, neighbors=REPLACE_SPECIAL, delta=1e-6)
    assert again._promise.guarantee.epsilon == pytest.approx(spent)
    assert ledger.total().epsilon == pytest.approx(spent)
    assert set(again._promise.release_ids) == {row.release_id for row in ledger.spends}


@pytest.mark.deep
def test_a_resumed_study_ends_where_the_whole_one_does(make, ledger_of):
    saving = {"save_strategy": "steps"}
    whole = trained(make(args=saving, simulate_seed=5, folder="whole"))
    ledger = ledger_of()
    with pytest.raises(KeyboardInterrupt):
        trained(make(ledger=ledger, args=saving, simulate_seed=5, callbacks=[Killed(2)]))
    again = trained(make(ledger=ledger, args=saving, simulate_seed=5), resume_from_checkpoint=True)
    assert same_weights(whole, again)
    assert again._promise.guarantee.simulated
    third = trained(make(simulate_seed=6, folder="third"))
    assert not same_weights(whole, third)


def test_seeds_of_the_user_reach_neither_answers_nor_noise(make):
    seen = []
    for name in ("a", "b"):
        trainer = make(folder=name, args={"seed": 7}, reward=lambda completions, **_: (
            seen.append(completions) or good_words(completions)
        ))  # fmt: skip
        torch.manual_seed(0)
        before = torch.random.get_rng_state()
        trainer._pay()
        assert torch.equal(before, torch.random.get_rng_state())
    assert seen[0] != seen[1]


@pytest.mark.deep
def test_other_people_other_ledgers_and_finished_runs_are_refused(make, ledger_of):
    ledger, saving = ledger_of(), {"save_strategy": "steps"}
    with pytest.raises(KeyboardInterrupt):
        trained(make(ledger=ledger, args=saving, callbacks=[Killed(2)]))
    rows = people(12)
    moved = [*rows[8:], *rows[:8]]
    with pytest.raises(UsageError, match="Other people"):
        trained(make(moved, ledger=ledger, args=saving), resume_from_checkpoint=True)
    with pytest.raises(LedgerMismatch, match="did not pay"):
        trained(make(ledger=ledger_of(), args=saving), resume_from_checkpoint=True)
    other = make(ledger=ledger, args={**saving, "reward_bound": 2.0})
    with pytest.raises(UsageError, match="another reward_bound"):
        trained(other, resume_from_checkpoint=True)
    later = [*rows[:8], *people(20)[16:]]  # who have slots of batches to come may change
    trained(make(later, ledger=ledger, args=saving), resume_from_checkpoint=True)
    with pytest.raises(UsageError, match="all of its 3 steps"):
        trained(make(later, ledger=ledger, args=saving), resume_from_checkpoint=True)


@pytest.mark.deep
@pytest.mark.parametrize("wrong", [math.nan, None, "short", pytest.param(10**400, id="huge")])
def test_a_reward_that_is_no_number_stops_with_nothing_spent_on_the_batch(make, ledger_of, wrong):
    ledger, calls = ledger_of(), []

    def reward(completions, **_):
        calls.append(1)
        found = good_words(completions)
        if len(calls) == 6:  # of the second batch
            found[1:2] = [] if wrong == "short" else [wrong]
        return found

    args = {"save_strategy": "steps"}
    with pytest.raises(DataError, match="Nothing was spent on this batch") as caught:
        trained(make(ledger=ledger, reward=reward, args=args))
    assert not any(char.isdigit() for char in str(caught.value).replace(", 0 where", ""))
    assert caught.value.__cause__ is None
    assert len(ledger.spends) == 1
    trained(make(ledger=ledger, args=args), resume_from_checkpoint=True)
    assert len(ledger.spends) == 3


def test_what_a_reward_function_is_asked(make):
    asked = []

    def reward(**given):
        asked.append(given)
        return [0.0] * len(given["completions"])

    rows = people(12)
    rows[1]["prompt"] = [{"role": "user", "content": "bread"}]
    rows[2]["prompt"] = None
    answered(make(rows, reward=[reward, reward]))
    assert [given["persons"] for given in asked[::2]] == [[one] * 2 for one in ("p0", "p1", "p3")]
    assert [given["prompts"] for given in asked[:2]] == [[rows[0]["prompt"]] * 2] * 2
    assert asked[2]["completions"][1][0]["role"] == "assistant"
    assert len(asked[0]["completion_ids"]) == 2


def test_the_first_row_of_a_person_counts_and_no_other(make):
    rows = [*people(3), {"person": "p1", "prompt": "long text"}, {"person": 1, "prompt": "water"}]
    rows += [{"person": " 1 ", "prompt": "bread"}]
    trainer = make(rows, terms=privacy(slots=2, batches=2))
    found = [[(one.id, one.prompt) for one in batch] for batch in trainer._people]
    assert found == [
        [("p0", "tell me about the"), ("p1", "tell me about answer")],
        [("p2", "tell me about is"), ("1", "water")],
    ]
    with pytest.raises(UsageError, match="4 different people"):
        make(rows, terms=privacy(slots=5, batches=1))


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        (people(11), UsageError, "11 different people.*need 12"),
        ([{"prompt": "a"}] * 12, PrivacyError, "whose it is"),
        ([{"person": 1.5, "prompt": "a"}], PrivacyError, "whose it is"),
        ([{"person": i, "prompt": " "} for i in range(12)], DataError, "prompt=None"),
        ([{"person": i, "prompt": 7} for i in range(12)], DataError, "neither text"),
        ([{"person": i, "prompt": "word " * 99} for i in range(12)], DataError, "overlong='drop'"),
        ("text", UsageError, "got str"),
        ([1], UsageError, "Each row"),
    ],
)
def test_people_who_cannot_be_served_are_refused(make, rows, error, said):
    with pytest.raises(error, match=said):
        make(rows)


def test_a_prompt_that_is_too_long_may_leave_its_slot_empty(make):
    rows = people(12)
    rows[4]["prompt"] = "secret " * 99
    trainer = make(rows, args={"overlong": "drop"})
    assert [one.prompt is None for one in trainer._people[1]] == [True, False, False, False]
    with pytest.raises(DataError) as caught:
        make(rows)
    assert "secret" not in str(caught.value)
    assert "4" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "terms", "more", "said"),
    [
        ({}, {"updates_per_batch": 2}, {}, "not the policy's any more"),
        ({}, {}, {"reference": "models"}, "no reference is asked"),
        ({"max_completion_length": 64}, {}, {}, "length of an answer"),
        ({"max_length": 8, "max_completion_length": 8}, {}, {}, "no room for a prompt"),
        ({"update": "npg"}, {}, {}, "update must be one of"),
        ({"reward_bound": 0.0}, {}, {}, "reward_bound"),
        ({}, {}, {"reward": "accuracy"}, "reward_funcs"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(make, args, terms, more, said):
    with pytest.raises(UsageError, match=said):
        make(args=args, terms=privacy(**terms), **more)


def test_ledgers_of_another_unit_or_relation_are_refused(make, ledger_of):
    for wrong in ({"unit": "record"}, {"neighbors": REPLACE_ONE}):
        with pytest.raises(PrivacyError, match="counts unit"):
            make(ledger=ledger_of(**wrong))
    with pytest.raises(PrivacyError, match="metric"):
        make().evaluate()


def test_wrong_gradients_are_refused_before_anybody_is_asked(make, ledger_of, monkeypatch):
    ledger = ledger_of()
    trainer = make(ledger=ledger, reward=never)

    loss = training.CentralTraining._loss
    monkeypatch.setattr(training.CentralTraining, "_loss", lambda *given: loss(*given) / 1.01)
    with pytest.raises(UsageError, match="nothing was spent"):
        trained(trainer)
    assert not ledger.spends


@pytest.mark.deep
def test_adapters_that_are_saved_and_trained_again_add_up(make, ledger_of, tmp_path):
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.5)
    trainer = trained(make(args=REBEL, peft_config=lora, terms=privacy(slots=2, batches=2)))
    trainer.save_model(str(tmp_path / "saved"))
    promise = CheckpointPromise.read(tmp_path / "saved")
    assert promise.kind == "policy"
    assert promise.guarantee.unit == "person"
    second = make(model=str(tmp_path / "saved"), folder="second", terms=privacy(slots=2, batches=2))
    assert 7.9 < trained(second)._promise.guarantee.epsilon <= 8.0


@pytest.mark.deep
def test_nothing_but_weights_depends_on_prompts_and_rewards(make, tmp_path, monkeypatch):
    """The same seed, and other people: logs and files without weights are the same."""
    monkeypatch.setattr("sordino.language.dp_sgd.privacy.new_release_id", lambda: "r")
    secret = [{"person": f"p{i}", "prompt": "flour and bread " * (1 + i % 3)} for i in range(12)]
    secret[5]["prompt"] = None
    files, logs = [], []
    for rows, sign in ((people(12), 1.0), (secret, -1.0)):
        monkeypatch.setattr(
            "sordino._random.new_release_id", iter(f"{i:016x}" for i in range(99)).__next__
        )

        def reward(completions, sign=sign, **_):
            np.random.rand(len(completions))  # noqa: NPY002 (whatever a user's function does)
            torch.rand(len(completions))
            return [sign * one + 0.375 for one in good_words(completions)]

        saving = {"save_strategy": "steps", "save_total_limit": None}
        trainer = make(rows, args=saving, simulate_seed=3, reward=reward)
        trained(trainer)
        logs.append(trainer.state.log_history)
        files.append(files_of(tmp_path / "run"))
        (tmp_path / "run").rename(tmp_path / f"run-{len(files)}")
    assert logs[0] == logs[1]
    assert set(logs[0][0]) == {"learning_rate", "epsilon", "epoch", "step"}
    one, other = files
    assert_only_weights_differ(one, other, "checkpoint-3")
    assert len([name for name in one if name.endswith("sordino.json")]) == 3
    texts = b"".join(text for name, text in other.items() if name.endswith((".json", ".md"))
                     and "tokenizer" not in name)  # fmt: skip
    assert b"flour" not in texts
    assert b"0.375" not in texts
    assert b"p5" not in texts
    assert trainer._units == []


@pytest.mark.deep
@pytest.mark.parametrize("update", few(["pg", "rebel"], first=1))
def test_an_audit_of_whole_people_finds_a_clip_that_is_too_wide(make, monkeypatch, update):
    """At a level of 1e-3; a sum that moves by 2C where C is permitted refutes by itself."""
    trainer = make(args={"update": update})
    before = trainer._ledger.path.read_bytes()
    how = {"trials": 4000, "partners": 4, "simulate_seed": 1}
    sound = sordino.audit(trainer, **how)
    assert sound.verdict == "not refuted", sound.to_dict()
    assert {one.attack for one in sound.findings} == {
        "worst-canary", "partners", "noise", "sampler", "gradients",
    }  # fmt: skip
    assert sound.claim.unit == "person"
    with pytest.raises(UsageError, match="learns from what people"):
        sordino.audit(trainer, canaries=[None] * 50, **how)
    wide = training.ClippedSum
    monkeypatch.setattr(training, "ClippedSum", lambda model, bound: wide(model, 2 * bound))
    assert "worst-canary" in sordino.audit(trainer, **how).refuted_by
    assert trainer._ledger.path.read_bytes() == before


def test_a_reward_that_reads_texts_by_how_long_others_are_is_refused(make, tiny_llama):
    """One long prompt would change the rewards of answers to everybody else."""
    tokenizer = load_tokenizer(tiny_llama)
    codes = {"rope_type": "longrope", "original_max_position_embeddings": 8}
    model = load_causal_model(tiny_llama)
    model.config.rope_parameters = codes
    reward = object.__new__(RewardFunction)
    kept = SimpleNamespace(model=model, tokenizer=tokenizer, max_length=32, origin=None)
    object.__setattr__(reward, "reward", kept)
    with pytest.raises(UsageError, match="max_length to at most 8"):
        make(reward=reward)
