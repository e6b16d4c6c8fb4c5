"""A finite class of candidate rewards: the likeliest, and how far the others disagree with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.preferences.records import Text
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger_chain import digest_of_array

from .candidates import Candidates, ReferenceLists
from .pair_losses import answer_probability

_CLASS = 103.5  # 4/σ′(1)², rounded up in the last digit
_SAMPLE = 8.0
_CACHED = 1 << 17  # numbers of gaps that are held at once while the largest is sought: 1 MiB


def radius_squared(confidence: float, *, n: int, candidates: int, kappa: float) -> float:
    """Return how much the likeliest reward of a finite class may disagree with the truth."""
    # With the stated confidence, half the mean square of their difference over the pairs is at most
    # this, and so is the variance of their difference under the reference, where the pairs were
    # drawn from it.
    # Source: PPKL, Lemma B.1 and Theorem 4.2, with constants made explicit; docs/local.md, finite
    # reward class: β² = (103.5/κ² + 8) · log(2N/(1 − confidence))/n.
    failure = 1 - _validate.failure_probability("confidence", confidence, zero=False)
    return (_CLASS / kappa**2 + _SAMPLE) * math.log(2 * candidates / failure) / n


def spread_of(moments: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """Return the second moment of g − g′ for each two variables, from those of their products."""
    # Source: docs/local.md, finite reward class: E(g − g′)² = E g² + E g′² − 2 E gg′.
    own = np.diagonal(moments)
    spread = np.maximum(own[:, None] + own - 2 * moments, 0.0)
    return np.asarray((spread + spread.T) / 2)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DisagreementSet:
    """All candidates that disagree with the likeliest one by no more than the radius."""

    # Source: docs/local.md, finite reward class: the bonus is √(β² + λ) · D.

    center: Float[np.ndarray, " N"]  # the weights that pick the likeliest candidate
    # How far each two candidates disagree on the pairs, or under the reference.
    spread: Float[np.ndarray, "N N"]
    ridge: float  # λ > 0
    n: int  # number of independent answers
    kappa: float  # κ = 1 − 2 · flip probability

    def radius(self, confidence: float) -> float:
        """Return what widths are multiplied by."""
        # Source: docs/local.md, finite reward class: √(β² + λ).
        square = radius_squared(confidence, n=self.n, candidates=len(self.center), kappa=self.kappa)
        return math.sqrt(square + self.ridge)

    def widths(self, rows: Float[np.ndarray, "m N"]) -> Float[np.ndarray, " m"]:
        """Return how far two candidates disagree at most on each answer, per unit of radius."""
        # Source: docs/local.md, finite reward class: D = max over r ≠ r′ of |Δ − E_reference Δ| /
        # √(λ + spread), Δ = r − r′.
        size = max(1, _CACHED // len(self.center))
        widths, steepness = np.zeros(len(rows)), 1 / np.sqrt(self.ridge + self.spread)
        for at in range(0, len(rows), size):
            columns, widest = np.ascontiguousarray(rows[at : at + size].T), widths[at : at + size]
            for one in range(len(columns) - 1):
                gaps = columns[one + 1 :] - columns[one]
                gaps *= steepness[one, one + 1 :, None]
                np.maximum(widest, np.abs(gaps, out=gaps).max(axis=0), out=widest)
        return widths


RewardFunction: TypeAlias = Callable[[Sequence[Text], Sequence[Text]], Any]
"""Prompts and answers in, one reward in [0, 1] for each out."""

_BLOCK = 1 << 21  # numbers of rewards that are held at once: 16 MiB


@dataclass(frozen=True)
class FiniteRewards:
    """A finite class of candidate rewards, one of which is assumed to be true.

    Each function is public and was written down before anybody answered. It is called with n
    prompts and n answers and returns n rewards in [0, 1]; a row must depend on its own prompt
    and answer only.

    Args:
        functions: Name → function.

    Example:
        >>> def short(prompts, answers):
        ...     return [1 / (1 + len(answer)) for answer in answers]
        >>> def polite(prompts, answers):
        ...     return [float("please" in answer) for answer in answers]
        >>> FiniteRewards({"short": short, "polite": polite})
        FiniteRewards('polite', 'short')
    """

    functions: Mapping[str, RewardFunction] = field(repr=False)

    def __post_init__(self) -> None:
        given = self.functions if isinstance(self.functions, Mapping) else {}
        named = [name for name in given if isinstance(name, str) and name]
        if not given or len(named) < len(given) or not all(map(callable, given.values())):
            raise UsageError(
                "functions must be a dict of at least one name and function of prompts and "
                "answers, such as {'short': short}."
            )
        ordered = {name: given[name] for name in sorted(named)}
        object.__setattr__(self, "functions", MappingProxyType(ordered))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names)) if self.dimension <= 5 else f"N={self.dimension}"  # noqa: PLR2004
        return f"FiniteRewards({shown})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names in alphabetical order, which breaks ties."""
        return tuple(self.functions)

    @property
    def dimension(self) -> int:
        """N, the number of rewards."""
        return len(self.functions)

    @property
    def feature_bound(self) -> float:
        """The largest norm of N rewards in [0, 1]."""
        return math.sqrt(self.dimension)

    def score(
        self, name: str, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, " n"]:
        """Return one candidate's reward of each answer.

        Raises:
            DataError: It returned another shape, or a reward outside [0, 1]; the message names
                the candidate and the index.
        """
        what = f"The rewards of {name!r}"
        if len(prompts) != len(answers):
            raise DataError(f"Each prompt needs its answer, got {len(prompts)} and {len(answers)}.")
        rewards = _validate.finite_array(what, self.functions[name](prompts, answers), ndim=1)
        if len(rewards) != len(answers):
            raise DataError(f"{what} must be {len(answers)}, one for each answer.")
        outside = np.flatnonzero((rewards < 0) | (rewards > 1))
        if len(outside):
            raise DataError(
                f"{what} must be in [0, 1]: entry {outside[0]} is not. Nothing was clipped; "
                "rescale the function."
            )
        return rewards

    def transform(
        self, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, "n N"]:
        """Return the rewards of all candidates, one row for each answer, one column for each.

        Raises:
            DataError: As in :meth:`score`.
        """
        return np.stack([self.score(name, prompts, answers) for name in self.names], axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the names; of the functions nothing is stored."""
        return {"kind": "finite-class", "names": list(self.names)}

    def fit(
        self,
        pairs: PrivatePairs,
        *,
        drawn_from_reference: bool = False,
        prompts: Sequence[Text] | None = None,
        candidates: Sequence[Sequence[Text]] | None = None,
        reference: ReferenceLists = None,
    ) -> _FiniteReward:
        """Return the candidate under which the randomized answers are likeliest.

        The maximum is exact, by enumeration; ties go to the name that comes first. A repeated
        answer of one person to one question counts once.

        Args:
            pairs: Randomized answers about texts.
            drawn_from_reference: Whether both answers of every pair were drawn from the
                reference policy. If so, disagreement may be measured by the variance under the
                reference, on the prompts and candidates given here; if not, it is measured on
                the pairs themselves, which always holds.
            prompts: With ``drawn_from_reference``: n contexts, as the pairs' prompts are
                distributed. Give all of them where they are few; a sample adds its error.
            candidates: With ``drawn_from_reference``: all answers that the reference can give,
                one list for each prompt.
            reference: With ``drawn_from_reference``: their probabilities; uniform if left out.

        Raises:
            PrivacyError: The pairs are raw judgments.
            UsageError: The pairs hold no texts, or settings do not fit together.
            DataError: A function returned no rewards in [0, 1].

        Guarantee:
            Exactly what the answers promise: this is post-processing. Shown by
            tests/soundness/test_pessimism.py.

        Source:
            PPKL, Algorithm 1, step 1; docs/local.md, finite reward class: maximum likelihood of
            P(z) = κσ(r(first) − r(second)) + f.
        """
        if isinstance(pairs, Pairs):
            raise PrivacyError(
                "These are raw judgments; the likeliest reward would give them away. Nothing was "
                "fitted. Randomize them first with sordino.privatize(pairs, "
                "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that "
                "sordino privatize wrote."
            )
        if not isinstance(pairs, PrivatePairs):
            raise UsageError(f"pairs must come from privatize, got {type(pairs).__name__}.")
        if pairs.given is not None:
            raise UsageError(
                "These pairs were made by from_features and hold no texts that reward functions "
                "could read. Use pairs of texts, or fit_reward for a linear reward."
            )
        pairs.refuse_alone()
        given = {value is not None for value in (prompts, candidates)}
        if given != {drawn_from_reference} or (reference is not None and not drawn_from_reference):
            raise UsageError(
                "prompts, candidates and reference describe the reference policy: give the first "
                "two with drawn_from_reference=True, and none of them without."
            )
        likelihoods = np.zeros(self.dimension)
        moments = np.zeros((self.dimension, self.dimension))
        once = np.flatnonzero(pairs.first_rows())
        size = max(1, _BLOCK // self.dimension)
        for start in range(0, len(once), size):
            rows = once[start : start + size]
            asked, first, second = (
                [column[i] for i in rows] for column in (pairs.prompts, pairs.first, pairs.second)
            )
            gaps = self.transform(asked, first) - self.transform(asked, second)
            # rewards in [0, 1] keep both probabilities above 0.26
            chances = answer_probability(gaps, pairs.flip_probability)
            preferred = pairs.answers[rows][:, None] == 1
            likelihoods += np.log(np.where(preferred, chances, 1 - chances)).sum(axis=0)
            moments += gaps.T @ gaps
        moments /= 2 * len(once)
        n = len(once)
        if prompts is not None and candidates is not None:
            options = Candidates.of(prompts, candidates, reference=reference, features=self)
            moments = np.zeros((self.dimension, self.dimension))
            for here, _, centered in options.centered(self):  # averaged over prompts
                moments += centered.T @ (options.reference[here, None] * centered)
            moments /= len(options.sizes)
        return _FiniteReward(
            candidates=self,
            name=self.names[int(np.argmax(likelihoods))],
            log_likelihoods=likelihoods,
            spread=spread_of(moments),
            drawn_from_reference=drawn_from_reference,
            flip_probability=pairs.flip_probability,
            pairs=n,
            guarantee=pairs.guarantee,
            release_ids=pairs.release_ids,
            artifact=pairs.artifact,
        )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _FiniteReward:
    """The likeliest reward of a finite class, with what the others say."""

    # Made by `fit`. Policies take it like a linear reward: its features are the rewards of all N
    # candidates, and its weights pick one of them.

    candidates: FiniteRewards  # the class
    name: str  # the candidate under which the answers are likeliest
    # Of the randomized answers under each candidate, by name order.
    log_likelihoods: Float[np.ndarray, " N"]
    # How far each two candidates disagree on the pairs or under the reference: the denominators of
    # D², shape (N, N).
    spread: Float[np.ndarray, "N N"]
    drawn_from_reference: bool  # whether `spread` is the variance under the reference
    flip_probability: float  # chance that an answer is not the judgment
    pairs: int  # number of answers, repeats of one person not counted
    guarantee: Guarantee  # what the release promises
    release_ids: tuple[str, ...]  # ledger entries that paid
    artifact: str  # SHA-256 of the private answers it was fitted on

    def __repr__(self) -> str:
        return f"FiniteReward({self.name!r} of {self.candidates.dimension}, {self.guarantee})"

    @property
    def features(self) -> FiniteRewards:
        """What policies read texts with: the rewards of all candidates."""
        return self.candidates

    def score(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return the reward of each answer to each prompt, in [0, 1]."""
        return self.candidates.score(self.name, prompts, answers)

    def score_features(self, rows: Any) -> Float[np.ndarray, " n"]:
        """Return the likeliest candidate's column of the rewards of all candidates."""
        return np.asarray(rows @ self._center, dtype=np.float64)

    def radius_squared(self, confidence: float) -> float:
        """Return how much this reward may disagree with the true one."""
        # Source: docs/local.md, finite reward class: β².
        return radius_squared(
            confidence, n=self.pairs, candidates=self.candidates.dimension, kappa=self._kappa
        )

    def confidence_set(self, confidence: float, *, ridge: float | None = None) -> DisagreementSet:
        """Return what bounds how wrong this reward may be, as policies use it."""
        # Source: docs/local.md, finite reward class: λ = β² unless given.
        default = self.radius_squared(confidence)
        value = default if ridge is None else _validate.positive("ridge", ridge)
        return DisagreementSet(
            center=self._center, spread=self.spread, ridge=value, n=self.pairs, kappa=self._kappa
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what was learned, as JSON holds it; functions are code and are not in it."""
        return {
            "kind": "finite-reward",
            "features": self.candidates.to_dict(),
            "name": self.name,
            "log_likelihoods": self.log_likelihoods.tolist(),
            "spread": digest_of_array(self.spread),
            "drawn_from_reference": self.drawn_from_reference,
            "flip_probability": self.flip_probability,
            "pairs": self.pairs,
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "release_ids": list(self.release_ids),
            "artifact": self.artifact,
        }

    @property
    def _kappa(self) -> float:
        return 1 - 2 * self.flip_probability

    @property
    def _center(self) -> Float[np.ndarray, " N"]:
        """Return the weights that pick the likeliest candidate."""
        return np.array([float(name == self.name) for name in self.candidates.names])
