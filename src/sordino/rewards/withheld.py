"""A reward that stays with its curator: only actions drawn from a policy of it are released.

Weights, and everything else that is made from what is hidden, are kept by the withheld reward
alone. How far one change of the data can move its scores is bounded from what is public: settings
and, where a label is hidden, the questions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np
from jaxtyping import Float
from scipy.linalg import qr, solve_triangular
from scipy.sparse import csr_array, issparse

from sordino import _validate
from sordino._validate import Integers, Square, Table, Vector
from sordino._withholding import Withholding, confidential, hide
from sordino.engines.engine import added_in_pairs
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.gibbs import Scores
from sordino.mechanisms.grid import dense_parts
from sordino.mechanisms.randomized_response import NonPrivate, label_shares
from sordino.mechanisms.score_sensitivity import (
    UP,
    LabelCurvature,
    farthest_rows,
    penalty_step,
    public_rows,
    withheld_record_range,
)
from sordino.preferences.features import (
    Features,
    caveats_of_features,
    clipped_rows,
    suited_features,
)
from sordino.preferences.pairs import Pairs
from sordino.preferences.trajectories import Trajectories
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    Event,
    NeighboringRelation,
    Unit,
)
from sordino.privacy.ledger import Ledger, provenance
from sordino.privacy.ledger_chain import digest_of_array
from sordino.privacy.persons import People

from .candidates import Candidates
from .model import RewardModel
from .pair_losses import DebiasedLogistic
from .release_checks import paying, record_differences
from .reward_fit import BALL
from .solver import nearest_minimum

_LEAST_RIDGE: Final = 2e-6  # of the squared norm of a feature difference
_LEAST_DOUBT: Final = 2.0**-16
_MOST_ROWS: Final = 2**24
_BLOCK: Final = 4096

ATOL: Final = 1e-8
"""Accepted norm of the gradient, as a share of the longest feature difference that may be."""

_DOUBT_ROUNDING: Final = 2.0**-20  # share by which a computed norm in Σ⁻¹ may be off
_ROUNDED: Final = 2.0  # the true gradient is within this many times what was accepted


def refuse_other_terms(unit: object, neighbors: object) -> None:
    """Refuse a missing unit or relation, and those that no bound is known for."""
    if unit == "person":
        raise PrivacyError(
            "unit='person' cannot be promised: the bound of a withheld estimate is for one label "
            "or one record, and a person may have given many. Nothing was fitted. Use "
            "unit='record' or 'label' (a person with m of them is then protected with m times "
            "epsilon), keep one record of each person, or hide all labels of a person with "
            "LabelGaussian(..., records_per_person=...)."
        )
    if unit not in ("label", "record"):
        raise UsageError(
            f"unit must be 'label' or 'record', got {unit!r}: it is what each draw promises to "
            "hide, and has no default. Nothing was fitted."
        )
    if neighbors not in tuple(NeighboringRelation):
        raise UsageError(
            "neighbors must be ADD_OR_REMOVE_ONE, REPLACE_SPECIAL or REPLACE_ONE (which labels "
            f"need), got {neighbors!r}: it is what each draw promises to hide, and has no "
            "default. Nothing was fitted."
        )
    if unit == "label" and neighbors is not REPLACE_ONE:
        raise PrivacyError(
            f"neighbors={getattr(neighbors, 'name', neighbors)}: a label is replaced by another "
            "one, where all else is public. Nothing was fitted. Use unit='label' with "
            "REPLACE_ONE, or unit='record'."
        )


def changes_of(neighbors: NeighboringRelation) -> int:
    """Return how many removals or additions make one change of a record."""
    return 2 if neighbors is REPLACE_ONE else 1


def withheld_caveats(pairs: Pairs, unit: Unit, features: Features | None = None) -> tuple[str, ...]:
    """Return what qualifies the promises of draws from a fit of these pairs."""
    caveats = {
        "real-arithmetic": True,
        # of records always: whether they name persons is as private as all else of them
        "person-group": unit == "record" or pairs.persons is not None,
        "repeats-not-linked": unit == "label" and pairs.repeats,
    }
    read = caveats_of_features(features) if unit == "record" else ()
    return (*(name for name, applies in caveats.items() if applies), *read)


@dataclass(frozen=True)
class Settings:
    """What a withheld fit minimizes and how it scores; public, and chosen before the data."""

    _: KW_ONLY
    ridge: float  # Λ of (Λ/2)‖θ‖², > 0
    ball: float  # bound on ‖θ‖, > 0
    penalty: float = 0.0  # strength of pessimism, in units of reward, ≥ 0
    penalty_ridge: float | None = None  # λ of Σ = λI + Σ xxᵀ, > 0; `ridge` if left out

    def __post_init__(self) -> None:
        if self.penalty_ridge is not None and self.penalty == 0:
            raise UsageError(
                f"penalty_ridge={self.penalty_ridge!r} is of no use without a penalty. Give both, "
                "or leave it out."
            )

        def usable(name: str, value: float) -> float:
            return _validate.moderate(name, _validate.workable(name, value))

        penalty = partial(_validate.moderate, zero=True)
        _validate.settle(self, ridge=usable, ball=usable, penalty=penalty)
        _validate.moderate("penalty_ridge", self.doubt_ridge)

    @property
    def doubt_ridge(self) -> float:
        """Return λ of Σ."""
        return self.ridge if self.penalty_ridge is None else float(self.penalty_ridge)


class _Bound:
    """What a fit is accepted by."""

    longest: float  # norm of the longest feature difference that may be

    @property
    def atol(self) -> float:
        """Return the norm of the gradient at which a fit is accepted, > 0."""
        return ATOL * self.longest or ATOL


@dataclass(frozen=True)
class _RecordBound(_Bound):
    """How far one record moves the scores; nothing of the data enters.

    Guarantee:
        :meth:`score_range` holds for every two sets of records that differ by one change, and for
        fits that are accepted at :attr:`atol`. Shown by tests/soundness/test_withheld_reward.py.
    """

    # A record pulls the gradient of the objective by at most ‖x‖σ(ball·‖x‖), whether its label is
    # 0, 1 or undecided (a target of ½), and raises Σ by xxᵀ. Candidates' features are counted from
    # their mean. For a row φ and Σ ⪰ λI, of which one record takes s = ‖x‖²_{Σ⁻¹} ≤ bound²/λ:
    # ‖φ‖_{Σ⁻¹} falls by at most its share 1 − (1 + s)^{-1/2}, hence by at most
    # ‖φ‖(λ^{-1/2} − (λ + bound²)^{-1/2}), and never rises. So the penalties of all candidates move
    # by between 0 and that, times the longest centered row.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences".

    settings: Settings  # what is minimized
    _: KW_ONLY
    longest: float  # norm to which every feature difference is shortened, > 0
    neighbors: NeighboringRelation  # what one change is; replacing is a removal and an addition

    def __post_init__(self) -> None:
        _validate.settle(self, longest=_validate.moderate)
        _validate.one_of("neighbors", self.neighbors, NeighboringRelation)

    def score_range(self, options: Float[np.ndarray, "k d"]) -> float:
        """Return a bound on max h − min h over the options, h being the change of the scores."""
        spread, ball = farthest_rows(options), self.settings.ball
        changes = changes_of(self.neighbors)
        once = withheld_record_range(
            self.settings.ridge,
            spread=spread,
            bound=self.longest,
            ball=ball,
            inexactness=spread / 2 * _ROUNDED * self.atol / self.settings.ridge,
        )
        doubt, penalty = 0.0, self.settings.penalty
        if penalty > 0:  # how far one record moves the penalty of a candidate at most
            ridge = self.settings.doubt_ridge
            reach = float(np.linalg.norm(centered(options), axis=1).max(initial=0.0))
            rounding = 4 * _DOUBT_ROUNDING / math.sqrt(ridge)
            doubt = penalty * reach * (penalty_step(ridge, step=self.longest**2) + rounding)
        return (min(changes * once, 2 * ball * spread) + changes * doubt) * UP


def centered(options: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d"]:
    """Return the features of one question's candidates less their mean."""
    # What all candidates share tells none from another, and should make none look doubtful.
    return np.asarray(options - options.mean(axis=0))


@dataclass(frozen=True, eq=False, repr=False)
class _LabelBound(_Bound):
    """How far one label moves the scores, where all questions are public.

    Guarantee:
        :meth:`score_range` holds for every two lists of labels that differ in one place, and for
        fits that are accepted at :attr:`atol`. Shown by tests/soundness/test_withheld_reward.py.
    """

    # Any label may become any other: a decided one has the target 0 or 1, an undecided one ½, so
    # that no change moves the gradient of the objective by more than one x.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences".

    # x, the feature difference of every question that counts; dense or sparse.
    rows: Table | csr_array
    settings: Settings  # what is minimized
    longest: float = field(init=False)
    curvature: LabelCurvature = field(init=False)

    def __post_init__(self) -> None:
        """Factor the curvature of the public questions once."""
        squares = np.asarray((self.rows**2).sum(axis=1), dtype=np.float64)
        known = LabelCurvature.of(self.rows, ridge=self.settings.ridge, ball=self.settings.ball)
        object.__setattr__(self, "longest", math.sqrt(float(squares.max(initial=0.0))))
        object.__setattr__(self, "curvature", known)

    def score_range(self, options: Float[np.ndarray, "k d"]) -> float:
        """Return a bound on max h − min h over the options, h being the change of the scores."""
        # The penalty depends on the questions alone: no label moves it. In the norm of M, a label
        # moves the exact minimizer by at most the leverage, and each fit is off by at most the norm
        # of its gradient over √ridge, because M ⪰ ridge·I.
        moved, leverage = self.curvature.range(options), self.curvature.leverage
        if leverage > 0:
            off = _ROUNDED * self.atol / math.sqrt(self.settings.ridge)
            moved *= 1 + 2 * off / leverage
        return min(moved, 2 * self.settings.ball * farthest_rows(options)) * UP


def label_rows(pairs: Pairs, features: Features | None) -> tuple[Table | csr_array, Integers]:
    """Return feature differences and labels of public questions, each once for a person."""
    # A repeat of one person to one question is the same observation and does not count: which rows
    # do is decided by public fields alone.
    pairs.refuse_other_order()
    once = np.flatnonzero(pairs.first_rows())
    rows = public_rows("differences", pairs.differences(features))
    return rows[once], pairs.labels[once]


def _doubts(rows: Table | csr_array, settings: Settings) -> Square | None:
    """Return a lower factor L of Σ = λI + Σ xxᵀ = LLᵀ, or None without a penalty; confidential."""
    # By QR of blocks of rows that are merged in pairs: with at most 2^24 rows a norm in Σ⁻¹ is off
    # by a share of 12·d·2^-52·2^12·‖x‖/√λ at most, which a penalty_ridge that is not refused keeps
    # below 2^-20. No sum of squares is formed, which would lose half of the digits.
    if settings.penalty == 0:
        return None
    n, d = rows.shape
    if n > _MOST_ROWS:
        raise DataError("A penalty cannot be computed exactly enough for more than 2^24 rows.")

    def factor(*parts: np.ndarray) -> np.ndarray:
        return np.asarray(qr(np.vstack(parts), mode="r")[0][:d])

    merged = added_in_pairs((factor(part) for _, part in dense_parts(rows, max(d, _BLOCK))), factor)
    own = np.sqrt(settings.doubt_ridge) * np.eye(d)
    return np.asarray(factor(own, *(part for _, part in merged)).T)


class WithheldFit(Withholding, ABC):
    """An estimate of raw data that its curator keeps, of which draws are released."""

    caveats: tuple[str, ...] = ()  # names of what qualifies every promise made with it
    unit: Unit  # whose change a draw hides
    neighbors: NeighboringRelation  # what one change is; `REPLACE_ONE` for labels
    # Digests of what is asked, by which a ledger knows data, and who judged: where they are public.
    questions: np.ndarray | None = None
    people: People | None = None

    @property
    def payments(self) -> tuple[tuple[str, Event], ...]:
        """Return what was paid for the scores before any draw: nothing."""
        return ()

    @abstractmethod
    def options(self, context: object, candidates: object) -> Any:
        """Return one public question as the estimate reads it; its length is that of a choice."""

    @abstractmethod
    def score_range(self, options: Any) -> float:
        """Return how far one change of the data moves the difference of two scores, at most.

        Guarantee:
            For any two neighboring data sets, max h − min h over the options is at most this,
            h being the difference of the two score vectors.
        """

    @abstractmethod
    def _scores(self, options: Any) -> Scores:
        """Return the score of every option; confidential."""


def linear_scores(
    options: Float[np.ndarray, "k d"],
    weights: Vector,
    *,
    doubted: Float[np.ndarray, "k d"],
    factor: Square | None,
    penalty: float,
) -> Float[np.ndarray, " k"]:
    """Return θᵀφ less a penalty of every option, up to what all share; confidential."""
    # The penalty is that times the norm of a doubted row in the inverse of Σ = LLᵀ, L the factor.
    if farthest_rows(options) == 0:
        return np.zeros(len(options))  # equal options, whatever rounding makes of them
    # of differences, so that what all options share leaves no rounding behind
    scores = np.asarray((options - options[:1]) @ weights)
    if factor is None or penalty == 0:
        return scores
    inside = solve_triangular(factor, doubted.T, lower=True)
    return np.asarray(scores - penalty * np.linalg.norm(inside, axis=0))


def _refusing(name: str) -> Callable[..., NoReturn]:
    """Return a method that refuses to let the weights out, and offers what may."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise PrivacyError(
            f"{name}: this reward was fitted on raw judgments and is withheld, so what it says of "
            "an answer would give them away. Nothing was released. Draw actions from "
            "sordino.gibbs_policy(withheld, temperature=...), where each draw spends; or record an "
            "infinite spend and read it, withheld.reveal(ledger=...)."
        )

    return refuse


class WithheldReward(WithheldFit):
    """A linear reward fitted on raw judgments, of which nothing but drawn actions may be seen.

    Fitting spends nothing, because nothing leaves; every draw from :func:`sordino.gibbs_policy` of
    it spends. The score of a candidate is θ̂ᵀφ less ``penalty`` times the norm of φ in the inverse
    of Σ = λI + Σ xxᵀ, φ being its features less the mean of all candidates. The weights show in no
    repr and no file, and cannot be pickled; whoever reads the memory of the process can read them.

    The object fits what it holds itself, so that no weights can stand beside a bound that was
    made for others.

    Args:
        pairs: Raw judgments: pairs or trajectories.
        unit: Whose change is hidden: ``"label"``, where prompts, answers and persons are public,
            or ``"record"``, where all of a judgment is private.
        neighbors: What one change is; ``REPLACE_ONE`` for labels.
        ridge: Strength of the quadratic penalty of the fit, > 0.
        features: Turns texts into vectors; left out for pairs made by ``from_features``.
        ball: Bound on the norm of the weights, > 0. Under ``"label"`` a smaller one lets the
            questions protect each other.
        bound: For records: the norm to which each feature difference is shortened, > 0; twice
            the bound of the features if left out.
        penalty: Strength of pessimism, ≥ 0; it costs nothing under ``"label"``.
        penalty_ridge: λ of Σ, > 0; ``ridge`` if left out.

    Raises:
        UsageError: A setting is missing or out of range.
        PrivacyError: No bound is known for the unit under the relation, or public questions are
            not in canonical order.
        DataError: Features cannot be used.

    Guarantee:
        :meth:`score_range` bounds the change of the scores between any two data sets that differ
        by one change, with all that the solver may be off; in real arithmetic (caveat
        ``real-arithmetic``). Nothing is promised of the weights themselves, which must not leave.
        Shown by tests/soundness/test_withheld_reward.py.

    Source:
        KLDP, Theorem 3, and docs/intrinsic.md, "Withheld rewards of preferences".
        Differs: the constants, which are proved for every data set; the published ones fail.
    """

    _held = "This reward"
    features: Features | None  # what texts are read with; None for plain feature rows
    _width: int
    _settings: Settings
    _known: _LabelBound | _RecordBound
    _size: int | None

    def __init__(  # noqa: PLR0913 (each is one choice of the user)
        self,
        pairs: Pairs | Trajectories,
        *,
        unit: Unit,
        neighbors: NeighboringRelation,
        ridge: float,
        features: Features | None = None,
        ball: float = BALL,
        bound: float | None = None,
        penalty: float = 0.0,
        penalty_ridge: float | None = None,
    ) -> None:
        """Check the settings and fit."""
        pairs = pairs.pairs if isinstance(pairs, Trajectories) else pairs
        if not isinstance(pairs, Pairs):
            raise UsageError(
                f"A withheld reward is for raw judgments of two answers (Pairs), got "
                f"{type(pairs).__name__}. Nothing was fitted. Answers that are private already "
                "need no withholding; for rankings no bound is known; of judgments in many files, "
                "read few enough into memory with sordino.read_pairs."
            )
        if pairs.alone:
            features = suited_features(features, alone=True, hidden=unit == "record")
        refuse_other_terms(unit, neighbors)
        if ridge is None:
            raise UsageError(
                "ridge is needed: choosing it on raw labels would be a release "
                "of its own. Nothing was fitted. Pass ridge=..., chosen before you look at the "
                "data; more of it lets each draw spend less."
            )
        settings = Settings(ridge=ridge, ball=ball, penalty=penalty, penalty_ridge=penalty_ridge)
        known: _LabelBound | _RecordBound
        if unit == "label":
            if bound is not None:
                raise UsageError(
                    f"bound={bound!r} is for unit='record': where questions are public their own "
                    "norms are used. Nothing was fitted. Leave it out."
                )
            rows, labels = label_rows(pairs, features)
            known = _LabelBound(rows, settings)
        else:
            if bound is None and features is None:
                raise UsageError(
                    "bound is needed for unit='record' where pairs were made from features: the "
                    "norm to which every feature difference is shortened. Reading it from the "
                    "records would release it. Nothing was fitted. Pass bound=..., chosen before "
                    "you look at the data."
                )
            if bound is None and features is not None:
                bound = 2 * features.feature_bound  # a difference of two answers' features
            longest = _validate.positive("bound", bound)
            known = _RecordBound(settings, longest=longest, neighbors=neighbors)
            # Each judgment is a record of its own, also a repeated one of the same person: that it
            # repeats another one is private.
            rows, labels = record_differences(pairs, features), pairs.labels
            rows = clipped_rows(rows, longest) if len(rows) else rows
        d = rows.shape[1]
        # Whether a fit is refused must not depend on a hidden record.
        least = _LEAST_RIDGE * known.longest**2
        if settings.ridge < least:
            raise UsageError(
                f"ridge={settings.ridge!r} is too small beside feature differences of norm "
                f"{known.longest:.6g}: fits might fail on some data and not on others, which would "
                f"tell. Nothing was fitted. Use at least {least:.3g}."
            )
        least = (_LEAST_DOUBT * d * known.longest) ** 2
        if settings.penalty > 0 and settings.doubt_ridge < least:
            raise UsageError(
                f"penalty_ridge={settings.doubt_ridge!r} is so small beside {d} features of norm "
                f"{known.longest:.6g} that rounding might decide. Nothing was fitted. Use at least "
                f"{least:.3g}."
            )
        # Minimizes Σ softplus(θᵀx) − tθᵀx + (ridge/2)‖θ‖², t being 1, 0, or ½ for an undecided
        # label. The bounds on scores pay for twice atol, above rounding: nothing is refused here.
        # Source: docs/intrinsic.md, "Withheld rewards of preferences".
        loss = DebiasedLogistic(rows, targets=label_shares(labels))
        ridge, ball = settings.ridge, settings.ball
        weights = nearest_minimum(loss, ridge=ridge, ball=ball, atol=known.atol).theta
        weights.setflags(write=False)
        hide(self, weights=weights, factor=_doubts(rows, settings))
        self._keep(
            _width=len(weights),
            _settings=settings,
            _known=known,
            features=features,
            unit=unit,
            neighbors=neighbors,
            caveats=withheld_caveats(pairs, unit, features),
            questions=pairs.questions if unit == "label" else None,
            people=pairs.people() if unit == "label" else None,
            _size=None if neighbors is ADD_OR_REMOVE_ONE else len(labels) + pairs.dropped,
        )

    def __repr__(self) -> str:
        """Return what is public; no weights."""
        about = f"unit={self.unit!r}, neighbors={self.neighbors.name}"
        return f"{type(self).__name__}(withheld, d={self._width}, {about})"

    def options(self, context: Any, candidates: Any) -> Float[np.ndarray, "k d"]:
        """Return the features of one question's candidates, dense; the question is public.

        Args:
            context: The prompt; None for candidates that are features.
            candidates: Texts, or an array of features, shape (k, d).

        Raises:
            UsageError: There are no candidates, or a prompt is missing or of no use.
            DataError: The candidates have another number of features, or are not finite.
        """
        if candidates is None:
            raise UsageError(
                "candidates are needed: the answers to choose from, or their features. Nothing "
                "was drawn."
            )
        prompts = None if context is None else [context]
        question = Candidates.of(prompts, [candidates], reference=None, features=self.features)
        rows: Any = question.given
        if self.features is not None:
            rows = self.features.transform(question.prompts, question.answers)
        rows = public_rows("candidates", rows, d=self._width)
        return np.asarray(rows.toarray() if issparse(rows) else rows)

    def score_range(self, options: Float[np.ndarray, "k d"]) -> float:
        """Return how far one change can move the difference of two scores; it is public.

        Args:
            options: What :meth:`options` returned.

        Guarantee:
            An upper bound for every two neighboring data sets; of labels, for those about these
            public questions. Shown by tests/soundness/test_withheld_reward.py.
        """
        return self._known.score_range(options)

    def _scores(self, options: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
        """Return the score of every candidate, up to what all share; confidential."""
        held = confidential(self)
        doubted, penalty = centered(options), self._settings.penalty
        return linear_scores(
            options, held.weights, doubted=doubted, factor=held.factor, penalty=penalty
        )

    def reveal(self, *, ledger: Ledger) -> RewardModel:
        """Return the reward as anybody may read it, after recording an infinite spend.

        The penalty is left out: what is returned scores by the weights alone.

        Args:
            ledger: Where the infinite spend is recorded first; its budget must be infinite.

        Raises:
            UsageError: There is no ledger.
            BudgetExceeded: The ledger's budget is finite; nothing was revealed.
            PrivacyError: The ledger is about another unit or relation.
            LedgerMismatch: The ledger belongs to other prompts and answers.

        Guarantee:
            None: ε = ∞. Shown by tests/unit/rewards/test_withheld.py.
        """
        ledger = paying(ledger, "Revealing spends without end", "revealed")
        outright = NonPrivate()
        promise = outright.guarantee(unit=self.unit, neighbors=self.neighbors, trust="central")
        promise = promise.with_caveats(*self.caveats)
        released = ledger.charge(
            outright.event,
            confidential(self).weights.copy,
            digest=digest_of_array,
            promise=promise,
            stored=False,
            questions=self.questions,
            people=self.people,
        )
        return RewardModel(
            weights=released.value,
            features=self.features,
            ridge=self._settings.ridge,
            ball=self._settings.ball,
            gradient_norm=self._known.atol,
            atol=self._known.atol,
            pairs=self._size,
            **provenance(released),
        )

    # What would let the weights out refuses, whatever it is called with.
    score = _refusing("score")
    score_features = _refusing("score_features")
    predict_proba = _refusing("predict_proba")
    to_dict = _refusing("to_dict")
    save = _refusing("save")
