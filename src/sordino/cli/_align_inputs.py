"""Everything that one run of the main job reads, and what a way to be private makes of it.

What a curator's run would add as noise, made of settings and public fields alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.engines.engine import Engine
from sordino.environments.annotators import TrueReward
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism, SecondMoment, joint_mechanisms
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunks, find_chunks
from sordino.preferences.pairs import Pairs, PrivatePairs, most_questions, read_pairs
from sordino.preferences.ranking_files import holds_rankings, read_rankings
from sordino.preferences.rankings import Rankings
from sordino.privacy import accounting
from sordino.privacy.events import UNDECIDED, Event
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.privacy.ledger import Ledger
from sordino.privatization.randomization import refuse_unlinked
from sordino.rewards.confidence import least_ridge
from sordino.rewards.evidence import refuse_too_few
from sordino.rewards.model import RewardModel
from sordino.rewards.private_metric_releases import record_metrics_mechanism
from sordino.rewards.private_metrics import SHARE, PrivateMetrics

from ._align_settings import NoiseOn, Settings, refuse_given
from ._app import Bar
from ._options import Passes, Unit


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that a run reads, checked before anything is spent, and how pairs were read."""

    pairs: Pairs | PrivatePairs | Rankings | Chunks
    public: Pairs | None
    truth: TrueReward | None
    drop_identical: bool
    person_field: str
    source: Path | None = None
    surveyed: Surveyed | None = None


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """Many files of which all that is public was read once."""

    survey: ChunkSurvey  # what was found
    engine: Engine  # what reads them again
    taken: Passes  # shows how far it is


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a way to be private made of its inputs."""

    reward: RewardModel  # the private reward
    policy: CandidatePolicy  # made from it
    ledger: Ledger  # where it was paid for
    parts: dict[str, Any]  # the fields of `result.json` that differ from way to way
    timed: bool  # whether the time that a run took may be told


def read_inputs(
    sources: Sequence[Path],
    settings: Settings,
    *,
    evaluate: Path | None,
    truth: Path | None,
    drop_identical: bool,
    person_field: str,
) -> Inputs:
    """Return the inputs of a run."""
    offers = {
        "--all-offered": settings.all_offered or None,
        "--named-offered": settings.named_offered or None,
    }
    if settings.place.reads(sources):
        refuse_given(offers, "only a file of ballots over items has items to offer")
        _refuse_for_chunks(settings, evaluate=evaluate, truth=truth)
        reading: Any = {"drop_identical": drop_identical, "person_field": person_field}
        chunks = find_chunks(sources, hides_records=settings.hides_texts, **reading)
        return Inputs(pairs=chunks, public=None, truth=None, **reading)
    (source,) = sources
    if holds_rankings(source):
        _refuse_for_rankings(settings, evaluate=evaluate, truth=truth)
        with Bar.shown("Reading") as bar:
            ballots = read_rankings(
                source,
                person_field=person_field,
                offered=settings.offered,
                hides_records=settings.hides_texts,
                progress=bar,
            )
        return Inputs(
            pairs=ballots, public=None, truth=None, drop_identical=False, person_field=person_field
        )
    refuse_given(offers, "only ballots over items have items to offer, and these are pairs")
    if settings.noise is NoiseOn.draws:
        _refuse_measuring(evaluate=evaluate, truth=truth)
    drop_identical = drop_identical or settings.hides_texts  # a record that says nothing
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            source,
            drop_identical=drop_identical,
            person_field=person_field,
            hides_records=settings.hides_texts,
            progress=bar,
        )
    if settings.noise is NoiseOn.labels:
        refuse_too_few(pairs)
    else:
        refuse_randomized(pairs)
    if truth is not None and evaluate is None and settings.hides_texts:
        raise UsageError(
            "--truth compares the policy with the truth on the prompts of the data, which --unit "
            "record protects. Nothing was done. Give public ones: --evaluate PUBLIC."
        )
    public = None
    if evaluate is not None:
        public = _read_public(evaluate, pairs, person_field, shared_stay=settings.hides_texts)
    return Inputs(
        pairs=pairs,
        public=public,
        truth=None if truth is None else TrueReward.load(truth),
        drop_identical=drop_identical,
        person_field=person_field,
        source=source,
    )


def _refuse_measuring(*, evaluate: Path | None, truth: Path | None) -> None:
    """Refuse to measure a reward that nobody may see."""
    given = {"--evaluate": evaluate, "--truth": truth}
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} measures a reward, and with --noise draws it is withheld. Nothing was "
            "done. Leave it out."
        )


def _refuse_for_rankings(settings: Settings, *, evaluate: Path | None, truth: Path | None) -> None:
    """Refuse what rankings cannot be used for, before they are read."""
    if settings.noise is not NoiseOn.estimate:
        raise UsageError(
            f"These are rankings, which --noise {settings.noise} has no command for. Nothing was "
            "done. Use --noise estimate; first choices are randomized one by one by "
            "privatize_choices in Python."
        )
    given = {
        "--evaluate": evaluate,
        "--truth": truth,
        "--metrics-epsilon": settings.metrics_epsilon,
        "--second-moment": settings.second_moment or None,
        "--confidence": settings.confidence,
    }
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(f"{wrong[0]} is for pairs, and these are rankings. Leave it out.")


def _refuse_for_chunks(settings: Settings, *, evaluate: Path | None, truth: Path | None) -> None:
    """Refuse what is not built for many files, before they are looked for."""
    if settings.noise is not NoiseOn.estimate:
        raise UsageError(
            f"--noise {settings.noise} reads one file into memory; many files, folders and Parquet "
            "are read in pieces (--engine), for which --noise estimate is built. Nothing was done. "
            "Use that, or one file of JSON Lines; or randomize many with `sordino privatize` and "
            "fit them with `sordino fit`."
        )
    if settings.hides_texts and settings.metrics_epsilon is not None:
        raise UsageError(
            "--metrics-epsilon with --unit record reads one file into memory; these are read in "
            "pieces. Nothing was done. Leave it out."
        )
    if settings.unit is Unit.person and settings.cap is None:
        raise UsageError(
            "--unit person over many files needs --cap: how many labels of one person count. "
            "Nothing was done."
        )
    given = {"--evaluate": evaluate, "--truth": truth}
    refuse_given(
        given, "a reward of files that are read in pieces is held against public ones in memory"
    )


def refuse_randomized(pairs: Pairs | PrivatePairs) -> None:
    """Refuse answers that were randomized one by one: a second noise would only harm."""
    if isinstance(pairs, PrivatePairs):
        raise UsageError(
            "These answers are randomized already, so no curator has to add noise. Nothing was "
            "done. Use --noise labels, which costs nothing further."
        )


def _read_public(
    path: Path, pairs: Pairs | PrivatePairs, person_field: str, *, shared_stay: bool
) -> Pairs:
    """Return judgments that the user declares public, without questions of the private file."""
    # Where it is private too which questions are in the private file, shared ones stay, and nothing
    # is refused for them: either would tell. Public labels are the user's word.
    problem: SordinoError | None = None
    try:
        public = read_pairs(path, drop_identical=True, person_field=person_field)
    except SordinoError as error:
        problem = error
    if problem is not None:
        raise type(problem)(f"--evaluate: {problem}")
    if isinstance(public, PrivatePairs):
        raise DataError("--evaluate: a public file holds judgments, not randomized answers.")
    private = set(pairs.keys)
    shared = sum(key in private for key in public.keys)
    if not shared_stay and shared * 2 >= len(public):
        raise PrivacyError(
            "--evaluate holds the private judgments themselves: at least half of its pairs are "
            "in both files, and their labels would show in the metrics. Nothing was done. Give "
            "a file whose judgments are public."
        )
    left = public if shared_stay else public.without(private)
    if (left.labels == UNDECIDED).all():
        raise DataError("--evaluate: every judgment in it is undecided. Nothing was spent.")
    return left


def questions_of_one_person(pairs: Pairs | Rankings) -> int:
    """Return the most different questions that one person answered; it is public."""
    if pairs.persons is None:
        refuse_unlinked("a budget for each person")
    return most_questions(pairs.persons, pairs.keys)


_METRICS_SHARE = 0.25  # of delta, where the estimate needs a delta of its own
_ROOM = 1 + 1e-6


@dataclass(frozen=True, kw_only=True)
class Noise:
    """All mechanisms of one run."""

    # What hides a label, or a record, in the reward.
    estimate: LabelGaussian | ObjectivePerturbation
    # The other half of the estimate, for records; None if it stays hidden.
    second_moment: SecondMoment | None
    # What hides it in held-out metrics; None if none are bought.
    metrics: LabelGaussian | GaussianMechanism | None
    metrics_epsilon: float | None  # what those may cost

    @classmethod
    def of(cls, settings: Settings, pairs: Pairs) -> Noise:
        """Return the mechanisms that keep what the user asked for."""
        if settings.hides_texts:
            n = records_of(settings, pairs)
            return cls.for_records(settings, n=n, d=settings.features(n).dimension)
        most = None
        if settings.unit is Unit.person:
            most = settings.cap or questions_of_one_person(pairs)
        return cls.for_labels(settings, most=most, n=len(pairs))

    @classmethod
    def for_labels(cls, settings: Settings, *, most: int | None, n: int | None) -> Noise:
        """Return noise for labels."""
        terms: dict[str, Any] = {"delta": settings.failure, "records_per_person": most}
        if n is None:
            estimate = LabelGaussian(settings.total, **terms)
        else:
            features = settings.features(n)
            estimate = LabelGaussian.for_sizes(
                settings.total,
                n=n,
                d=features.dimension,
                feature_bound=features.feature_bound,
                **terms,
            )
        wanted = settings.metrics_epsilon
        return cls(
            estimate=estimate,
            second_moment=None,
            metrics=None if wanted is None else LabelGaussian(wanted, **terms),
            metrics_epsilon=wanted,
        )

    @classmethod
    def for_records(cls, settings: Settings, *, n: int | None, d: int) -> Noise:
        """Return noise for whole records; nothing of the data enters."""
        wanted, delta = settings.metrics_epsilon, settings.failure
        spared = 0.0 if wanted is None else delta * _METRICS_SHARE
        estimate, moment = _tilt(settings, delta - spared, n, d)
        metrics = None
        if wanted is not None:
            metrics = record_metrics_mechanism(wanted, delta=spared, neighbors=settings.relation)
        return cls(estimate=estimate, second_moment=moment, metrics=metrics, metrics_epsilon=wanted)

    @property
    def events(self) -> dict[Event, int]:
        """Return everything that is spent."""
        parts = [self.estimate, *([] if self.metrics is None else [self.metrics])]
        events: dict[Event, int] = {}
        for part in parts:
            events[part.event] = events.get(part.event, 0) + 1
        return events

    def epsilon(self, settings: Settings, delta: float | None = None) -> float:
        """Return the loss of everything together, at the delta that the user allowed or another."""
        known = settings.failure if delta is None else delta
        return accounting.composed_epsilon(self.events, neighbors=settings.relation, delta=known)

    def describe(self) -> dict[str, Any]:
        """Return what is known of the noise of the estimate."""
        found = self.estimate
        common = {"epsilon": found.epsilon, "delta": found.delta}
        if isinstance(found, LabelGaussian):
            return {
                "name": "label-gaussian",
                **common,
                "mu": found.mu,
                "shaped": found.shaped,
                "longest": None if found.longest == math.inf else found.longest,
                "records_per_person": found.records_per_person,
            }
        return {
            "name": "objective-perturbation",
            **common,
            "bound": found.bound,
            "ridge": found.ridge,
            "standard_deviation": found.standard_deviation,
            "second_moment": self.second_moment is not None,
            "second_moment_mu": found.second_moment_mu,
        }

    def describe_metrics(self, paid: PrivateMetrics | None = None) -> dict[str, Any] | None:
        """Return what is known of held-out metrics, if they are bought."""
        found = self.metrics
        if found is None:
            return None
        return {
            "name": "label-gaussian" if isinstance(found, LabelGaussian) else "gaussian",
            "epsilon": self.metrics_epsilon,
            "delta": found.delta,
            "mu": found.event.mu,
            "share": SHARE,
            "pairs": None if paid is None else paid.pairs,
            "reason": None if paid is None else paid.reason,
        }


def records_of(settings: Settings, pairs: Pairs) -> int | None:
    """Return how many records there are; None where that is private."""
    counted = settings.relation != ADD_OR_REMOVE_ONE
    return len(pairs) + pairs.dropped if counted else None


def _tilt(
    settings: Settings, delta: float, n: int | None, d: int
) -> tuple[ObjectivePerturbation, SecondMoment | None]:
    """Return what hides a record in the weights and, where it is wanted, in the second moment."""
    bound, neighbors = settings.clip, settings.relation
    terms: dict[str, Any] = {"delta": delta, "bound": bound, "neighbors": neighbors}
    if settings.ridge is None:
        alone = ObjectivePerturbation.for_sizes(settings.total, n=n, d=d, **terms)
    else:
        alone = ObjectivePerturbation(settings.total, ridge=settings.ridge, **terms)
    if settings.confidence is None and not settings.second_moment:
        return alone, None

    def both(ridge: float | None) -> tuple[ObjectivePerturbation, SecondMoment]:
        return joint_mechanisms(settings.total, ridge=ridge, **terms)

    found = both(alone.ridge)
    if settings.confidence is None or settings.ridge is not None:
        return found
    least = least_ridge(found[1], d=d, ball=settings.ball)
    ridge = found[0].ridge
    # a larger ridge leaves the moment less noise, so that what sufficed for more noise suffices
    return found if ridge is not None and ridge >= least else both(least * _ROOM)
