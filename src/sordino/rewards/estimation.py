"""From judgments to a reward, with every number it reports already private."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import add
from pathlib import Path

from sordino import _validate
from sordino.engines.engine import Engine, InProcess, Taken, refuse_other_engines
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.gaussian import SecondMoment
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.mechanisms.randomized_response import NonPrivate
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.chunk_survey import ChunkSurvey, survey_chunks
from sordino.preferences.chunks import Chunks
from sordino.preferences.comparisons import FOLDS
from sordino.preferences.features import Features, suited_features
from sordino.preferences.pairs import (
    Manifest,
    Pairs,
    PrivatePairs,
    digest_of_files,
    label_loss,
    read_manifest,
)
from sordino.preferences.rankings import PrivateChoices, Rankings
from sordino.preferences.trajectories import Trajectories
from sordino.privacy.guarantee import Guarantee, merge, never_less
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import use_unprotected

from .evidence import Evidence, Released, counted_vectors, evidence_of_answers
from .label_release import release_labels
from .metrics import AnswerMetrics, measure_predictions, opened_predictions, refit_widening
from .model import RewardModel
from .ranking_fit import RankingMechanism, fit_choices, fit_rankings
from .record_release import fit_records
from .release_checks import paying, refuse_own_rows
from .reward_fit import BALL, METHODS, fit, fit_sum

EXPECTED_PASSES = 18
"""How often files are read in all, about: 12 to 18 times in what was measured, see
docs/howto/cluster.md. A fit that is hard to certify takes more."""

_WAYS = (
    "release their sum with noise, mechanism=sordino.LabelGaussian(epsilon=..., delta=...) and a "
    "ledger; or protect whole records, mechanism=sordino.ObjectivePerturbation(...)"
)
_GIVES_AWAY = "a reward fitted on them would give them away. Nothing was fitted."
_INFINITE = (
    "To record an infinite spend instead, pass mechanism=sordino.NonPrivate() and a ledger whose "
    "budget is infinite."
)
_FOR_FILES = (
    f"{_WAYS[0].upper()}{_WAYS[1:]}; or randomize them first with `sordino privatize` and fit "
    "the answers, find_chunks(..., privatized=True)."
)
_FOR_RANKINGS = (
    "Release their sum with noise, mechanism=RankingGaussian(epsilon, delta=..., "
    "statistic='borda') and a ledger; or randomize first choices one by one with "
    "privatize_choices(rankings, KaryRandomizedResponse(epsilon, categories), ledger=...); or "
    f"protect whole records, mechanism=RankingObjectivePerturbation(...). {_INFINITE}"
)


def fit_reward(  # noqa: PLR0913 (each is one choice, each kind of data ends elsewhere)
    pairs: Pairs | PrivatePairs | Trajectories | Rankings | PrivateChoices | Chunks,
    *,
    features: Features | None = None,
    method: str = "auto",
    ridge: float | None = None,
    ball: float = BALL,
    ellipsoid: bool | None = None,
    mechanism: LabelGaussian | ObjectivePerturbation | RankingMechanism | None = None,
    second_moment: SecondMoment | None = None,
    held_out: bool = False,
    ledger: Ledger | None = None,
    simulate_seed: int | None = None,
    engine: Engine | None = None,
    scratch: str | Path | None = None,
) -> RewardModel:
    """Return the linear reward that explains private answers best, with a certified fit.

    Minimizes Σ softplus(θᵀx) − ỹθᵀx + ridge/2·‖θ‖² over ‖θ‖ ≤ ball, where ỹ is the answer with
    its randomization taken out in expectation, so rewards come out on their true scale. With a
    mechanism for labels, raw judgments are released as one noised sum, which stands for Σ ỹx.
    Trajectories are pairs of their summed features; rankings have likelihoods of their own.
    To keep a reward and release only actions drawn from it, :class:`sordino.WithheldReward`.

    Args:
        pairs: Randomized answers, from :func:`sordino.privatize`, an ``answer`` file or
            :func:`~sordino.privatization.answers.privatize_choices`; or raw judgments (pairs,
            trajectories, rankings; or many files of pairs, :func:`sordino.find_chunks`), with a
            mechanism and a ledger. Answers may be in many files, too.
        features: Turns texts into vectors; left out for pairs made by ``from_features``.
        method: ``"debiased"``, ``"mixture"`` (refined by the likelihood of what was released;
            better where rewards are large), or ``"auto"``, which refines where that clearly
            pays. With a mechanism for labels, ``"auto"``.
        ridge: Strength of the quadratic penalty, > 0; chosen on what was released if left out.
        ball: Bound on the norm of the weights, > 0. Confidence sets take it as a promise about
            the truth, so choose it before you look at the data.
        ellipsoid: Whether to keep a confidence set, which pessimistic policies need: a matrix
            of features by features. By default for up to 1024 features, and not for rankings,
            where True declares that ballots are complete and without ties: see
            :func:`~sordino.rewards.ranking_fit.fit_rankings`.
        mechanism: For raw rankings, what :func:`~sordino.rewards.ranking_fit.fit_rankings` says.
            For other raw judgments: a :class:`~sordino.mechanisms.label_sum.LabelGaussian` for
            labels, an :class:`~sordino.mechanisms.objective_perturbation.ObjectivePerturbation` for
            whole records (of trajectories with ``bound=trajectories.difference_bound``, which
            shortens none), or :class:`sordino.NonPrivate` to fit them as they are.
        second_moment: With an ``ObjectivePerturbation`` made by
            :func:`~sordino.mechanisms.gaussian.joint_mechanisms`, its other half: the
            second moment is then released too, and with it a confidence set.
        held_out: With such a mechanism, whether the fit leaves the rows of a fifth of the
            questions unread, so that metrics can be bought on them: which, a public rule says,
            :func:`~sordino.rewards.release_checks.held_out_rows`. Not for records in many files.
        ledger: Where a mechanism's spend is recorded, before its noise is drawn.
        simulate_seed: A seed for the mechanism's noise, for study; the guarantee then says
            ``simulated``.
        engine: Of many files: where they are read,
            :class:`~sordino.engines.ray_data.RayData` or in this process if left out.
        scratch: Likewise: a folder that all machines see.

    Raises:
        PrivacyError: The pairs are raw judgments and no mechanism was given, or the ledger is
            about another unit, or other rows are held out than the public rule says.
        UsageError: A setting is out of range, or features do not fit the pairs.
        DataError: Persons must be known and are not, or the vectors cannot be used.
        BudgetExceeded: The mechanism's spend would pass the ledger's budget; nothing was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.
        ConvergenceError: The fit could not be certified.

    Guarantee:
        Exactly what the answers promise: this is post-processing. Shown by
        tests/soundness/test_align_bytes.py. With a mechanism for labels, what
        :func:`~sordino.rewards.label_release.release_labels` states, and for records what
        :func:`~sordino.rewards.record_release.fit_records` does. Shown by
        tests/soundness/test_central_label.py and tests/soundness/test_central_record.py; of
        rankings by tests/soundness/test_rankings_release.py.

    Source:
        Chowdhury, Kini & Natarajan 2024, debiased loss; docs/local.md. PPHJ; docs/central.md,
        "Label privacy, one Gaussian release".
    """
    ball = _validate.workable("ball", ball)
    ridge = None if ridge is None else _validate.workable("ridge", ridge)
    _validate.one_of("method", method, METHODS)
    refuse_own_rows(held_out)
    pairs = pairs.pairs if isinstance(pairs, Trajectories) else pairs
    if getattr(pairs, "alone", False):
        hidden = isinstance(mechanism, ObjectivePerturbation)
        features = suited_features(features, alone=True, hidden=hidden)
    given: dict[str, object] = {
        "features": features,
        "mechanism": mechanism,
        "ledger": ledger,
        "simulate_seed": simulate_seed,
        "method": None if method == "auto" else method,
        "second_moment": second_moment,
        "held_out": held_out or None,
        "ellipsoid": ellipsoid,
        "ridge": ridge,
        "engine": engine,
        "scratch": scratch,
    }
    _refuse_what_does_not_apply(pairs, given)
    if isinstance(pairs, PrivateChoices):
        return fit_choices(pairs, features=features, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
    if isinstance(pairs, Rankings):
        if not isinstance(mechanism, RankingGaussian | RankingObjectivePerturbation | NonPrivate):
            misplaced = "is for pairs, and these are rankings"
            raise _refusal(mechanism, "rankings", _FOR_RANKINGS, misplaced)
        return fit_rankings(
            pairs,
            mechanism,
            ledger=_spends(ledger),
            features=features,
            ridge=ridge,
            ball=ball,
            ellipsoid=ellipsoid,
            simulate_seed=simulate_seed,
        )
    if isinstance(mechanism, ObjectivePerturbation):
        with _opened(pairs, mechanism, engine, scratch) as records:
            return fit_records(
                records,
                mechanism,
                ledger=_spends(ledger),
                features=features,
                ball=ball,
                second_moment=second_moment,
                ellipsoid=ellipsoid,
                held_out=held_out,
                simulate_seed=simulate_seed,
            )
    if isinstance(mechanism, LabelGaussian):
        with _opened(pairs, mechanism, engine, scratch, hold_out=held_out) as judgments:
            released = release_labels(
                judgments,
                mechanism,
                ledger=_spends(ledger),
                features=features,
                held_out=held_out,
                simulate_seed=simulate_seed,
            )
            return fit(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
    if isinstance(pairs, Chunks):
        if not pairs.privatized:
            misplaced = "is not there for judgments in many files"
            raise _refusal(mechanism, "judgments", _FOR_FILES, misplaced)
        with opened_answers(pairs, features, engine, scratch=scratch) as (_, answers):
            return fit(answers, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
    if not isinstance(pairs, PrivatePairs):
        pairs = _answers_of_no_coin(pairs, mechanism, ledger, features)
    one_by_one = Released.of_answers(pairs, features)
    return fit(one_by_one, ridge=ridge, ball=ball, ellipsoid=ellipsoid, method=method)


_OF_PAIRS = "method second_moment held_out"
_SPENDING = "mechanism ledger simulate_seed"
_RULES = (  # where which settings do not apply, and why; in this order
    ("records", "ridge",
     ("is part of the promise of record privacy, "
      "ObjectivePerturbation(ridge=...). Nothing was spent. Leave it out here.")),
    ("memory", "engine scratch",
     ("is for judgments in files that memory does not hold, from "
      "sordino.find_chunks(...); these are in memory. Nothing was spent. Leave it out.")),
    ("rankings", _OF_PAIRS,
     "is for pairs, and these are rankings. Nothing was spent. Leave it out."),
    ("private", _SPENDING,
     "spends, and these answers are private already. Nothing was spent. Leave it out."),
    ("refined in files", "method",
     ("is not there for judgments in many files. Nothing was spent. Leave it out, or read few "
      "enough of them into memory with sordino.read_pairs.")),
    ("noised", "method",
     ("is for answers that were randomized one by one, which this mechanism "
      "does not do. Nothing was spent. Leave it out.")),
    ("no records", "second_moment",
     "goes with ObjectivePerturbation. Nothing was spent. Leave it out here."),
    ("no noise", "held_out",
     ("goes with a mechanism for raw labels or records: metrics on "
      "randomized answers are free. Nothing was spent. Leave it out here.")),
    ("no noise on pairs", "simulate_seed",
     "is for a mechanism that adds noise. Nothing was spent. Leave it out here."),
)  # fmt: skip


def _refuse_what_does_not_apply(pairs: object, given: Mapping[str, object]) -> None:
    """Refuse settings that this kind of data, mechanism or fit does not have."""
    ranked, in_files = isinstance(pairs, Rankings | PrivateChoices), isinstance(pairs, Chunks)
    private = isinstance(pairs, PrivatePairs | PrivateChoices) or (
        isinstance(pairs, Chunks) and pairs.privatized
    )
    of_records = isinstance(given["mechanism"], ObjectivePerturbation)
    noised = of_records or isinstance(given["mechanism"], LabelGaussian)
    holds = {
        "records": of_records, "no records": not of_records, "rankings": ranked,
        "files": in_files, "memory": not in_files, "private": private,
        "refined in files": in_files and private and given["method"] != "debiased",
        "noised": noised, "no noise": not noised, "no noise on pairs": not (noised or ranked),
    }  # fmt: skip
    for where, names, why in _RULES:
        for name in names.split() if holds[where] else ():
            if given[name] is not None:
                raise UsageError(f"{name} {why}")
    features = given["features"]
    if given["ellipsoid"] and isinstance(features, Features):
        d = features.dimension
        _validate.refuse_unholdable("dimension", d, 4 * d**2)  # of a set: spreads and metric


_spends = partial(paying, what="The mechanism spends", undone="spent")


@contextmanager
def _opened(
    pairs: Pairs | PrivatePairs | Chunks,
    mechanism: LabelGaussian | ObjectivePerturbation,
    engine: Engine | None,
    scratch: str | Path | None,
    *,
    hold_out: bool = False,
) -> Iterator[Pairs | ChunkSurvey]:
    """Yield judgments as a release reads them: files are surveyed once."""
    assert not isinstance(pairs, PrivatePairs)  # noqa: S101 - no mechanism is for them
    if not isinstance(pairs, Chunks):
        yield pairs
        return
    engine = InProcess() if engine is None else engine
    refuse_other_engines(engine)
    most = mechanism.records_per_person if isinstance(mechanism, LabelGaussian) else None
    with survey_chunks(pairs, engine, most=most, hold_out=hold_out, scratch=scratch) as survey:
        yield survey


def _refusal(mechanism: object, what: str, ways: str, misplaced: str) -> PrivacyError | UsageError:
    """Return why raw judgments are not fitted without a mechanism for them."""
    if mechanism is None:
        return PrivacyError(f"These are raw {what}; {_GIVES_AWAY} {ways}")
    name = type(mechanism).__name__
    return UsageError(f"mechanism={name} {misplaced}. Nothing was spent. {ways}")


def _answers_of_no_coin(
    pairs: object, mechanism: object, ledger: Ledger | None, features: Features | None
) -> PrivatePairs:
    """Return raw judgments as answers of a coin that never falls; record the infinite spend."""
    if not isinstance(pairs, Pairs):
        raise UsageError(f"pairs must come from read_pairs, got {type(pairs).__name__}.")
    if not isinstance(mechanism, NonPrivate) or ledger is None:
        raise PrivacyError(
            f"These are raw judgments; {_GIVES_AWAY} Randomize them first with "
            "sordino.privatize(pairs, sordino.RandomizedResponse(epsilon=...), ledger=...), or "
            f"read a file that sordino privatize wrote; or {_WAYS}; or keep the reward to yourself "
            f"and release only actions drawn from it, WithheldReward(pairs, ...). {_INFINITE}"
        )
    pairs.differences(features)  # what cannot be used is refused before the entry
    return use_unprotected(pairs, mechanism, ledger=ledger)


_SLACK = 1e-9  # relative: numbers in a manifest are the nearest floats


@contextmanager
def opened_answers(
    chunks: Chunks,
    features: Features | None,
    engine: Engine | None = None,
    *,
    hold_out: bool = False,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> Iterator[tuple[ChunkSurvey, Released[Evidence]]]:
    """Yield answers that were surveyed, and whose manifests say that they may be fitted."""
    if not isinstance(chunks, Chunks) or not chunks.privatized:
        raise UsageError(
            "Randomized answers are fitted: find_chunks(..., privatized=True). Nothing was read."
        )
    engine = InProcess() if engine is None else engine
    refuse_other_engines(engine)
    # each is checked against its file where that is read
    paths = tuple(dict.fromkeys(chunk.path for chunk in chunks))
    manifests = engine.fold(paths, _read, add)
    for name in ("mechanism", "epsilon", "flip_probability", "unit", "neighbors", "trust"):
        if len({getattr(manifest, name) for manifest in manifests}) > 1:
            raise DataError(
                f"The manifests of these files disagree about {name}: they are of different "
                "releases. Nothing was fitted. Give the files of one release."
            )
    promises, flips = [each.guarantee for each in manifests], manifests[0].flip_probability
    promise = merge(promises, epsilon=promises[0].epsilon, delta=0.0)
    promise = replace(promise, caveats=tuple(sorted(set(promise.caveats))))
    with survey_chunks(chunks, engine, hold_out=hold_out, scratch=scratch, taken=taken) as survey:
        _refuse_more_than_promised(survey, promise, flips)
        if hold_out and survey.parts and not all(part.counted for part in survey.parts):
            raise DataError(
                f"{survey.counted} answers are to too few different questions to measure anything "
                "on held-out ones; a dozen is the least. Nothing was fitted."
            )
        if survey.repeats:  # two answers to one question may be of one person
            if len({manifest.release_id for manifest in manifests}) > 1:
                raise PrivacyError(
                    "These files are of several releases (their manifests have different "
                    "release_id), a question occurs more than once, and nothing says who answered: "
                    "the answers may be of one label, of which they together promise less than "
                    "each. Nothing was fitted. Give the files of one release, or randomize with "
                    "person ids."
                )
            promise = promise.with_caveats("repeats-not-linked")
        rows = counted_vectors(survey, features, answers=True)
        yield (
            survey,
            Released(
                evidence=evidence_of_answers(rows, features, flips),
                guarantee=promise,
                artifact=digest_of_files(manifests),
                features=features,
                pairs=survey.counted,
            ),
        )


def fit_and_measure_chunks(  # noqa: PLR0913 (each is one choice of the user)
    chunks: Chunks,
    *,
    features: Features | None = None,
    engine: Engine | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    temperature: float | None = None,
    scratch: str | Path | None = None,
    taken: Taken | None = None,
) -> tuple[RewardModel, AnswerMetrics]:
    """Return a reward of answers, and what one like it measures on held-out ones; both are free."""
    # Guarantee: Exactly what the answers promise: this is post-processing. Shown by
    # tests/soundness/test_chunked_answers.py.
    # The fifth of the questions that a public rule holds out is predicted by a second fit, on all
    # others: in memory there are five such fits, which would read the files five times more often.
    # So metrics are of a fit on four fifths of the answers, which is a little worse than the reward
    # that is returned, and their errors are those of a fifth of the answers. Nothing is scaled.
    # Source: docs/local.md, "The fit" and metrics on randomized labels.
    ball = _validate.workable("ball", ball)
    ridge = None if ridge is None else _validate.workable("ridge", ridge)
    heat = None if temperature is None else _validate.positive("temperature", temperature)
    with opened_answers(chunks, features, engine, hold_out=True, scratch=scratch, taken=taken) as (
        survey,
        released,
    ):
        reward = fit(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
        fitted, measured = survey.divided()
        flips = released.evidence.flip_probability
        rows = counted_vectors(fitted, features, answers=True)
        part = replace(
            evidence_of_answers(rows, features, flips),
            # public, and that of the reward: so are the ridges
            feature_bound=released.evidence.feature_bound,
        )
        weights = fit_sum(part, ridge=ridge, ball=ball).weights
        with opened_predictions(
            measured, weights, features=features, flip_probability=flips, scratch=scratch
        ) as predictions:
            widening = refit_widening(FOLDS, measured=1)
            return reward, measure_predictions(predictions, temperature=heat, widening=widening)


def _read(path: str) -> tuple[Manifest, ...]:
    """Return the manifest of one file; an error names the file."""
    return (read_manifest(Path(path)),)


def _refuse_more_than_promised(survey: ChunkSurvey, promise: Guarantee, flips: float) -> None:
    """Refuse a promise about whole people that one of them has too many answers for."""
    if promise.unit != "person":
        return
    loss = label_loss(flips)
    if not survey.linked or promise.epsilon < survey.largest * loss * (1 - _SLACK):
        raise PrivacyError(
            f"A promise of epsilon={never_less(promise.epsilon)} for one person does not cover all "
            f"answers in these files at epsilon={never_less(loss)} each: they are of several "
            "releases, or do not say who answered. Nothing was fitted."
        )
