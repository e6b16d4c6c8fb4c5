"""How far an answer lies from what people compared, as the last layer of a reward sees it.

An uncertainty as a file of safetensors: matrices, and settings in the header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from sordino import _validate
from sordino._files import atomic_writer, explained
from sordino.errors import DataError, UsageError
from sordino.privacy.ledger_chain import digest_of_array
from sordino.rewards.confidence import ConfidenceEllipsoid, flattest_curvature

_FEWEST_FOR_A_CENTER = 3
"""Answers to one prompt from which on their mean is the center; two are always equally far."""

_ARRAYS = {"center", "metric", "noise"}  # of the ellipsoid, and not plain numbers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LastLayerUncertainty:
    """An elliptical bonus from last-layer features, computed as for a linear reward: a HEURISTIC.

    With h the state that the head reads at the last token, and x = h(first) − h(second) of each
    pair, the bonus of an answer is radius · ‖h − center‖ in the norm of M⁻¹, with
    M = Σ σ′(‖x‖B) xxᵀ + ΛI and the radius of docs/local.md, confidence and pessimism.

    Nothing is proved of it. That radius is about features that were fixed before anybody
    answered, and about the minimizer of the debiased loss inside a ball chosen beforehand.
    Fine-tuning makes the features depend on the randomized answers; where the body was frozen
    they are fixed, but the head is what gradient descent made of it, and not that minimizer. It
    costs no privacy: it sees public texts and the trained model only.

    The **center** of an answer is the mean of all answers to the same prompt in the same call, if
    there are at least three: what they share changes no choice among them. Of fewer it is the
    mean of all training answers, because two answers lie equally far from their own mean, and the
    bonus would cancel. So a bonus may change with the answers that stand beside an answer.

    Source:
        docs/local.md, confidence and pessimism: Γ(x, a) = radius·‖φ(x, a) − φ̄‖_{M⁻¹}.

    Attributes:
        ellipsoid: M, and what the radius is made of; around the weights of the head.
        mean: Mean feature of the training answers, shape (d,).
        confidence: How often the set would hold a linear truth, in (0, 1).
    """

    ellipsoid: ConfidenceEllipsoid
    mean: Float[np.ndarray, " d"]
    confidence: float = 0.95

    def __post_init__(self) -> None:
        _validate.failure_probability("confidence", self.confidence, zero=False)
        mean = _validate.finite_array("mean", self.mean, ndim=1)
        if len(mean) != len(self.ellipsoid.center):
            raise DataError(f"mean must have {len(self.ellipsoid.center)} features.")

    def __repr__(self) -> str:
        return f"LastLayerUncertainty(d={len(self.mean)}, radius={self.radius:.4g}, heuristic)"

    @property
    def radius(self) -> float:
        """What the distance to the center is multiplied by."""
        return self.ellipsoid.radius(self.confidence)

    @classmethod
    def of(
        cls,
        pairs: Iterable[tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d"]]],
        head: Float[np.ndarray, " d"],
        *,
        flip_probability: float,
        ball: float | None = None,
        ridge: float | None = None,
        confidence: float = 0.95,
    ) -> LastLayerUncertainty:
        """Return the uncertainty of a head from its training pairs' features, batch by batch."""
        # Only a few d × d matrices are kept, however many pairs there are. The ball is that of the
        # head if left out. Far too large a ball makes the bonus useless: M counts what a pair tells
        # at the largest margin that the ball permits. Λ is 1/B² if left out, which scales with the
        # features as M does.
        # Source: docs/local.md, confidence and pessimism.
        bound = _ball(ball, head)
        strength = bound**-2 if ridge is None else _validate.positive("ridge", ridge)
        gram, metric, mean = _sums(pairs, len(head), bound)
        metric = metric + strength * np.eye(len(head))
        ellipsoid = ConfidenceEllipsoid.around(
            head,
            gram=gram,
            metric=metric,
            kappa=1 - 2 * flip_probability,
            ball=bound,
            ridge=strength,
            candidates=1,
        )
        return cls(ellipsoid=ellipsoid, mean=mean, confidence=confidence)

    def bonus(
        self, rows: Float[np.ndarray, "n d"], prompts: Integer[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """Return how wrong each answer's reward may be; answers to one prompt share its number."""
        # Source: docs/local.md, confidence and pessimism: radius · ‖h − center‖_{M⁻¹}.
        counts = np.bincount(prompts)
        totals = np.zeros((len(counts), len(self.mean)))
        np.add.at(totals, prompts, rows)
        centers = totals / np.maximum(counts, 1)[:, None]
        centers[counts < _FEWEST_FOR_A_CENTER] = self.mean
        return np.asarray(self.radius * self.ellipsoid.widths(rows - centers[prompts]))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, and digests of the arrays, as JSON holds them."""
        arrays = {"metric": self.ellipsoid.metric, "mean": self.mean}
        digests = {name: digest_of_array(values) for name, values in arrays.items()}
        return {**self.settings, **digests}

    @property
    def settings(self) -> dict[str, Any]:
        """Return the confidence, and what the ellipsoid holds besides arrays."""
        names = [name for name in self.ellipsoid.__dataclass_fields__ if name not in _ARRAYS]
        plain = {name: getattr(self.ellipsoid, name) for name in names}
        return {"confidence": self.confidence, **plain}


def _ball(ball: float | None, head: Float[np.ndarray, " d"]) -> float:
    if ball is not None:
        return _validate.positive("ball", ball)
    norm = float(np.linalg.norm(head))
    if not norm:
        raise UsageError(
            "The head's weights are all 0, so nothing was trained yet and nothing says how large "
            "they may be. Train the reward first, or pass ball=."
        )
    return norm


def _sums(
    pairs: Iterable[tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d"]]], d: int, ball: float
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"], Float[np.ndarray, " d"]]:
    """Return Σ xxᵀ, Σ σ′(‖x‖B) xxᵀ, and the mean of all features, in one reading."""
    gram, bent, total, n = np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), 0
    for first, second in pairs:
        more, flat = flattest_curvature(first - second, ball=ball, ridge=0.0)
        gram, bent = gram + more, bent + flat
        total, n = total + first.sum(axis=0) + second.sum(axis=0), n + len(first)
    if not n:
        raise DataError("There are no pairs, so nothing says how far they reach.")
    return gram, bent, total / (2 * n)


UNCERTAINTY_FILE = "uncertainty.safetensors"
"""Its name beside the weights of a reward."""

_FORMAT, _VERSION = "sordino.uncertainty", "1"
_FILE_ARRAYS = ("metric", "center", "mean")


def write_uncertainty(uncertainty: LastLayerUncertainty | None, folder: Path) -> None:
    """Write an uncertainty into a folder, or remove the one of an earlier reward."""
    path = folder / UNCERTAINTY_FILE
    if uncertainty is None:
        path.unlink(missing_ok=True)
        return
    known = uncertainty.ellipsoid
    content = save(
        {"metric": known.metric, "center": known.center, "mean": uncertainty.mean},
        metadata={
            "format": _FORMAT,
            "version": _VERSION,
            "settings": json.dumps(uncertainty.settings),
        },
    )
    with atomic_writer(path, force=True) as file:
        file.write(content)


def read_uncertainty(folder: Path) -> LastLayerUncertainty | None:
    """Return what :func:`write_uncertainty` wrote; None if there is nothing."""
    path = folder / UNCERTAINTY_FILE
    if not path.exists():
        return None
    try:
        with explained(f"{path.name} cannot be read"), safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in _FILE_ARRAYS}
            header = file.metadata() or {}
        if (header["format"], header["version"]) != (_FORMAT, _VERSION):
            raise ValueError  # noqa: TRY301 (malformed like the others)
        settings, mean = json.loads(header["settings"]), arrays.pop("mean")
        confidence = settings.pop("confidence")
        np.linalg.cholesky(arrays["metric"])
        known = ConfidenceEllipsoid(**arrays, **settings)
        return LastLayerUncertainty(ellipsoid=known, mean=mean, confidence=confidence)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The uncertainty of the reward cannot be used: {path.name} is damaged, or was "
            "written by a newer sordino."
        ) from error
