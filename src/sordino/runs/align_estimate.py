"""Noise on the estimate: a curator reads raw judgments and releases one noised estimate of them.

What differs is what is hidden (a label, all labels of a person, a whole record), what was judged
(pairs, rankings) and where the judgments are (in memory, in many files that are read in chunks).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool

from sordino import _random
from sordino.errors import BudgetExceeded, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism, SecondMoment, joint_mechanisms
from sordino.mechanisms.label_sum import LabelGaussian, SumMechanism
from sordino.mechanisms.objective_perturbation import (
    USUAL_RECORDS,
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunks, judgments
from sordino.preferences.comparisons import refuse_one_side
from sordino.preferences.features import Features, HashedText, Matrix
from sordino.preferences.pairs import Pairs
from sordino.preferences.rankings import Rankings, Slates
from sordino.privacy import accounting
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee, merge
from sordino.privacy.ledger import Ledger
from sordino.privacy.persons import People
from sordino.privatization.randomization import questions_of_one_person, refuse_unlinked
from sordino.reporting.result import (
    describe_guarantee_and_caveats,
    describe_likes,
    mean_kl,
    measure_confidence,
    measure_decisive,
    predict_utility,
)
from sordino.rewards.confidence import least_ridge
from sordino.rewards.estimation import EXPECTED_PASSES, fit_reward
from sordino.rewards.label_release import countable_rows, label_promise, promise_of, release_labels
from sordino.rewards.metrics import Estimate, legible, likes_of_sum, measure_statistic
from sordino.rewards.model import RewardModel
from sordino.rewards.noise_forecast import Picture, of_records, of_sum
from sordino.rewards.private_metrics import (
    METRICS_PASSES,
    SHARE,
    PrivateMetrics,
    measure_labels,
    measure_records,
    record_metrics_mechanism,
)
from sordino.rewards.record_release import fit_records
from sordino.rewards.release_checks import held_out_rows, record_promise
from sordino.rewards.reward_fit import fit

from .align_run import (
    NO_CHOICE,
    NO_METRICS,
    NO_WINS,
    AlignRun,
    BallotRun,
    Inputs,
    Learned,
    LearningRun,
    make_policy,
    parts_of,
    show_examples,
)
from .align_settings import Align
from .progress import Passes
from .run import Run, with_spend
from .settings import Unit

_METRICS_SHARE = 0.25  # of delta, where the estimate needs a delta of its own
_ROOM = 1 + 1e-6
_ITEM = 1.0  # norm of the vector of an item that has one weight
_REPEATS = "repeats-not-linked"


def noised_estimate(settings: Align, inputs: Inputs, started: float) -> AlignRun:
    """Return the run for what is hidden, and what was judged."""
    kind: type[_Estimate] = _OfRecords if settings.hides_texts else _OfLabels
    if isinstance(inputs.data, Slates):
        kind = _OfRankings
    return kind(settings=settings, inputs=inputs, started=started)


@dataclass(frozen=True, kw_only=True)
class _Noise:
    """All mechanisms of one run."""

    # What hides a label, a ballot or a record in the reward.
    estimate: SumMechanism | ObjectivePerturbation | RankingObjectivePerturbation
    # The other half of the estimate, for records; None if it stays hidden.
    second_moment: SecondMoment | None = None
    # What hides it in held-out metrics; None if none are bought.
    metrics: LabelGaussian | GaussianMechanism | None = None
    metrics_epsilon: float | None = None  # what those may cost

    def epsilon(self, settings: Align, delta: float) -> float:
        spends = [self.estimate, *([] if self.metrics is None else [self.metrics])]
        events = [(mechanism.event, 1) for mechanism in spends]
        return accounting.composed_epsilon(events, neighbors=settings.relation, delta=delta)

    def describe(self, paid: PrivateMetrics | None = None) -> dict[str, Any]:
        """Return what is known of the noise of the estimate, and of metrics if they are bought."""
        noise, metrics = self.estimate.describe(), self.metrics
        if isinstance(self.estimate, ObjectivePerturbation):
            noise["second_moment"] = self.second_moment is not None
        bought = None
        if metrics is not None:
            bought = {
                "name": metrics.name,
                "epsilon": self.metrics_epsilon,
                "delta": metrics.delta,
                "mu": metrics.event.mu,
                "share": SHARE,
                "pairs": None if paid is None else paid.pairs,
                "reason": None if paid is None else paid.reason,
            }
        return {"mechanism": noise, "metrics": bought}


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    """A released reward, and what was bought or came free with it."""

    reward: RewardModel
    paid: PrivateMetrics | None = None
    free: Mapping[str, Any] = field(default_factory=NO_METRICS.copy)  # told where none were bought
    likes: Estimate | None = None  # of single answers the share that is liked, where it came free
    vectors: Matrix | None = None  # public differences to look at, where any are public


@dataclass(frozen=True, kw_only=True)
class _Estimate(LearningRun):
    survey: ChunkSurvey | None = None  # all that is public of many files, once it was read

    @property
    def source(self) -> Pairs | ChunkSurvey:
        """Return the judgments as the library reads them; a run surveys files first."""
        source = self.inputs.data if self.survey is None else self.survey
        assert isinstance(source, Pairs | ChunkSurvey)  # noqa: S101 - for the type checker
        return source

    def _people(self) -> tuple[People | None, People | None]:
        """Return who judged what is fitted, and what is held out for metrics that are bought."""
        if self.survey is not None:
            sides = self.survey.parts or (self.survey, self.survey)
            return sides[0].people, sides[1].people
        data, most = self.inputs.data, self.settings.cap
        if not isinstance(data, Pairs | Rankings):  # files that were not read yet
            return None, None
        if self.noise.metrics is None or isinstance(data, Slates):
            return data.people(most=most), None
        out = held_out_rows(data)
        fitted, measured = (data.part(np.flatnonzero(side).tolist()) for side in (~out, out))
        return fitted.people(most=most), measured.people(most=most)

    @property
    def chunks(self) -> Chunks | None:
        return self.inputs.data if isinstance(self.inputs.data, Chunks) else None

    @property
    def expected_passes(self) -> int | None:
        """Return how often the files will be read, about; None where that would tell of records."""
        return None

    @property
    def text_features(self) -> HashedText:
        """Return what texts are read with; of records that may not be counted, the usual."""
        hidden = self.settings.relation == ADD_OR_REMOVE_ONE
        data = self.inputs.data
        n = data.rows if isinstance(data, Chunks) else len(data)
        return self.settings.features(None if hidden else n)

    def features(self, n: int | None) -> Features | None:
        """Return the features of a reward that so many judgments teach; None for vectors."""
        data = self.inputs.data
        if isinstance(data, Slates):
            return None
        return self.suited(self.settings.features(n), data, self.survey)

    @contextmanager
    def ready(self) -> Iterator[Run]:
        """Read all that is public of many files once, with an engine that stays until the end."""
        if self.chunks is None:
            yield self
            return
        self.planned()
        settings, passes = self.settings, self.expected_passes
        hold_out = settings.metrics_epsilon is not None
        with settings.surveyed(self.chunks, passes, most=settings.cap, hold_out=hold_out) as survey:
            yield replace(self, survey=survey)

    def refuse_unusable(self) -> None:
        """Refuse settings that vectors in files cannot meet, and an engine that is not there."""
        settings, dimension = self.settings, self.dimension
        if dimension is not None and settings.dimension not in (None, dimension):
            raise UsageError(
                f"--dimension {settings.dimension}: these are vectors of {dimension} "
                "numbers, and no text to make features of. Nothing was done. Leave it out."
            )
        if dimension is not None:
            settings.refuse_matrices(dimension)
        if self.chunks is not None and self.survey is None:
            settings.refuse_missing_engine()

    @property
    @abstractmethod
    def noise(self) -> _Noise:
        """Return the mechanisms that keep what the user asked for."""

    @abstractmethod
    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        """Return what the reward promises without metrics."""

    @abstractmethod
    def counts(self) -> dict[str, Any]:
        """Return what a plan may tell of how much there is."""

    @abstractmethod
    def fitted(self, ledger: Ledger) -> _Fitted:
        """Release the estimate, fit it, and buy metrics if they are wanted; all that spends."""

    @abstractmethod
    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        """Return ``data`` and what the page shows besides metrics, from what is public alone."""

    @property
    def allowed(self) -> float:
        return self.noise.epsilon(self.settings, self.settings.failure)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        settings, noise = self.settings, self.noise
        self.refuse_unusable()
        alone = self.promise_alone(ledger, settings.simulate_seed)
        # a reward and metrics are stated together, at the delta of the ledger that paid for both
        delta = settings.failure if noise.metrics is None else ledger.budget.delta
        epsilon = noise.epsilon(settings, delta)
        if math.isinf(epsilon):
            raise BudgetExceeded(
                f"A reward and its metrics have no finite epsilon at the delta={delta!r} of "
                f"{ledger.path.name}. Nothing was released. Leave --metrics-epsilon out, or have "
                "the data's owner raise its limit on delta: --budget-delta."
            )
        promise = merge([alone], epsilon=epsilon, delta=delta)
        known = self.inputs.data if self.survey is None else self.survey
        asked = getattr(known, "questions", None) if promise.unit == "label" else None
        fitted, measured = self._people() if not promise.hides_texts else (None, None)
        after = with_spend(ledger, noise.estimate.event, promise, questions=asked, people=fitted)
        if noise.metrics is not None:
            with_spend(after, noise.metrics.event, promise, questions=asked, people=measured)
        return {
            "spend": promise.epsilon,
            **self.counts(),
            **noise.describe(),
            **describe_guarantee_and_caveats(promise),
        }

    def learn(self, ledger: Ledger) -> Learned:
        """Return what one noised estimate teaches, and what is free or was bought besides."""
        fitted = self.fitted(ledger)
        metrics, wins, paid = {**fitted.free}, {**NO_WINS}, fitted.paid
        if paid is not None:
            metrics = paid.to_dict()
            wins = {name: metrics.pop(name) for name in NO_WINS}
            fitted = replace(fitted, reward=paid.attached(fitted.reward, ledger))
        policy = make_policy(fitted.reward, **self.settings.policy_terms)
        told = self.findings(fitted, policy)
        likes = describe_likes(fitted.likes)
        about = {"name": ledger.data, **self.inputs.about}
        parts = self.noise.describe(paid) | parts_of(
            fitted.reward, policy, told, about=about, metrics={**metrics, **likes}, wins=wins
        )
        data = self.inputs.data
        if not isinstance(data, Slates) and self.settings.judges_alone(data):
            parts["data"]["judged"] = "answers"
            parts["policy"] |= NO_CHOICE
        return fitted.reward, policy, parts


class _OfLabels(_Estimate):
    """Labels behind one noised sum: prompts, answers and persons are public, and used as such."""

    @cached_property
    def noise(self) -> _Noise:
        """Return noise for labels, or all of a person, made for their number where it is known."""
        data, n = self.inputs.data, None
        if isinstance(data, Pairs):
            n = len(data)
        elif self.survey is not None and self.dimension is None:
            n = self.survey.counted
        return self._noise_for(n)

    def _noise_for(self, n: int | None) -> _Noise:
        settings, data = self.settings, self.inputs.data
        delta, wanted, most = settings.failure, settings.metrics_epsilon, None
        if settings.unit is Unit.person:
            most = settings.cap  # which many files need
            if most is None and isinstance(data, Pairs):
                most = questions_of_one_person(data)
        terms: dict[str, Any] = {"delta": delta, "records_per_person": most}
        estimate = LabelGaussian(settings.total, **terms)
        if n is not None and (features := self.features(n)) is not None:
            sizes: dict[str, Any] = {
                "n": n,
                "d": features.dimension,
                "feature_bound": features.feature_bound,
            }
            estimate = LabelGaussian.for_sizes(settings.total, **sizes, **terms)
        metrics = None if wanted is None else LabelGaussian(wanted, **terms)
        return _Noise(estimate=estimate, metrics=metrics, metrics_epsilon=wanted)

    def picture(self, rows: Matrix) -> Picture:
        """Return the fit of one noised sum of labels."""
        data, mechanism = self.inputs.data, self.mechanism
        if isinstance(data, Pairs):
            n = self.counted(data) - (0 if self.held_out is None else int(self.held_out.sum()))
        else:  # as if none were left out, which only reading all of them tells
            assert isinstance(data, Chunks)  # noqa: S101 - for the type checker
            made = self._noise_for(n := data.rows or 1).estimate
            assert isinstance(made, LabelGaussian)  # noqa: S101 - for the type checker
            n, mechanism = round(n * (1 if self.noise.metrics is None else 1 - SHARE)), made
        return of_sum(rows, max(n, 1), mechanism, ridge=self.settings.ridge)

    @property
    def mechanism(self) -> LabelGaussian:
        assert isinstance(self.noise.estimate, LabelGaussian)  # noqa: S101 - for the type checker
        return self.noise.estimate

    @property
    def expected_passes(self) -> int:
        return EXPECTED_PASSES + (0 if self.settings.metrics_epsilon is None else METRICS_PASSES)

    @cached_property
    def held_out(self) -> Bool[np.ndarray, " n"] | None:
        """Return which rows in memory the fit may not see; None where no metrics are bought."""
        data = self.inputs.data
        if self.noise.metrics is None or not isinstance(data, Pairs):
            return None
        return held_out_rows(data)

    @property
    def seen(self) -> int:
        """Return about how many the fit may see; refuse a survey with one side alone."""
        source = self.source
        if isinstance(source, Pairs):
            return len(source)
        return (source if self.noise.metrics is None else source.divided()[0]).counted

    @cached_property
    def linked(self) -> bool:
        """Return whether the first records of files say who answered; the others must do alike."""
        if self.survey is not None:
            return self.survey.linked
        chunks = self.chunks
        assert chunks is not None  # noqa: S101 - for the type checker
        blocks = (rows for chunk in chunks for rows in judgments(chunks, chunk))
        first = next((rows for rows in blocks if len(rows)), None)
        return first is not None and first.persons is not None

    def refuse_unusable(self) -> None:
        """Refuse to hold out what could not be scored, and a cap where nobody says who answered."""
        super().refuse_unusable()
        if self.held_out is not None:
            refuse_one_side(pairs=len(self.held_out), held_out=int(self.held_out.sum()))
        if self.chunks is None:
            return
        if self.survey is not None:
            _ = self.seen
        if self.settings.cap is not None and not self.linked:
            refuse_unlinked(f"a limit of {self.settings.cap} records of one person")

    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        data, survey, entropy = self.inputs.data, self.survey, _random.entropy(simulate_seed)
        if isinstance(data, Pairs):
            return label_promise(data, self.mechanism, ledger, entropy)
        known = (False, None) if survey is None else (survey.repeats, survey.n)
        told: dict[str, Any] = dict(zip(("repeats", "n"), known, strict=True))
        return promise_of(self.mechanism, ledger, entropy, linked=self.linked, **told)

    def counts(self) -> dict[str, Any]:
        """Return what is known: of files before all was read not how many, nor of repeats."""
        data, survey = self.inputs.data, self.survey
        if isinstance(data, Pairs):
            return {"pairs": len(data), "dropped": data.dropped}
        assert isinstance(data, Chunks)  # noqa: S101 - for the type checker
        return {
            "pairs": None if survey is None else survey.counted,
            "dropped": None if survey is None else survey.dropped,
            "files": self.settings.describe_files(data, passes=self.expected_passes),
            "possible_caveats": [_REPEATS] if survey is None and not self.linked else [],
        }

    def fitted(self, ledger: Ledger) -> _Fitted:
        settings, source, metrics = self.settings, self.source, self.noise.metrics
        released = release_labels(
            source,
            self.mechanism,
            ledger=ledger,
            features=self.features(self.seen),
            held_out=metrics is not None,
            simulate_seed=settings.simulate_seed,
        )
        ridge, ball = settings.ridge, settings.ball
        reward = fit(released, ridge=ridge, ball=ball)
        paid, free = None, NO_METRICS
        if isinstance(metrics, LabelGaussian):
            paid = measure_labels(reward, source, metrics, ledger=ledger, **settings.metric_terms)
        if isinstance(source, ChunkSurvey):
            vectors = released.evidence.sample
        else:
            vectors = source.differences(released.features)
            if metrics is None:
                free = legible(measure_statistic(released.evidence, ridge=ridge, ball=ball))
        bars = len(getattr(released.features, "families", ()))
        likes = likes_of_sum(released.evidence, bars)
        return _Fitted(reward=reward, paid=paid, free=free, likes=likes, vectors=vectors)

    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        settings, source, reward = self.settings, self.source, fitted.reward
        differences, examples, distrust = fitted.vectors, None, None
        if isinstance(source, Pairs):
            n, rows = len(source), countable_rows(source)
            seen = len(rows) if self.held_out is None else int((~self.held_out[rows]).sum())
            capped = seen - (reward.pairs or 0)
            data: dict[str, Any] = {
                "pairs": n - capped,
                "dropped": source.dropped,
                "capped": capped,
            }
            if source.persons is not None:
                data["persons"] = len(set(source.persons))
            examples = show_examples(policy, public=self.inputs.public, released=None)
            distrust = measure_confidence(policy, source)
        else:
            n = source.counted
            data = {
                "pairs": n,
                "records": source.n,
                "dropped": source.dropped,
                "capped": None,  # not told from repeats, which do not count either
                "files": source.chunks[-1].file + 1,
                "looked_at": 0 if differences is None else differences.shape[0],
            }
        utility = None
        if settings.unit is not Unit.person:  # persons give any number of labels
            terms = {"chosen": settings.total, "delta": settings.failure}
            utility = predict_utility(n, differences, noise="label-estimate", **terms)
        margins = np.asarray(differences @ reward.weights)
        return {
            "data": data,
            "policy": {"kl": mean_kl(margins, policy.temperature), "pessimism": distrust},
            "utility": utility,
            "decisive": measure_decisive(reward, differences, source="comparisons"),
            "examples": examples,
        }


class _OfRecords(_Estimate):
    """Whole records: nothing is told that prompts, answers or labels decide."""

    @property
    def known_number(self) -> int | None:
        """Return how many records there are, dropped ones too; None if they were not counted."""
        if self.chunks is not None and self.survey is None:
            return None
        source = self.source
        return source.n + source.dropped

    @property
    def n(self) -> int | None:
        """Return how many records there are; None where that is private, or not counted yet."""
        private = self.settings.relation == ADD_OR_REMOVE_ONE
        return None if private else self.known_number

    @cached_property
    def noise(self) -> _Noise:
        """Return what hides a record in weights, second moment and metrics; no data enter."""
        settings, n = self.settings, self.n
        features = self.features(n)
        d = self.dimension or (0 if features is None else features.dimension)
        wanted, failure, total = settings.metrics_epsilon, settings.failure, settings.total
        spared = 0.0 if wanted is None else failure * _METRICS_SHARE
        terms: dict[str, Any] = {
            "delta": failure - spared,
            "bound": self.clip,
            "neighbors": settings.relation,
        }
        estimate = (
            ObjectivePerturbation.for_sizes(total, n=n, d=d, **terms)
            if settings.ridge is None
            else ObjectivePerturbation(total, ridge=settings.ridge, **terms)
        )
        moment = metrics = None
        if settings.confidence is not None or settings.second_moment:
            estimate, moment = joint_mechanisms(total, ridge=estimate.ridge, **terms)
            if settings.confidence is not None and settings.ridge is None:
                least, ridge = least_ridge(moment, d=d, ball=settings.ball), estimate.ridge
                # a larger ridge leaves the moment less noise: what sufficed for more suffices
                if ridge is None or ridge < least:
                    estimate, moment = joint_mechanisms(total, ridge=least * _ROOM, **terms)
        if wanted is not None:
            metrics = record_metrics_mechanism(wanted, delta=spared, neighbors=settings.relation)
        return _Noise(
            estimate=estimate, second_moment=moment, metrics=metrics, metrics_epsilon=wanted
        )

    def picture(self, rows: Matrix) -> Picture:
        """Return the minimizer of the tilted objective; of records only a public number enters."""
        return of_records(rows, self.n or USUAL_RECORDS, self.mechanism)

    @property
    def mechanism(self) -> ObjectivePerturbation:
        assert isinstance(self.noise.estimate, ObjectivePerturbation)  # noqa: S101 - for the type checker
        return self.noise.estimate

    def fitted(self, ledger: Ledger) -> _Fitted:
        taken = None if self.survey is None else self.survey.taken
        if isinstance(taken, Passes):  # how far passes are would tell of the records
            taken.stop_counting("Fitting")
        settings, source, metrics = self.settings, self.source, self.noise.metrics
        reward = fit_records(
            source,
            self.mechanism,
            second_moment=self.noise.second_moment,
            ledger=ledger,
            features=self.features(self.n),
            ball=settings.ball,
            ellipsoid=settings.confidence is not None,
            held_out=self.noise.metrics is not None,
            simulate_seed=settings.simulate_seed,
        )
        paid = None
        if isinstance(metrics, GaussianMechanism) and isinstance(source, Pairs):
            paid = measure_records(reward, source, metrics, ledger=ledger, **settings.metric_terms)
        return _Fitted(reward=reward, paid=paid)

    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        entropy = _random.entropy(simulate_seed)
        return record_promise(self.mechanism, ledger, entropy, n=self.known_number)

    def counts(self) -> dict[str, Any]:
        """Return how many records there are, where one change leaves that as it is."""
        return {"pairs": self.n, "dropped": None}

    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        """Return what a public file shows, and nothing of the records."""
        reward, public = fitted.reward, self.inputs.public
        rows = None if public is None else public.differences(reward.features)
        decisive = None if rows is None else measure_decisive(reward, rows, source="public")
        return {
            "data": {"pairs": reward.pairs, "dropped": None, "capped": None},
            "decisive": decisive,
            "examples": show_examples(policy, public=public, released=None),
        }


class _OfRankings(BallotRun, _Estimate):
    """Rankings behind one noised sum or one tilted minimizer."""

    @property
    def allowed(self) -> float:
        return self.settings.total

    @cached_property
    def mechanism(self) -> RankingGaussian | RankingObjectivePerturbation:
        """Return what hides a ballot, all ballots of a person, or a whole record."""
        settings, items = self.settings, self.rankings.items
        if settings.hides_texts:
            if items is None:
                raise UsageError(
                    "--unit record needs a public list of items that everybody ranks; here every "
                    "ballot has candidates of its own. Nothing was done. Use --unit label, or "
                    "RankingObjectivePerturbation in Python with a public limit on candidates."
                )
            return RankingObjectivePerturbation(
                settings.total,
                delta=settings.failure,
                bound=_ITEM if settings.bound is None else settings.bound,
                candidates=len(items),
                dimension=len(items),
                neighbors=settings.relation,
                ridge=settings.ridge,
            )
        most = None
        if settings.unit is Unit.person:
            known = questions_of_one_person(self.rankings)  # refuses where nobody says it
            most = settings.cap or known
        return RankingGaussian(
            settings.total, delta=settings.failure, statistic="borda", records_per_person=most
        )

    @property
    def noise(self) -> _Noise:
        """Return the one mechanism: rankings are not scored."""
        return _Noise(estimate=self.mechanism)

    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        entropy = _random.entropy(simulate_seed)
        if isinstance(self.mechanism, RankingGaussian):
            return label_promise(self.rankings, self.mechanism, ledger, entropy)
        return record_promise(self.mechanism, ledger, entropy, n=len(self.rankings))

    def fitted(self, ledger: Ledger) -> _Fitted:
        settings = self.settings
        reward = fit_reward(
            self.rankings,
            mechanism=self.mechanism,
            ledger=ledger,
            features=self.ballot_features,
            ridge=None if settings.hides_texts else settings.ridge,
            ball=settings.ball,
            simulate_seed=settings.simulate_seed,
        )
        return _Fitted(reward=reward)

    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        return self.described(fitted.reward, policy)
