"""A reward that stays with its curator: only actions drawn from a policy of it are released.

Fits of raw judgments that stay with a curator.

Weights, and everything else that is made from what is hidden, are returned to the withheld reward
alone.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
from jaxtyping import Float, Integer
from scipy.linalg import qr, solve_triangular
from scipy.sparse import csr_array, issparse

from sordino import _validate
from sordino._markup import card
from sordino._withholding import Withholding, confidential, hide
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.exact_bounds import dense_blocks, farthest_rows, public_rows
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.preferences.features import Features, clipped_rows
from sordino.preferences.pairs import Pairs
from sordino.privacy.events import UNDECIDED, Event
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, NeighboringRelation, Unit
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_array

from .answer_fit import BALL
from .candidates import Candidates
from .model import RewardModel
from .pair_losses import DebiasedLogistic
from .release_checks import record_differences
from .solver import nearest_minimum
from .withheld_bounds import (
    LabelBound,
    RecordBound,
    ScoreBound,
    Settings,
    centered,
    given_ridge,
    refuse_other_pairs,
    refuse_other_terms,
    refuse_public_bound,
    withheld_caveats,
)

_LEAST_RIDGE: Final = 2e-6  # of the squared norm of a feature difference
_LEAST_DOUBT: Final = 2.0**-16
_MOST_ROWS: Final = 2**24
_BLOCK: Final = 4096


def label_rows(
    pairs: Pairs, features: Features | None
) -> tuple[Float[np.ndarray, "n d"] | csr_array, Integer[np.ndarray, " n"]]:
    """Return feature differences and labels of public questions, each once for a person."""
    # A repeat of one person to one question is the same observation and does not count: which rows
    # do is decided by public fields alone.
    pairs.refuse_other_order()
    once = np.flatnonzero(pairs.first_rows())
    rows = public_rows("differences", pairs.differences(features))
    return rows[once], pairs.labels[once]


def record_bound_of(features: Features | None, bound: float | None) -> float:
    """Return the norm to which records are shortened: twice the bound on one answer's features."""
    if bound is not None:
        return _validate.positive("bound", bound)
    if features is None:
        raise UsageError(
            "bound is needed for unit='record' where pairs were made from features: the norm to "
            "which every feature difference is shortened. Reading it from the records would "
            "release it. Nothing was fitted. Pass bound=..., chosen before you look at the data."
        )
    return 2 * features.feature_bound


def record_rows_within(
    pairs: Pairs, features: Features | None, bound: float
) -> Float[np.ndarray, "n d"]:
    """Return the feature difference of every record, none longer than the bound."""
    # Each judgment is a record of its own, also a repeated one of the same person: that it repeats
    # another one is private.
    rows = record_differences(pairs, features)
    return clipped_rows(rows, bound) if len(rows) else rows


def fit_withheld(
    rows: Float[np.ndarray, "n d"] | csr_array,
    labels: Integer[np.ndarray, " n"],
    settings: Settings,
    *,
    atol: float,
) -> Float[np.ndarray, " d"]:
    """Return the weights that explain raw judgments best inside the ball; confidential."""
    # Minimizes Σ softplus(θᵀx) − tθᵀx + (ridge/2)‖θ‖², t being 1, 0, or ½ for an undecided label.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences".
    targets = np.where(labels == UNDECIDED, 0.5, labels)
    loss = DebiasedLogistic(rows, targets=targets)
    ridge, ball = settings.ridge, settings.ball
    # The bounds on scores pay for twice atol, which is above rounding: nothing is refused here.
    return nearest_minimum(loss, ridge=ridge, ball=ball, atol=atol).theta


def refuse_weak_ridge(settings: Settings, longest: float, d: int) -> None:
    """Refuse settings whose fit may fail on some data, or hang on rounding; all are public."""
    # Whether a fit is refused must not depend on a hidden record.
    least = _LEAST_RIDGE * longest**2
    if settings.ridge < least:
        raise UsageError(
            f"ridge={settings.ridge!r} is too small beside feature differences of norm "
            f"{longest:.6g}: fits might fail on some data and not on others, which would tell. "
            f"Nothing was fitted. Use at least {least:.3g}."
        )
    least = (_LEAST_DOUBT * d * longest) ** 2
    if settings.penalty > 0 and settings.doubt_ridge < least:
        raise UsageError(
            f"penalty_ridge={settings.doubt_ridge!r} is so small beside {d} features of norm "
            f"{longest:.6g} that rounding might decide. Nothing was fitted. Use at least "
            f"{least:.3g}."
        )


def doubts(
    rows: Float[np.ndarray, "n d"] | csr_array, settings: Settings
) -> Float[np.ndarray, "d d"] | None:
    """Return a lower factor L of Σ = λI + Σ xxᵀ = LLᵀ, or None without a penalty; confidential."""
    # By QR of blocks of rows that are merged in pairs: with at most 2^24 rows a norm in Σ⁻¹ is off
    # by a share of 12·d·2^-52·2^12·‖x‖/√λ at most, which `refuse_weak_ridge` keeps below
    # 2^-20. No sum of squares is formed, which would lose half of the digits.
    if settings.penalty == 0:
        return None
    n, d = rows.shape
    if n > _MOST_ROWS:
        raise DataError("A penalty cannot be computed exactly enough for more than 2^24 rows.")
    merged: list[tuple[int, np.ndarray]] = []
    for block in dense_blocks(rows, max(d, _BLOCK)):
        level, factor = 0, qr(block, mode="r")[0][:d]
        while merged and merged[-1][0] == level:
            factor = qr(np.vstack([merged.pop()[1], factor]), mode="r")[0][:d]
            level += 1
        merged.append((level, factor))
    own = np.sqrt(settings.doubt_ridge) * np.eye(d)
    stacked = np.vstack([own, *(factor for _, factor in merged)])
    return np.asarray(qr(stacked, mode="r")[0][:d].T)


def penalties(
    rows: Float[np.ndarray, "k d"], factor: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, " k"]:
    """Return ‖φ‖ in the norm of Σ⁻¹ for every row φ, from the lower factor of Σ."""
    return np.asarray(np.linalg.norm(solve_triangular(factor, rows.T, lower=True), axis=0))


class WithheldReward(Withholding):
    """A linear reward fitted on raw judgments, of which nothing but drawn actions may be seen.

    Made by :func:`sordino.fit_reward` with ``withhold=True``. Fitting spends nothing, because
    nothing leaves; every draw from :func:`sordino.gibbs_policy` of it spends. The score of a
    candidate is θ̂ᵀφ less ``penalty`` times the norm of φ in the inverse of Σ = λI + Σ xxᵀ, φ
    being its features less the mean of all candidates. The weights show in no repr and no file,
    and cannot be pickled; whoever reads the memory of the process can read them.

    The object fits what it holds itself, so that no weights can stand beside a bound that was
    made for others.

    Args:
        pairs: Raw judgments.
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
    _width: int
    _settings: Settings
    _known: ScoreBound
    _features: Features | None
    _unit: Unit
    _neighbors: NeighboringRelation
    _caveats: tuple[str, ...]
    _public_digest: str | None
    _size: int | None

    def __init__(  # noqa: PLR0913 (each is one choice of the user)
        self,
        pairs: Pairs,
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
        refuse_other_pairs(pairs)
        refuse_other_terms(unit, neighbors)
        settings = Settings(
            ridge=given_ridge(ridge), ball=ball, penalty=penalty, penalty_ridge=penalty_ridge
        )
        known: ScoreBound
        if unit == "label":
            refuse_public_bound(bound)
            rows, labels = label_rows(pairs, features)
            known = LabelBound(rows, settings)
        else:
            longest = record_bound_of(features, bound)
            known = RecordBound(settings, bound=longest, neighbors=neighbors)
            rows, labels = record_rows_within(pairs, features, longest), pairs.labels
        refuse_weak_ridge(settings, known.longest, rows.shape[1])
        weights = fit_withheld(rows, labels, settings, atol=known.atol)
        weights.setflags(write=False)
        hide(self, weights=weights, factor=doubts(rows, settings))
        self._keep(
            _width=len(weights),
            _settings=settings,
            _known=known,
            _features=features,
            _unit=unit,
            _neighbors=neighbors,
            _caveats=withheld_caveats(pairs, unit, features),
            _public_digest=pairs.public_digest if unit == "label" else None,
            _size=None if neighbors is ADD_OR_REMOVE_ONE else len(labels) + pairs.dropped,
        )

    def __repr__(self) -> str:
        """Return what is public; no weights."""
        about = f"unit={self.unit!r}, neighbors={self.neighbors.name}"
        return f"{type(self).__name__}(withheld, d={self._width}, {about})"

    def _repr_html_(self) -> str:
        """Return what is public as a card, for notebooks; no weights."""
        settings = self._settings
        rows: list[tuple[str, object]] = [
            ("weights", "withheld"),
            ("features", self._width),
            ("unit", self.unit),
            ("neighbors", self.neighbors.name),
            ("ridge", settings.ridge),
            ("ball", settings.ball),
            ("penalty", settings.penalty or None),
            ("caveats", ", ".join(self.caveats)),
        ]
        return card("WithheldReward", rows)

    @property
    def unit(self) -> Unit:
        """Return whose change a draw hides."""
        return self._unit

    @property
    def neighbors(self) -> NeighboringRelation:
        """Return what one change is."""
        return self._neighbors

    @property
    def caveats(self) -> tuple[str, ...]:
        """Return the names of what qualifies every promise made with it."""
        return self._caveats

    @property
    def public_digest(self) -> str | None:
        """Return the digest of the public questions, which binds a ledger of labels; or None."""
        return self._public_digest

    @property
    def payments(self) -> tuple[tuple[str, Event], ...]:
        """Return what was paid for the scores before any draw: nothing."""
        return ()

    @property
    def features(self) -> Features | None:
        """Return what texts are read with; None for a reward of plain feature rows."""
        return self._features

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
        asked = Candidates.of(prompts, [candidates], reference=None, features=self.features)
        rows: Any = asked.given
        if self.features is not None:
            rows = self.features.transform(asked.prompts, asked.answers)
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
        if farthest_rows(options) == 0:
            return np.zeros(len(options))  # equal candidates, whatever rounding makes of them
        # of differences, so that what all candidates share leaves no rounding behind
        held = confidential(self)
        rewards = (options - options[:1]) @ held.weights
        if held.factor is None:
            return np.asarray(rewards)
        return np.asarray(
            rewards - self._settings.penalty * penalties(centered(options), held.factor)
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
        if not isinstance(ledger, Ledger):
            raise UsageError(
                "Revealing spends without end, so a ledger is needed to record it. Nothing was "
                "revealed. Pass ledger=sordino.Ledger.open(...), whose budget is infinite."
            )
        outright = NonPrivate()
        promise = outright.guarantee(unit=self.unit, neighbors=self.neighbors, trust="central")
        promise = promise.with_caveats(*self.caveats)
        released = ledger.charge(
            outright.event,
            confidential(self).weights.copy,
            digest=digest_of_array,
            promise=promise,
            stored=False,
            public_digest=self.public_digest,
        )
        return RewardModel(
            weights=released.value,
            features=self.features,
            guarantee=promise,
            ridge=self._settings.ridge,
            ball=self._settings.ball,
            gradient_norm=self._known.atol,
            atol=self._known.atol,
            pairs=self._size,
            release_ids=(released.release_id,),
            artifact=released.artifact,
        )

    def score(self, *_: object, **__: object) -> NoReturn:
        """Refuse to score: a score is a release.

        Raises:
            PrivacyError: Always.
        """
        _refuse("score")

    def score_features(self, *_: object, **__: object) -> NoReturn:
        """Refuse to score rows of features: a score is a release.

        Raises:
            PrivacyError: Always.
        """
        _refuse("score_features")

    def predict_proba(self, *_: object, **__: object) -> NoReturn:
        """Refuse to predict: a probability is a release.

        Raises:
            PrivacyError: Always.
        """
        _refuse("predict_proba")

    def to_dict(self) -> NoReturn:
        """Refuse to be written down.

        Raises:
            PrivacyError: Always.
        """
        _refuse("to_dict")

    def save(self, *_: object, **__: object) -> NoReturn:
        """Refuse to be saved; no file is written.

        Raises:
            PrivacyError: Always.
        """
        _refuse("save")


def _refuse(asked: str) -> NoReturn:
    """Refuse what would let the weights out, and offer what may."""
    raise PrivacyError(
        f"{asked}: this reward was fitted on raw judgments and is withheld, so what it says of an "
        "answer would give them away. Nothing was released. Draw actions from "
        "sordino.gibbs_policy(withheld, temperature=...), where each draw spends; or record an "
        "infinite spend and read it, withheld.reveal(ledger=...)."
    )
