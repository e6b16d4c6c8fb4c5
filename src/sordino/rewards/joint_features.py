"""Features of a context and an arm together, for linear bandits: public, and of norm at most 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int64

from sordino.errors import UsageError
from sordino.mechanisms._outward import farthest_rows
from sordino.preferences.bandit_logs import BanditLogs
from sordino.preferences.catalogues import Catalogue

__all__ = ["JointFeatures"]

_BLOCK = 1 << 20  # numbers held at once
_UP = 1 + 1e-12
_INSIDE = 1 - 2.0**-39  # so that no rounding makes a row longer than 1


@dataclass(frozen=True)
class JointFeatures:
    """φ(x, a) = every product of a feature of (1, x) with one of (1, a), of norm at most 1.

    The arm's own features are standardized over the catalogue, which is public, and scaled so
    that the longest has norm 1; without any, arm a is the a-th unit vector. Contexts have norm
    at most 1. Each of the two vectors is extended by a 1 and divided by √2 (a bandit without
    contexts has the 1 alone). The first feature is a constant, so rewards may be centered.

    Attributes:
        catalogue: The arms and their features.
        context_size: Length p of a context; 0 for none.

    Source:
        docs/intrinsic.md, "Linear bandits".
    """

    catalogue: Catalogue
    context_size: int

    @cached_property
    def arms(self) -> Float[np.ndarray, "k q1"]:
        """Return (1, a)/√2 for every arm."""
        given = self.catalogue.features
        own = np.eye(len(self.catalogue)) if given is None else _standardized(given)
        rows = np.asarray(np.hstack([np.ones((len(own), 1)), own]) / np.sqrt(2))
        rows.setflags(write=False)
        return rows

    @property
    def dimension(self) -> int:
        """Return d, the number of features."""
        return int(self.arms.shape[1]) * (self.context_size + 1)

    @cached_property
    def spread(self) -> float:
        """Return a bound on max ‖φ(x, a) − φ(x, a′)‖ over all contexts and arms; public."""
        return farthest_rows(self.arms)

    @classmethod
    def of(cls, logs: BanditLogs) -> JointFeatures:
        """Return the features that logs are fitted with."""
        return cls(logs.catalogue, 0 if logs.contexts is None else int(logs.contexts.shape[1]))

    def options(self, context: object, arms: Int64[np.ndarray, " c"]) -> Float[np.ndarray, "c d"]:
        """Return φ(x, a) of some arms in one context of norm at most 1 (None: all of it 0).

        Raises:
            UsageError: The context has another length, or is no row of finite numbers of norm
                at most 1.
        """
        blank = np.zeros(self.context_size)
        given = blank if context is None else np.atleast_1d(np.asarray(context, dtype=np.float64))
        if given.shape != blank.shape or not np.isfinite(given).all():
            raise UsageError(
                f"context must be {self.context_size} finite numbers, as the logs' own contexts "
                "are made (see contexts_of)."
            )
        if float(np.linalg.norm(given)) > _UP:
            raise UsageError("context must have norm at most 1: see contexts_of.")
        return self._joint(given[None, :], arms)

    def blocks(self, logs: BanditLogs) -> Iterator[tuple[slice, Float[np.ndarray, "b d"]]]:
        """Yield stretches of the logs: which they are, and φ of what was seen and pulled."""
        n, size = len(logs.arms), max(1, _BLOCK // self.dimension)
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            contexts = np.zeros((part.stop - start, 0))
            if logs.contexts is not None:
                contexts = _shortened(logs.contexts[part])
            yield part, self._joint(contexts, logs.arms[part])

    def _joint(
        self, contexts: Float[np.ndarray, "b p"], arms: Int64[np.ndarray, " b"]
    ) -> Float[np.ndarray, "b d"]:
        """Return φ for every pair of a context (or the one for all) and an arm."""
        ones = np.ones((len(contexts), 1))
        seen = np.hstack([ones, contexts]) / (np.sqrt(2) if self.context_size else 1.0)
        pulled = self.arms[arms] * _INSIDE
        return np.asarray(
            (seen[:, :, None] * pulled[:, None, :]).reshape(len(pulled), self.dimension)
        )


def _standardized(features: Float[np.ndarray, "k q"]) -> Float[np.ndarray, "k q"]:
    """Return columns of mean 0 and equal spread, all rows of norm at most 1."""
    centered = features - features.mean(axis=0)
    spread = centered.std(axis=0)
    scaled = np.divide(centered, spread, out=np.zeros_like(centered), where=spread > 0)
    return _shortened(scaled / max(float(np.linalg.norm(scaled, axis=1).max(initial=0.0)), 1e-300))


def _shortened(rows: Float[np.ndarray, "b p"]) -> Float[np.ndarray, "b p"]:
    """Return rows of norm at most 1: the bound is enforced, row by row."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1.0))
