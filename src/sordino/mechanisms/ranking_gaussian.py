"""All that rankings say about a reward, released once as one sum with exact Gaussian noise.

Candidates and their features are public and only their order is private. The sum is that of ranks
(Borda) or that of first choices; what one ballot can move it by is a whole number of steps that is
bounded beforehand, for every order with ties.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Int64, Integer

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, UsageError
from sordino.mechanisms import _ranking_steps
from sordino.mechanisms._grid import PersonIds, refuse_persons
from sordino.mechanisms._label_steps import Order, counted_rows
from sordino.mechanisms._ranking_steps import Statistic
from sordino.mechanisms._row_sums import Rows
from sordino.mechanisms._slates import checked_starts
from sordino.mechanisms.ellipsoid import checked_rows
from sordino.mechanisms.label_gaussian import LabelGaussian, LabelStatistic
from sordino.mechanisms.ranking_design import RankingDesign
from sordino.privacy.events import GaussianEvent
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["RankingGaussian"]


@dataclass(frozen=True)
class RankingGaussian:
    """Release one sum over all ballots with noise that hides any one of them.

    ``"borda"``: T = Σ w Σ_a (K − rank_a)φ_a, w = 2/(K(K − 1)), which the composite likelihood of
    all pairs needs. Candidates that tie have the average of their ranks; those that a person did
    not list tie below the others, so that the length of a ballot is hidden too (and short ballots
    shrink what is estimated). ``"first-choice"``: T = Σ φ(best), the mean of the candidates that
    tie as the best; of a ballot that lists nobody, the mean of all.

    Args:
        epsilon: Bound on the privacy loss, finite and above 0: of one ballot, and of all ballots
            of one person if ``records_per_person`` is given.
        delta: Failure probability, in (0, 1).
        statistic: ``"borda"`` or ``"first-choice"``.
        shaped: Noise in the shape that has nearly the least variance in all and hides every
            difference of two candidates of a slate; False for the same noise in every direction.
        records_per_person: How many ballots of one person count; the others are left out,
            whatever they say. Needed for unit ``"person"``.
        grid: Step of the grid, relative to the longest weighted vector: 2^-24 to 2^-12.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        GaussianEvent of :attr:`mu` for unit ``"label"`` (one ballot, also its length and what it
        lists) under ``REPLACE_ONE``, and for unit ``"person"`` with ``records_per_person``
        (caveat ``labels-only``): for any orders with ties of any slates; no arithmetic caveat.
        Shown by tests/soundness/test_ranking_gaussian_mechanism.py.

    Source:
        docs/central.md, "Rankings". Differs: every vector is taken less the mean of its slate,
        which is public and added to what is released; above five candidates the smaller of two
        bounds on what one ballot moves.

    Example:
        >>> noise = RankingGaussian(1.0, delta=1e-6, statistic="borda")
        >>> design = noise.prepare(np.eye(3), np.array([0, 3]), slates=np.zeros(50, dtype=int))
        >>> np.sqrt(np.diag(design.covariance)).round(2).tolist()  # 2·√2/3/mu, less the mean
        [3.25, 3.25, 3.25]
    """

    epsilon: float
    _: KW_ONLY
    delta: float
    statistic: Statistic
    shaped: bool = True
    records_per_person: int | None = None
    grid: float = 2.0**-20

    def __post_init__(self) -> None:
        """Refuse what no Gaussian noise keeps."""
        _validate.one_of("statistic", self.statistic, ("borda", "first-choice"))
        checked = self._labels
        for name in ("epsilon", "records_per_person"):
            object.__setattr__(self, name, getattr(checked, name))

    @property
    def _labels(self) -> LabelGaussian:
        """Return the same settings for labels: what the noise promises does not depend on more."""
        return LabelGaussian(
            self.epsilon,
            delta=self.delta,
            shaped=self.shaped,
            records_per_person=self.records_per_person,
            grid=self.grid,
        )

    @property
    def mu(self) -> float:
        """Return how far one change moves the sum, in standard deviations, with the grid's cost."""
        return self._labels.mu

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does, for the ledger."""
        return self._labels.event

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum at most, measured in its own noise: μ.

        Raises:
            PrivacyError: Under another relation than ``REPLACE_ONE``.
        """
        return self._labels.sensitivity(neighbors)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one ballot, or to all ballots of one person.

        Args:
            unit: ``"label"``, a ballot; or ``"person"`` if ``records_per_person`` is set.
            neighbors: What one change is: ``REPLACE_ONE``.
            trust: Who saw the raw ballots.

        Raises:
            PrivacyError: For another unit or relation, or for a person whose number of ballots
                has no limit.

        Guarantee:
            At most (epsilon, delta).
        """
        return self._labels.guarantee(unit=unit, neighbors=neighbors, trust=trust)

    def prepare(
        self,
        features: Rows,
        starts: Integer[np.ndarray, " s"],
        *,
        slates: Integer[np.ndarray, " n"] | None = None,
        persons: PersonIds | None = None,
        rows: Order | None = None,
    ) -> RankingDesign:
        """Return the release made ready for public slates: it reads no ballot, spends nothing.

        Args:
            features: φ of every flat candidate, one in each row; dense or compressed sparse rows.
                For items without features, the identity.
            starts: Slate i holds the candidates ``starts[i]:starts[i+1]``; at least two.
            slates: Which slate each ballot ranks; if left out, ballot i ranks slate i. One common
                list is one slate, and zeros.
            persons: The public id of each ballot's person; exactly if ``records_per_person`` is
                set.
            rows: Which ballots may count, in order of preference; the choice must not depend on
                what they say.

        Raises:
            DataError: A vector, an id or a slate cannot be used, or no candidates differ.
            UsageError: ``persons`` is missing or is not used; or the noise would be too few
                steps of the grid, or the sum too many.
        """
        refuse_persons(given=persons is not None, most=self.records_per_person)
        features = checked_rows("features", features)
        cuts = checked_starts(starts, features.shape[0])
        which = _checked_slates(slates, len(cuts) - 1)
        used = counted_rows(len(which), persons, rows, self.records_per_person)
        if not used.any():
            raise DataError("rows must name at least one ballot that counts. Nothing was released.")
        steps = _ranking_steps.of_slates(
            features, cuts, which[used], self.statistic, shaped=self.shaped, grid=self.grid
        )
        design = RankingDesign(
            self,
            steps=steps,
            starts=cuts,
            slates=which,
            used=used,
            persons=persons,
            offset=_ranking_steps.middle(features, cuts, which[used]),
        )
        design.refuse_unusable_noise()
        return design

    def release(
        self, doubled_ranks: Integer[np.ndarray, " m"], *, design: RankingDesign, entropy: Entropy
    ) -> LabelStatistic:
        """Return the noised sum; draws noise, so the spend must already be on a ledger.

        Args:
            doubled_ranks: Twice the average rank of every candidate of every ballot, one ballot
                after the other: 2, 4, ... for a strict order.
            design: What :meth:`prepare` of an equal mechanism returned.
            entropy: System entropy lets OpenDP draw from the operating system. A seeded stream
                gives rounded floating-point noise, for study only.

        Raises:
            DataError: Ranks are no orders, or not as many as the candidates.
            UsageError: The design was prepared with other settings.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        if design.mechanism != self:
            raise UsageError(
                f"design was prepared by {design.mechanism!r}, and its noise is another one than "
                "this mechanism promises. Nothing was released. Prepare it again."
            )
        return design.statistic(doubled_ranks, entropy=entropy)


def _checked_slates(
    slates: Integer[np.ndarray, " n"] | None, count: int
) -> Int64[np.ndarray, " n"]:
    """Return which slate every ballot ranks."""
    which = np.arange(count) if slates is None else np.asarray(slates)
    if which.ndim != 1 or which.dtype.kind not in "iu" or not len(which):
        raise DataError("slates must be whole numbers in one dimension. Nothing was released.")
    which = which.astype(np.int64)
    if (which < 0).any() or (which >= count).any():
        raise DataError(f"slates must be from 0 to {count - 1}. Nothing was released.")
    return which
