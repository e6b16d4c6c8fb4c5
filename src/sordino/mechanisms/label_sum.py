"""All that labels say about a reward, Σ y_i x_i, released once with exact Gaussian noise.

The vectors x_i are public and only the labels are private. So the noise may have the shape of
the vectors, and a label moves the released sum by a vector of integers that is known beforehand.
What a noised sum promises, and the arithmetic of its noise, is here for rankings too. Vectors may
be in many files: then exact partial sums are added up, and noise is drawn once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial, reduce
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64, Integer
from scipy.linalg import block_diag

from sordino import _validate
from sordino._random import Entropy
from sordino.engines.engine import Rows
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.privacy import accounting
from sordino.privacy.conversions import gaussian_mu
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    SHARES,
    UNDECIDED,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

from .base import Described, Repeated, WorstCase, gaussian_log_ratio, label_array, stated
from .ellipsoid import Ellipsoid, checked_rows, isotropic_ellipsoid, least_noise_ellipsoid
from .grid import (
    GRID_SLACK,
    STEPS_OF_NOISE,
    Matrix,
    PersonIds,
    counting_less,
    dense_parts,
    first_rows,
    refuse_persons,
    root_above,
    weighted,
    whole_steps,
    with_noise,
)

Order = Sequence[int] | Int64[np.ndarray, " k"]
Together = Callable[[Int64[np.ndarray, "p m"]], Int64[np.ndarray, " p"]]
"""From the rows of people, m each, to how far they move a sum together, in parts of a step."""

FINER: Final = 2**6
"""Lengths are rounded up to this part of a step."""

_GRIDS = (2.0**-24, 2.0**-12)
_SHORT = 0.25  # of the feature bound: most differences of answers are longer
_USUAL_SQUARE = 0.3  # ‖x‖² of differences of texts, in squares of the feature bound
_TOGETHER = 64  # rows of one person whose products are looked at; more of them add up
_AT_ONCE = 1 << 20  # such products that are held
_FAINT = 1 / 32  # variance of the noise over that of labels, below which it hardly matters


@dataclass(frozen=True)
class SumMechanism(Described):
    """One noised sum over all labels or ballots: what it promises, whatever it adds up.

    Guarantee:
        None of its own: each kind states one. Shown by
        tests/soundness/test_label_gaussian_mechanism.py and
        tests/soundness/test_ranking_gaussian_mechanism.py.
    """

    epsilon: float
    _: KW_ONLY
    delta: float
    shaped: bool = True
    records_per_person: int | None = None
    grid: float = 2.0**-20

    def __post_init__(self) -> None:
        _validate.settle(self, epsilon=_validate.positive)
        _validate.failure_probability("delta", self.delta, zero=False)
        _validate.one_of("shaped", self.shaped, (True, False))
        if self.records_per_person is not None:
            _validate.settle(self, records_per_person=partial(_validate.integer, at_least=1))
        if not _GRIDS[0] <= _validate.positive("grid", self.grid) <= _GRIDS[1]:
            raise UsageError(f"grid must be between 2^-24 and 2^-12, got {self.grid!r}.")
        if self.mu == 0:
            raise UsageError(f"delta={self.delta!r} is too small for Gaussian noise of any size.")
        # The longest row is 1/grid steps, whatever the rows are: what they will be refused for is
        # known here, before anything else of the same run was paid for.
        steps, (least, most) = 1 / (self.grid * self.mu), STEPS_OF_NOISE
        if not least <= steps <= most / (self.records_per_person or 1):
            raise UsageError(
                f"epsilon={self.epsilon!r} leaves noise of {steps:.3g} steps of the grid "
                f"({self.grid!r}), of which {least} to {most} can be drawn. Nothing was released. "
                "Give another epsilon."
            )

    @property
    def mu(self) -> float:
        """Return how far one change moves the sum, in standard deviations, with the grid's cost."""
        # It is the largest value that the accountant shows to keep (epsilon, delta).
        mu, less = gaussian_mu(self.epsilon, self.delta), 2.0**-50
        while mu > 0 and self._loss(mu) > self.epsilon:
            mu, less = mu * (1 - less), 2 * less
        return mu

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does, for the ledger."""
        return GaussianEvent(self.mu)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum at most, measured in its own noise: μ."""
        # Raises: PrivacyError: Under another relation than ``REPLACE_ONE``.
        if neighbors != REPLACE_ONE:
            relation = getattr(neighbors, "name", neighbors)
            raise PrivacyError(
                "Noise on labels hides which label a row has, and every row is public: nothing is "
                f"promised under {relation}. Use REPLACE_ONE, or a mechanism for records."
            )
        return self.mu

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one label or ballot, or to all of one person."""
        # Guarantee: At most (epsilon, delta). With ``records_per_person`` the same is stated for a
        # label, for which it is more than enough.
        self.sensitivity(neighbors)  # of no other relation
        if unit == "person" and self.records_per_person is None:
            raise PrivacyError(
                "One person may have any number of labels, so nothing is promised with "
                "unit='person'. Set records_per_person, the most rows of one person that count, "
                "or use unit='label'."
            )
        if unit not in ("label", "person"):
            raise PrivacyError(
                f"Noise on labels protects labels, not unit={unit!r}: prompts and answers are "
                "public here. Use unit='label', or a mechanism for records."
            )
        return stated(
            self.event,
            delta=self.delta,
            unit=unit,
            neighbors=neighbors,
            trust=trust,
            caveats=("labels-only",) if unit == "person" else (),
        )

    @property
    def counters(self) -> Float[np.ndarray, "q q"]:
        """Return what one step of each counter of ties is worth: most sums have none."""
        return np.zeros((0, 0))

    def ellipsoid_of(self, rows: Matrix | Rows) -> Ellipsoid:
        """Return the shape of noise that hides any of these public rows."""
        return (least_noise_ellipsoid if self.shaped else isotropic_ellipsoid)(rows)

    def _loss(self, mu: float) -> float:
        """Return the epsilon that the accountant shows for this much noise."""
        events = [(GaussianEvent(mu), 1)]
        return accounting.composed_epsilon(events, neighbors=REPLACE_ONE, delta=self.delta)


class _HiddenSum:
    """A sum in whole steps whose noise is known: how large it is, and what comes out."""

    mechanism: SumMechanism  # the settings
    ellipsoid: Ellipsoid  # the shape of the noise
    moved: float  # how many steps one change moves the sum at most, rounded up: Δ

    @property
    def unit(self) -> float:
        """Return what one step is worth in whitened coordinates."""
        return self.mechanism.grid

    @property
    def step(self) -> Float[np.ndarray, "d r"]:
        """Return what one step in each direction is worth: from steps to the released sum."""
        return np.asarray(block_diag(self.ellipsoid.unwhiten * self.unit, self.mechanism.counters))

    @property
    def scale(self) -> float:
        """Return the standard deviation of the noise in steps of the grid."""
        return float(self.moved * GRID_SLACK / self.mechanism.mu)

    @property
    def factor(self) -> Float[np.ndarray, "d r"]:
        """Return F with covariance FFᵀ."""
        return self.step * self.scale

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the noise, V: known before anything is spent."""
        return np.asarray(self.factor @ self.factor.T)

    def refuse_unusable_noise(self) -> None:
        """Refuse noise that the grid is too coarse or too fine for."""
        least, most = STEPS_OF_NOISE
        if not least <= self.scale <= most:
            raise UsageError(
                f"The noise must be between {least} and {most} steps of the grid, and it would be "
                f"{self.scale:.6g}. Nothing was released. Choose another grid than "
                f"{self.mechanism.grid!r}, or another epsilon."
            )

    def _noised(
        self, total: Int64[np.ndarray, " r"], trials: int, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        """Return sums with noise, as they are released."""
        noised = with_noise(np.tile(total, trials), self.scale, entropy).astype(np.float64)
        return np.asarray(noised.reshape(trials, -1) @ self.step.T)


@dataclass(frozen=True, eq=False, repr=False)
class DesignedSum(_HiddenSum, Repeated[np.ndarray]):
    """A release of which everything but labels or orders is known: its noise is a number.

    Guarantee:
        None of its own: each design states one. Shown by
        tests/soundness/test_label_gaussian_mechanism.py and
        tests/soundness/test_ranking_gaussian_mechanism.py.
    """

    _: KW_ONLY
    used: Bool[np.ndarray, " n"]  # which rows or ballots count
    persons: PersonIds | None  # whose they are, if all of one person change together
    # The public part of the sum, which no label and no order changes.
    offset: Float[np.ndarray, " d"] | None = None
    moved: float = field(init=False)  # how many steps one change moves the sum at most: Δ
    # The rows or ballots of a change that may move it as far: one, or one person's.
    worst: Int64[np.ndarray, " k"] = field(init=False)

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does, for the ledger."""
        return self.mechanism.event

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum at most, in its own noise."""
        return self.mechanism.sensitivity(neighbors)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises: what the mechanism does."""
        return self.mechanism.guarantee(unit=unit, neighbors=neighbors, trust=trust)

    def _releases(
        self, values: Integer[np.ndarray, " m"], trials: int, entropy: Entropy
    ) -> Float[np.ndarray, "trials d"]:
        # Of labels, each 0, 1, 2 (undecided) or the code of a level; or of twice the average rank
        # of every candidate of every ballot.
        sums = self._noised(self._total(values), trials, entropy)
        return sums if self.offset is None else sums + self.offset

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials d"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        inside = outputs if self.offset is None else outputs - self.offset
        counted = np.linalg.inv(self.mechanism.counters)
        steps = inside @ block_diag(self.ellipsoid.whiten.T / self.unit, counted)
        one, other = (self._total(side) for side in (case.one, case.other))
        return gaussian_log_ratio(steps, one, other, self.scale)

    @abstractmethod
    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return labels or orders of one row or person that move the sum farthest."""

    @abstractmethod
    def _total(self, values: Integer[np.ndarray, " m"]) -> Int64[np.ndarray, " r"]:
        """Return the exact sum of what the labels or orders contribute, in steps."""

    def _hide(
        self,
        moves: Int64[np.ndarray, " n"],
        persons: PersonIds | None,
        together: Together | None = None,
    ) -> None:
        """Set how far one change moves the sum, and by which rows: nobody else may say it."""
        # Without persons the noise hides a row, and with a limit the mechanism speaks of a person.
        refuse_persons(given=self.persons is not None, most=self.mechanism.records_per_person)
        moved, worst = farthest(moves, persons, together)
        object.__setattr__(self, "moved", moved)
        object.__setattr__(self, "worst", worst)


def counted_rows(
    n: int, persons: PersonIds | None, rows: Order | None, most: int | None
) -> Bool[np.ndarray, " n"]:
    """Return which rows count: the first of each person, in order of preference."""
    order = np.arange(n) if rows is None else np.asarray(rows)
    if order.ndim != 1 or (order.size and order.dtype.kind not in "iu"):
        raise DataError("rows must be row numbers in one dimension. Nothing was released.")
    order = order.astype(np.int64)
    if ((order < 0) | (order >= n)).any() or len(np.unique(order)) != len(order):
        raise DataError("rows must be numbers of rows, each at most once. Nothing was released.")
    if persons is not None and most is not None:
        ids = _validate.person_ids(persons, n)  # also of rows that do not count
        order = order[first_rows([ids[i] for i in order], len(order), most)]
    used = np.zeros(n, dtype=bool)
    used[order] = True
    return used


def farthest(
    moves: Int64[np.ndarray, " n"], persons: PersonIds | None, together: Together | None = None
) -> tuple[float, Int64[np.ndarray, " k"]]:
    """Return how far one change moves the sum at most, in steps, and its rows."""
    # One change replaces the label of one row, or of all rows of one person: then the triangle
    # inequality adds their lengths, and `together` may know better of people with as many rows.
    n = len(moves)
    names = range(n) if persons is None else _validate.person_ids(persons, n)
    numbers: dict[str | int, int] = {}
    codes = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    sums = np.zeros(len(numbers), dtype=np.int64)
    np.add.at(sums, codes, moves)
    if together is not None and persons is not None:
        counted = np.flatnonzero(moves)
        counted = counted[np.argsort(codes[counted], kind="stable")]
        sizes = np.bincount(codes[counted], minlength=len(sums))
        starts = np.cumsum(sizes) - sizes
        for size in np.unique(sizes[(sizes > 1) & (sizes <= _TOGETHER)]):
            who = np.flatnonzero(sizes == size)
            mine = counted[starts[who][:, np.newaxis] + np.arange(size)]
            sums[who] = np.minimum(sums[who], together(mine))
    worst = int(sums.argmax())
    rows = np.flatnonzero((codes == worst) & (moves > 0))
    # Rounding a whole number to a float is part of what the allowance for the grid covers.
    return int(sums[worst]) / FINER, rows


def _half_steps(
    differences: Matrix,
    used: Bool[np.ndarray, " n"],
    whiten: Float[np.ndarray, "r d"],
    *,
    longest: float,
    parts: int = 2,
) -> Int32[np.ndarray, "n r"]:
    """Return a part of every whitened row that counts, rounded to the grid; else zeros."""
    # A row that does not count is not read: its product may be no number, and no number times 0 is
    # not 0.
    turned = np.ascontiguousarray(whiten.T) / parts
    halves = np.zeros((len(used), len(whiten)), dtype=np.int32)
    for part, values in dense_parts(differences):
        counted = used[part]
        with np.errstate(over="ignore", invalid="ignore"):  # it is refused, and not warned of
            turned_rows = values[counted] @ turned
        halves[part][counted] = whole_steps(turned_rows, longest)
    return halves


def _times_of(labels: Integer[np.ndarray, " n"], parts: int) -> Int64[np.ndarray, " n"]:
    """Return how often each label contributes a part of its row: from 0 to all ``parts`` times."""
    times = _whole_times(parts)[label_array(labels)]
    if (times < 0).any():
        raise DataError("Labels must be of the declared levels. Nothing was released.")
    return np.asarray(times)


@lru_cache(maxsize=16)
def _whole_times(parts: int) -> Int64[np.ndarray, " codes"]:
    """Return that number for every label; −1 where it is not whole."""
    whole = [share * parts for share in SHARES]
    return np.array([int(n) if n.denominator == 1 else -1 for n in whole], dtype=np.int64)


def lengths(
    halves: Int32[np.ndarray, "n r"], parts: int = 2, tied: Int32[np.ndarray, "n q"] | None = None
) -> Int64[np.ndarray, " n"]:
    """Return ‖Ph‖ of every row in parts of a step, P halves, rounded up by integer arithmetic."""
    # Where ties are counted: how far the two labels are apart that are farthest.
    squares = np.empty(len(halves), dtype=np.int64)
    for part, values in dense_parts(halves):
        wide = values.astype(np.int64)
        squares[part] = np.einsum("ij,ij->i", wide, wide)
    moves = _moves_of(squares, parts)
    return moves if tied is None else np.maximum(moves, _moved_by_tie(squares, tied))


def _moves_of(squares: Int64[np.ndarray, " n"], parts: int) -> Int64[np.ndarray, " n"]:
    """Return ‖Ph‖ from ‖h‖², in parts of a step, rounded up by integer arithmetic."""
    return root_above((parts * FINER) ** 2 * squares)


def coefficients(n: int) -> Float[np.ndarray, " n"]:
    """Return the first n coefficients of (1 − x)^(−1/2): what counts of votes, the newest first.

    Source:
        Fichtenberger, Henzinger, Upadhyay (2023), "Constant matters", Theorem 1: binom(2k, k)/4^k.
    """
    steps = np.arange(1.0, n)
    return np.cumprod([1.0, *(1 - 0.5 / steps)])


def growth(n: int) -> float:
    """Return Σ c_k² over n updates: what one vote spends in all of them, in squares of the first.

    It is also the variance after n updates, in that of the noise of one of these releases.
    """
    return float((coefficients(n) ** 2).sum())


@dataclass(frozen=True)
class LabelGaussian(SumMechanism):
    """Release Σ y_i x_i over all labels with noise that hides any one of them.

    A label y_i is 1, 0 or undecided (½) and x_i the public difference of two answers' features.
    The likelihood reads labels through this sum only, so fitting it costs nothing more. With
    ``longest`` the sum is Σ w_i y_i x_i, w_i = min(1, longest/‖x_i‖): the noise must hide the
    longest row, and a weighted likelihood reads this sum only too.

    Args:
        epsilon: Bound on the privacy loss, finite and above 0: of one label, and of all labels
            of one person if ``records_per_person`` is given.
        delta: Failure probability, in (0, 1).
        shaped: Noise in the shape that has nearly the least variance in all; False for the
            same noise in every direction.
        records_per_person: How many rows of one person count (m); the others are left out,
            whatever their labels. Needed for unit ``"person"``.
        longest: Rows that are longer count less, as said above; every row counts 1 if left out.
        ties: How many columns at the end of the rows are no feature: each holds 1 where an
            undecided label is counted, else 0, and the numbers of ties are released with the sum.
        grid: Step of the grid, relative to the longest x_i as the noise measures it: 2^-24 to
            2^-12.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        GaussianEvent of :attr:`mu` for unit ``"label"`` under ``REPLACE_ONE``, and for unit
        ``"person"`` with ``records_per_person`` (caveat ``labels-only``): for any labels, any
        x_i and any number of them; no arithmetic caveat. A label contributes 0, h or 2h, whole
        numbers that depend on the public w_i x_i alone, so one change moves the sum by at most
        ‖2h‖, which is computed in integers and rounded up (where ties are counted, by √(‖h‖² + kc²)
        if that is more, k counters of c steps); for a person, by the sum of these over their rows,
        or by √Σ_ij |2h_i·2h_j| if that is less (up to 64 rows, in memory).
        The noise is exactly discrete, with the allowance for its grid of
        :class:`~sordino.mechanisms.gaussian.GaussianMechanism`. Shown by
        tests/soundness/test_label_gaussian_mechanism.py.

    Source:
        docs/central.md, "Label privacy, one Gaussian release". Differs: rounding to even steps,
        so that an undecided label is a whole number of steps too.

    Example:
        >>> noise = LabelGaussian(epsilon=1.0, delta=1e-6)
        >>> round(noise.mu, 6)
        0.236704
        >>> design = noise.prepare(np.array([[3.0, 0.0], [0.0, 0.1]]))
        >>> np.sqrt(np.diag(design.covariance)).round(3).tolist()
        [12.674, 0.446]
    """

    _: KW_ONLY
    longest: float = math.inf
    ties: int = 0
    name: ClassVar[str] = "label-gaussian"
    public: ClassVar[tuple[str, ...]] = ("mu", "shaped", "longest", "records_per_person")

    def __post_init__(self) -> None:
        if self.longest != math.inf:
            _validate.settle(self, longest=_validate.positive)
        _validate.integer("ties", self.ties, at_least=0)
        if self.ties and self.longest != math.inf:
            raise UsageError("ties are counted whole, so every row is: leave longest out.")
        super().__post_init__()

    @classmethod
    @_validate.typed
    def for_sizes(
        cls,
        epsilon: float,
        *,
        n: int,
        d: int,
        feature_bound: float,
        delta: float,
        records_per_person: int | None = None,
    ) -> LabelGaussian:
        """Return the mechanism whose noise suits so many labels and features of texts.

        The noise is as large as the longest row that it must hide. So rows beyond a quarter of
        the bound count less; and where the noise then is small beside what labels scatter, as
        much less only as keeps it so, and it is shaped. Only public sizes decide.

        Source:
            docs/central.md, "Label privacy, one Gaussian release": with c = L/4 and s² = 0.3 L²
            the usual ‖x‖², r = 4d(c/μ)²/(ns²); for r < 1/32 c grows by √(1/(32r)) and the noise
            is shaped; L is the bound on the norm of one answer's features.

        Example:
            >>> sizes = {"d": 28, "feature_bound": 1.0, "delta": 1e-6}
            >>> found = [LabelGaussian.for_sizes(4.0, n=n, **sizes) for n in (500, 20_000)]
            >>> [(round(noise.longest, 3), noise.shaped) for noise in found]
            [(0.25, False), (1.084, True)]
        """
        _validate.integer("n", n, at_least=1)
        _validate.integer("d", d, at_least=1)
        longest = _SHORT * _validate.positive("feature_bound", feature_bound)
        people = records_per_person
        noise = cls(epsilon, delta=delta, records_per_person=people, shaped=False, longest=longest)
        usual = n * _USUAL_SQUARE / (noise.records_per_person or 1) ** 2
        share = 4 * d * (_SHORT / noise.mu) ** 2 / max(usual, 1e-300)
        if share >= _FAINT:
            return noise
        return replace(noise, shaped=True, longest=noise.longest * math.sqrt(_FAINT / share))

    @property
    def tie_steps(self) -> int:
        """Return c, by how many steps one tie moves each counter that its row names."""
        # So that ties cost nothing: half a row and all counters of a tie, at most the one of all
        # and one of a group, are together as long as the longest row, 1/grid steps. The m ties of
        # a person all move the same counter, and m rows may be √m as far as one.
        # Source: docs/ranking.md, "How it is private": h² + k c² = (2h)² with c = h √(3/k).
        marks = min(max(self.ties, 1), 2) * (self.records_per_person or 1)
        return int(math.sqrt(3 / marks) / 2 / self.grid)

    @property
    def counters(self) -> Float[np.ndarray, "q q"]:
        """Return what one step of each counter of ties is worth."""
        return np.eye(self.ties) / self.tie_steps

    def spread_over(self, updates: int) -> LabelGaussian:
        """Return each of so many mechanisms that spend no more on one label than this one."""
        # Releases of weighted sums, the newest votes first: see :func:`coefficients`.
        mu = self.mu * (1 - 2.0**-20) / math.sqrt(growth(updates))
        return replace(self, epsilon=self._loss(mu))

    def prepare(
        self,
        differences: Matrix,
        *,
        persons: PersonIds | None = None,
        rows: Order | None = None,
        parts: int = 2,
        weights: Float[np.ndarray, " n"] | None = None,
    ) -> LabelDesign:
        """Return the release made ready for public vectors: it reads no label and spends nothing.

        Args:
            differences: x_i, one in each row; dense or compressed sparse rows.
            persons: The public id of each row's person, text or whole numbers; exactly if
                ``records_per_person`` is set.
            rows: Which rows may count, in order of preference; all of them, in their order, if
                left out. The first ``records_per_person`` of each person count. The choice must
                not depend on labels.
            parts: P, of which every label is a whole number: 2 for labels that may be undecided,
                K − 1 or twice that for ratings of K levels. Declared, never read from labels.
            weights: How much of each row is summed, public and in (0, 1]; all of it if left out.
                A label then moves the sum by at most its weight times what the noise hides, and
                the ``records_per_person`` of each of ``persons`` by the sum of their weights.

        Raises:
            DataError: A vector, an id or a row cannot be used, or no row that counts is
                different from 0.
            UsageError: ``persons`` is missing or is not used; or so much loss is allowed that
                the noise would be below 2^12 steps of the grid.
        """
        self.refuse_parts(parts)
        checked = checked_rows("differences", differences)
        marks = _marks_of(checked, self.ties)
        differences = _without_marks(checked, self.ties)
        if self.longest != math.inf:
            differences = checked_rows("differences", counting_less(differences, self.longest))
        used = counted_rows(differences.shape[0], persons, rows, self.records_per_person)
        fitted = differences if used.all() else differences[used]
        ellipsoid = self.ellipsoid_of(fitted)
        # No row that counts is longer than 1 as the noise measures it; a half one takes half that.
        most, whiten = 1 / self.grid, ellipsoid.whiten / self.grid
        if weights is not None:
            differences = checked_rows("differences", weighted(differences, weights))
            marks = marks * weights[:, np.newaxis]
        halves = _half_steps(differences, used, whiten, longest=most, parts=parts)
        tied = np.rint(marks * used[:, np.newaxis] * self.tie_steps).astype(np.int32)
        design = LabelDesign(
            self, ellipsoid, halves, parts, tied, weights, used=used, persons=persons
        )
        design.refuse_unusable_noise()
        return design

    def refuse_parts(self, parts: int) -> None:
        """Refuse ratings where ties are counted: only half a label is a tie."""
        if self.ties and parts != 2:  # noqa: PLR2004 (halves)
            raise UsageError("Ties are of comparisons; ratings have none. Leave ties out.")


def _without_marks(rows: Matrix, ties: int) -> Matrix:
    """Return rows without their last columns, which say what counters a tie of theirs moves."""
    return rows[:, : rows.shape[1] - ties] if ties else rows


def _marks_of(rows: Matrix, ties: int) -> Int64[np.ndarray, "n q"]:
    """Return those last columns; refuse what is no mark."""
    if not 0 <= ties < rows.shape[1]:
        raise UsageError(f"ties={ties!r} counters leave no column of {rows.shape[1]}.")
    columns = rows[:, rows.shape[1] - ties :]
    marks = columns if isinstance(columns, np.ndarray) else columns.toarray()
    if not np.isin(marks, (0, 1)).all():
        raise DataError("The columns that count ties must hold 0 or 1. Nothing was released.")
    return np.asarray(marks, dtype=np.int64)


def _moved_by_tie(
    squares: Int64[np.ndarray, " n"], tied: Integer[np.ndarray, "n q"]
) -> Int64[np.ndarray, " n"]:
    """Return how far a tie is from both other labels, in parts of a step, rounded up."""
    wide = tied.astype(np.int64)
    return _moves_of(squares + np.einsum("ij,ij->i", wide, wide), 1)


@dataclass(frozen=True, eq=False, repr=False)
class LabelDesign(DesignedSum):
    """A release of labels whose vectors are known: a mechanism from labels to their noised sum.

    Guarantee:
        As :class:`LabelGaussian` states it; nothing here is read from a label. Shown by
        tests/soundness/test_label_gaussian_mechanism.py.
    """

    # Made by `prepare`, from public vectors alone.

    mechanism: LabelGaussian  # the settings
    ellipsoid: Ellipsoid  # the shape of the noise
    # What the least share of a label of each row contributes, in steps: h_i; a 1 contributes Ph_i,
    # P the number of parts, and a 0 nothing. Rows that do not count hold zeros.
    halves: Int32[np.ndarray, "n r"]
    parts: int  # P, of which every label is a whole number
    tied: Int32[np.ndarray, "n q"]  # what a tie of each row adds, behind, in steps
    weights: Float[np.ndarray, " n"] | None  # how much of each row is summed; all of it if None

    def __post_init__(self) -> None:
        moves = lengths(self.halves, self.parts, self.tied)
        if self.weights is None:
            self._hide(moves, self.persons, self._together)
        else:  # what hides a row of weight w as w of a whole one hides every sum of such rows
            if not ((self.weights > 0) & (self.weights <= 1)).all():
                raise DataError("weights must be above 0 and at most 1. Nothing was released.")
            self._hide(np.ceil(moves / self.weights).astype(np.int64), None)
            most = self.mechanism.records_per_person or 1
            object.__setattr__(self, "moved", self.moved * most)
        for steps in (self.halves, self.used):
            steps.setflags(write=False)

    def __repr__(self) -> str:
        n, r = self.halves.shape
        return f"LabelDesign({self.mechanism!r}, n={n}, rank={r})"

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return labels that differ in the row, or the person, that moves the sum farthest."""
        # The labels of one row attain the sensitivity. Those of one person are turned to one side
        # as far as they can be; if the person's vectors are parallel they attain it too. Labels of
        # rows that do not count differ as well: they are promised to change nothing.
        self.sensitivity(neighbors)
        vectors = self.halves[self.worst].astype(np.float64)
        side = vectors @ np.linalg.svd(vectors, full_matrices=False)[2][0] > 0
        ways = [(side, ~side)]
        if self.mechanism.ties:  # or all are ties, against none that is
            ways.append((np.full(len(side), UNDECIDED), ~side))
        cases = []
        for mine, theirs in ways:
            one, other = np.zeros((2, len(self.halves)), dtype=np.int8)
            one[self.worst], other[self.worst] = mine, theirs
            one[~self.used] = 1
            cases.append(WorstCase(one, other))
        return max(
            cases, key=lambda case: np.linalg.norm(self._total(case.one) - self._total(case.other))
        )

    def _together(self, rows: Int64[np.ndarray, "p m"]) -> Int64[np.ndarray, " p"]:
        """Return how far all labels of a person move the sum, for people with m rows each."""
        # With A = |h_i·h_j| and r = Σ_j A_ij it is no farther than P²Σr squared, whatever the
        # labels: votes on items of which no two are the same are √m as far as one, not m times. Of
        # a label and a tie a row has half, so with T ties it is 3Σr of theirs less, and (cT)² more.
        # Source: docs/ranking.md, "How it is private", persons.
        moved, (n, m) = np.empty(len(rows), dtype=np.int64), rows.shape
        height = max(1, _AT_ONCE // (m * max(m, self.halves.shape[1])))
        for at in range(0, n, height):
            some = rows[at : at + height]
            halves = self.halves[some].astype(np.float64)  # whole numbers below 2^53 throughout
            products = np.abs(halves @ halves.transpose(0, 2, 1))
            each = np.sort(products.astype(np.int64).sum(axis=2), axis=1)
            counters = np.square(self.tied[some].astype(np.int64)).sum(axis=2).max(axis=1)
            ties = counters[:, np.newaxis] * np.arange(m + 1) ** 2
            ties[:, 1:] -= 3 * np.cumsum(each, axis=1)
            square = self.parts**2 * each.sum(axis=1) + ties.max(axis=1)
            moved[at : at + height] = FINER * root_above(square)
        return moved

    def _total(self, values: Integer[np.ndarray, " n"]) -> Int64[np.ndarray, " r"]:
        if len(times := _times_of(values, self.parts)) != len(self.halves):
            raise DataError("Labels must be as many as the rows of the design: none was released.")
        total = np.zeros(self.halves.shape[1], dtype=np.int64)
        for part, halves in dense_parts(self.halves):
            total += times[part] @ halves.astype(np.int64)
        return np.append(total, (times == 1) @ self.tied.astype(np.int64))


@dataclass(frozen=True, eq=False, repr=False)
class ChunkedLabels(_HiddenSum):
    """A release of labels whose public vectors an engine reads.

    Guarantee:
        That of :class:`LabelGaussian`, with the same integers and the same noise. How far a label
        may move the sum is measured in the same task, and on the same integers, that are summed:
        so it holds however machines round, and wherever and however often a task runs. For unit
        ``"person"`` it is the longest row times ``records_per_person``. Noise is drawn here, once,
        and in no task. Shown by tests/soundness/test_central_label.py.
    """

    # Made by `prepare`, from public vectors alone.

    mechanism: LabelGaussian  # the settings
    ellipsoid: Ellipsoid  # the shape of the noise
    parts: int = 2  # P, of which every label is a whole number
    added: _Sum | None = None  # what the rows contribute, where `total` read them: keep it secret
    moved: float = 0.0  # how many steps one change moves the sum at most, rounded up: Δ

    @classmethod
    def prepare(cls, mechanism: LabelGaussian, rows: Rows, *, parts: int = 2) -> ChunkedLabels:
        """Return the release made ready: it reads no label and spends nothing."""
        mechanism.refuse_parts(parts)
        alone = rows.turned(
            partial(_without_marks, ties=mechanism.ties), rows.shape[1] - mechanism.ties
        )
        shorter = alone.turned(partial(counting_less, longest=mechanism.longest))
        return cls(mechanism, mechanism.ellipsoid_of(shorter), parts)

    def total(self, rows: Rows) -> ChunkedLabels:
        """Return this with the sum without noise, as secret as the labels; it spends nothing."""
        # So whatever is wrong with the files or the grid is found before anything is spent.
        whiten = self.ellipsoid.whiten / self.mechanism.grid
        # No row is longer than 1 as the noise measures it; more than twice that was not there.
        most = 2 / self.parts / self.mechanism.grid  # beyond it squares may pass 64 bits
        steps = _Steps(whiten.T / self.parts, most, self.mechanism, self.parts)
        added = rows.fold(steps, _Sum.plus)
        if added.rows != rows.shape[0]:
            raise DataError("The input changed while it was read. Nothing was released.")
        moved = added.moved * (self.mechanism.records_per_person or 1) / FINER
        total = replace(self, added=added, moved=moved)
        total.refuse_unusable_noise()
        return total

    def release(self, *, entropy: Entropy) -> Float[np.ndarray, " d"]:
        """Return the noised sum of what was read; the spend must already be on a ledger.

        Guarantee:
            What the mechanism's ``guarantee`` returns.
        """
        assert self.added is not None  # noqa: S101 - for the type checker
        return np.asarray(self._noised(self.added.total, 1, entropy)[0])


@dataclass(eq=False)
class _Sum:
    """What some rows contribute, in whole steps, and what is public of the rows."""

    total: Int64[np.ndarray, " r"]  # Σ over rows of 0 to P times h_i
    moved: int  # the largest ‖Ph_i‖ of them, in parts of a step, rounded up
    rows: int  # how many
    squares: float  # Σ‖x_i‖²
    longest: float  # the largest ‖x_i‖

    def plus(self, other: _Sum) -> _Sum:
        """Take in what other rows contribute."""
        self.total += other.total
        self.moved = max(self.moved, other.moved)
        self.rows += other.rows
        self.squares += other.squares
        self.longest = max(self.longest, other.longest)
        return self


@dataclass(frozen=True, eq=False)
class _Steps:
    """The task: a block of rows and labels in whole steps, added up."""

    turned: Float[np.ndarray, "d r"]  # takes a row (as a row vector) to h_i, before rounding
    longest: float  # largest ‖h_i‖ that can be; beyond it squares would not be exact
    mechanism: LabelGaussian  # the settings
    parts: int  # P, of which every label is a whole number

    def __call__(
        self,
        _first: int,
        block: Matrix,
        labels: Integer[np.ndarray, " n"],
        counts: Int64[np.ndarray, " n"] | None = None,
    ) -> _Sum:
        # `counts` says how many rows there are of each kind; one, if it is left out.
        times, many = _times_of(labels, self.parts), np.ones(1, dtype=np.int64)
        many = np.broadcast_to(many if counts is None else counts, len(labels))
        parts = [self._part(rows, times[part], many[part]) for part, rows in dense_parts(block)]
        return reduce(_Sum.plus, parts)

    def _part(
        self,
        values: Float[np.ndarray, "k d"],
        times: Int64[np.ndarray, " k"],
        counts: Int64[np.ndarray, " k"],
    ) -> _Sum:
        """Return the sum of some rows."""
        ties = self.mechanism.ties
        tied = _marks_of(values, ties) * self.mechanism.tie_steps
        values = np.asarray(_without_marks(values, ties))
        halves = np.rint(counting_less(values, self.mechanism.longest) @ self.turned)
        squares = np.einsum("ij,ij->i", halves, halves)
        if not squares.max() <= self.longest**2:  # also NaN
            raise DataError("The input changed while it was read. Nothing was released.")
        if (counts > 1).any():
            total = (counts * times) @ halves.astype(np.int64)
        else:  # whole numbers below 2^53: the products and sums of these floats are exact
            total = ((counts * times).astype(np.float64) @ halves).astype(np.int64)
        total = np.append(total, (counts * (times == 1)) @ tied)
        sizes = np.einsum("ij,ij->i", values, values)
        moved = int(_moves_of(squares.max(keepdims=True).astype(np.int64), self.parts)[0])
        if ties:
            moved = max(moved, int(_moved_by_tie(squares.astype(np.int64), tied).max()))
        return _Sum(total, moved, len(values), float(sizes.sum()), float(np.sqrt(sizes.max())))
