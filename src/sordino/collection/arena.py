"""Which question comes next, where that depends on the answers so far.

Only randomized answers, counts and public texts are read, so that choosing costs nobody anything:
a person's promise is that of so many coins, whoever chose the questions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, cast

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from sqlalchemy import Connection, Engine, select, update

from sordino import _random
from sordino.algorithms.online_alignment import LinearLearner, policies_of
from sordino.preferences.features import Features, usual_features
from sordino.preferences.records import Text

from .database import ANSWERS, QUESTIONS, reading
from .study import Question, Study

TERMS: Final = {"temperature": 0.25, "scale": 0.1, "ball": 1.0, "ridge": 1.0}
"""Of the optimistic rule, as measured in docs/policy_optimization.md; the bonus is a heuristic."""

_GROWTH: Final = 0.04  # share of new answers after which the estimate is made anew
_TRIES: Final = 64  # draws of two answers, until one is a question that this person was not asked


class Chooser:
    """Chooses questions inside the transaction that notes them: those that fewest were asked."""

    _executor: ThreadPoolExecutor | None = None  # of what is learned beside the service

    def __init__(self, study: Study) -> None:
        """Read what is public of a study: here nothing, as counts are in the database."""
        del study

    def choose(self, connection: Connection, known: Collection[str], count: int) -> list[str]:
        """Return so many that a person was not asked, in random order; note them as asked.

        Guarantee:
            None is needed: what is drawn is who is asked what, by counts that no answer changes.
            Shown by tests/unit/collection/test_arena.py.
        """
        asked = _counts(connection, known)
        words = _random.entropy(None).words(len(asked))
        fewest = np.lexsort((words, np.array(list(asked.values()))))[:count]
        order = np.argsort(words[fewest] >> np.uint64(32) ^ words[fewest] << np.uint64(32))
        names = list(asked)
        return _note(connection, [names[index] for index in fewest[order]])

    def learned(self, engine: Engine, stored: int) -> None:
        """Take notice that so many answers were stored; most learn nothing from answers."""
        del engine, stored

    def close(self) -> None:
        """Wait for an estimate that is being made, so that the database can be left."""
        if self._executor is not None:
            self._executor.shutdown()


def chooser_of(study: Study) -> Chooser:
    """Return what chooses the questions of a study."""
    rules: dict[str, type[Chooser]] = {"uncertain": _Uncertain, "optimistic": Optimistic}
    return rules.get(study.choose, Chooser)(study)


def _counts(connection: Connection, known: Collection[str] = ()) -> dict[str, int]:
    """Return how many people were asked each question, without those that somebody knows."""
    rows = connection.execute(select(QUESTIONS.c.id, QUESTIONS.c.asked))
    return {name: int(asked) for name, asked in rows if name not in known}


def _note(connection: Connection, chosen: list[str]) -> list[str]:
    """Note questions as asked once more."""
    asked = update(QUESTIONS).where(QUESTIONS.c.id.in_(chosen))
    connection.execute(asked.values(asked=QUESTIONS.c.asked + 1))
    return chosen


class _Uncertain(Chooser):
    """Asks about the two names whose difference is known least, by counts alone."""

    # What a board knows of a − b after so many questions is at most (e_a − e_b)ᵀM⁻¹(e_a − e_b), M
    # the sum over questions: the design of a board, which no answer changes. So intervals hold as
    # for questions that were drawn before.

    def __init__(self, study: Study) -> None:
        """Read whose answers each question compares."""
        items = sorted({name for question in study.questions for name in question.names or ()})
        place = {name: at for at, name in enumerate(items)}
        self._sides = {
            question.id: tuple(place[name] for name in question.names or ())
            for question in study.questions
        }
        self._size = len(items)

    def choose(self, connection: Connection, known: Collection[str], count: int) -> list[str]:
        """Return the questions whose two names are known least apart, one after the other."""
        asked = _counts(connection)
        names = list(asked)
        one, other = np.array([self._sides[name] for name in names]).T
        counts = np.array(list(asked.values()), float)
        free = np.array([name not in known for name in names])
        words, chosen = _random.entropy(None).words(len(names)), list[str]()
        while len(chosen) < count and free.any():
            design = np.eye(self._size)
            np.add.at(design, (one, one), counts)
            np.add.at(design, (other, other), counts)
            np.add.at(design, (one, other), -counts)
            np.add.at(design, (other, one), -counts)
            spread = np.linalg.inv(design)
            width = spread[one, one] + spread[other, other] - 2 * spread[one, other]
            # of the same two names, what fewest were asked
            best = np.lexsort((words, counts, -np.round(width, 12), ~free))[0]
            chosen.append(names[best])
            counts[best] += 1
            free[best] = False
        return _note(connection, chosen)


@dataclass(frozen=True)
class _Prompts:
    """Prompts with as many answers each: texts, features, and which two are which question."""

    texts: list[tuple[Text, list[Text]]]
    features: Float[np.ndarray, "n k d"]
    questions: list[dict[tuple[int, int], str]]


class Optimistic(Chooser):
    """Asks as online alignment does: one answer by the estimate, one by what may still be true.

    Source:
        docs/policy_optimization.md, "Online alignment"; what is drawn at once shares one estimate.
    """

    def __init__(self, study: Study, features: Features | None = None) -> None:
        """Score every answer; nothing is known yet."""
        self._flip = study.coin.flip_probability
        self._read(study.questions, features or usual_features(None))
        self._executor = ThreadPoolExecutor(1, "sordino-arena")
        self.read = -1  # how many answers the estimate has seen
        self.stored = 0
        self._learn([], [])

    def _read(self, questions: Sequence[Question], features: Features) -> None:
        self._bound, self._dimension = features.feature_bound, features.dimension
        prompts: dict[str, dict[str, Text]] = {}
        pairs: dict[str, dict[frozenset[str], str]] = {}
        text_of: dict[str, Text] = {}
        for question in questions:
            asked, sides = json.dumps(question.prompt), [json.dumps(a) for a in question.answers]
            text_of[asked] = question.prompt
            prompts.setdefault(asked, {}).update(zip(sides, question.answers, strict=True))
            pairs.setdefault(asked, {})[frozenset(sides)] = question.id
        self._differences: dict[str, Float[np.ndarray, " d"]] = {}
        groups: dict[int, list[tuple[Any, ...]]] = {}
        for asked, answers in prompts.items():
            texts = list(answers.values())
            rows = csr_array(features.transform([text_of[asked]] * len(texts), texts)).toarray()
            at = {
                (i, j): pairs[asked][both]
                for (i, one), (j, other) in combinations(enumerate(answers), 2)
                if (both := frozenset((one, other))) in pairs[asked]
            }
            groups.setdefault(len(texts), []).append(((text_of[asked], texts), rows, at))
        self.prompts = [
            _Prompts(
                [one for one, _, _ in group],
                np.stack([rows for _, rows, _ in group]),
                [at for _, _, at in group],
            )
            for group in groups.values()
        ]
        for question in questions:
            told = features.transform([question.prompt] * 2, list(question.answers))
            first, second = csr_array(told).toarray()
            self._differences[question.id] = first - second

    def _learn(self, questions: Sequence[str], answers: Sequence[int]) -> None:
        """Make the estimate, and the two policies of every prompt, anew."""
        learner = LinearLearner(
            self._dimension,
            feature_bound=self._bound,
            ball=TERMS["ball"],
            ridge=TERMS["ridge"],
            flip_probability=self._flip,
            confidence=0.95,
        )
        if questions:
            rows = np.stack([self._differences[name] for name in questions])
            learner.learn(rows, np.array(answers))
        terms = {name: TERMS[name] for name in ("temperature", "scale")}
        most = learner.largest_error
        even = [np.full(one.features.shape[:2], 1 / one.features.shape[1]) for one in self.prompts]
        self.learner, self.policies = (
            learner,
            [
                policies_of(learner, one.features, base, "optimistic", bonus_bound=most, **terms)
                for one, base in zip(self.prompts, even, strict=True)
            ],
        )
        self.read = len(questions)

    def refresh(self, engine: Engine) -> None:
        """Read all randomized answers, and learn from them."""
        with reading(engine) as connection:
            rows = connection.execute(select(ANSWERS.c.question, ANSWERS.c.answer)).all()
        self._learn([row.question for row in rows], [row.answer for row in rows])
        self.stored = max(self.stored, len(rows))

    def learned(self, engine: Engine, stored: int) -> None:
        """Learn beside the service, whenever a share of all answers is new."""
        self.stored += stored
        if self.read == 0 or self.stored >= self.read + max(1, int(_GROWTH * self.read)):
            self.read = self.stored  # asked for; the next one is due later
            with suppress(RuntimeError):  # it was closed
                cast("ThreadPoolExecutor", self._executor).submit(self.refresh, engine)

    def choose(self, connection: Connection, known: Collection[str], count: int) -> list[str]:
        """Return questions that two policies drew; where they draw none that is new, the rarest.

        Guarantee:
            None is needed: what is read was randomized before it came, or is public. Shown by
            tests/unit/collection/test_arena.py.
        """
        entropy, chosen = _random.entropy(None), list[str]()
        policies, sizes = self.policies, [len(one.questions) for one in self.prompts]
        starts = np.cumsum([0, *sizes])
        for _ in range(_TRIES):
            if len(chosen) == count:
                break
            uniform = (entropy.words(3) >> np.uint64(11)) * 2.0**-53
            place = int(uniform[0] * starts[-1])
            group = int(np.searchsorted(starts, place, side="right")) - 1
            row = place - int(starts[group])
            drawn = [
                int((np.cumsum(policies[group][name][row])[:-1] <= one).sum())
                for name, one in zip(("greedy", "optimistic"), uniform[1:], strict=True)
            ]
            one, other = sorted(drawn)
            name = self.prompts[group].questions[row].get((one, other))
            if name is not None and name not in known and name not in chosen:
                chosen.append(name)
        _note(connection, chosen)
        return chosen + super().choose(connection, {*known, *chosen}, count - len(chosen))
