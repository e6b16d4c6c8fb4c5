"""A reward from judgments in many files, in one call: survey, release, fit.

From one released sum of labels to a reward; nothing here reads a label or spends.

From judgments to a reward, with every number it reports already private.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from jaxtyping import Bool, Float

from sordino import _validate
from sordino.engines.engine import Engine, InProcess, refuse_other_engines
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.gaussian import SecondMoment
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import Chunks
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.preferences.rankings import Rankings
from sordino.preferences.trajectories import Trajectories
from sordino.privacy.guarantee import NeighboringRelation, Unit
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import use_unprotected
from sordino.privatization.choices import PrivateChoices

from .answer_fit import BALL, METHODS, answers_ellipsoid, fit_design, standard_errors
from .chunk_fit import fit_answer_chunks, fit_released_chunks
from .confidence import ConfidenceEllipsoid, confidence_ellipsoid
from .covariance import answer_sum_covariance, roots_of_variances
from .evidence import MOST_FEATURES, Design, LabelEvidence
from .label_release import ReleasedLabels, release_chunks, release_labels
from .model import RewardModel
from .ranking_fit import RankingMechanism, fit_choices, fit_rankings
from .record_release import fit_record_chunks, fit_records
from .ridge_selection import LabelFit, accepted_gradient, fit_statistic
from .withheld import WithheldReward, refuse_spending, refuse_without_withholding

_ROWS = 128  # rows a feature that standard errors rest on


def fit_released(
    released: ReleasedLabels,
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    criterion: str | None = None,
) -> RewardModel:
    """Return the reward that explains one released sum best; as often as one likes, for free."""
    evidence = released.evidence
    found = fit_statistic(evidence, ridge=ridge, ball=ball, criterion=criterion)
    if ellipsoid is None:
        ellipsoid = len(evidence.statistic) <= MOST_FEATURES
    return RewardModel(
        weights=found.weights,
        features=released.features,
        guarantee=released.guarantee,
        method="label-gaussian",
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=accepted_gradient(evidence),
        pairs=len(evidence),
        standard_errors=label_standard_errors(evidence, found),
        ellipsoid=label_ellipsoid(evidence, found, ball=ball) if ellipsoid else None,
        release_ids=released.release_ids,
        artifact=released.artifact,
        statistic=evidence.statistic,
    )


def label_standard_errors(
    evidence: LabelEvidence, found: LabelFit
) -> Float[np.ndarray, " d"] | None:
    """Return the asymptotic standard error of every weight; None for too many features."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": the roots of the diagonal of
    # (H + ΛI)⁻¹(G/4 + V)(H + ΛI)⁻¹.
    n, d = evidence.differences.shape
    if d > MOST_FEATURES:
        return None
    covariance = answer_sum_covariance(
        evidence.differences,
        found.solution.theta,
        evidence.covariance,
        ridge=found.ridge + found.solution.multiplier,
        longest=evidence.longest,
        step=max(1, n // (_ROWS * d)),
    )
    return roots_of_variances(covariance)


def label_ellipsoid(
    evidence: LabelEvidence, found: LabelFit, *, ball: float
) -> ConfidenceEllipsoid:
    """Return the set around a fit that holds the truth, as often as it is asked to."""
    # Source: docs/local.md, confidence and pessimism: κ = 1, with √h(M^{-1/2}VM^{-1/2}, t) added
    # for the noise and t = log(2 · candidates/(1 − confidence)).
    return confidence_ellipsoid(
        evidence.differences,
        found.solution,
        flip_probability=0.0,
        ball=ball,
        ridge=found.ridge,
        candidates=found.candidates,
        covariance=evidence.covariance,
        rounding=evidence.rounding,
        longest=evidence.longest,
    )


_ANSWERS = "debiased"  # the one likelihood that answers in many files are fitted by

EXPECTED_PASSES = 18
"""How often files are read in all, about: 12 to 18 times in what was measured, see
docs/howto/cluster.md. A fit that is hard to certify takes more."""


def fit_chunks(  # noqa: PLR0913 (each is one choice of the user)
    chunks: Chunks,
    mechanism: object,
    *,
    ledger: Ledger | None = None,
    engine: Engine | None = None,
    scratch: str | Path | None = None,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    simulate_seed: int | None = None,
    others: Mapping[str, object],
) -> RewardModel:
    """Return the reward of one noised sum of the labels in many files, or of their answers.

    Guarantee:
        That of :func:`~sordino.rewards.label_release.release_chunks`, or of
        :func:`~sordino.rewards.record_release.fit_record_chunks`. Shown by
        tests/soundness/test_chunked_labels.py and tests/soundness/test_chunked_records.py. Of
        randomized answers, exactly what they promise.
    """
    fitted: Any = {"features": features, "ridge": ridge, "ball": ball, "ellipsoid": ellipsoid}
    if chunks.privatized:
        _refuse_spending({"mechanism": mechanism, "ledger": ledger, "simulate_seed": simulate_seed})
        if others.get("method") == _ANSWERS:
            others = {**others, "method": None}
        _refuse_settings(others)
        return fit_answer_chunks(chunks, engine=engine, scratch=scratch, **fitted)
    engine = InProcess() if engine is None else engine
    refuse_other_engines(engine)
    spending: Any = {
        "ledger": _account(mechanism, ledger),
        "engine": engine,
        "features": features,
        "simulate_seed": simulate_seed,
    }
    if isinstance(mechanism, ObjectivePerturbation):
        moment: Any = others.get("second_moment")
        _refuse_settings({**others, "second_moment": None})
        kept: Any = {"ball": ball, "second_moment": moment, "ellipsoid": ellipsoid}
        with survey_chunks(chunks, engine, scratch=scratch) as survey:
            return RewardModel(**vars(fit_record_chunks(survey, mechanism, **spending, **kept)))
    held_out = _holds_out(others.get("held_out"))
    _refuse_settings({**others, "held_out": None})
    noise = _for_labels(mechanism)
    asked: Any = {"most": noise.records_per_person, "hold_out": held_out, "scratch": scratch}
    with survey_chunks(chunks, engine, **asked) as survey:
        seen = survey.divided()[0] if held_out else survey
        released = release_chunks(seen, noise, **spending)
        return fit_released_chunks(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)


def _account(mechanism: object, ledger: Ledger | None) -> Ledger | None:
    """Return where the spend is recorded; refuse to go without."""
    if mechanism is None or isinstance(ledger, Ledger):
        return ledger
    raise UsageError(
        "The mechanism spends, so a ledger is needed to record it. Nothing was spent. Pass "
        "ledger=sordino.Ledger.open(...)."
    )


def _holds_out(asked: object) -> bool:
    """Return whether rows are left for metrics; which ones, a public rule says and no mask."""
    if asked is None or isinstance(asked, bool):
        return bool(asked)
    raise UsageError(
        "held_out must be True for judgments in many files: the public rule says of each row where "
        "it belongs. Nothing was spent."
    )


def refuse_without_chunks(engine: object, scratch: object) -> None:
    """Refuse to say where files are read where there are none."""
    given = {"engine": engine, "scratch": scratch}
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is for judgments in files that memory does not hold, from "
            "sordino.find_chunks(...); these are in memory. Nothing was spent. Leave it out."
        )


def _refuse_spending(given: Mapping[str, object]) -> None:
    """Refuse to spend on answers that are private already."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"These answers are private already: leave {wrong[0]} out. Nothing was spent."
        )


def _refuse_settings(others: Mapping[str, object]) -> None:
    """Refuse settings that many files do not have."""
    wrong = [name for name, value in others.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is not there for judgments in many files. Nothing was spent. Leave it "
            "out, or read few enough of them into memory with sordino.read_pairs."
        )


def _for_labels(mechanism: object) -> LabelGaussian:
    """Return noise for labels; refuse none, and what is not built for many files."""
    if isinstance(mechanism, LabelGaussian):
        return mechanism
    ways = (
        "Release their sum with noise, mechanism=sordino.LabelGaussian(epsilon=..., delta=...) "
        "and a ledger; or protect whole records, mechanism=sordino.ObjectivePerturbation(...); or "
        "randomize them first with `sordino privatize` and fit the answers, "
        "find_chunks(..., privatized=True)."
    )
    if mechanism is None:
        raise PrivacyError(
            "These are raw judgments; a reward fitted on them would give them away. Nothing was "
            f"fitted. {ways}"
        )
    raise UsageError(
        f"mechanism={type(mechanism).__name__} is not there for judgments in many files. Nothing "
        f"was spent. {ways}"
    )


if TYPE_CHECKING:

    @overload
    def fit_reward(
        pairs: Pairs | Trajectories,
        *,
        withhold: Literal[True],
        unit: Unit,
        neighbors: NeighboringRelation,
        ridge: float,
        features: Features | None = None,
        ball: float = BALL,
        bound: float | None = None,
        penalty: float = 0.0,
        penalty_ridge: float | None = None,
    ) -> WithheldReward: ...

    @overload
    def fit_reward(
        pairs: Pairs | PrivatePairs | Trajectories | Rankings | PrivateChoices | Chunks,
        *,
        features: Features | None = None,
        method: str = "auto",
        ridge: float | None = None,
        ball: float = BALL,
        ellipsoid: bool | None = None,
        mechanism: LabelGaussian | ObjectivePerturbation | RankingMechanism | None = None,
        second_moment: SecondMoment | None = None,
        held_out: Bool[np.ndarray, " n"] | bool | None = None,
        ledger: Ledger | None = None,
        simulate_seed: int | None = None,
        engine: Engine | None = None,
        scratch: str | Path | None = None,
    ) -> RewardModel: ...


def fit_reward(  # noqa: PLR0911, PLR0913 (each is one choice, each kind of data ends elsewhere)
    pairs: Pairs | PrivatePairs | Trajectories | Rankings | PrivateChoices | Chunks,
    *,
    features: Features | None = None,
    method: str = "auto",
    ridge: float | None = None,
    ball: float = BALL,
    ellipsoid: bool | None = None,
    mechanism: LabelGaussian | ObjectivePerturbation | RankingMechanism | None = None,
    second_moment: SecondMoment | None = None,
    held_out: Bool[np.ndarray, " n"] | bool | None = None,
    ledger: Ledger | None = None,
    simulate_seed: int | None = None,
    withhold: bool = False,
    unit: Unit | None = None,
    neighbors: NeighboringRelation | None = None,
    bound: float | None = None,
    penalty: float = 0.0,
    penalty_ridge: float | None = None,
    engine: Engine | None = None,
    scratch: str | Path | None = None,
) -> RewardModel | WithheldReward:
    """Return the linear reward that explains private answers best, with a certified fit.

    Minimizes Σ softplus(θᵀx) − ỹθᵀx + ridge/2·‖θ‖² over ‖θ‖ ≤ ball, where ỹ is the answer with
    its randomization taken out in expectation, so rewards come out on their true scale. With a
    mechanism for labels, raw judgments are released as one noised sum, which stands for Σ ỹx.
    Trajectories are pairs of their summed features; rankings have likelihoods of their own.
    With ``withhold=True`` raw judgments are fitted as they are, nothing is spent and nothing may
    leave but actions drawn from :func:`sordino.gibbs_policy`, each of which spends.

    Args:
        pairs: Randomized answers, from :func:`sordino.privatize`, an ``answer`` file or
            :func:`~sordino.privatization.choices.privatize_choices`; or raw judgments (pairs,
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
            :func:`~sordino.rewards.ranking_fit.fit_released_rankings`.
        mechanism: For raw rankings, what :func:`~sordino.rewards.ranking_fit.fit_rankings`
            says. For other raw judgments: a
            :class:`~sordino.mechanisms.label_sum.LabelGaussian` for labels, an
            :class:`~sordino.mechanisms.objective_perturbation.ObjectivePerturbation` for whole
            records (of trajectories with ``bound=trajectories.difference_bound``, which shortens
            none), or :class:`sordino.NonPrivate` to fit them as they are.
        second_moment: With an ``ObjectivePerturbation`` made by
            :func:`~sordino.mechanisms.gaussian.joint_mechanisms`, its other half: the
            second moment is then released too, and with it a confidence set.
        held_out: With such a mechanism, rows that the fit must not see, so that metrics can be
            bought on them: what :func:`~sordino.rewards.private_metrics.held_out_rows` returns. Of
            many files True, for labels.
        ledger: Where a mechanism's spend is recorded, before its noise is drawn.
        simulate_seed: A seed for the mechanism's noise, for study; the guarantee then says
            ``simulated``.
        withhold: Return a :class:`~sordino.rewards.withheld.WithheldReward`, for which the rest
            is: what each draw hides (``unit``, ``neighbors``; no default), and how.
        unit: ``"label"``, where questions and persons are public, or ``"record"``.
        neighbors: What one change is; ``REPLACE_ONE`` for labels.
        bound: Of records: the norm to which feature differences are shortened; twice the bound
            of the features if left out.
        penalty: Strength of pessimism about answers unlike those that were compared, ≥ 0.
        penalty_ridge: λ of the penalty's matrix λI + Σ xxᵀ; ``ridge`` if left out.
        engine: Of many files: where they are read,
            :class:`~sordino.engines.ray_data.RayData` or in this process if left out.
        scratch: Likewise: a folder that all machines see.

    Raises:
        PrivacyError: The pairs are raw judgments and no mechanism was given, or the ledger is
            about another unit, or other rows are held out than the public rule says; or no bound
            is known for what a withheld reward should hide.
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
        rankings by tests/soundness/test_rankings_release.py. Withheld, what its draws promise is
        shown by tests/soundness/test_withheld_reward.py.

    Source:
        Chowdhury, Kini & Natarajan 2024, debiased loss; docs/local.md. PPHJ; docs/central.md,
        "Label privacy, one Gaussian release"; docs/intrinsic.md, "Withheld rewards of
        preferences".
    """
    ball = _validate.workable("ball", ball)
    ridge = None if ridge is None else _validate.workable("ridge", ridge)
    _validate.one_of("method", method, METHODS)
    if ellipsoid and isinstance(features, Features):
        d = features.dimension
        _validate.refuse_unholdable("dimension", d, 4 * d**2)  # of a set: spreads and metric
    if isinstance(pairs, Trajectories):
        pairs = pairs.pairs
    terms = {"unit": unit, "neighbors": neighbors, "bound": bound, "penalty_ridge": penalty_ridge}
    of_pairs = {
        "method": None if method == "auto" else method,
        "second_moment": second_moment,
        "held_out": held_out,
    }
    if isinstance(mechanism, ObjectivePerturbation) and ridge is not None:
        raise UsageError(
            f"ridge={ridge!r}: the ridge of record privacy is part of the promise, "
            "ObjectivePerturbation(ridge=...). Nothing was spent. Leave it out here."
        )
    if isinstance(pairs, Chunks):
        there: Any = {"ledger": ledger, "engine": engine, "scratch": scratch}
        fitted: Any = {"features": features, "ridge": ridge, "ball": ball, "ellipsoid": ellipsoid}
        others = {**of_pairs, **terms, "withhold": withhold or None, "penalty": penalty or None}
        return fit_chunks(
            pairs, mechanism, **there, **fitted, simulate_seed=simulate_seed, others=others
        )
    refuse_without_chunks(engine, scratch)
    rows: Any = held_out  # checked where it is used
    if withhold:
        given = {"ellipsoid": ellipsoid, "mechanism": mechanism, "ledger": ledger}
        refuse_spending({**of_pairs, **given, "simulate_seed": simulate_seed})
        rest = {"features": features, "ridge": ridge, "ball": ball, "penalty": penalty}
        kept: Any = {"pairs": pairs, **terms, **rest}  # of what kind each is, is checked there
        return WithheldReward(**kept)
    refuse_without_withholding(terms | {"penalty": penalty or None})
    if isinstance(pairs, Rankings | PrivateChoices):
        _refuse_settings_of_pairs(of_pairs)
        if isinstance(pairs, PrivateChoices):
            _refuse_mechanism(mechanism, ledger, simulate_seed)
            return fit_choices(
                pairs, features=features, ridge=ridge, ball=ball, ellipsoid=ellipsoid
            )
        return fit_rankings(
            pairs,
            _ranking_mechanism(mechanism),
            ledger=_spent(method, ledger),
            features=features,
            ridge=ridge,
            ball=ball,
            ellipsoid=ellipsoid,
            simulate_seed=simulate_seed,
        )
    if isinstance(mechanism, LabelGaussian) and isinstance(pairs, Pairs) and second_moment is None:
        released = release_labels(
            pairs,
            mechanism,
            ledger=_spent(method, ledger),
            features=features,
            held_out=rows,
            simulate_seed=simulate_seed,
        )
        return fit_released(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
    if isinstance(mechanism, ObjectivePerturbation) and isinstance(pairs, Pairs):
        found = fit_records(
            pairs,
            mechanism,
            ledger=_spent(method, ledger),
            features=features,
            ball=ball,
            second_moment=second_moment,
            ellipsoid=ellipsoid,
            held_out=rows,
            simulate_seed=simulate_seed,
        )
        return RewardModel(**vars(found))
    _refuse_settings_of_mechanisms(second_moment, held_out, simulate_seed)
    reward, _ = fit_answers(
        _private(pairs, mechanism, ledger, features),
        features=features,
        method=method,
        ridge=ridge,
        ball=ball,
        ellipsoid=ellipsoid,
    )
    return reward


def fit_answers(
    private: PrivatePairs,
    *,
    features: Features | None,
    method: str,
    ridge: float | None,
    ball: float,
    ellipsoid: bool | None = None,
) -> tuple[RewardModel, Design]:
    """Return the reward of :func:`fit_reward`, and the design it was fitted on."""
    # The design is made here and nowhere else: a reward speaks for the answers behind it.
    design = Design.of(private, features)
    if ellipsoid is None:
        ellipsoid = design.differences.shape[1] <= MOST_FEATURES
    found = fit_design(design, ridge=ridge, ball=ball, method=method)
    reward = RewardModel(
        weights=found.solution.theta,
        features=features,
        guarantee=private.guarantee,
        method=found.method,
        ridge=found.ridge,
        ball=ball,
        gradient_norm=found.solution.gradient_norm,
        atol=accepted_gradient(design),
        pairs=len(private),
        standard_errors=standard_errors(design, found),
        ellipsoid=answers_ellipsoid(design, found, ball) if ellipsoid else None,
        release_ids=private.release_ids,
        artifact=private.artifact,
    )
    return reward, design


def _spent(method: str, ledger: Ledger | None) -> Ledger:
    """Return the ledger of a release by a curator; refuse a method that needs single answers."""
    if method != "auto":
        raise UsageError(
            f"method={method!r} is for answers that were randomized one by one, which this "
            "mechanism does not do. Nothing was spent. Leave method out."
        )
    if ledger is None:
        raise UsageError(
            "The mechanism spends, so a ledger is needed to record it. Nothing was spent. Pass "
            "ledger=sordino.Ledger.open(...)."
        )
    return ledger


def _refuse_settings_of_mechanisms(
    second_moment: object, held_out: object, simulate_seed: int | None
) -> None:
    """Refuse settings that only mechanisms have, where there is none that has them."""
    if second_moment is not None:
        raise UsageError("second_moment goes with ObjectivePerturbation: leave it out here.")
    if held_out is not None:
        raise UsageError(
            "held_out goes with a mechanism for raw labels or records: metrics on randomized "
            "answers are free. Nothing was spent. Leave it out here."
        )
    if simulate_seed is not None:
        raise UsageError("simulate_seed is for a mechanism that adds noise: leave it out here.")


def _refuse_settings_of_pairs(given: Mapping[str, object]) -> None:
    """Refuse settings that rankings do not have."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is for pairs, and these are rankings. Nothing was spent. Leave it out."
        )


def _ranking_mechanism(mechanism: object) -> RankingMechanism:
    """Return what rankings are protected by; refuse none, and what is for pairs."""
    if isinstance(mechanism, RankingGaussian | RankingObjectivePerturbation | NonPrivate):
        return mechanism
    ways = (
        "Release their sum with noise, mechanism=RankingGaussian(epsilon, delta=..., "
        "statistic='borda') and a ledger; or randomize first choices one by one with "
        "privatize_choices(rankings, KaryRandomizedResponse(epsilon, categories), ledger=...); or "
        "protect whole records, mechanism=RankingObjectivePerturbation(...). To record an "
        "infinite spend instead, pass mechanism=sordino.NonPrivate() and a ledger whose budget is "
        "infinite."
    )
    if mechanism is not None:
        raise UsageError(
            f"mechanism={type(mechanism).__name__} is for pairs, and these are rankings. Nothing "
            f"was spent. {ways}"
        )
    raise PrivacyError(
        "These are raw rankings; a reward fitted on them would give them away. Nothing was "
        f"fitted. {ways}"
    )


def _refuse_mechanism(mechanism: object, ledger: object, simulate_seed: int | None = None) -> None:
    """Refuse to spend on answers that are private already."""
    if mechanism is not None or ledger is not None:
        raise UsageError("These answers are private already: leave mechanism and ledger out.")
    if simulate_seed is not None:
        raise UsageError("simulate_seed is for a mechanism that adds noise: leave it out here.")


def _private(
    pairs: Any, mechanism: object, ledger: Ledger | None, features: Features | None
) -> PrivatePairs:
    """Return answers that may be fitted; record the spend if raw ones are used as they are."""
    if isinstance(pairs, PrivatePairs):
        _refuse_mechanism(mechanism, ledger)
        return pairs
    if not isinstance(pairs, Pairs):
        raise UsageError(f"pairs must come from read_pairs, got {type(pairs).__name__}.")
    if not isinstance(mechanism, NonPrivate) or ledger is None:
        raise PrivacyError(
            "These are raw judgments; a reward fitted on them would give them away. Nothing was "
            "fitted. Randomize them first with sordino.privatize(pairs, "
            "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that "
            "sordino privatize wrote; or release their sum with noise, "
            "mechanism=sordino.LabelGaussian(epsilon=..., delta=...) and a ledger; or protect "
            "whole records, mechanism=sordino.ObjectivePerturbation(...); or keep the reward to "
            "yourself and release only actions drawn from it, withhold=True. To record an infinite "
            "spend instead, pass mechanism=sordino.NonPrivate() and a ledger whose budget is "
            "infinite."
        )
    pairs.differences(features)  # what cannot be used is refused before the entry
    return use_unprotected(pairs, mechanism, ledger=ledger)
