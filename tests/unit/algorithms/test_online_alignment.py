"""Online alignment: what is asked, what is spent before, what is learned."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.algorithms.online_alignment import (
    LinearLearner,
    _FiniteLearner,
    align_online,
)
from sordino.environments.preference_worlds import (
    HardInstance,
    LinearPreferences,
)
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.rewards.pair_losses import answer_probability, debias

LINEAR = LinearPreferences.random(dimension=3, actions=4, size=1.0, seed=0)


@dataclass
class Recorded:
    """A world whose people prefer the first, and which notes what it is asked."""

    labels: object = 1
    bound: float = 1.0
    asked: list = field(default_factory=list)
    feature_bound: float = 1.0

    def contexts(self, rng, n):
        rows = rng.normal(size=(n, 4, 3))
        return self.bound * rows / np.linalg.norm(rows, axis=2, keepdims=True)

    def prefer(self, contexts, first, second, rng):
        self.asked.append((contexts, first, second))
        return np.full(len(first), self.labels)


class Devices(Recorded):
    """The same people with devices; nobody else may see a judgment."""

    def prefer(self, *_):
        raise AssertionError("a device's judgment was seen")

    def answer(self, contexts, first, second, epsilon):
        self.asked.append((contexts, first, second))
        assert epsilon == 1.0
        return np.ones(len(first), dtype=int)


@pytest.fixture
def run(open_ledger):
    """Return a short run on a ledger of its own, and that ledger."""

    def make(world=LINEAR, *, budget=math.inf, trust="central", **settings):
        ledger = open_ledger(budget, trust=trust)
        given = {"rounds": 60, "epsilon": 1.0, "temperature": 0.25, "simulate_seed": 3}
        return align_online(world, ledger=ledger, **(given | settings)), ledger

    return make


def test_one_entry_pays_for_all_rounds(run):
    found, ledger = run(rounds=200)
    [entry] = ledger.spends
    assert (entry.release_id,) == found.release_ids
    assert ledger.total().epsilon == pytest.approx(1.0, abs=1e-12)
    assert found.guarantee.epsilon <= 1.0
    assert found.guarantee.unit == "label"
    assert set(found.guarantee.caveats) == {
        "randomized-at-ingestion", "repeats-not-linked", "simulated",
    }  # fmt: skip


def test_the_entry_is_written_before_anybody_is_asked(open_ledger):
    ledger = open_ledger(1.0)

    class Watched(Recorded):
        def prefer(self, contexts, first, second, rng):
            assert len(ledger.spends) == 1
            raise RuntimeError("the line is dead")

    settings = {"rounds": 20, "epsilon": 1.0, "temperature": 0.25, "ledger": ledger}
    with pytest.raises(RuntimeError, match="the line is dead"):
        align_online(Watched(), **settings)
    assert len(ledger.spends) == 1  # what was interrupted counts
    world = Recorded()
    with pytest.raises(BudgetExceeded):
        align_online(world, **settings)
    assert not world.asked


def test_no_promise_is_made_of_what_a_world_has_recorded(open_ledger):
    """For a method of that name no coin was tossed: raw judgments came back as answers."""
    ledger = open_ledger(1.0)

    class Remembers(Recorded):
        def recorded(self, rounds, first):
            return np.ones(len(first), dtype=int)

    with pytest.raises(PrivacyError, match="taken as it is"):
        align_online(Remembers(), rounds=20, epsilon=1.0, temperature=0.25, ledger=ledger)
    assert not ledger.spends


def test_every_label_is_randomized_once_with_the_stated_chance(run):
    # All labels are 1. Of about 6,000 answers a share of .269 is flipped: 6 standard errors.
    world = Recorded()
    found, _ = run(world, rounds=8000, exploration="uniform")
    answers = found.answers[found.answers >= 0]
    assert len(answers) == sum(len(first) for _, first, _ in world.asked) == found.asked
    flipped = 1 - answers.mean()
    assert abs(flipped - expit(-1.0)) < 6 * math.sqrt(0.2 / len(answers))


def test_nobody_is_asked_about_one_action_twice(run):
    world = Recorded()
    found, _ = run(world)
    assert found.regret is None  # nobody knows the reward
    same = found.actions[:, 0] == found.actions[:, 1]
    assert same.any()
    assert ((found.answers == -1) == same).all()
    assert (found.widths[same] == 0).all()
    assert all((first != second).all() for _, first, second in world.asked)


def test_questions_depend_on_labels_through_answers_only(open_ledger, monkeypatch):
    """Whatever the labels, equal randomized answers lead to equal questions."""
    monkeypatch.setattr(
        sordino.RandomizedResponse,
        "release",
        lambda self, values, *, entropy: (entropy.words(len(values)) & np.uint64(1)).astype(int),
    )
    runs = [
        align_online(
            Recorded(labels=label),
            rounds=80,
            epsilon=1.0,
            temperature=0.25,
            ledger=open_ledger(1.0),
            simulate_seed=5,
        )
        for label in (0, 1, 2)
    ]
    assert len({found.artifact for found in runs}) == 1


def test_devices_make_it_local(run):
    found, ledger = run(Devices(), trust="local")
    assert found.guarantee.trust == ledger.total().trust == "local"
    assert "randomized-at-ingestion" not in found.guarantee.caveats


def test_ledgers_of_other_promises_ask_nobody(run, tmp_path):
    world = Recorded()
    with pytest.raises(PrivacyError, match="saw them"):
        run(world, trust="local")
    budget = sordino.Guarantee(
        9.0, delta=0.0, unit="person", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="x", budget=budget)
    with pytest.raises(PrivacyError, match="one label at a time"):
        align_online(world, rounds=9, epsilon=1.0, temperature=1.0, ledger=ledger)
    assert not world.asked


def test_infinity_is_the_algorithm_without_privacy(run):
    world = Recorded()
    found, ledger = run(world, epsilon=math.inf)
    assert (found.answers[found.answers >= 0] == 1).all()
    assert found.guarantee.epsilon == math.inf
    assert ledger.total().epsilon == math.inf
    with pytest.raises(BudgetExceeded):
        run(world, epsilon=math.inf, budget=50.0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"world": Devices(), "epsilon": math.inf}, "epsilon must be finite"),
        ({"rounds": 0}, "rounds"),
        ({"exploration": "bold"}, "exploration"),
        ({"temperature": 0.0}, "temperature"),
        ({"scale": -1.0}, "scale"),
        ({"confidence": 1.0}, "confidence"),
        ({"ball": 0.0}, "ball"),
        ({"ridge": 0.0}, "ridge"),
        ({"bonus_bound": 0.0}, "bonus_bound"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"candidates": {}}, "candidates"),
        ({"world": object()}, "world"),
        ({"simulate_seed": -1}, "simulate_seed"),
        ({"ledger": None}, "a ledger is needed"),
    ],
)
def test_bad_settings_spend_nothing(open_ledger, settings, named):
    ledger = open_ledger(5.0)
    given = {"world": LINEAR, "rounds": 5, "epsilon": 1.0, "temperature": 1.0} | settings
    with pytest.raises(UsageError, match=named):
        align_online(given.pop("world"), **({"ledger": ledger} | given))
    assert not ledger.spends


@pytest.mark.parametrize("rows", [np.full((1, 2, 2), np.nan), np.ones((1, 2)), np.ones((3, 2, 2))])
def test_bad_contexts_spend_nothing(open_ledger, rows):
    world, ledger = Recorded(), open_ledger(5.0)
    world.contexts = lambda rng, n: rows
    with pytest.raises(DataError, match="contexts"):
        align_online(world, rounds=5, epsilon=1.0, temperature=1.0, ledger=ledger)
    assert not ledger.spends


@pytest.mark.parametrize("label", [3, 0.5])
def test_what_is_no_judgment_is_refused(run, label):
    with pytest.raises(DataError, match="judgments"):
        run(Recorded(labels=label))


def test_long_features_are_shortened(run):
    world = Recorded(bound=50.0)
    run(world)
    lengths = [np.linalg.norm(contexts, axis=2).max() for contexts, _, _ in world.asked]
    assert max(lengths) <= 1 + 1e-12


def test_the_seed_repeats_a_run(run):
    one, other = run()[0], run()[0]
    assert one.artifact == other.artifact
    assert run(simulate_seed=4)[0].artifact != one.artifact


def test_regret_is_that_of_the_second_policy(open_ledger):
    """At the first round nothing is known: the estimate is 0 and so is every difference."""
    world = HardInstance.random(contexts=2, concentrability=4.0, gap=0.5, level=0.3, seed=0)
    found = align_online(
        world, rounds=1, epsilon=1.0, temperature=0.25, ledger=open_ledger(), exploration="none"
    )
    rewards, reference = (of(world.features) for of in (world.rewards, world.reference))
    best = 0.25 * np.log((reference * np.exp(rewards / 0.25)).sum(axis=1))
    lost = best - (reference * rewards).sum(axis=1)
    assert np.isclose(found.regrets[0], lost).any()
    assert found.regret[-1] == found.regrets.sum()


def test_exploration_decides_what_is_drawn(run):
    """Where the bonus dwarfs the reward, optimism asks what a greedy run hardly asks."""
    hard = HardInstance.random(contexts=3, concentrability=50.0, gap=0.5, level=0.0, seed=1)
    asked = {
        name: run(hard, rounds=300, exploration=name, ball=1.0)[0].asked
        for name in ("none", "optimistic", "uniform")
    }
    assert asked["none"] < asked["optimistic"]
    assert abs(asked["uniform"] - 150) < 55


@pytest.mark.parametrize(
    ("settings", "heuristic"),
    [
        ({}, False),
        ({"scale": 0.5}, True),
        ({"bonus_bound": 0.5}, True),
        ({"bonus_bound": 4.0}, False),
        ({"scale": 0.5, "exploration": "none"}, False),
    ],
)
def test_a_bonus_that_proves_nothing_is_labeled(run, settings, heuristic):
    found, _ = run(**settings)
    assert found.heuristic is heuristic
    assert ("heuristic" in repr(found)) is heuristic


def test_the_final_reward_and_policy_agree(run):
    found, ledger = run(rounds=300)
    contexts = LINEAR.contexts(np.random.default_rng(9), 5)
    chances = found.policy.probabilities(contexts)
    other = sordino.gibbs_policy(found.reward, temperature=0.25).probabilities(None, list(contexts))
    np.testing.assert_allclose(chances, np.stack(other), atol=1e-12)
    assert sordino.certify(found.reward, ledger, for_study=True)
    assert ((found.widths > 1e-9) == (found.answers >= 0)).all()


def _learner(d=3, **changed):
    sizes = {"feature_bound": 0.5, "ball": 1.5, "ridge": 0.7, "flip_probability": 0.2}
    return LinearLearner(d, confidence=0.9, **(sizes | changed))


def test_rank_one_updates_are_the_inverse_and_stop_at_a_doubled_determinant():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3)) / 4
    learner = _learner()
    start = 0.7 / (expit(1.5) * expit(-1.5))
    used = learner.take(rows)
    volume = np.linalg.slogdet(start * np.eye(3) + rows[:used].T @ rows[:used])[1]
    before = np.linalg.slogdet(start * np.eye(3) + rows[: used - 1].T @ rows[: used - 1])[1]
    assert before - 3 * math.log(start) <= math.log(2) < volume - 3 * math.log(start)
    assert learner.take(np.zeros((5, 3))) == 1  # the refit is overdue
    learner.learn(rows[:used], rng.integers(0, 2, size=used))
    metric = start * np.eye(3) + rows[:used].T @ rows[:used]
    root = learner.root
    np.testing.assert_allclose(root @ root.T @ metric, np.eye(3), atol=1e-12)


def test_the_estimate_is_the_debiased_minimizer_inside_the_ball():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(900, 3)) / 2
    answers = (rng.random(900) < answer_probability(rows @ [0.6, -0.3, 0.2], 0.2)).astype(int)
    learner = _learner()
    for part in np.array_split(np.arange(900), 7):
        learner.learn(rows[part], answers[part])
    weights = learner.weights
    gradient = rows.T @ (expit(rows @ weights) - debias(answers, 0.2)) + 0.7 * weights
    assert np.linalg.norm(gradient) <= learner.atol
    assert np.linalg.norm(weights) < 1.5


def test_radius_of_the_formula_by_hand():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(50, 3)) / 4
    learner = _learner()
    learner.learn(rows, rng.integers(0, 2, size=50))
    slope = expit(1.5) * expit(-1.5)
    volume = np.linalg.slogdet(np.eye(3) + slope * rows.T @ rows / 0.7)[1]
    radius = math.sqrt(volume + 2 * math.log(10)) / (2 * 0.6 * slope)
    radius += 1.5 * math.sqrt(0.7 / slope)
    assert learner.radius == pytest.approx(radius, rel=1e-5)
    assert learner.radius >= radius  # what the solver left comes on top
    questions = rng.normal(size=(4, 3))
    inverse = learner.root @ learner.root.T
    lengths = np.sqrt(np.einsum("ni,ij,nj->n", questions, inverse, questions))
    found = learner.bonus(questions[:, None])[:, 0]
    np.testing.assert_allclose(found, learner.radius * lengths, rtol=1e-9)
    np.testing.assert_allclose(learner.widths(questions), 2 * found, rtol=1e-12)


CANDIDATES = {
    name: (lambda features, weights=weights: expit(features @ weights))
    for name, weights in {
        "a": np.array([2.0, 0.0, 0.0]),
        "b": np.array([0.0, 2.0, 0.0]),
        "c": np.array([0.0, 0.0, -2.0]),
    }.items()
}


@dataclass
class Candid(Recorded):
    """A world whose people follow one of the candidates."""

    def rewards(self, contexts):
        return CANDIDATES["b"](contexts)

    def prefer(self, contexts, first, second, rng):
        rows, rewards = np.arange(len(first)), self.rewards(contexts)
        return rng.random(len(first)) < expit(rewards[rows, first] - rewards[rows, second])


def test_a_finite_class_finds_its_candidate(run):
    found, _ = run(Candid(), rounds=6000, epsilon=4.0, candidates=CANDIDATES)
    assert found.name == "b"
    assert "b" in found.possible
    assert found.reward.method == "finite-class"
    assert sorted(CANDIDATES)[int(np.argmax(found.reward.weights))] == found.name
    late = found.regrets[-500:].mean()
    assert late < found.regrets[:50].mean() / 10


def test_losses_and_widths_of_a_finite_class_by_hand():
    learner, rng = _FiniteLearner(CANDIDATES, flip_probability=0.1, confidence=0.9), None
    rng = np.random.default_rng(4)
    encoded = learner.encode(rng.normal(size=(40, 4, 3)))
    differences = encoded[:, 0] - encoded[:, 1]
    widest = [max(abs(row[i] - row[j]) for i in range(3) for j in range(3)) for row in differences]
    np.testing.assert_allclose(learner.widths(differences), widest)
    answers = rng.integers(0, 2, size=40)
    learner.learn(differences[:15], answers[:15])
    learner.learn(differences[15:], answers[15:])
    losses = ((answers[:, None] - (0.1 + 0.8 * expit(differences))) ** 2).sum(axis=0)
    np.testing.assert_allclose(learner.losses, losses)
    kept = losses <= losses.min() + math.log(3 / 0.1) / 2
    assert learner.kept.tolist() == kept.tolist()


def test_candidates_outside_the_unit_interval_spend_nothing(open_ledger):
    ledger = open_ledger()
    for bad in (lambda features: 2 + 0 * features[..., 0], lambda features: features):
        with pytest.raises(DataError, match="The rewards of 'x'"):
            align_online(
                Recorded(),
                rounds=5,
                epsilon=1.0,
                temperature=1.0,
                ledger=ledger,
                candidates={"x": bad},
            )
    assert not ledger.spends


def test_the_gap_is_what_hoeffding_and_ville_give():
    """exp(2 (loss of the truth − loss of another)) has expectation ≤ 1 for one answer."""
    for truth in np.linspace(0, 1, 21):
        for other in np.linspace(0, 1, 21):
            gains = [(z - truth) ** 2 - (z - other) ** 2 for z in (0.0, 1.0)]
            mean = (1 - truth) * math.exp(2 * gains[0]) + truth * math.exp(2 * gains[1])
            assert mean <= 1 + 1e-12
