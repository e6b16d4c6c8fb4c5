"""Prints as JSON what choosing questions by answers is worth in a live study.

The study is real: its questions, its database, the store of answers and the rule that chooses the
next question. The people are scripted: each has three questions in hand, answers one after the
other by a known linear reward (4 features, 8 answers to a prompt, |weights| = .6, as in
`online_regret`), and each answer is randomized with epsilon = 1. ``regret`` is that of the policy
that the second answer is drawn from, summed over 2,000 questions; ``final`` is that of the policy
learned from all of them, in each kind with the same learner.

    python benchmarks/utility/arena.py [--runs 20]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from _worlds import versions
from scipy import stats

from sordino import _random
from sordino.collection.answers import _Submitted, invite, open_invitation, store
from sordino.collection.arena import _GROWTH, TERMS, Optimistic, chooser_of
from sordino.collection.database import frozen, open_database
from sordino.collection.study import Study, new_study, read_study
from sordino.environments.preference_worlds import LinearPreferences
from sordino.environments.values import gibbs_rows, kl_regret, prefer_first
from sordino.preferences.features import FunctionFeatures

PROMPTS, ACTIONS, DIMENSION, SIZE = 100, 8, 4, 0.6
PEOPLE, TOGETHER, CAP, EPSILON = 200, 20, 10, 1.0
HEAT = TERMS["temperature"]


class World:
    """Prompts whose answers are known vectors, and people who like some of them."""

    def __init__(self, seed: int) -> None:
        """Draw weights and vectors."""
        self.rng = np.random.default_rng((seed, 5))
        self.truth = LinearPreferences.random(
            dimension=DIMENSION, actions=ACTIONS, size=SIZE, seed=seed
        )
        self.contexts = self.truth.contexts(np.random.default_rng((seed, 2)), PROMPTS)
        self.fresh = self.truth.contexts(np.random.default_rng((seed, 3)), 2000)
        self.vectors = {
            f"{p}:{a}": self.contexts[p, a] for p in range(PROMPTS) for a in range(ACTIONS)
        }

    @property
    def features(self) -> FunctionFeatures:
        """Return the vectors as features of texts."""
        read = lambda _, answers: np.array([self.vectors[answer] for answer in answers])  # noqa: E731
        return FunctionFeatures(read, dimension=DIMENSION, feature_bound=1.0, name="table")

    def study(self, folder: str, choose: str) -> Study:
        """Return a study that may ask every pair of answers to a prompt."""
        lines, file = Path(folder, "q.jsonl"), Path(folder, "s.toml")
        rows = [
            {"prompt": str(p), "candidates": [f"{p}:{a}" for a in range(ACTIONS)], "ask": "pair"}
            for p in range(PROMPTS)
        ]
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        new_study(file, title="T", questions=lines, epsilon=EPSILON, cap=CAP)
        file.write_text(file.read_text().replace('"fewest"', f'"{choose}"', 1))
        return read_study(file)

    def prefers(self, first: str, second: str) -> int:
        """Return what one person says."""
        gap = (self.vectors[first] - self.vectors[second]) @ self.truth.weights
        return int(prefer_first(np.array([gap]), self.rng)[0])

    def regret_of(self, learner: Optimistic, policy_name: str = "optimistic") -> float:
        """Return the regret of the policy that second answers are drawn from."""
        [group], [policy] = learner.prompts, learner.policies
        rewards = np.array([
            [self.vectors[str(answer)] @ self.truth.weights for answer in answers]
            for _, answers in group.texts
        ])  # fmt: skip
        return kl_regret(policy[policy_name], rewards, HEAT, np.full(rewards.shape, 1 / ACTIONS))

    def regret_on_fresh(self, weights: np.ndarray) -> float:
        """Return the regret of the policy of an estimate, on prompts that were never asked."""
        base = np.full(self.fresh.shape[:2], 1 / ACTIONS)
        chances = gibbs_rows(self.fresh @ weights, HEAT, base)
        return kl_regret(chances, self.truth.rewards(self.fresh), HEAT, base)


def one_run(choose: str, seed: int) -> tuple[float, float]:
    """Return the summed regret of what was asked, and the regret of what was learned."""
    world, coins, total = World(seed), _random.entropy(seed), 0.0
    with tempfile.TemporaryDirectory() as folder:
        study = world.study(folder, choose)
        engine = frozen(open_database(study.database_url), study, create=True)
        learner = Optimistic(study, world.features)
        chooser = learner if study.chooses else chooser_of(study)
        # before anything is known the estimate prefers nothing: as drawn at random
        price = world.regret_of(learner, "optimistic" if study.chooses else "greedy")
        hands: dict[str, list[str]] = {}
        for place, token in enumerate(invite(engine, study, count=PEOPLE, days=1)):
            device = f"{place:043d}"
            terms = {"token": token, "device": device}
            with engine.begin() as connection:
                hands[device] = open_invitation(connection, study, chooser, **terms).questions
            total += price * len(hands[device])
            while len(hands) == TOGETHER and any(hands.values()):  # each answers in turn
                for one in [device for device, hand in hands.items() if hand]:
                    question = study.by_id[hands[one].pop(0)]
                    label = np.array([world.prefers(*map(str, question.answers))])
                    bit = int(study.coin.release(label, entropy=coins)[0])
                    given = (_Submitted(str(uuid4()), question.id, 1, bit),)
                    with engine.begin() as connection:
                        told = store(connection, study, chooser, one, given)
                    if study.chooses:
                        total += price * (len(told["questions"]) - len(hands[one]))
                        hands[one] = told["questions"]
                        learner.stored += 1
                        if learner.stored >= learner.read + max(1, int(_GROWTH * learner.read)):
                            learner.refresh(engine)
                            price = world.regret_of(learner)
            if len(hands) == TOGETHER:
                hands = {}
        learner.refresh(engine)
        engine.dispose()
    return total, world.regret_on_fresh(learner.learner.weights)


def interval(values: np.ndarray) -> list[float]:
    """Return the mean with a 95 % interval of Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return [round(float(v), 4) for v in (values.mean(), values.mean() - half, values.mean() + half)]


def measure(runs: int) -> dict[str, Any]:
    """Return the regret of both ways of choosing, and how they compare run by run."""
    found = {
        choose: np.array([one_run(choose, seed) for seed in range(runs)])
        for choose in ("fewest", "optimistic")
    }
    one, other = found["optimistic"], found["fewest"]
    return {
        "name": "arena",
        "questions": PEOPLE * CAP,
        "epsilon": EPSILON,
        "runs": runs,
        "terms": TERMS,
        "regret": {name: interval(values[:, 0]) for name, values in found.items()},
        "final": {name: interval(values[:, 1]) for name, values in found.items()},
        "ratio_of_regret": interval(one[:, 0] / other[:, 0]),
        "difference_of_final": interval(one[:, 1] - other[:, 1]),
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    print(json.dumps(measure(parser.parse_args().runs), indent=1))
