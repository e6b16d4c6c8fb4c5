"""Simulated people whose true reward is known, so that a run can be held against the truth.

Every answer is put together from a few sentences. The true reward is linear in the counts of
marker words; people follow it with Bradley–Terry noise. No person and no text is real.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._files import read_json
from sordino.errors import DataError
from sordino.preferences.records import Text

_TRUTH_FORMAT = "sordino.truth"
_TRUTH_VERSION = 1


@dataclass(frozen=True)
class TrueReward:
    """The reward that simulated people follow: a weight times the count of each marker word."""

    weights: dict[str, float]

    def score(self, answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return the true reward of every answer."""
        rewards = []
        for answer in answers:
            told = [answer] if isinstance(answer, str) else [said["content"] for said in answer]
            words = [word.strip(".,?!").lower() for word in " ".join(told).split()]
            rewards.append(sum(self.weights.get(word, 0.0) for word in words))
        return np.array(rewards)

    def to_dict(self) -> dict[str, Any]:
        """Return the truth as JSON holds it."""
        return {"format": _TRUTH_FORMAT, "version": _TRUTH_VERSION, "weights": self.weights}

    @classmethod
    def load(cls, path: Path) -> TrueReward:
        """Return the truth that :func:`sordino.simulate_pairs` was run with."""
        problem = "The truth cannot be used"
        weights = read_json(path, kind=_TRUTH_FORMAT, version=_TRUTH_VERSION, problem=problem)
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            return cls({str(word): float(w) for word, w in weights["weights"].items()})
        raise DataError(f"{problem}: field 'weights' must map words to numbers.")


_SAID = tomllib.loads(Path(__file__).with_name("answers.toml").read_text("utf-8"))
_MARKERS: dict[str, float] = {
    "first": 0.5, "then": 0.4, "example": 0.6, "lovely": 0.3, "perhaps": -0.25, "maybe": -0.15,
    "sorry": -1.1,
}  # fmt: skip


def _answer(topic: str, generator: np.random.Generator) -> str:
    sentences = list(generator.choice(_SAID["sentences"], generator.integers(1, 5)))
    minutes = generator.integers(5, 600)
    sentences.insert(0, f"To {topic} takes about {minutes} minutes of patience.")
    return " ".join(sentences)


def simulate_pairs(
    n: int, *, seed: int, people: int | None = None
) -> tuple[Iterator[dict[str, Any]], TrueReward]:
    """Return n generated comparisons by simulated people, and the reward they follow.

    Args:
        n: Number of pairs, ≥ 1.
        seed: Seed of the world; there is nothing private in it.
        people: Number of people to spread the pairs over; no person ids if left out.

    Returns:
        An iterator of ``{"prompt", "chosen", "rejected"}`` (and ``"person"``), and the truth.

    Raises:
        UsageError: A size is not a whole number of at least 1.

    Source:
        Bradley & Terry 1952: a is preferred to b with probability σ(r(a) − r(b)).
    """
    _validate.integer("n", n, at_least=1)
    _validate.integer("seed", seed, at_least=0)
    if people is not None:
        _validate.integer("people", people, at_least=1)
    truth, generator = TrueReward(dict(_MARKERS)), np.random.default_rng(seed)

    def rows() -> Iterator[dict[str, Any]]:
        for index in range(n):
            topic = str(generator.choice(_SAID["topics"]))
            prompt = str(generator.choice(_SAID["asks"])).format(topic)
            one = other = _answer(topic, generator)
            while other == one:
                other = _answer(topic, generator)
            gap = float(np.subtract(*truth.score([one, other])))
            if generator.random() > 1 / (1 + np.exp(-gap)):
                one, other = other, one
            row = {"prompt": prompt, "chosen": one, "rejected": other}
            yield row if people is None else row | {"person": f"p{index % people}"}

    return rows(), truth


def simulate_battles(
    n: int,
    *,
    seed: int,
    items: int = 20,
    people: int | None = None,
    ties: float = 0.2,
    spread: float = 0.8,
) -> tuple[Iterator[dict[str, str]], dict[str, float]]:
    """Return n battles of items as arenas publish them, and the true ratings, with mean 0."""
    # `ties` is how often two items of equal rating tie; `spread` the standard deviation of ratings.
    # Source: Davidson 1970: win, tie and loss have the odds e^(d/2) : ν : e^(−d/2), d the
    # difference of the ratings; items of equal rating tie with probability ν/(2 + ν).
    _validate.integer("n", n, at_least=1)
    _validate.integer("items", items, at_least=2)
    if people is not None:
        _validate.integer("people", people, at_least=1)
    share = _validate.failure_probability("ties", ties)
    generator = np.random.default_rng(seed)
    worths = np.sort(generator.normal(0, _validate.positive("spread", spread), items))[::-1]
    names = [f"model-{place:02d}" for place in generator.permutation(items) + 1]
    ratings = dict(zip(names, (worths - worths.mean()).tolist(), strict=True))

    def rows() -> Iterator[dict[str, str]]:
        for index in range(n):
            one, other = (names[place] for place in generator.choice(items, 2, replace=False))
            lead = np.exp((ratings[one] - ratings[other]) / 2)
            odds = np.array([lead, 2 * share / (1 - share), 1 / lead])
            winner = str(generator.choice(["model_a", "tie", "model_b"], p=odds / odds.sum()))
            row = {"question_id": f"q{index}", "model_a": one, "model_b": other, "winner": winner}
            yield row if people is None else row | {"person": f"p{index % people}"}

    return rows(), ratings
