"""Noise on the estimate: a curator reads raw judgments and releases one noised estimate of them.

What differs is what is hidden (a label, all labels of a person, a whole record), what was judged
(pairs, rankings) and where the judgments are (in memory, in many files that are read in chunks).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool

from sordino.engines.engine import Engine
from sordino.errors import BudgetExceeded, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism, SecondMoment, joint_mechanisms
from sordino.mechanisms.label_sum import LabelGaussian, LabelMechanism, SumMechanism
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.chunk_reading import judgments
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunks
from sordino.preferences.features import HashedText, Matrix
from sordino.preferences.pairs import Pairs
from sordino.preferences.rankings import Rankings
from sordino.privacy import accounting
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee, merge
from sordino.privacy.ledger import Ledger
from sordino.privatization.randomization import refuse_unlinked
from sordino.reporting.result import (
    describe_fit_settings,
    describe_guarantee_and_caveats,
    mean_kl,
    measure_decisive,
    predict_utility,
)
from sordino.rewards.confidence import least_ridge
from sordino.rewards.estimation import EXPECTED_PASSES, fit_reward
from sordino.rewards.evidence import Released
from sordino.rewards.label_release import (
    countable_rows,
    label_promise,
    promise_of,
    release_labels,
)
from sordino.rewards.metrics import legible, measure_statistic
from sordino.rewards.model import RewardModel
from sordino.rewards.private_metrics import (
    METRICS_PASSES,
    SHARE,
    PrivateMetrics,
    measure_labels,
    measure_records,
    record_metrics_mechanism,
)
from sordino.rewards.ranking_fit import ranking_promise
from sordino.rewards.record_release import fit_records
from sordino.rewards.release_checks import (
    entropy_of,
    held_out_rows,
    record_promise,
    refuse_one_sided,
)
from sordino.rewards.reward_fit import fit

from ._align_run import (
    NO_METRICS,
    NO_WINS,
    AlignRun,
    Inputs,
    Learned,
    LearningRun,
    describe_distrust,
    describe_policy,
    make_policy,
    questions_of_one_person,
    show_examples,
)
from ._align_settings import Align
from ._app import Bar
from ._run import Limit, with_spend
from ._settings import Passes, Unit

_METRICS_SHARE = 0.25  # of delta, where the estimate needs a delta of its own
_ROOM = 1 + 1e-6
_ITEM = 1.0  # norm of the vector of an item that has one weight
_REPEATS = "repeats-not-linked"


def noised_estimate(settings: Align, inputs: Inputs, started: float) -> AlignRun:
    """Return the run for what is hidden, what was judged, and where that is."""
    kind: type[_Estimate]
    if isinstance(inputs.data, Rankings):
        kind = _OfRankings
    elif isinstance(inputs.data, Chunks):
        kind = _OfRecordChunks if settings.hides_texts else _OfLabelChunks
    else:
        kind = _OfRecords if settings.hides_texts else _OfLabels
    return kind(settings=settings, inputs=inputs, started=started)


@dataclass(frozen=True, kw_only=True)
class _Noise:
    """All mechanisms of one run."""

    # What hides a label, a ballot or a record in the reward.
    estimate: SumMechanism | ObjectivePerturbation | RankingObjectivePerturbation
    # The other half of the estimate, for records; None if it stays hidden.
    second_moment: SecondMoment | None = None
    # What hides it in held-out metrics; None if none are bought.
    metrics: LabelMechanism | GaussianMechanism | None = None
    metrics_epsilon: float | None = None  # what those may cost

    @classmethod
    def for_labels(cls, settings: Align, *, most: int | None, n: int | None) -> _Noise:
        """Return noise for labels, made for their number where that is known."""
        delta, wanted = settings.failure, settings.metrics_epsilon
        if n is None:
            estimate = LabelGaussian(settings.total, delta=delta, records_per_person=most)
        else:
            features = settings.features(n)
            estimate = LabelGaussian.for_sizes(
                settings.total,
                n=n,
                d=features.dimension,
                feature_bound=features.feature_bound,
                delta=delta,
                records_per_person=most,
            )
        metrics = None
        if wanted is not None:
            metrics = LabelGaussian(wanted, delta=delta, records_per_person=most)
        return cls(estimate=estimate, metrics=metrics, metrics_epsilon=wanted)

    @classmethod
    def for_records(cls, settings: Align, *, n: int | None, d: int) -> _Noise:
        """Return noise for whole records; nothing of the data enters."""
        wanted, delta = settings.metrics_epsilon, settings.failure
        spared = 0.0 if wanted is None else delta * _METRICS_SHARE
        estimate, moment = _perturbations(settings, delta - spared, n, d)
        metrics = None
        if wanted is not None:
            metrics = record_metrics_mechanism(wanted, delta=spared, neighbors=settings.relation)
        return cls(estimate=estimate, second_moment=moment, metrics=metrics, metrics_epsilon=wanted)

    def epsilon(self, settings: Align, delta: float) -> float:
        """Return the loss of everything together."""
        events = [(self.estimate.event, 1)]
        if self.metrics is not None:
            events.append((self.metrics.event, 1))
        return accounting.composed_epsilon(events, neighbors=settings.relation, delta=delta)

    def describe(self) -> dict[str, object]:
        """Return what is known of the noise of the estimate."""
        noise = self.estimate.describe()
        if isinstance(self.estimate, ObjectivePerturbation):
            noise["second_moment"] = self.second_moment is not None
        return noise

    def describe_metrics(self, paid: PrivateMetrics | None = None) -> dict[str, Any] | None:
        """Return what is known of held-out metrics, if they are bought."""
        if self.metrics is None:
            return None
        return {
            "name": self.metrics.name,
            "epsilon": self.metrics_epsilon,
            "delta": self.metrics.delta,
            "mu": self.metrics.event.mu,
            "share": SHARE,
            "pairs": None if paid is None else paid.pairs,
            "reason": None if paid is None else paid.reason,
        }


def _perturbations(
    settings: Align, delta: float, n: int | None, d: int
) -> tuple[ObjectivePerturbation, SecondMoment | None]:
    """Return what hides a record in the weights and, where it is wanted, in the second moment."""
    bound, neighbors, total = settings.clip, settings.relation, settings.total
    if settings.ridge is None:
        alone = ObjectivePerturbation.for_sizes(
            total, n=n, d=d, delta=delta, bound=bound, neighbors=neighbors
        )
    else:
        alone = ObjectivePerturbation(
            total, ridge=settings.ridge, delta=delta, bound=bound, neighbors=neighbors
        )
    if settings.confidence is None and not settings.second_moment:
        return alone, None

    def both(ridge: float | None) -> tuple[ObjectivePerturbation, SecondMoment]:
        return joint_mechanisms(total, ridge=ridge, delta=delta, bound=bound, neighbors=neighbors)

    first = both(alone.ridge)
    if settings.confidence is None or settings.ridge is not None:
        return first
    least = least_ridge(first[1], d=d, ball=settings.ball)
    ridge = first[0].ridge
    # a larger ridge leaves the moment less noise, so that what sufficed for more noise suffices
    return first if ridge is not None and ridge >= least else both(least * _ROOM)


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    """A released reward, and what was bought or came free with it."""

    reward: RewardModel
    metrics: dict[str, Any]  # of the reward
    wins: dict[str, Any]  # of its policy
    paid: PrivateMetrics | None = None
    vectors: Matrix | None = None  # public differences to look at, where any are public

    @classmethod
    def of(
        cls,
        reward: RewardModel,
        paid: PrivateMetrics | None,
        ledger: Ledger,
        *,
        free: Mapping[str, Any] = NO_METRICS,
        vectors: Matrix | None = None,
    ) -> _Fitted:
        """Return a reward with what is said of it: what was paid for, or else what is free."""
        if paid is None:
            return cls(reward=reward, metrics={**free}, wins={**NO_WINS}, vectors=vectors)
        measured = paid.to_dict()
        wins = {name: measured.pop(name) for name in NO_WINS}
        both = paid.attached(reward, ledger)
        return cls(reward=both, metrics=measured, wins=wins, paid=paid, vectors=vectors)


class _Estimate(LearningRun):
    """What all of them do alike."""

    @property
    def source(self) -> Pairs | ChunkSurvey:
        """Return the judgments as the library reads them."""
        raise NotImplementedError

    def features(self, n: int | None) -> HashedText | None:
        """Return the features of a reward that so many judgments teach; None for vectors."""
        return self.settings.features(n)

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
    def limit(self) -> Limit:
        """Return the limit of a new ledger: what this run spends."""
        settings = self.settings
        return self.central_limit(self.noise.epsilon(settings, settings.failure))

    def refuse_unusable(self) -> None:
        """Refuse what only the judgments can tell, before a ledger is looked at."""

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what a run would spend; nothing is touched."""
        ledger.check_data(self.settings.data, None)
        self.refuse_unusable()
        promise = self._promise(ledger)
        after = with_spend(ledger, self.noise.estimate.event, promise)
        if self.noise.metrics is not None:
            with_spend(after, self.noise.metrics.event, promise)
        return {
            "spend": promise.epsilon,
            **self.counts(),
            "mechanism": self.noise.describe(),
            "metrics": self.noise.describe_metrics(),
            **describe_guarantee_and_caveats(promise),
        }

    def _promise(self, ledger: Ledger) -> Guarantee:
        """Return what a reward promises together with its metrics."""
        alone = self.promise_alone(ledger, self.settings.simulate_seed)
        # a reward and metrics are stated together, at the delta of the ledger that paid for both
        bought = self.noise.metrics is not None
        delta = ledger.budget.delta if bought else self.settings.failure
        epsilon = self.noise.epsilon(self.settings, delta)
        if math.isinf(epsilon):
            raise BudgetExceeded(
                f"A reward and its metrics have no finite epsilon at the delta={delta!r} of "
                f"{ledger.path.name}. Nothing was released. Leave --metrics-epsilon out, or raise "
                "the limit with --budget-delta, which the ledger records."
            )
        return merge([alone], epsilon=epsilon, delta=delta)

    def learn(self, ledger: Ledger) -> Learned:
        """Return what one noised estimate teaches, and what is free or was bought besides."""
        fitted = self.fitted(ledger)
        policy = make_policy(fitted.reward, **self.settings.policy_terms)
        told = self.findings(fitted, policy)
        parts = {
            "mechanism": self.noise.describe(),
            "metrics": self.noise.describe_metrics(fitted.paid),
            "data": {"name": ledger.data, **told.pop("data")},
            "reward": {**fitted.metrics, **describe_fit_settings(fitted.reward)},
            "policy": {
                **describe_policy(policy),
                "temperature": policy.temperature,
                "kl": None,
                **fitted.wins,
                "pessimism": None,
                **told.pop("policy", {}),
            },
            "utility": None,
            "decisive": None,
            "examples": None,
            "calibration": [],
            **told,
        }
        # of records a time tells how many there were, and how long their texts
        timed = not self.settings.hides_texts
        return Learned(reward=fitted.reward, policy=policy, parts=parts, timed=timed)


class _OfPairs(_Estimate):
    """Pairs in memory."""

    @property
    def source(self) -> Pairs:
        """Return the raw judgments; reading refused all others."""
        assert isinstance(self.inputs.data, Pairs)  # noqa: S101 - for the type checker
        return self.inputs.data


# Labels behind one noised sum: prompts, answers and persons are public, and used as such.


class _Labels(_Estimate):
    """What is done with labels, wherever they are."""

    @property
    @abstractmethod
    def counted(self) -> int:
        """Return how many of the labels that a fit may see count."""

    @abstractmethod
    def public_facts(self, released: Released[Any]) -> tuple[Matrix, Mapping[str, Any]]:
        """Return public vectors to look at, and the metrics that come free with a release."""

    def fitted(self, ledger: Ledger) -> _Fitted:
        """Return what one noised sum of labels teaches, and what is free or was bought besides."""
        settings, metrics = self.settings, self.noise.metrics
        released = release_labels(
            self.source,
            self.mechanism,
            ledger=ledger,
            features=self.features(self.counted),
            held_out=metrics is not None,
            simulate_seed=settings.simulate_seed,
        )
        reward, paid = fit(released, ridge=settings.ridge, ball=settings.ball), None
        if isinstance(metrics, LabelMechanism):
            paid = measure_labels(
                reward,
                self.source,
                metrics,
                ledger=ledger,
                temperature=settings.policy_temperature,
                simulate_seed=settings.other_seed,
            )
        vectors, free = self.public_facts(released)
        return _Fitted.of(reward, paid, ledger, free=free, vectors=vectors)

    def vector_findings(self, fitted: _Fitted, policy: CandidatePolicy, n: int) -> dict[str, Any]:
        """Return what public vectors show besides metrics."""
        settings, reward, differences = self.settings, fitted.reward, fitted.vectors
        utility = None
        if settings.unit is not Unit.person:  # persons give any number of labels
            utility = predict_utility(
                n,
                differences,
                chosen=settings.total,
                noise="label-estimate",
                delta=settings.failure,
            )
        margins = np.asarray(differences @ reward.weights)
        return {
            "policy": {"kl": mean_kl(margins, policy.temperature)},
            "utility": utility,
            "decisive": measure_decisive(reward, differences, source="comparisons"),
        }

    @property
    def mechanism(self) -> LabelMechanism:
        """Return what noises the sum."""
        assert isinstance(self.noise.estimate, LabelMechanism)  # noqa: S101 - for the type checker
        return self.noise.estimate


class _OfLabels(_OfPairs, _Labels):
    """Labels of pairs in memory."""

    @cached_property
    def noise(self) -> _Noise:
        """Return what hides a label, or all labels of a person."""
        most = None
        if self.settings.unit is Unit.person:
            most = self.settings.cap or questions_of_one_person(self.source)
        return _Noise.for_labels(self.settings, most=most, n=len(self.source))

    @cached_property
    def held_out(self) -> Bool[np.ndarray, " n"] | None:
        """Return which rows the fit may not see; None where no metrics are bought."""
        return None if self.noise.metrics is None else held_out_rows(self.source)

    def refuse_unusable(self) -> None:
        """Refuse to hold out what could not be scored."""
        if self.held_out is not None:
            refuse_one_sided(self.held_out)

    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        """Return what one noised sum promises."""
        return label_promise(self.source, self.mechanism, ledger, entropy_of(simulate_seed))

    def counts(self) -> dict[str, Any]:
        """Return how many pairs there are, which is public."""
        return {"pairs": len(self.source), "dropped_identical": self.source.dropped}

    @property
    def counted(self) -> int:
        """Return how many there are."""
        return len(self.source)

    def public_facts(self, released: Released[Any]) -> tuple[Matrix, Mapping[str, Any]]:
        """Return all differences, and metrics on the noised sum itself if none were bought."""
        settings, vectors = self.settings, self.source.differences(released.features)
        if self.noise.metrics is not None:
            return vectors, NO_METRICS
        free = measure_statistic(released.evidence, ridge=settings.ridge, ball=settings.ball)
        return vectors, legible(free)

    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        """Return what public texts show, and what was used."""
        pairs, rows = self.source, countable_rows(self.source)
        seen = len(rows) if self.held_out is None else int((~self.held_out[rows]).sum())
        capped = seen - (fitted.reward.pairs or 0)
        people = {} if pairs.persons is None else {"persons": len(set(pairs.persons))}
        data = {
            "pairs": len(pairs) - capped,
            "dropped_identical": pairs.dropped,
            "capped": capped,
            **people,
        }
        shown = self.vector_findings(fitted, policy, len(pairs))
        shown["policy"]["pessimism"] = describe_distrust(policy, pairs)
        examples = show_examples(policy, public=self.inputs.public, released=None)
        return {"data": data, **shown, "examples": examples}


# Many files, read in chunks: first what is public of them, then what is summed.


@dataclass(frozen=True, kw_only=True)
class _Surveyed:
    """Many files of which all that is public was read once."""

    survey: ChunkSurvey  # what was found
    engine: Engine  # what reads them again
    taken: Passes  # shows how far it is


@dataclass(frozen=True, kw_only=True)
class _OfChunks(_Estimate):
    """Judgments in many files."""

    surveyed: _Surveyed | None = None

    @property
    def chunks(self) -> Chunks:
        """Return the files."""
        assert isinstance(self.inputs.data, Chunks)  # noqa: S101 - for the type checker
        return self.inputs.data

    @property
    def survey(self) -> ChunkSurvey | None:
        """Return what is public of the files, if it was read."""
        return None if self.surveyed is None else self.surveyed.survey

    @property
    def source(self) -> ChunkSurvey:
        """Return what was read of the files, which a run does first."""
        assert self.survey is not None  # noqa: S101 - for the type checker
        return self.survey

    @property
    def expected_passes(self) -> int | None:
        """Return how often the files will be read, about; None where that would tell of records."""
        return None

    def features(self, n: int | None) -> HashedText | None:
        """Return the features of texts; None for files that hold vectors."""
        return self.settings.features(n) if self.chunks.dimension is None else None

    @contextmanager
    def ready(self) -> Iterator[AlignRun]:
        """Read all that is public of the files once, with an engine that stays until the end."""
        self.planned()
        settings = self.settings
        with settings.started_engine() as engine, Bar.shown("Reading") as bar:
            taken = Passes(bar, self.expected_passes)
            with survey_chunks(
                self.chunks,
                engine,
                most=settings.cap,
                hold_out=settings.metrics_epsilon is not None,
                scratch=settings.scratch,
                taken=taken,
            ) as survey:
                yield replace(self, surveyed=_Surveyed(survey=survey, engine=engine, taken=taken))

    def refuse_unusable(self) -> None:
        """Refuse settings that vectors in files cannot meet, and an engine that is not there."""
        settings, dimension = self.settings, self.chunks.dimension
        if dimension is not None:
            if settings.dimension not in (None, dimension):
                raise UsageError(
                    f"--dimension {settings.dimension}: these files hold vectors of {dimension} "
                    "numbers, and no text to make features of. Nothing was done. Leave it out."
                )
            settings.refuse_matrices(dimension)
        if self.surveyed is None:
            settings.refuse_missing_engine()


class _OfLabelChunks(_OfChunks, _Labels):
    """Labels of pairs in many files."""

    @cached_property
    def noise(self) -> _Noise:
        """Return what hides a label, or all labels of a person."""
        survey = self.survey
        n = survey.counted if survey is not None and self.chunks.dimension is None else None
        return _Noise.for_labels(self.settings, most=self.settings.cap, n=n)

    @property
    def expected_passes(self) -> int:
        """Return how often the files will be read, about."""
        return EXPECTED_PASSES + (0 if self.settings.metrics_epsilon is None else METRICS_PASSES)

    def _parts(self, survey: ChunkSurvey) -> tuple[ChunkSurvey, ChunkSurvey | None]:
        """Return what the fit may see, and what is held out for metrics, if they are bought."""
        return (survey, None) if self.settings.metrics_epsilon is None else survey.divided()

    @cached_property
    def _linked(self) -> bool:
        """Return whether the first records say who answered; all others must do as they do."""
        if self.survey is not None:
            return self.survey.linked
        blocks = (rows for chunk in self.chunks for rows in judgments(self.chunks, chunk))
        first = next((rows for rows in blocks if len(rows)), None)
        return first is not None and first.persons is not None

    def refuse_unusable(self) -> None:
        """Refuse what the files cannot meet; also a cap where it is not known who answered."""
        super().refuse_unusable()
        if self.survey is not None:
            self._parts(self.survey)
        if self.settings.cap is not None and not self._linked:
            refuse_unlinked(f"a limit of {self.settings.cap} records of one person")

    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        """Return what one noised sum promises."""
        survey = self.survey
        return promise_of(
            self.mechanism,
            ledger,
            entropy_of(simulate_seed),
            linked=self._linked,
            repeats=survey is not None and survey.repeats,
            n=None if survey is None else survey.n,
        )

    def counts(self) -> dict[str, Any]:
        """Return what is known: before all was read not how many there are, nor of repeats."""
        survey = self.survey
        return {
            "pairs": None if survey is None else survey.counted,
            "dropped_identical": None if survey is None else survey.dropped,
            "files": self.settings.describe_files(self.chunks, passes=self.expected_passes),
            "possible_caveats": [_REPEATS] if survey is None and not self._linked else [],
        }

    @property
    def counted(self) -> int:
        """Return how many of those that the fit may see count."""
        return self._parts(self.source)[0].counted

    def public_facts(self, released: Released[Any]) -> tuple[Matrix, Mapping[str, Any]]:
        """Return a sample of the differences; no metrics come free."""
        return released.evidence.sample, NO_METRICS

    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        """Return what a sample of the public vectors shows, and what was used."""
        survey = self.source
        data = {
            "pairs": survey.counted,
            "records": survey.n,
            "dropped_identical": survey.dropped,
            "capped": None,  # not told from repeats, which do not count either
            "files": survey.chunks[-1].file + 1,
            "looked_at": 0 if fitted.vectors is None else fitted.vectors.shape[0],
        }
        return {"data": data, **self.vector_findings(fitted, policy, survey.counted)}


# Whole records behind a tilted fit: nothing is told that prompts, answers or labels decide.


class _Records(_Estimate):
    """What is told of whole records, wherever they are."""

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """Return the length of vectors; None for texts."""

    @property
    @abstractmethod
    def known_number(self) -> int | None:
        """Return how many records there are, dropped ones too; None if they were not counted."""

    @property
    def n(self) -> int | None:
        """Return how many records there are; None where that is private, or not counted yet."""
        private = self.settings.relation == ADD_OR_REMOVE_ONE
        return None if private else self.known_number

    @cached_property
    def noise(self) -> _Noise:
        """Return what hides a record."""
        d = self.dimension or self.settings.features(self.n).dimension
        return _Noise.for_records(self.settings, n=self.n, d=d)

    @property
    def mechanism(self) -> ObjectivePerturbation:
        """Return what perturbs the fit."""
        assert isinstance(self.noise.estimate, ObjectivePerturbation)  # noqa: S101 - for the type checker
        return self.noise.estimate

    def fitted(self, ledger: Ledger) -> _Fitted:
        """Return what a tilted fit of records teaches, and what was bought besides."""
        settings = self.settings
        reward = fit_records(
            self.source,
            self.mechanism,
            second_moment=self.noise.second_moment,
            ledger=ledger,
            features=self.features(self.n),
            ball=settings.ball,
            ellipsoid=settings.confidence is not None,
            held_out=self.noise.metrics is not None,
            simulate_seed=settings.simulate_seed,
        )
        metrics, paid = self.noise.metrics, None
        if isinstance(metrics, GaussianMechanism) and isinstance(self.source, Pairs):
            paid = measure_records(
                reward,
                self.source,
                metrics,
                ledger=ledger,
                temperature=settings.policy_temperature,
                simulate_seed=settings.other_seed,
            )
        return _Fitted.of(reward, paid, ledger)

    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        """Return what a tilted fit promises."""
        return record_promise(
            self.mechanism, ledger, entropy_of(simulate_seed), n=self.known_number
        )

    def counts(self) -> dict[str, Any]:
        """Return how many records there are, where one change leaves that as it is."""
        return {"pairs": self.n, "dropped_identical": None}

    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        """Return what a public file shows, and nothing of the records."""
        reward, public = fitted.reward, self.inputs.public
        decisive = None
        if public is not None:
            differences = public.differences(reward.features)
            decisive = measure_decisive(reward, differences, source="public")
        return {
            "data": {"pairs": reward.pairs, "dropped_identical": None, "capped": None},
            "decisive": decisive,
            "examples": show_examples(policy, public=public, released=None),
        }


class _OfRecords(_OfPairs, _Records):
    """Records in memory."""

    @property
    def dimension(self) -> None:
        """Return no length: there are texts."""

    @property
    def known_number(self) -> int:
        """Return how many records there are."""
        return len(self.source) + self.source.dropped


class _OfRecordChunks(_OfChunks, _Records):
    """Records in many files."""

    @property
    def dimension(self) -> int | None:
        """Return the length of vectors: no option says it."""
        return self.chunks.dimension

    @property
    def known_number(self) -> int | None:
        """Return how many records there are."""
        return None if self.survey is None else self.survey.n + self.survey.dropped

    def fitted(self, ledger: Ledger) -> _Fitted:
        """Show no more how far passes are, which would tell of the records; fit them."""
        assert self.surveyed is not None  # noqa: S101 - for the type checker
        self.surveyed.taken.stop_counting("Fitting")
        return super().fitted(ledger)


class _OfRankings(_Estimate):
    """Rankings: ballots of an election, or ordered answers to prompts."""

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger: what was asked for."""
        return self.central_limit(self.settings.total)

    @property
    def rankings(self) -> Rankings:
        """Return the rankings."""
        assert isinstance(self.inputs.data, Rankings)  # noqa: S101 - for the type checker
        return self.inputs.data

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
            known = questions_of_one_person(self.rankings)
            most = settings.cap or known
        return RankingGaussian(
            settings.total, delta=settings.failure, statistic="borda", records_per_person=most
        )

    @property
    def noise(self) -> _Noise:
        """Return the one mechanism: rankings are not scored."""
        return _Noise(estimate=self.mechanism)

    def promise_alone(self, ledger: Ledger, simulate_seed: int | None) -> Guarantee:
        """Return what the release promises."""
        entropy = entropy_of(simulate_seed)
        if isinstance(self.mechanism, RankingGaussian):
            return ranking_promise(self.rankings, self.mechanism, ledger, entropy)
        return record_promise(self.mechanism, ledger, entropy, n=len(self.rankings))

    def counts(self) -> dict[str, Any]:
        """Return how many ballots there are, where one change leaves that as it is."""
        private = self.settings.relation == ADD_OR_REMOVE_ONE
        ballots = None if private else len(self.rankings)
        return {"pairs": None, "ballots": ballots, "dropped_identical": None}

    def fitted(self, ledger: Ledger) -> _Fitted:
        """Return what one noised sum of rankings, or a tilted fit of them, teaches."""
        settings = self.settings
        reward = fit_reward(
            self.rankings,
            mechanism=self.mechanism,
            ledger=ledger,
            features=None if self.rankings.items else HashedText(dimension=settings.text_dimension),
            ridge=None if settings.hides_texts else settings.ridge,
            ball=settings.ball,
            simulate_seed=settings.simulate_seed,
        )
        return _Fitted.of(reward, None, ledger)

    def findings(self, fitted: _Fitted, policy: CandidatePolicy) -> dict[str, Any]:
        """Return the items, best first, how often the policy picks each, and what was used."""
        reward, items = fitted.reward, self.rankings.items
        capped = None
        if not self.settings.hides_texts:
            capped = int(np.sum(self.rankings.first_rows())) - (reward.pairs or 0)
        worths = choices = None
        if reward.items is not None and reward.features is None:
            rows = reward.item_features
            (chances,) = policy.probabilities(
                None, [np.eye(len(reward.items)) if rows is None else rows]
            )
            pairs = zip(reward.items, chances.tolist(), strict=True)
            choices = [
                {"name": name, "probability": chance}
                for name, chance in sorted(pairs, key=lambda pair: -pair[1])
            ]
        if reward.items is not None:  # with 95% intervals where these are known; last without data
            worths = [
                {"name": name, "worth": worth, "interval": None if low is None else [low, high]}
                for name, worth, low, high in reward.worths()
            ]
        return {
            "data": {
                **self.counts(),
                "items": None if items is None else len(items),
                "capped": capped,
            },
            "policy": {"choices": choices},
            "items": worths,
        }
