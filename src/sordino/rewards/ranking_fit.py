"""From ballots to a reward, in each of the ways that protect them, and in the one that does not.

A curator releases one noised sum of all ballots, or one tilted minimizer that hides whole records;
people may randomize their first choices one by one; or ballots are used as they are. The spend is
written first, then noise is drawn, and a fit of what was released is free.

A record is one ballot with its prompt, its candidates and its person: all of it is private, but for
the list of items in an election, which no ballot decides. Under ADD_OR_REMOVE_ONE so is how many
ballots there are, and no release of records depends on that number or tells it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.sparse import csr_array

from sordino import _random, _validate
from sordino._random import Entropy
from sordino._validate import Square, Vector
from sordino.errors import UsageError
from sordino.mechanisms.label_sum import SumMechanism
from sordino.mechanisms.objective_perturbation import RankingObjectivePerturbation
from sordino.mechanisms.randomized_response import NonPrivate, debiased_choices
from sordino.mechanisms.ranking_sum import RankingGaussian, centering, part_of
from sordino.preferences.features import Features, Matrix, features_of_hidden
from sordino.preferences.rankings import PrivateChoices, Rankings, Slates
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE
from sordino.privacy.ledger import Ledger, provenance
from sordino.privacy.ledger_chain import digest_of_array
from sordino.privatization.answers import refuse_other_ballots
from sordino.privatization.randomization import refuse_unlinked

from .confidence import confidence_ellipsoid, ranking_covariance
from .evidence import MOST_FEATURES, SUM_POWERS, Released, ridges_around
from .label_release import countable_rows, digest_of_statistic, label_promise
from .leaderboard import BEYOND, Ballots, Votes, fit_board
from .model import RewardModel, centered_weights
from .pair_losses import roots_of_variances
from .ranking_losses import BallotLoss, FirstChoice, PairwiseComposite, PlackettLuce, gram
from .release_checks import record_promise, record_rows
from .reward_fit import ATOL
from .solver import Solution, minimize_ridge, minimize_tilted, refuse_drowned, ridge_of, ridge_path

RankingMechanism = RankingGaussian | RankingObjectivePerturbation | NonPrivate

_ROWS = 32  # ballots a feature that a matrix rests on
_FLOPS = 1 << 25  # a matrix this cheap takes every ballot


# What ballots rank.


@dataclass(frozen=True, kw_only=True, eq=False)
class _SlateRows:
    """The candidates of public slates, each slate once."""

    rows: Matrix  # φ of every flat candidate
    starts: Int64[np.ndarray, " s"]  # where slates start, and the end
    slates: Int64[np.ndarray, " n"]  # which slate each ballot ranks

    def of_ballots(
        self, counted: Int64[np.ndarray, " c"]
    ) -> tuple[Matrix, Int64[np.ndarray, " t"], Int64[np.ndarray, " slates"]]:
        """Return rows, starts and numbers of ballots of the slates that some ballots rank."""
        live, counts = np.unique(self.slates[counted], return_counts=True)
        flat, starts = part_of(self.starts, live)
        return self.rows[flat], starts, counts.astype(np.int64)

    def bound(self, features: Features | None) -> float:
        """Return the bound L of a feature map or, without any, the reach of the candidates."""
        # It is how far the farthest candidate is from the middle of its slate: of two candidates,
        # half their difference, as for pairs.
        if features is not None:
            return features.feature_bound
        return float(np.sqrt(_centered_squares(self.rows, self.starts).max()))


def _slate_rows(slates: Slates, features: Features | None) -> _SlateRows:
    """Return the candidates of ballots with their features; ballots of the same items share one."""
    n = len(slates)
    if slates.items is None:
        rows = slates.flat_features(features)
        return _SlateRows(rows=rows, starts=slates.starts.astype(np.int64), slates=np.arange(n))
    assert slates.offered is not None  # noqa: S101 (for the type checker; set at the start)
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(key, len(numbers)) for key in slates.keys])
    first = np.unique(which, return_index=True)[1]
    flat, starts = part_of(slates.starts.astype(np.int64), first)
    of_items = slates.item_features(features)
    if _plain(slates, features) and len(first) > 1:
        of_items = csr_array(of_items)  # one entry in each row
    return _SlateRows(rows=of_items[slates.offered[flat]], starts=starts, slates=which)


def _plain(slates: Slates, features: Features | None) -> bool:
    """Return whether ballots are about items without features: a weight is an item's worth."""
    return slates.items is not None and features is None and slates.given is None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Items:
    """What is public of the items that the ballots of an election choose from."""

    names: tuple[str, ...]  # sorted
    features: Float[np.ndarray, "k d"] | None  # φ, if they were given some
    named: bool  # whether every ballot names all the items that it was offered

    @classmethod
    def of(cls, slates: Slates) -> Items | None:
        """Return the items; None for candidates of a ballot's own."""
        if slates.items is None:
            return None
        return cls(names=slates.items, features=slates.given, named=slates.named)


def _centered_squares(rows: Matrix, starts: Int64[np.ndarray, " s"]) -> Float[np.ndarray, " m"]:
    """Return the squared distance of every candidate from the middle of its slate."""
    centered = centering(starts) @ rows
    return np.asarray((centered**2).sum(axis=1), dtype=np.float64)


# What a fit sees.


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _BallotEvidence:
    """An objective that is fitted, and how much it varies; all that a fit sees of ballots."""

    method: str  # how a reward says that it was fitted
    loss: BallotLoss  # the objective
    n: int  # how many ballots count
    feature_bound: float  # bound L on how far a candidate is from the middle of its slate
    items: Items | None
    # How many times as much the objective's sum varies as its curvature says, about.
    inflation: float = 1.0
    spread: Callable[[Vector], Square]  # the covariance of that sum if the weights were θ
    scatter: Callable[[Vector, float], Square]  # that of the weights, by θ and the ridge
    covariance: Square | None = None  # V, of the noise that was added to the sum
    rounding: float = 0.0  # how far the grid moved it at most, in standard deviations of the noise

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"BallotEvidence({self.method}, n={self.n}, d={self.loss.rows.shape[1]})"


def _rough_hessian(loss: BallotLoss, theta: Vector) -> Square:
    """Return an objective's Hessian, from enough evenly spaced ballots to choose a ridge."""
    n, d = len(loss.starts) - 1, loss.rows.shape[1]
    cheap = _FLOPS // (d**2 * int(np.diff(loss.starts).max()))
    step = max(1, n // max(_ROWS * d, cheap))
    return gram(loss.features, loss.terms, np.asarray(loss.features @ theta), step=step)


def _evidence_of_sum(
    loss: PairwiseComposite | FirstChoice,
    factor: Float[np.ndarray, "d r"],
    *,
    feature_bound: float,
    rounding: float,
    items: Items | None = None,
) -> _BallotEvidence:
    """Return what a fit sees after all rankings were released as one sum; all of it is public."""
    # Source: docs/central.md, "Rankings": H for first choices. The pairs of a ballot agree with
    # each other, so that their sum varies less than H says: for candidates that are all as good
    # exactly 2(K + 1)/(3K(K − 1)) times, since ranks have variance (K² − 1)/12 and covariance
    # −(K + 1)/12; the same factor is taken elsewhere. It is 1 for K = 2.
    sizes, noise = np.diff(loss.starts), np.asarray(factor @ factor.T)
    squares = _centered_squares(loss.features, loss.starts)
    within = np.add.reduceat(squares, loss.starts[:-1]) * loss.counts
    bend, drawn, varying = within / sizes, within / sizes, loss
    if isinstance(loss, PairwiseComposite):
        agreement = 2 * (sizes + 1) / (3 * sizes * (sizes - 1))
        bend = within / (2 * (sizes - 1))
        drawn, varying = bend * agreement, replace(loss, counts=loss.counts * agreement)
    return _BallotEvidence(
        method="ranking-gaussian",
        loss=loss,
        n=int(loss.counts.sum()),
        feature_bound=feature_bound,
        items=items,
        # tr(spread)/tr H at θ = 0, for which no matrix is made
        inflation=float((drawn.sum() + np.sum(factor**2)) / bend.sum()),
        spread=lambda theta: np.asarray(_rough_hessian(varying, theta) + noise),
        scatter=lambda theta, ridge: ranking_covariance(loss, theta, noise, ridge=ridge),
        covariance=noise,
        rounding=rounding,
    )


def _evidence_of_choices(private: PrivateChoices, features: Features | None) -> _BallotEvidence:
    """Return first choices that were randomized one by one, as a sum without their coin."""
    # Source: docs/central.md, "Rankings": the first choice, on the sum of docs/local.md,
    # "Randomized response": an answer is j with probability p_j = q + (1 − f − q)π_j, so that a
    # ballot varies by Φᵀ(diag p − ppᵀ)Φ/(1 − f − q)²: the curvature of log Σ p. Here q is the
    # chance of each candidate that was not chosen.
    slates, flips = _slate_rows(private, features), private.flip_probability
    rows, starts, counts = slates.of_ballots(np.arange(len(private)))
    weights = np.zeros((len(counts), private.categories))
    chosen = debiased_choices(private.answers, private.categories, flips)
    np.add.at(weights, slates.slates, chosen)
    statistic = np.asarray(rows.T @ weights.ravel())
    loss = FirstChoice(rows, starts=starts, statistic=statistic, counts=counts)
    other = flips / (private.categories - 1)
    kept = 1 - flips - other

    def spread(theta: Vector) -> Square:
        ballots = np.repeat(loss.counts, np.diff(loss.starts))
        chances = loss.slopes(np.asarray(loss.features @ theta)) / ballots
        drawn = gram(loss.features, loss.terms, np.log(other + kept * chances))
        return np.asarray(drawn / kept**2)

    def scatter(theta: Vector, ridge: float) -> Square:
        return ranking_covariance(loss, theta, spread(theta) - loss.hessian(theta), ridge=ridge)

    return _BallotEvidence(
        method="randomized-choice",
        loss=loss,
        n=len(private),
        feature_bound=slates.bound(features),
        items=Items.of(private),
        inflation=1 / kept**2,
        spread=spread,
        scatter=scatter,
    )


def _evidence_of_ballots(rankings: Rankings, features: Features | None) -> _BallotEvidence:
    """Return ballots as they are, with the Plackett–Luce likelihood; as if the model held."""
    if rankings.items is None:
        rows = rankings.flat_features(features)
    else:  # items without features have one entry in each row
        rows = rankings.item_features(features)
        rows = (csr_array(rows) if _plain(rankings, features) else rows)[rankings.offered]
    loss = PlackettLuce(rows, starts=rankings.starts, ranks=rankings.ranks)

    def scatter(theta: Vector, ridge: float) -> Square:
        # Source: (H + ΛI)⁻¹H(H + ΛI)⁻¹ at the estimate.
        bend = loss.hessian(theta)
        inverse = np.linalg.inv(bend + ridge * np.eye(len(bend)))
        return np.asarray(inverse @ bend @ inverse)

    return _BallotEvidence(
        method="plackett-luce",
        loss=loss,
        n=len(rankings),
        feature_bound=_slate_rows(rankings, features).bound(features),
        items=Items.of(rankings),
        spread=partial(_rough_hessian, loss),
        scatter=scatter,
    )


# A fit of what was released.


def _fit_released_rankings(
    released: Released[_BallotEvidence],
    *,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains best what was released; as often as one likes, for free."""
    # Standard errors are asymptotic, as ballots are added; of a noised sum they hold for whatever
    # ballots people gave, and are about the weights that the objective has on average.
    # Source: docs/central.md, "Rankings".
    evidence, loss = released.evidence, released.evidence.loss
    ball, atol = _validate.workable("ball", ball), ATOL * len(evidence) * evidence.feature_bound
    few = loss.rows.shape[1] <= MOST_FEATURES
    # The prior that a reward is about 1, θ ∼ N(0, I/L²), against a sum that varies so much.
    middle = evidence.feature_bound**2 * evidence.inflation
    tried = [middle] if ridge is None else [_validate.positive("ridge", ridge)]
    if ridge is None and few:
        tried = ridges_around(middle, SUM_POWERS)
        path = ridge_path(loss, tried, ball=ball, atol=atol)
        # Source: docs/central.md, "Label privacy, one Gaussian release": the loss on fresh ballots
        # by Takeuchi's criterion, the loss at θ̂ + tr[(H + ΛI)⁻¹(J + V)], with the ball's multiplier
        # in Λ and without the direction of θ̂, in which a fit on the sphere cannot move.
        tics = []
        for size, found in zip(tried, path, strict=True):
            bend = _rough_hessian(loss, found.theta)
            response = np.linalg.inv(bend + (size + found.multiplier) * np.eye(len(bend)))
            if found.multiplier > 0:
                along = response @ found.theta
                response -= np.outer(along, along) / (found.theta @ along)
            optimism = float(np.sum(response * evidence.spread(found.theta)))
            tics.append(evidence.loss.value(found.theta) + optimism)
        best = int(np.argmin(tics))
        solution, ridge = path[best], tried[best]
    else:
        [ridge] = tried
        solution = minimize_ridge(loss, ridge=ridge, ball=ball, atol=atol)
    shift = ridge + solution.multiplier
    covariance = evidence.scatter(solution.theta, shift) if few else None
    items, offered, offers = evidence.items, None, None
    if items is not None and released.features is None and items.features is None:
        slates = np.repeat(np.arange(len(loss.starts) - 1), np.diff(loss.starts))
        offers = np.zeros((len(loss.starts) - 1, loss.rows.shape[1]), dtype=bool)
        offers[slates, np.asarray(loss.features.argmax(axis=1)).ravel()] = True
        offered = np.asarray(offers.any(axis=0))
    weights = centered_weights(solution.theta, offered)
    kept = intervals = statistic = None
    if evidence.covariance is not None and isinstance(loss, PairwiseComposite | FirstChoice):
        statistic = loss.statistic
        if ellipsoid:  # ballots were declared to be complete and strict
            kept = confidence_ellipsoid(
                loss,
                solution,
                ball=ball,
                ridge=ridge,
                covariance=evidence.covariance,
                rounding=evidence.rounding,
                candidates=len(tried),
            )
        # A short list of three or more ties the others below it, which draws worths together by a
        # part that is as private as the length. Of two candidates the better one says all. So there
        # are intervals where ballots are known, in public, to be about all they were offered.
        pairs = np.diff(loss.starts).max() == 2  # noqa: PLR2004
        worths = items if items is not None and (items.named or pairs) else None
        if worths and offers is not None and isinstance(loss, PairwiseComposite):
            reach = evidence.covariance * (1 + evidence.rounding) ** 2
            intervals = _worth_intervals(loss, worths.names, offers, reach, weights)
    return RewardModel(
        weights=weights,
        features=released.features,
        method=evidence.method,
        ridge=ridge,
        ball=ball,
        gradient_norm=solution.gradient_norm,
        atol=atol,
        pairs=released.pairs,
        standard_errors=None if covariance is None else roots_of_variances(covariance),
        ellipsoid=kept,
        **provenance(released),
        statistic=statistic,
        items=None if items is None else items.names,
        item_features=None if items is None else items.features,
        worth_intervals=intervals,
        unoffered=()
        if items is None or offered is None
        else tuple(name for name, known in zip(items.names, offered, strict=True) if not known),
    )


def _worth_intervals(
    loss: PairwiseComposite,
    items: tuple[str, ...],
    offers: Bool[np.ndarray, "s k"],
    noise: Square,
    weights: Vector,
) -> Float[np.ndarray, "offered 2"] | None:
    """Return the 95% intervals that a board has of its items; None where one is not known."""
    # A penalty draws the weights towards 0 by an unknown part: a board's rating is from the same
    # sum, and with as much weight as ballots are sure of.
    # Source: docs/ranking.md, "Ballots".
    sizes = offers.sum(axis=1)
    largest = sizes.max()
    more = 3 * largest * (largest - 1) / (2 * (largest + 1))
    each = more * 2 / (sizes * (sizes - 1))  # of a pair
    middle = offers.T @ (loss.counts * each * (sizes - 1) / 2)
    ballots = Ballots(offers, loss.counts, each)
    board = fit_board(
        Votes.of_ballots(items, ballots, more * loss.statistic - middle, noise * more**2)
    )
    known = offers.any(axis=0)
    if np.isnan(board.ratings[known]).any() or len(set(board.components[known])) > 1:
        return None
    low, high = board.intervals[known].clip(-BEYOND, BEYOND).T
    return np.column_stack([np.minimum(low, weights[known]), np.maximum(high, weights[known])])


# The releases.


def release_rankings(
    rankings: Rankings,
    mechanism: RankingGaussian,
    *,
    ledger: Ledger,
    features: Features | None = None,
    simulate_seed: int | None = None,
) -> Released[_BallotEvidence]:
    """Return all rankings as one noised sum, after recording the spend.

    Guarantee:
        That of the mechanism, trust ``"central"``, under ``REPLACE_ONE``: unit ``"label"``, one
        ballot with its length and its ties, or unit ``"person"`` for all ballots of one person
        (caveat ``labels-only``). Where persons are known and the unit is the label, the caveat is
        ``person-group``; where what ballots name counts as what was offered, ``named-offered``.
        Ranks are read once, when the noise is added. Shown by
        tests/soundness/test_rankings_release.py.
    """
    refuse_other_ballots("release_rankings", rankings, mechanism, ledger, RankingGaussian)
    entropy = _random.entropy(simulate_seed)
    terms, counted = terms_of_ballots(rankings, mechanism, ledger, entropy)
    slates = _slate_rows(rankings, features)
    design = mechanism.prepare(slates.rows, slates.starts, slates=slates.slates, **counted)
    released = ledger.charge(
        mechanism.event,
        lambda: design.release(rankings.doubled_ranks(), entropy=entropy),
        digest=lambda value: digest_of_statistic(rankings.public_digest, value),
        **terms,
    )
    rows, starts, counts = slates.of_ballots(np.flatnonzero(design.used))
    kind = FirstChoice if mechanism.statistic == "first-choice" else PairwiseComposite
    evidence = _evidence_of_sum(
        kind(rows, starts=starts, statistic=released.value, counts=counts),
        design.factor,
        feature_bound=slates.bound(features),
        rounding=design.rounding,
        items=Items.of(rankings),
    )
    return Released(
        evidence=evidence, **provenance(released), features=features, pairs=len(evidence)
    )


def terms_of_ballots(
    rankings: Rankings, mechanism: SumMechanism, ledger: Ledger, entropy: Entropy
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return on what terms one sum of ballots is released, and which of them count."""
    # A repeat of one person on one question does not count, and with `records_per_person` the
    # ballots of a person that count are chosen by a digest that anybody can compute, as for labels.
    rankings.refuse_other_order()
    most = mechanism.records_per_person
    if most is not None and rankings.persons is None:
        refuse_unlinked(f"a limit of {most} records of one person")
    promise = label_promise(rankings, mechanism, ledger, entropy)
    asked = rankings.questions if promise.unit == "label" else None
    people = rankings.people(most=most)
    ledger.check(mechanism.event, promise=promise, questions=asked, people=people)
    details = None if most is None else {"cap": most}
    persons = None if most is None else rankings.persons
    return (
        {"promise": promise, "questions": asked, "people": people, "details": details},
        {"persons": persons, "rows": countable_rows(rankings)},
    )


def fit_ranked_records(
    rankings: Rankings,
    mechanism: RankingObjectivePerturbation,
    *,
    ledger: Ledger,
    features: Features | None = None,
    ball: float,
    simulate_seed: int | None = None,
) -> RewardModel:
    """Return a reward that hides every single ballot and all about it, after recording the spend.

    Guarantee:
        (ε, δ) of the mechanism for one record, under the relation of the ledger's budget and
        trust ``"central"``; caveat ``real-arithmetic``. Shown by
        tests/soundness/test_rankings_release.py.
    """
    # Minimizes the Plackett–Luce loss + (Λ/2)‖θ‖² + bᵀθ over ‖θ‖ ≤ ball with a random b. The
    # features of every candidate are shrunk to the bound of the mechanism. Each ballot is a record
    # of its own, also a repeated one of the same person.
    # Source: docs/central.md, "Rankings".
    refuse_other_ballots(
        "fit_ranked_records", rankings, mechanism, ledger, RankingObjectivePerturbation
    )
    ball = _validate.workable("ball", ball)
    entropy = _random.entropy(simulate_seed)
    read = features if rankings.items is None else None  # items are public
    promise = record_promise(mechanism, ledger, entropy, n=len(rankings), features=read)
    mechanism.refuse_long_ballots(rankings.starts)
    plain = _plain(rankings, features)
    if rankings.items is None:
        alone = features_of_hidden(features, rankings)
        records: Matrix = mechanism.clipped(record_rows(lambda: rankings.flat_features(alone)))
    else:  # items are clipped once; those without features keep one entry each
        of_items = mechanism.clipped(record_rows(lambda: rankings.item_features(features)))
        records = (csr_array(of_items) if plain else of_items)[rankings.offered]
    refuse_drowned(mechanism, d=mechanism.dimension, ball=ball)
    released = ledger.charge(
        mechanism.event,
        lambda: release_ranked_records(
            records, rankings, mechanism, ball=ball, entropy=entropy, centered=plain
        ),
        digest=digest_of_array,
        promise=promise,
    )
    return RewardModel(
        weights=released.value,
        features=features,
        method="ranked-perturbation",
        ridge=ridge_of(mechanism),
        ball=ball,
        gradient_norm=mechanism.atol,
        atol=mechanism.atol,
        pairs=None if promise.neighbors == ADD_OR_REMOVE_ONE else len(rankings),
        **provenance(released),
        items=rankings.items,
        item_features=None if rankings.items is None else rankings.given,
    )


def release_ranked_records(
    records: Float[np.ndarray, "m d"] | csr_array,
    rankings: Rankings,
    mechanism: RankingObjectivePerturbation,
    *,
    ball: float,
    entropy: Entropy,
    centered: bool = False,
) -> Float[np.ndarray, " d"]:
    """Return noised weights; draws noise, so the spend must already be on a ledger.

    Guarantee:
        That of the mechanism, if the candidates were clipped to its bound and no ballot is too
        long. Shown by tests/soundness/test_rankings_release.py.
    """

    def minimize(tilt: Float[np.ndarray, " d"]) -> Solution:
        loss = PlackettLuce(records, starts=rankings.starts, ranks=rankings.ranks, pull=-tilt)
        return minimize_tilted(loss, mechanism, ball=ball)

    weights = mechanism.release(minimize, d=mechanism.dimension, entropy=entropy)
    # Over all items: which of them were offered to somebody is private here.
    return centered_weights(weights, np.ones(len(weights), dtype=bool)) if centered else weights


def fit_rankings(
    rankings: Rankings,
    mechanism: RankingMechanism,
    *,
    ledger: Ledger,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
    simulate_seed: int | None = None,
) -> RewardModel:
    """Return the reward that explains rankings best, in the way that the mechanism is for.

    Guarantee:
        That of :func:`release_rankings` or :func:`fit_ranked_records`; with ``NonPrivate`` none.
        Shown by tests/soundness/test_rankings_release.py.
    """
    ball = _validate.workable("ball", ball)
    ridge = None if ridge is None else _validate.workable("ridge", ridge)
    if isinstance(mechanism, RankingGaussian):
        released = release_rankings(
            rankings, mechanism, ledger=ledger, features=features, simulate_seed=simulate_seed
        )
        return _fit_released_rankings(released, ridge=ridge, ball=ball, ellipsoid=ellipsoid)
    if ellipsoid:
        raise UsageError(
            "ellipsoid: a confidence set of rankings needs mechanism=RankingGaussian(...). Nothing "
            "was spent. Leave it out."
        )
    if isinstance(mechanism, RankingObjectivePerturbation):
        if ridge is not None:
            raise UsageError(
                f"ridge={ridge!r}: the ridge of record privacy is part of the promise, "
                "RankingObjectivePerturbation(ridge=...). Nothing was spent. Leave it out here."
            )
        return fit_ranked_records(
            rankings,
            mechanism,
            ledger=ledger,
            features=features,
            ball=ball,
            simulate_seed=simulate_seed,
        )
    if simulate_seed is not None:
        raise UsageError("simulate_seed: NonPrivate draws nothing. Leave it out.")
    refuse_other_ballots("fit_rankings", rankings, mechanism, ledger, NonPrivate)
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    digest = rankings.public_digest
    ballots = _evidence_of_ballots(rankings, features)
    paid = ledger.charge(
        mechanism.event,
        lambda: ballots,
        digest=lambda _: digest,  # of the public fields: raw ranks are not digested
        promise=promise,
        stored=False,
        questions=rankings.questions,
        people=rankings.people(),
    )
    outright: Released[_BallotEvidence] = Released(
        evidence=ballots, **provenance(paid), features=features, pairs=len(rankings)
    )
    return _fit_released_rankings(outright, ridge=ridge, ball=ball)


def fit_choices(
    private: PrivateChoices,
    *,
    features: Features | None = None,
    ridge: float | None = None,
    ball: float,
    ellipsoid: bool | None = None,
) -> RewardModel:
    """Return the reward that explains randomized first choices best; it costs nothing."""
    if ellipsoid:
        raise UsageError(
            "ellipsoid: no radius is known for randomized first choices. Leave it out, or release "
            "the sum of rankings with mechanism=RankingGaussian(...)."
        )
    released: Released[_BallotEvidence] = Released(
        evidence=_evidence_of_choices(private, features),
        **provenance(private),
        features=features,
        pairs=len(private),
    )
    return _fit_released_rankings(released, ridge=ridge, ball=ball)
