"""Policies of an estimate that stays with its curator: every draw spends."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from sordino import _validate
from sordino._withholding import Withholding
from sordino.errors import PrivacyError, PrivacyWarning, UsageError
from sordino.mechanisms.gibbs import Scores, SoftmaxMechanism
from sordino.privacy import accounting
from sordino.privacy.guarantee import (
    WEAKEST_EPSILON,
    BoundedRangeEvent,
    Event,
    Guarantee,
    NeighboringRelation,
    Unit,
    never_less,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_json
from sordino.privacy.persons import People
from sordino.rewards.release_checks import entropy_of, weighed


@runtime_checkable
class WithheldEstimate(Protocol):
    """An estimate that nobody but its curator sees, and how far one change can move it."""

    @property
    def unit(self) -> Unit:
        """Return whose change is hidden."""

    @property
    def neighbors(self) -> NeighboringRelation:
        """Return what one change is."""

    @property
    def caveats(self) -> tuple[str, ...]:
        """Return the names of what qualifies every promise made with it."""

    @property
    def questions(self) -> np.ndarray | None:
        """Return digests of the questions, if they are public: a ledger knows data sets by them."""

    @property
    def people(self) -> People | None:
        """Return who judged, and how many questions each, if that is public."""

    @property
    def payments(self) -> tuple[tuple[str, Event], ...]:
        """Return ledger entries that the scores rest on, and what each did; mostly none."""

    def options(self, context: object, candidates: object) -> Any:
        """Return one public question as the estimate reads it; its length is that of a choice."""

    def score_range(self, options: Any) -> float:
        """Return the bound on the range of the change of the scores, in units of reward.

        Guarantee:
            For any two neighboring data sets, max h − min h over the options is at most this,
            h being the difference of the two score vectors.
        """

    def _scores(self, options: Any) -> Scores:
        """Return the score of every option; confidential."""


_MOST = 100_000_000  # draws of one call, which are held in memory


@dataclass(frozen=True, repr=False, eq=False)
class WithheldPolicy(Withholding):
    """Draw actions with probability ∝ reference · exp(score / temperature); each draw spends."""

    # Made by `multi_armed_policy`, `linear_policy` or, of a `WithheldReward`, by `gibbs_policy`. It
    # hides the estimate in `repr` and refuses to be pickled: only what it draws may leave the
    # curator.
    # What is asked (context, candidates, reference, number of draws) must not depend on the data,
    # except through what was drawn before.
    # Warns:
    #     PrivacyWarning: One draw may have a privacy loss above 20, which protects nobody.

    # What scores the options, and bounds how far one change moves the scores.
    estimate: WithheldEstimate
    # KL strength, in units of reward; small follows the estimate, large stays with the reference.
    temperature: float = field(kw_only=True)
    # Probabilities of the starting policy where every question has the same options, as the arms of
    # a bandit; uniform if left out.
    reference: Sequence[float] | None = field(default=None, kw_only=True)

    _held = "The policy of a withheld estimate"

    def __post_init__(self) -> None:
        if not isinstance(self.estimate, WithheldEstimate):
            raise UsageError(
                f"A withheld policy needs a withheld estimate, got {type(self.estimate).__name__}."
            )
        value = _validate.positive("temperature", self.temperature)
        object.__setattr__(self, "temperature", value)

    def __repr__(self) -> str:
        """Return what is public."""
        about = f"unit={self.estimate.unit!r}, neighbors={self.estimate.neighbors.name}"
        return f"{type(self).__name__}(withheld, temperature={self.temperature!r}, {about})"

    def bounded_range(
        self,
        context: object = None,
        candidates: object = None,
        *,
        reference: Sequence[float] | None = None,
    ) -> float:
        """Return the length of the interval of one draw's log-ratios; it is public."""
        return self._sampling(self.estimate.options(context, candidates), reference).bounded_range

    def guarantee(
        self,
        draws: int = 1,
        context: object = None,
        candidates: object = None,
        *,
        delta: float = 0.0,
        reference: Sequence[float] | None = None,
    ) -> Guarantee:
        """Return what that many draws for one question promise together at a failure probability.

        Guarantee:
            The least bound that the accountant shows: the sum, zCDP, or the exact composition of
            bounded ranges.
        """
        options = self.estimate.options(context, candidates)
        return self._promise(self._sampling(options, reference, draws).event, 1, delta)

    def draw(
        self,
        context: object = None,
        candidates: object = None,
        *,
        ledger: Ledger,
        reference: Sequence[float] | None = None,
        simulate_seed: int | None = None,
    ) -> int:
        """Return the index of one drawn option, after recording the spend.

        Guarantee:
            Bounded range :meth:`bounded_range` for this one draw, trust ``"central"``. Shown by
            tests/soundness/test_withheld_policy.py.
        """
        drawn = self.draw_many(
            1, context, candidates, ledger=ledger, reference=reference, simulate_seed=simulate_seed
        )
        return int(drawn[0])

    def draw_many(
        self,
        count: int,
        context: object = None,
        candidates: object = None,
        *,
        ledger: Ledger,
        reference: Sequence[float] | None = None,
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
        sampling = self._sampling(options, reference, count)
        return self._paid([(options, sampling)], sampling.event, 1, ledger, simulate_seed)

    def draw_each(
        self,
        contexts: Sequence[Any] | None,
        candidates: Sequence[Any] | None = None,
        *,
        ledger: Ledger,
        reference: Sequence[Sequence[float]] | None = None,
        simulate_seed: int | None = None,
    ) -> Int64[np.ndarray, " n"]:
        """Return the index of one option drawn for each of n questions; one entry pays for all.

        Guarantee:
            n draws, each of at most the largest bounded range of these questions, from n
            policies. Shown by tests/soundness/test_withheld_policy.py.
        """
        questions = [
            self.estimate.options(context, some)
            for context, some in _questions(contexts, candidates)
        ]
        chances = [None] * len(questions) if reference is None else reference
        if len(chances) != len(questions) or not questions:
            raise UsageError(
                f"reference must have an entry for each of {len(questions)} questions, and there "
                "must be one. Nothing was drawn."
            )
        pairs = [
            (options, self._sampling(options, chance))
            for options, chance in zip(questions, chances, strict=True)
        ]
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
        if not isinstance(ledger, Ledger):
            raise UsageError(
                "Each draw from a withheld estimate spends, so a ledger is needed to record it. "
                "Nothing was drawn. Pass ledger=sordino.Ledger.open(...)."
            )
        known = {row.release_id for row in ledger.rows}
        if any(release_id not in known for release_id, _ in self.estimate.payments):
            raise PrivacyError(
                f"What these draws rest on was paid for on another ledger than "
                f"{ledger.path.name}. Nothing was drawn. Use the ledger of the test."
            )
        entropy = entropy_of(simulate_seed)
        promise = weighed(self._promise(event, count, ledger.budget.delta), None, ledger)
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

    def _sampling(
        self, options: Any, reference: Sequence[float] | None, draws: int = 1
    ) -> SoftmaxMechanism:
        """Return how one question is drawn from; warn where that protects nobody."""
        k = len(options)
        given = self.reference if reference is None else reference
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


def _questions(
    contexts: Sequence[Any] | None, candidates: Sequence[Any] | None
) -> Iterable[tuple[Any, Any]]:
    """Return the questions, paired; refuse what are no lists, and lengths that disagree."""
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
    return zip(
        blank if contexts is None else contexts,
        blank if candidates is None else candidates,
        strict=True,
    )
