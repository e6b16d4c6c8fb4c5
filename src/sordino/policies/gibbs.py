"""The reference policy tilted by reward over temperature, on finite candidate sets.

Also by lower and upper confidence: one bound on how wrong a reward may be, with two signs.
Of an estimate that stays with its curator every draw spends.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, overload, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64, Integer

from sordino import _random, _validate
from sordino._markup import card
from sordino._withholding import Withholding
from sordino.errors import DataError, PrivacyError, PrivacyWarning, UsageError
from sordino.mechanisms.gibbs import SoftmaxMechanism
from sordino.preferences.features import Features
from sordino.preferences.records import Text
from sordino.privacy import accounting
from sordino.privacy.guarantee import (
    WEAKEST_EPSILON,
    BoundedRangeEvent,
    Guarantee,
    never_less,
    promise_rows,
)
from sordino.privacy.ledger import Ledger, Paid
from sordino.privacy.ledger_chain import digest_of_json
from sordino.rewards.candidates import CandidateLists, Candidates, Prompts, ReferenceLists
from sordino.rewards.confidence import AnswersNeeded, BonusEffect, DisagreementSet, Ellipsoid
from sordino.rewards.release_checks import paying, weighed
from sordino.rewards.withheld import WithheldFit

_MOST = 100_000_000  # draws of one call, which are held in memory


@dataclass(frozen=True, repr=False, eq=False)
class WithheldPolicy(Withholding):
    """Draw actions with probability ∝ reference · exp(score / temperature); each draw spends."""

    # Made by `multi_armed_policy`, `linear_policy` or, of a `WithheldReward`, by `gibbs_policy`. It
    # hides the estimate in `repr` and refuses to be pickled: only what it draws may leave the
    # curator.
    # What is asked (context, candidates, number of draws) must not depend on the data, except
    # through what was drawn before.
    # Warns:
    #     PrivacyWarning: One draw may have a privacy loss above 20, which protects nobody.

    # What scores the options, and bounds how far one change moves the scores.
    estimate: WithheldFit
    # KL strength, in units of reward; small follows the estimate, large stays with the reference.
    temperature: float = field(kw_only=True)
    # Probabilities of the starting policy where every question has the same options, as the arms of
    # a bandit; uniform if left out.
    reference: Sequence[float] | None = field(default=None, kw_only=True)

    _held = "The policy of a withheld estimate"

    def __post_init__(self) -> None:
        if not isinstance(self.estimate, WithheldFit):
            raise UsageError(
                f"A withheld policy needs a withheld estimate, got {type(self.estimate).__name__}."
            )
        value = _validate.positive("temperature", self.temperature)
        object.__setattr__(self, "temperature", value)

    def __repr__(self) -> str:
        """Return what is public."""
        about = f"unit={self.estimate.unit!r}, neighbors={self.estimate.neighbors.name}"
        return f"{type(self).__name__}(withheld, temperature={self.temperature!r}, {about})"

    def bounded_range(self, context: object = None, candidates: object = None) -> float:
        """Return the length of the interval of one draw's log-ratios; it is public."""
        return self._sampling(self.estimate.options(context, candidates)).bounded_range

    def guarantee(
        self,
        draws: int = 1,
        context: object = None,
        candidates: object = None,
        *,
        delta: float = 0.0,
    ) -> Guarantee:
        """Return what that many draws for one question promise together at a failure probability.

        Guarantee:
            The least bound that the accountant shows: the sum, zCDP, or the exact composition of
            bounded ranges.
        """
        options = self.estimate.options(context, candidates)
        return self._promise(self._sampling(options, draws).event, 1, delta)

    def draw(
        self,
        context: object = None,
        candidates: object = None,
        *,
        ledger: Ledger,
        simulate_seed: int | None = None,
    ) -> int:
        """Return the index of one drawn option, after recording the spend.

        Guarantee:
            Bounded range :meth:`bounded_range` for this one draw, trust ``"central"``. Shown by
            tests/soundness/test_withheld_policy.py.
        """
        drawn = self.draw_many(1, context, candidates, ledger=ledger, simulate_seed=simulate_seed)
        return int(drawn[0])

    def draw_many(
        self,
        count: int,
        context: object = None,
        candidates: object = None,
        *,
        ledger: Ledger,
        simulate_seed: int | None = None,
    ) -> Int64[np.ndarray, " count"]:
        """Return the indices of that many options drawn for one question; one entry pays for all.

        Guarantee:
            ``count`` independent draws of bounded range :meth:`bounded_range`. Shown by
            tests/soundness/test_withheld_policy.py.
        """
        # Independent draws from one policy compose more tightly than draws one by one.
        _validate.integer("count", count, at_least=1, at_most=_MOST)
        options = self.estimate.options(context, candidates)
        sampling = self._sampling(options, count)
        return self._paid([(options, sampling)], sampling.event, 1, ledger, simulate_seed)

    def draw_each(
        self,
        contexts: Sequence[Any] | None,
        candidates: Sequence[Any] | None = None,
        *,
        ledger: Ledger,
        simulate_seed: int | None = None,
    ) -> Int64[np.ndarray, " n"]:
        """Return the index of one option drawn for each of n questions; one entry pays for all.

        Guarantee:
            n draws, each of at most the largest bounded range of these questions, from n
            policies. Shown by tests/soundness/test_withheld_policy.py.
        """
        given = {"contexts": contexts, "candidates": candidates}
        lists = {name: value for name, value in given.items() if value is not None}
        if not lists:
            raise UsageError("Give contexts or candidates, one for each draw. Nothing was drawn.")
        for name, value in lists.items():
            if not hasattr(value, "__len__"):
                raise UsageError(f"{name} must be a list, got {type(value).__name__}.")
        sizes = {name: len(value) for name, value in lists.items()}
        if len(set(sizes.values())) > 1:
            raise UsageError(
                f"{sizes['contexts']} contexts, but {sizes['candidates']} lists of candidates."
            )
        blank = [None] * max(sizes.values())
        asked = zip(*(lists.get(name, blank) for name in given), strict=True)
        questions = [self.estimate.options(*question) for question in asked]
        if not questions:
            raise UsageError("There must be a question. Nothing was drawn.")
        pairs = [(options, self._sampling(options)) for options in questions]
        widest = BoundedRangeEvent(max(sampling.bounded_range for _, sampling in pairs))
        return self._paid(pairs, widest, len(pairs), ledger, simulate_seed)

    def _paid(
        self,
        questions: Iterable[tuple[Any, SoftmaxMechanism]],
        event: BoundedRangeEvent,
        count: int,
        ledger: Ledger,
        simulate_seed: int | None,
    ) -> Int64[np.ndarray, " n"]:
        """Return what is drawn for every question, one after the other, after one entry."""
        ledger = paying(ledger, "Each draw from a withheld estimate spends", "drawn")
        known = {row.release_id for row in ledger.rows}
        if any(release_id not in known for release_id, _ in self.estimate.payments):
            raise PrivacyError(
                f"What these draws rest on was paid for on another ledger than "
                f"{ledger.path.name}. Nothing was drawn. Use the ledger of the test."
            )
        entropy = _random.entropy(simulate_seed)
        promise = weighed(self._promise(event, count, ledger.budget.delta), None, ledger.accepted)
        promise = replace(promise, randomness=entropy.randomness)
        released = ledger.charge(
            event,
            lambda: np.concatenate(
                [
                    # the one caller of a name that is private so that nobody else asks for scores
                    sampling.release(self.estimate._scores(options), entropy=entropy)  # noqa: SLF001
                    for options, sampling in questions
                ]
            ),
            digest=lambda drawn: digest_of_json({"draws": drawn.tolist()}),
            promise=promise,
            count=count,
            questions=self.estimate.questions,
            people=self.estimate.people,
        )
        return released.value

    def _promise(self, event: BoundedRangeEvent, count: int, delta: float) -> Guarantee:
        """Return what so many events promise together, with the estimate's caveats."""
        held = self.estimate
        events = [(event, count), *((paid, 1) for _, paid in held.payments)]
        loss = accounting.composed_epsilon(events, neighbors=held.neighbors, delta=delta)
        promise = Guarantee(
            loss, delta=delta, unit=held.unit, neighbors=held.neighbors, trust="central"
        )
        return promise.with_caveats(*held.caveats)

    def _sampling(self, options: Sized, draws: int = 1) -> SoftmaxMechanism:
        """Return how one question is drawn from; warn where that protects nobody."""
        k, given = len(options), self.reference
        if given is not None and len(given) != k:
            raise UsageError(
                f"reference must have one probability for each of {k} options, got {len(given)}. "
                "Nothing was drawn."
            )
        sampling = SoftmaxMechanism(
            self.temperature,
            score_range=self.estimate.score_range(options),
            reference=(1.0 / k,) * k if given is None else tuple(map(float, given)),
            neighbors=self.estimate.neighbors,
            draws=draws,
        )
        if sampling.bounded_range > WEAKEST_EPSILON:
            warnings.warn(
                f"One draw has epsilon={never_less(sampling.bounded_range)}: at temperature "
                f"{self.temperature!r} it protects nobody. Nothing was drawn yet. Use a larger "
                "temperature or more regularization.",
                PrivacyWarning,
                stacklevel=4,
            )
        return sampling


@runtime_checkable
class ReleasedReward(Paid, Protocol):
    """A reward that was paid for, so that everything computed from it is free."""

    @property
    def features(self) -> Features | None:
        """Return what texts are read with; None for a reward of plain feature rows."""

    @property
    def pairs(self) -> int | None:
        """Return how many comparisons were used; None where that is private."""

    def score(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return the reward of each answer to each prompt."""

    def score_features(self, rows: Any) -> Float[np.ndarray, " n"]:
        """Return the reward of each row of features."""

    def to_dict(self) -> dict[str, Any]:
        """Return the reward as JSON holds it."""


_Scored: TypeAlias = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]
"""Two numbers for each candidate of each prompt."""


def tilt(
    scores: Float[np.ndarray, " m"],
    starts: Integer[np.ndarray, " n"],
    temperature: float,
    reference: Float[np.ndarray, " m"],
) -> Float[np.ndarray, " m"]:
    """Return reference · exp(score / temperature), normalized within every segment.

    Args:
        scores: Rewards of all candidates of all prompts, one after the other.
        starts: Where each prompt's candidates begin; no prompt has none.
        temperature: KL strength in units of reward, > 0.
        reference: Probabilities of the starting policy, summing to 1 within every segment.

    Source:
        The maximizer of E r − temperature · KL(π ‖ reference); KLDP, §2; PPKL, §2.
    """
    logits = scores / temperature
    sizes = np.diff(np.append(starts, len(scores)))
    logits = logits - np.repeat(np.maximum.reduceat(logits, starts), sizes)
    weights = reference * np.exp(logits)
    return np.asarray(weights / np.repeat(np.add.reduceat(weights, starts), sizes))


def drawn_indices(
    chances: Sequence[Float[np.ndarray, " k"]], simulate_seed: int | None
) -> Int64[np.ndarray, " n"]:
    """Return an index drawn with each list of probabilities; uniform numbers have 53 bits."""
    uniform = (_random.entropy(simulate_seed).words(len(chances)) >> np.uint64(11)) * 2.0**-53
    # what has probability 0 is never drawn, also where rounding leaves a sum below 1
    drawn = [
        min(int(np.searchsorted(np.cumsum(p), u, side="right")), int(np.flatnonzero(p)[-1]))
        for p, u in zip(chances, uniform, strict=True)
    ]
    return np.array(drawn, dtype=np.int64)


@dataclass(frozen=True)
class CandidatePolicy(ABC):
    """Choose among given candidates with probability ∝ reference · exp(score / temperature)."""

    # Kinds of policy differ in the score alone. Everything they do is computed from an already
    # private reward, so it costs nothing further, however often it is used.
    # Every method takes n prompts and n lists of candidates, of any lengths ≥ 1, and optionally n
    # lists of the starting policy's probabilities (uniform if left out). Where the reward was
    # fitted on feature differences, prompts are None and each entry of candidates is an array of
    # features, shape (k, d).

    reward: ReleasedReward  # the private reward
    # KL strength, in units of reward; small follows the reward, large stays with the reference.
    temperature: float = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.reward, ReleasedReward):
            raise PrivacyError(
                f"A policy needs a RewardModel from fit_reward, got {type(self.reward).__name__}."
            )
        value = _validate.positive("temperature", self.temperature)
        object.__setattr__(self, "temperature", value)

    @abstractmethod
    def _scores(self, options: Candidates) -> _Scored:
        """Return the scores that are tilted, and the estimated rewards behind them."""

    def to_dict(self) -> dict[str, Any]:
        """Return what makes this policy, as JSON holds it."""
        return {"reward": self.reward.to_dict(), "temperature": self.temperature}

    def _options(
        self, prompts: Prompts, candidates: CandidateLists, reference: ReferenceLists
    ) -> Candidates:
        return Candidates.of(
            prompts, candidates, reference=reference, features=self.reward.features
        )

    def _tilted(self, options: Candidates) -> _Scored:
        """Return the probabilities of all candidates, and their estimated rewards."""
        scores, rewards = self._scores(options)
        return tilt(scores, options.starts, self.temperature, options.reference), rewards

    def probabilities(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> list[Float[np.ndarray, " k"]]:
        """Return, for every prompt, the probability of each of its candidates."""
        options = self._options(prompts, candidates, reference)
        return options.split(self._tilted(options)[0])

    def sample(
        self,
        prompts: Prompts,
        candidates: CandidateLists,
        *,
        reference: ReferenceLists = None,
        simulate_seed: int | None = None,
    ) -> Integer[np.ndarray, " n"]:
        """Return, for every prompt, the index of one candidate drawn from the policy."""
        return self.draw(prompts, candidates, reference=reference, simulate_seed=simulate_seed)[0]

    def draw(
        self,
        prompts: Prompts,
        candidates: CandidateLists,
        *,
        reference: ReferenceLists = None,
        simulate_seed: int | None = None,
    ) -> tuple[Integer[np.ndarray, " n"], list[Float[np.ndarray, " k"]]]:
        """Return what :meth:`sample` returns, and the probabilities that were drawn from."""
        chances = self.probabilities(prompts, candidates, reference=reference)
        return drawn_indices(chances, simulate_seed), chances

    def kl(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> Float[np.ndarray, " n"]:
        """Return KL(policy ‖ reference) for every prompt, in nats."""
        options = self._options(prompts, candidates, reference)
        chances, base = self._tilted(options)[0], options.reference
        # an underflow to 0 contributes 0, the limit of p log p
        ratio = np.log(chances / base, out=np.zeros_like(base), where=chances > 0)
        return np.asarray(np.maximum(options.means(ratio, chances), 0.0))

    def expected_reward(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> Float[np.ndarray, " n"]:
        """Return the policy's expected private reward for every prompt, without any bonus."""
        options = self._options(prompts, candidates, reference)
        chances, rewards = self._tilted(options)
        return options.means(rewards, chances)


@dataclass(frozen=True)
class GibbsPolicy(CandidatePolicy):
    """Choose among candidates with probability ∝ reference · exp(reward / temperature).

    Made by :func:`gibbs_policy`; it takes the reward at its word. See :class:`CandidatePolicy`
    for what its methods take.
    """

    def _repr_html_(self) -> str:
        """Return temperature and promise as a card, for notebooks; no weights."""
        promise = self.reward.guarantee
        rows = [("temperature", f"{self.temperature:g}"), *promise_rows(promise)]
        return card("GibbsPolicy", rows, simulated=promise.simulated)

    def _scores(self, options: Candidates) -> _Scored:
        if options.given is not None:
            rewards = self.reward.score_features(options.given)
        else:
            rewards = self.reward.score(options.prompts, options.answers)
        return rewards, rewards


@overload
def gibbs_policy(reward: ReleasedReward, *, temperature: float) -> GibbsPolicy: ...
@overload
def gibbs_policy(reward: WithheldFit, *, temperature: float) -> WithheldPolicy: ...
def gibbs_policy(
    reward: ReleasedReward | WithheldFit, *, temperature: float
) -> GibbsPolicy | WithheldPolicy:
    """Return the policy that follows a reward as far as the temperature allows.

    π(a | x) ∝ reference(a | x) · exp(reward(x, a) / temperature). What KLDP writes as η is this
    temperature; PPKL's η is its inverse.

    Args:
        reward: A :class:`sordino.RewardModel`: everything computed from it is free. Or a
            :class:`sordino.WithheldReward`, of which every draw spends.
        temperature: KL strength in units of reward, finite and > 0.

    Raises:
        UsageError: The temperature is not finite and above 0.
        PrivacyError: The reward is neither released nor withheld.

    Source:
        KLDP, §2; PPKL, §2.
    """
    if isinstance(reward, WithheldFit):
        return WithheldPolicy(reward, temperature=temperature)
    return GibbsPolicy(reward, temperature=temperature)


Kind = Literal["pessimistic", "optimistic"]
_SIGNS: dict[str, float] = {"pessimistic": -1.0, "optimistic": 1.0}
_ALIKE = 1e-9  # relative: bonuses that rounding alone tells apart


def scale_label(scale: float) -> str:
    """Return ``"valid"``, or that less than the proved radius is used, and how much of it."""
    return f"heuristic scale {scale:g}" if scale < 1 else "valid"


def suboptimality_bound(
    widths: Float[np.ndarray, " k"],
    probabilities: Float[np.ndarray, " k"],
    *,
    radius: float,
    temperature: float,
) -> float:
    """Return what the pessimistic policy loses against the best one at most, at one prompt."""
    # The loss is that of E r − temperature · KL(π ‖ reference). The bound holds whenever the
    # confidence set holds the true reward; average it over prompts.
    # Source: PPKL, Theorem 4.2, with its constant made explicit (2); docs/local.md, confidence and
    # pessimism: (2/temperature) · radius² · E_π*‖φ − φ̄‖².
    return float(2 / temperature * radius**2 * np.sum(probabilities * widths**2))


@dataclass(frozen=True, repr=False)
class ConfidencePolicy(CandidatePolicy):
    """Choose with probability ∝ reference · exp((reward ∓ bonus) / temperature)."""

    # Made by `pessimistic_policy` and `optimistic_policy`. The reward is that of the center of the
    # confidence set, for which the bonus is proved. See `CandidatePolicy` for what the methods
    # take.

    # `"pessimistic"`: the bonus is taken off; `"optimistic"`: it is added.
    kind: Kind = field(kw_only=True)
    # How often the confidence set holds the true reward, in (0, 1).
    confidence: float = field(default=0.95, kw_only=True)
    # What the bonus is multiplied by; below 1 nothing is proved.
    scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of("kind", self.kind, _SIGNS)
        level = _validate.failure_probability("confidence", self.confidence, zero=False)
        scale = _validate.non_negative("scale", self.scale)
        if math.isinf(scale):
            raise UsageError("scale must be finite, got inf.")
        object.__setattr__(self, "confidence", level)
        object.__setattr__(self, "scale", scale)
        self._confidence_set()

    def __repr__(self) -> str:
        return (
            f"ConfidencePolicy({self.kind}, {self.reward!r}, temperature={self.temperature:g}, "
            f"confidence={self.confidence:g}, {self.label})"
        )

    @property
    def label(self) -> str:
        """``"valid"``, or ``"heuristic scale ..."`` for a bonus smaller than the proved one."""
        return scale_label(self.scale)

    def to_dict(self) -> dict[str, Any]:
        """Return what makes this policy, as JSON holds it."""
        return super().to_dict() | {
            "kind": self.kind,
            "confidence": self.confidence,
            "scale": self.scale,
            "label": self.label,
        }

    def bonus(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> list[Float[np.ndarray, " k"]]:
        """Return, for every prompt, the bonus of each candidate, ≥ 0, in units of reward."""
        # A candidate's true reward, less its mean under the reference, is within the bonus of the
        # estimate (for a scale of at least 1, as often as the confidence says).
        # Source: docs/local.md, confidence and pessimism: scale · radius · ‖φ − E_reference
        # φ‖_{M⁻¹}.
        options = self._options(prompts, candidates, reference)
        return options.split(self._factor * self._reach(options)[1])

    def effect(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> BonusEffect:
        """Return what the bonus changes on these lists, and how many answers would make it tell."""
        # Source: docs/local.md, "Where pessimism bites".
        options = self._options(prompts, candidates, reference)
        estimates, widths = self._reach(options)
        gains = estimates - np.repeat(options.means(estimates, options.reference), options.sizes)
        least, most = (ends.reduceat(widths, options.starts) for ends in (np.minimum, np.maximum))
        alike, bonus = most - least <= _ALIKE * most, self._factor * widths
        start = self.temperature * np.log(np.maximum(options.reference, np.finfo(float).tiny))
        likeliest = [
            np.array([one.argmax() for one in options.split(estimates + start + sign * bonus)])
            for sign in (0.0, _SIGNS[self.kind])
        ]
        certain = np.logical_or.reduceat((gains > bonus) & (widths > 0), options.starts)
        needed = AnswersNeeded(1.0, self.reward.pairs)
        if not certain.any():  # the candidate that is nearest to it
            best = int(np.argmax(gains / np.maximum(widths, np.finfo(float).tiny)))
            at = int(np.searchsorted(options.starts, best, side="right")) - 1
            one = self._options(
                None if prompts is None else [prompts[at]],
                [candidates[at]],
                None if reference is None else [reference[at]],
            )
            ways = np.vstack([rows for _, _, rows in one.centered(self.reward.features)])
            needed = AnswersNeeded.of(
                self._confidence_set(),
                ways[best - options.starts[at]],
                confidence=self.confidence,
                scale=self.scale,
                now=self.reward.pairs,
            )
        return BonusEffect(
            lists=len(alike),
            alike=int(alike.sum()),
            moved=int(np.sum((likeliest[0] != likeliest[1]) & ~alike)),
            certain=int(certain.sum()),
            needed=needed,
        )

    def coverage(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> dict[str, float]:
        """Return how well the comparisons cover what this policy does on these prompts."""
        # E_π width² · pairs, the mean over prompts, is about the number of directions that matter
        # where the comparisons cover the policy; much larger where it acts on what nobody compared.
        # The other number is the largest π / reference of all candidates.
        # Source: docs/local.md, confidence and pessimism: E_π‖φ − E_reference φ‖²_{M⁻¹} · n.
        if self.reward.pairs is None:
            raise UsageError(
                "Coverage is per comparison, and how many there were is private under this "
                "promise. Use bonuses, which do not need it."
            )
        options = self._options(prompts, candidates, reference)
        chances, widths = self._tilted(options)[0], self._reach(options)[1]
        uncertainty = options.means(widths**2, chances) * self.reward.pairs
        return {
            "mean_uncertainty": float(uncertainty.mean()),
            "max_density_ratio": float((chances / options.reference).max()),
        }

    def _scores(self, options: Candidates) -> _Scored:
        estimates, widths = self._reach(options)
        return estimates + _SIGNS[self.kind] * self._factor * widths, estimates

    @property
    def _factor(self) -> float:
        return self.scale * self._confidence_set().radius(self.confidence)

    def _reach(self, options: Candidates) -> _Scored:
        """Return the center's reward of all candidates, and their widths."""
        known = self._confidence_set()
        estimates, widths = np.empty(len(options)), np.empty(len(options))
        for here, rows, centered in options.centered(self.reward.features):
            if rows.shape[1] != len(known.center):
                raise DataError(
                    f"candidates must have {len(known.center)} features, got {rows.shape[1]}."
                )
            estimates[here], widths[here] = rows @ known.center, known.widths(centered)
        return estimates, widths

    def _confidence_set(self) -> Ellipsoid | DisagreementSet:
        """Return the set that the bonus is made of; refuse a reward that has none."""
        known = getattr(self.reward, "ellipsoid", None)
        if known is None:
            raise UsageError(
                "This reward keeps no confidence set, so nothing says how wrong it may be. Fit "
                "it with fit_reward(..., ellipsoid=True), or use gibbs_policy, which takes it at "
                "its word."
            )
        # a finite class shapes its set by the confidence, an ellipsoid has one shape for all
        found: Ellipsoid | DisagreementSet = known
        return found.at(self.confidence) if isinstance(found, DisagreementSet) else found


def pessimistic_policy(
    reward: ReleasedReward, *, temperature: float, confidence: float = 0.95, scale: float = 1.0
) -> ConfidencePolicy:
    """Return the policy that trusts a private reward only as far as the comparisons reach.

    π(a | x) ∝ reference(a | x) · exp((reward(x, a) − bonus(x, a)) / temperature): candidates
    unlike anything that was compared are not chosen for a reward that may be noise. With the
    stated confidence, it loses at most what :func:`suboptimality_bound` says.

    Args:
        reward: A :class:`sordino.RewardModel` with a confidence set, or what
            :class:`sordino.FiniteRewards` fitted.
        temperature: KL strength in units of reward, finite and > 0.
        confidence: How often the confidence set holds the true reward, in (0, 1).
        scale: What the bonus is multiplied by, ≥ 0. The proved bonus is conservative, so less
            is often better, but a scale below 1 is a heuristic and is labelled as one; 0 is the
            Gibbs policy.

    Raises:
        UsageError: A setting is out of range, or the reward keeps no confidence set.
        PrivacyError: The reward is not a released reward.

    Source:
        PPKL, Algorithm 1; docs/local.md, confidence and pessimism.
    """
    return ConfidencePolicy(
        reward, temperature=temperature, kind="pessimistic", confidence=confidence, scale=scale
    )


def optimistic_policy(
    reward: ReleasedReward, *, temperature: float, confidence: float = 0.95, scale: float = 1.0
) -> ConfidencePolicy:
    """Return the policy that explores where the comparisons leave a private reward uncertain.

    π(a | x) ∝ reference(a | x) · exp((reward(x, a) + bonus(x, a)) / temperature).

    Args:
        reward: As in :func:`pessimistic_policy`.
        temperature: KL strength in units of reward, finite and > 0.
        confidence: How often the confidence set holds the true reward, in (0, 1).
        scale: What the bonus is multiplied by, ≥ 0; below 1 is a heuristic, labelled as one.

    Raises:
        UsageError: A setting is out of range, or the reward keeps no confidence set.
        PrivacyError: The reward is not a released reward.

    Source:
        PPKL, Algorithm 2 (the bonus); docs/local.md, confidence and pessimism.
    """
    return ConfidencePolicy(
        reward, temperature=temperature, kind="optimistic", confidence=confidence, scale=scale
    )
