"""A released reward: what a third party needs to use it, and nothing of the data.

A reward of items that people ranked says how good each is, and how sure one can be of it. A ranking
says how items compare and nothing of what all have in common, so that these worths are given less
the mean of the items that were offered to somebody; of the others nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import issparse
from scipy.special import expit

from sordino import _validate
from sordino._files import explained, read_json, refuse_existing, sha256_of, write_json, write_text
from sordino._markup import card
from sordino.errors import DataError, SordinoError, UsageError
from sordino.mechanisms.catalogue import CURATOR_MECHANISMS
from sordino.mechanisms.grid import Matrix
from sordino.preferences.features import CLASS, Features, HashedText, features_from_dict
from sordino.preferences.records import Text
from sordino.privacy.exports import model_card
from sordino.privacy.guarantee import Guarantee, promise_rows

from .confidence import ConfidenceEllipsoid, DisagreementSet, RecordEllipsoid, ReleasedMoment

Worth = tuple[str, float | None, float | None, float | None]
"""A name, its worth, and the ends of an interval; None where there are no data, or no interval."""


def centered_weights(
    theta: Float[np.ndarray, " d"], offered: Bool[np.ndarray, " d"] | None
) -> Float[np.ndarray, " d"]:
    """Return weights less their mean where they are the worths themselves; else as they are."""
    # No loss of rankings changes by it, and no penalty grows. Items that nobody was offered keep 0.
    if offered is None:
        return theta
    return np.where(offered, theta - theta[offered].mean(), 0.0)


REWARD_FORMAT = "sordino.reward"
REWARD_FILE = "reward.json"
_FITTED = ("debiased", "mixture", *CURATOR_MECHANISMS, "randomized-choice", "plackett-luce", CLASS)
_ARRAYS = ("standard_errors", "statistic", "item_features", "worth_intervals")
_SIZES = ("ridge", "ball", "gradient_norm", "atol")
_FIELDS = (
    "features", "weights", "standard_errors", "ellipsoid", "method", *_SIZES, "pairs", "guarantee",
    "caveats", "release_ids", "artifact", "statistic", "moment",
)  # fmt: skip
_OF_ITEMS: dict[str, Any] = dict.fromkeys(("items", "item_features", "worth_intervals")) | {
    "unoffered": []
}
REWARD_VERSION = 4


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RewardModel:
    """A linear reward r(x, a) = weights · φ(x, a) that was learned from private answers.

    Made by :func:`sordino.fit_reward`. Scores and everything derived from them are free:
    they are computed from what was already released. This is on purpose no scikit-learn
    estimator: cross-validating it on raw labels would leak them.

    Attributes:
        weights: Shape (d,), in units of log odds of being preferred.
        features: Turns prompt and answer into a bounded vector; None if it was fitted on
            feature differences.
        guarantee: What the release promises.
        method: ``"debiased"``, or ``"mixture"`` where it was refined by that likelihood; or
            ``"label-gaussian"`` where all labels were released as one sum. From rankings:
            ``"ranking-gaussian"``, ``"ranked-perturbation"``, ``"randomized-choice"`` or
            ``"plackett-luce"`` (not private). Of a finite class ``"finite-class"``: features are
            the rewards of all candidates, and weights pick the likeliest.
        ridge: Strength of the quadratic penalty.
        ball: Bound on the norm of the weights during the fit.
        gradient_norm: Norm of the gradient at the weights: the certificate of the fit.
        atol: Bound that ``gradient_norm`` was required to meet.
        pairs: Number of comparisons or ballots that were used; public under a label guarantee.
        standard_errors: Asymptotic standard error of every weight, shape (d,); None for more
            features than a square matrix is made for.
        ellipsoid: The confidence set that pessimistic policies need, around the debiased
            estimate; None where it was not kept.
        release_ids: Ledger entries that paid.
        artifact: SHA-256 of the private answers, or of the private sum, it was fitted on.
        statistic: That sum T̃ = Σ yx + noise, shape (d,): with the public vectors it is all that
            another fit needs, for free. None where answers were released one by one; of a finite
            class the log-likelihood of each candidate.
        moment: The noised second moment that was released with records, or None.
        items: The names of what everybody ranked; None if it was no election. Without features
            the weights are their worths, in this order, and sum to 0.
        item_features: φ of the items, shape (K, d), if they were given features.
        worth_intervals: Both ends of a 95% interval of every worth, of the items that somebody
            was offered and in their order; None where none is known.
        unoffered: Items that no ballot was offered, where that is public: nothing is known of them.
    """

    weights: Float[np.ndarray, " d"]
    features: Features | None
    guarantee: Guarantee
    ridge: float
    ball: float
    gradient_norm: float
    atol: float
    pairs: int | None
    method: str = field(default="debiased")
    standard_errors: Float[np.ndarray, " d"] | None = field(default=None)
    ellipsoid: ConfidenceEllipsoid | RecordEllipsoid | DisagreementSet | None = field(default=None)
    release_ids: tuple[str, ...] = field(default=())
    artifact: str = ""
    statistic: Float[np.ndarray, " d"] | None = field(default=None)
    moment: ReleasedMoment | None = field(default=None)
    items: tuple[str, ...] | None = field(default=None)
    item_features: Float[np.ndarray, "k d"] | None = field(default=None)
    worth_intervals: Float[np.ndarray, "offered 2"] | None = field(default=None)
    unoffered: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"RewardModel(d={len(self.weights)}, {self.guarantee})"

    def _repr_html_(self) -> str:
        """Return size and promise as a card, for notebooks; no weights."""
        rows = [("features", len(self.weights)), ("method", self.method)]
        promise = promise_rows(self.guarantee)
        return card("RewardModel", rows + promise, simulated=self.guarantee.simulated)

    def score(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return the reward of each answer to each prompt.

        Rewards are comparable between answers to one prompt only.

        Args:
            prompts: n prompts.
            answers: n answers.

        Raises:
            UsageError: The model was fitted on feature differences; use :meth:`score_features`.
        """
        if self.features is None:
            raise UsageError(
                "This reward was fitted on feature differences and cannot read texts. Use "
                "score_features with the same features."
            )
        return self.score_features(self.features.transform(prompts, answers))

    def score_features(self, rows: Matrix) -> Float[np.ndarray, " n"]:
        """Return the reward of each row of features, shape (n, d), dense or sparse.

        Raises:
            DataError: The number of columns is not d, or a number is none.
        """
        rows = rows if issparse(rows) else _validate.finite_array("rows", rows, ndim=2)
        if rows.shape[1:] != self.weights.shape:
            raise DataError(f"rows must have shape (n, {len(self.weights)}), got {rows.shape}.")
        return np.asarray(rows @ self.weights, dtype=np.float64)

    def predict_proba(
        self, prompts: Sequence[Text], first: Sequence[Text], second: Sequence[Text]
    ) -> Float[np.ndarray, " n"]:
        """Return the probability that ``first`` is preferred to ``second``.

        Source:
            Bradley & Terry 1952: σ(r(first) − r(second)).
        """
        gap = self.score(prompts, first) - self.score(prompts, second)
        return np.asarray(expit(gap))

    def worths(self) -> list[Worth]:
        """Return name, worth and 95% interval of every item that people ranked, the best first.

        A worth is the reward of an item less the mean of all: rankings tell no more. Ends of an
        interval are None where none is known. Items that nobody was offered come last, without a
        worth.

        Raises:
            UsageError: The reward is not about items.
        """
        if self.items is None:
            raise UsageError(
                "items are needed: this reward was learned from candidates that differ from "
                "question to question. Use score."
            )
        rows: Any = self.item_features
        if self.features is not None:
            rows = self.features.transform([""] * len(self.items), self.items)
            rows = rows.toarray() if issparse(rows) else rows
        worths = self.weights if rows is None else self.score_features(rows)
        places = [index for index, name in enumerate(self.items) if name not in self.unoffered]
        centered, ends = worths[places] - worths[places].mean(), self.worth_intervals
        listed: list[Worth] = []
        for index in np.argsort(-centered, kind="stable").tolist():
            low, high = (None, None) if ends is None else ends[index].tolist()
            listed.append((self.items[places[index]], float(centered[index]), low, high))
        blank = [name for name in self.items if name in self.unoffered]
        return listed + [(name, None, None, None) for name in blank]

    def usable(self) -> bool:
        """Return whether the weights are finite numbers, one for each feature."""
        wanted = len(self.weights) if self.features is None else self.features.dimension
        columns = [
            self.weights,
            self.standard_errors,
            self.statistic,
            None if self.ellipsoid is None else self.ellipsoid.center,
            None if self.moment is None else self.moment.matrix[0],
            None if self.item_features is None else self.item_features.mean(axis=0),
        ]
        if wanted == 0 or not all(
            column is None or (column.shape == (wanted,) and bool(np.isfinite(column).all()))
            for column in columns
        ):
            return False
        # what is said of items is about as many of them as are named
        known = [] if self.item_features is None else [self.item_features]
        ends = self.worth_intervals
        if self.items is None:
            return not known and ends is None and not self.unoffered
        if self.features is None and self.item_features is None:
            known.append(self.weights)
        k, left_out = len(self.items), set(self.unoffered)
        unique = len(set(self.items)) == k >= 2  # noqa: PLR2004 (a ranking compares)
        unique &= left_out < set(self.items) and len(left_out) == len(self.unoffered)
        fits = ends is None or (
            ends.shape == (k - len(left_out), 2)
            and bool(np.isfinite(ends).all() and (ends[:, 0] <= ends[:, 1]).all())
        )
        both = all(len(column) == k and np.isfinite(column).all() for column in known)
        return unique and fits and both

    def to_dict(self) -> dict[str, Any]:
        """Return the model as JSON holds it."""
        values = vars(self) | {"caveats": self.guarantee.caveats}
        names = _FIELDS if self.items is None else (*_FIELDS, *_OF_ITEMS)
        kind = {"format": REWARD_FORMAT, "version": REWARD_VERSION}
        return kind | {name: _plain(values[name]) for name in names}

    @_validate.typed
    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model as JSON: weights, features, promise; nothing of the data.

        Raises:
            UsageError: The path exists and ``force`` is False.
            FileSystemError: It cannot be written.
        """
        write_json(Path(path), self.to_dict(), force=force)

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a folder: ``reward.json``, its digest, and a model card that states the promise.

        Raises:
            UsageError: The folder exists and ``force`` is False.
            FileSystemError: It cannot be written.
        """
        folder = Path(folder)
        refuse_existing(folder, force=force)
        read = getattr(self.features, "features", self.features)  # without an intercept
        whole = read is None or isinstance(read, HashedText)
        more = ")" if whole else ", features=...)  # the same ones, which no file holds"
        card = model_card(
            self.guarantee,
            title="A private reward",
            kind="reward",
            usage=f'import sordino\n\nreward = sordino.RewardModel.load("this/folder"{more}',
            front={"library_name": "sordino", "training": {"method": self.method}},
        )
        with explained(f"{folder.name} cannot be made"):
            folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "README.md", card, force=True)
        self.save(folder / REWARD_FILE, force=True)
        files = {REWARD_FILE: sha256_of(folder / REWARD_FILE)}
        kept = {"format": "sordino.files", "version": 1, "files": files}
        write_json(folder / "sordino.json", kept, force=True)

    @classmethod
    @_validate.typed
    def load(cls, path: str | Path, *, features: Features | None = None) -> RewardModel:
        """Return the model that :meth:`save` or :meth:`save_pretrained` wrote.

        Args:
            path: The file, or a folder with ``reward.json``, such as that of a run.
            features: The feature map itself, if no file can hold it, such as a sentence model or a
                function of your own; it is checked against what the file says of it.

        Raises:
            UsageError: Features that the file does not hold were not given.
            DataError: The file is malformed, or written by a newer version.
            FileSystemError: It cannot be read.
        """
        path, problem = Path(path), "The reward cannot be used"
        path = path / REWARD_FILE if path.is_dir() else path
        found = read_json(path, kind=REWARD_FORMAT, version=REWARD_VERSION, problem=problem)
        return cls.from_dict(found, f"{problem}: {path.name}", features=features)

    @classmethod
    def from_dict(
        cls,
        found: Mapping[str, Any],
        problem: str = "The reward cannot be used: it",
        *,
        features: Features | None = None,
    ) -> RewardModel:
        """Return the model that :meth:`to_dict` wrote; arguments and errors as of :meth:`load`."""
        values = _OF_ITEMS | dict(found)
        described = values.get("features")
        if described is not None:
            features = features_from_dict(described, features=features)
        elif features is not None:
            raise UsageError("This reward was fitted on feature differences: leave features out.")
        try:
            pairs, moment, ellipsoid, items = (
                values[name] for name in ("pairs", "moment", "ellipsoid", "items")
            )
            given = {name: values[name] for name in _ARRAYS if values[name] is not None}
            plain: dict[str, Any] = dict.fromkeys(_ARRAYS)
            plain |= {name: np.array(given[name], dtype=np.float64) for name in given}
            plain |= {name: _validate.non_negative(name, values[name]) for name in _SIZES}
            shape = "" if ellipsoid is None else str(ellipsoid.get("kind"))
            kind: Any = {"record": RecordEllipsoid, CLASS: DisagreementSet}.get(
                shape, ConfidenceEllipsoid
            )
            model = cls(
                weights=np.array(values["weights"], dtype=np.float64),
                features=features,
                guarantee=Guarantee.from_dict(values["guarantee"], values["caveats"]),
                pairs=None if pairs is None else _validate.integer("pairs", pairs, at_least=1),
                method=_validate.one_of("method", values["method"], _FITTED),
                ellipsoid=None if ellipsoid is None else kind.from_dict(ellipsoid),
                release_ids=_texts(values["release_ids"]),
                artifact=_texts([values["artifact"]])[0],
                moment=None if moment is None else ReleasedMoment.from_dict(moment),
                items=None if items is None else _texts(items),
                unoffered=_texts(values["unoffered"]),
                **plain,
            )
        except (SordinoError, AttributeError, KeyError, OverflowError, TypeError, ValueError):
            model = None  # not what was said: it quotes the file
        if model is None or not model.usable():
            raise DataError(f"{problem} has a field that is missing or malformed.")
        return model


def _plain(value: object) -> object:
    """Return a field as JSON holds it."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return list(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def _texts(values: object) -> tuple[str, ...]:
    """Return a list of texts; TypeError if it is anything else."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError
    return tuple(values)
