"""A second moment that was released, with the noise that it carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino._validate import finite_array
from sordino.errors import DataError
from sordino.mechanisms.second_moment import SecondMoment
from sordino.privacy.guarantee import NeighboringRelation

from ._triangle import packed, unpacked

__all__ = ["ReleasedMoment"]

_SETTINGS = ("standard_deviation", "bound", "unit", "delta", "grid")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedMoment:
    """A noised sum of outer products Σ xxᵀ: free to use, for it was paid for already.

    Attributes:
        matrix: G̃, symmetric; it may have negative eigenvalues. Shape (d, d).
        mechanism: What released it: the settings of the noise, all public.

    Source:
        docs/central.md, "Second moment".
    """

    matrix: Float[np.ndarray, "d d"]
    mechanism: SecondMoment

    def __post_init__(self) -> None:
        """Refuse what is no symmetric matrix of finite numbers."""
        matrix = finite_array("matrix", self.matrix, ndim=2)
        if not len(matrix) or matrix.shape != (len(matrix),) * 2 or (matrix != matrix.T).any():
            raise DataError(f"matrix must be square and symmetric, got shape {matrix.shape}.")
        object.__setattr__(self, "matrix", matrix)

    def __repr__(self) -> str:
        """Return the size and the noise; no number of the matrix."""
        return f"ReleasedMoment(d={self.d}, standard_deviation={self.standard_deviation:.4g})"

    @property
    def d(self) -> int:
        """Return the number of features."""
        return len(self.matrix)

    @property
    def standard_deviation(self) -> float:
        """Return the noise of the diagonal; off it the variance is half as large."""
        return self.mechanism.standard_deviation

    @property
    def bound(self) -> float:
        """Return the norm to which every x was clipped."""
        return self.mechanism.bound

    def operator_norm_bound(self, *, failure_probability: float) -> float:
        """Return ν, a norm that the noise exceeds with this probability at most.

        Source:
            docs/central.md, "Second moment".
        """
        return self.mechanism.operator_norm_bound(self.d, failure_probability=failure_probability)

    def to_dict(self) -> dict[str, Any]:
        """Return the moment as JSON holds it; the matrix as its packed lower triangle."""
        settings = {name: getattr(self.mechanism, name) for name in _SETTINGS}
        neighbors = self.mechanism.neighbors.name
        return {"d": self.d, "matrix": packed(self.matrix), "neighbors": neighbors} | settings

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReleasedMoment:
        """Return what :meth:`to_dict` wrote.

        Raises:
            DataError: A field is missing or malformed.
            UsageError: A number is out of range.
        """
        try:
            matrix = unpacked(values["matrix"], int(values["d"]))
            settings = {name: values[name] for name in _SETTINGS}
            neighbors = NeighboringRelation[values["neighbors"]]
        except (KeyError, OverflowError, TypeError, ValueError):
            raise DataError("The second moment has a field that is missing or malformed.") from None
        return cls(matrix=matrix, mechanism=SecondMoment(neighbors=neighbors, **settings))
