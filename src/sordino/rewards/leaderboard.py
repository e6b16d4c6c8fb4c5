"""A leaderboard, from votes to ratings and ranks: what a released sum says, how surely; its file.

A battle of items a and b has the public row x = e_a − e_b (style may follow) and an outcome y: 1, 0
or ½. Votes reach a board through Σ (y − ½) x and the number of ties alone. So a board is
post-processing of what was released, and the noise of the release is part of every interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri

from sordino import _validate
from sordino._files import read_json
from sordino._random import SimulatedEntropy, normals
from sordino.errors import DataError, UsageError
from sordino.mechanisms.label_sum import coefficients
from sordino.mechanisms.ranking_sum import pair_rows
from sordino.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

POINTS: Final = 400 / math.log(10)
"""Elo-like points of one unit of log-odds."""

_RIDGE = 1e-6  # without noise: no rating is infinite, and none moves by more than a millionth
_SIZE = 3.0  # with noise: how large ratings are taken to be before any vote, a standard deviation
_INSIDE = 0.5  # of a vote: what every item is taken to have won, and to have lost, at least
_STEPS, _HALVINGS = 100, 40  # of Newton's method
_FARTHEST = 2.0  # that a rating goes in one step
_EXACT = 1e-10  # of the last step
_WIDEST = 0.5  # standard error of a rating above which its likelihood is not taken for a parabola
_DRAWS = 4_000  # of all ratings, for what holds of all at once
_AT_ONCE = 2**18  # differences of ratings that are held in memory
BEYOND: Final = 12.0  # no rating is sought farther from the others


@dataclass(frozen=True, eq=False)
class Ballots:
    """Which items ballots were offered, each set once; all of it is public."""

    members: Bool[np.ndarray, "s k"]  # which items a set has
    counts: Float[np.ndarray, " s"]  # how many ballots were offered it
    weights: Float[np.ndarray, " s"]  # how much each of them counts

    def scatter(self, theta: Float[np.ndarray, " k"]) -> Float[np.ndarray, "k k"]:
        """Return the covariance of Σ (y − ½) x over all pairs of all ballots, by Plackett–Luce."""
        # It bounds that of ballots that end early, whatever makes them end.
        # Source: docs/ranking.md, "Ballots": two pairs of a ballot that share an item i depend on
        # each other as i is the first of three; two that share none do not.
        k = len(theta)
        found, sizes = np.zeros((k, k)), self.members.sum(axis=1)
        for size in np.unique(sizes):
            same = np.flatnonzero(sizes == size)
            step = max(1, _AT_ONCE // int(size) ** 3)
            for part in (same[at : at + step] for at in range(0, len(same), step)):
                items = np.nonzero(self.members[part])[1].reshape(len(part), -1)
                worth = np.exp(theta[items] - theta.max())
                pairs = worth[:, :, None] + worth[:, None]
                wins = worth[:, :, None] / pairs
                three = pairs[..., None] + worth[:, None, None]
                both = worth[:, :, None, None] / three - wins[..., None] * wins[:, :, None]
                at = np.arange(size)
                both[:, at, at] = both[:, at, :, at] = both[:, :, at, at] = 0
                shared = both.sum(axis=3)
                joint = both.sum(axis=1) - shared - shared.transpose(0, 2, 1)
                joint -= wins * wins.transpose(0, 2, 1)
                joint[:, at, at] = 0
                joint[:, at, at] = -joint.sum(axis=2)
                joint *= (self.counts * self.weights**2)[part, None, None]
                np.add.at(found, (items[:, :, None], items[:, None]), joint)
        return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Votes:
    """All that a board may see of battles: released, or public."""

    items: tuple[str, ...]  # the K names
    # Public rows, each once: K columns of differences of items (1 and −1), then those of style.
    rows: sparse.csr_array
    counts: Float[np.ndarray, " m"]  # votes of each row; noised where which items met is private
    statistic: Float[np.ndarray, " d"]  # Σ (y − ½) x over all votes: noised, or debiased
    ties: float | None = None  # how many votes were ties, noised; left out, a tie is half a win
    noise: Float[np.ndarray, "s s"]  # covariance of the noise of (statistic, ties)
    inflation: float = 1.0  # 1/(1 − 2p)² where every answer went through a coin of flip rate p
    count_variance: float = 0.0  # of the noise of each count
    # Votes of each row that were lost, tied and won by its first item, where nothing hides them.
    outcomes: Float[np.ndarray, "m 3"] | None = None
    ballots: Ballots | None = None  # whose pairs the votes are: they depend on each other
    # Whether of each ballot the best item alone counts, T_i = Σ (1[i is the best] − 1/K); rows are
    # then the pairs of the first set of items, of the second, and so on.
    first: bool = False

    def __post_init__(self) -> None:
        (m, d), k = self.rows.shape, len(self.items)
        size = d + (self.ties is not None)
        shapes = (self.counts.shape, self.statistic.shape, self.noise.shape)
        if d < k or shapes != ((m,), (d,), (size, size)):
            raise DataError(
                f"Votes on {k} items need a column for each, a count for each row and a sum for "
                f"each column: got {m} by {d} rows, and counts, sums and noise of {shapes}."
            )
        if k < 2 or len(set(self.items)) < k:  # noqa: PLR2004 (a board compares)
            raise DataError("A board needs two items or more, each named once.")
        numbers = (self.counts, self.statistic, self.noise, self.ties or 0.0)
        if not all(np.isfinite(part).all() for part in numbers):
            raise DataError("Votes must be finite numbers.")

    @classmethod
    def of_ballots(
        cls,
        items: tuple[str, ...],
        ballots: Ballots,
        statistic: Float[np.ndarray, " k"],
        noise: Float[np.ndarray, "k k"],
        *,
        counts: Float[np.ndarray, " m"] | None = None,
        count_variance: float = 0.0,
    ) -> Votes:
        """Return the pairs of ballots, of which each compares all that it was offered."""
        # Counts say how much weigh the ballots that compare two items, of every two that were
        # offered together, in order. Left out, each compares all.
        weighed = ballots.members * (ballots.counts * ballots.weights)[:, None]
        all_of_them = weighed.T @ ballots.members
        one, two = np.nonzero(np.triu(all_of_them, 1))
        return cls(
            items=items,
            rows=pair_rows(one, two, len(items)),
            counts=all_of_them[one, two] if counts is None else counts,
            statistic=statistic,
            noise=noise,
            count_variance=count_variance,
            ballots=ballots,
        )

    def __repr__(self) -> str:
        """Return sizes; no number of a vote."""
        return f"Votes(items={len(self.items)}, rows={self.rows.shape[0]})"

    @cached_property
    def components(self) -> Int64[np.ndarray, " k"]:
        """Return the component of every item: two that nothing connects cannot be compared."""
        # Under unit record which items met is noised, and every two are taken to have met.
        met = abs(self.rows[:, : len(self.items)])
        if not self.count_variance:
            met = met[self.counts > 0]
        return np.asarray(connected_components(met.T @ met)[1], dtype=np.int64)

    @property
    def number(self) -> int:
        """Return how many votes there are, or ballots; not of private records."""
        return round(float((self if self.ballots is None else self.ballots).counts.sum()))

    @property
    def is_public(self) -> bool:
        """Return whether nothing hides a vote: no noise, and no coin."""
        return self.inflation == 1 and not self.noise.any()

    def plus(self, other: Votes) -> Votes:
        """Return both together, as the sums of two weeks; either may have items of its own."""
        styles = [one.rows.shape[1] - len(one.items) for one in (self, other)]
        alike = (self.ties is None) == (other.ties is None) and styles[0] == styles[1]
        alike &= (self.ballots is None, self.first) == (other.ballots is None, other.first)
        if not alike or self.inflation != other.inflation:
            raise DataError(
                "Both boards must be of ballots, or neither; count ties, or neither; have the same "
                "style; and the same coin."
            )
        items = tuple(dict.fromkeys((*self.items, *other.items)))
        one, two = self._among(items), other._among(items)
        outcomes = ballots = None
        if one.outcomes is not None and two.outcomes is not None:
            outcomes = np.concatenate([one.outcomes, two.outcomes])
        if one.ballots is not None and two.ballots is not None:
            columns = zip(vars(one.ballots).values(), vars(two.ballots).values(), strict=True)
            ballots = Ballots(*map(np.concatenate, columns))
        return replace(
            one,
            rows=sparse.csr_array(sparse.vstack([one.rows, two.rows])),
            counts=np.concatenate([one.counts, two.counts]),
            statistic=one.statistic + two.statistic,
            ties=None if one.ties is None or two.ties is None else one.ties + two.ties,
            noise=one.noise + two.noise,
            count_variance=max(one.count_variance, two.count_variance),
            outcomes=outcomes,
            ballots=ballots,
        )

    def times(self, weight: float) -> Votes:
        """Return the same votes with sums, and their noise, that count so much."""
        return replace(
            self,
            statistic=weight * self.statistic,
            ties=None if self.ties is None else weight * self.ties,
            noise=weight**2 * self.noise,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the votes as JSON holds them."""
        rows = self.rows.tocoo()
        return {
            "items": list(self.items),
            "columns": rows.shape[1],
            "places": [part.tolist() for part in rows.coords],
            "values": rows.data.tolist(),
            "counts": self.counts.tolist(),
            "statistic": self.statistic.tolist(),
            "ties": self.ties,
            "noise": self.noise.tolist(),
            "inflation": self.inflation,
            "count_variance": self.count_variance,
            "first": self.first,
            "ballots": None
            if (ballots := self.ballots) is None
            else {
                "offered": [np.flatnonzero(members).tolist() for members in ballots.members],
                "counts": ballots.counts.tolist(),
                "weights": ballots.weights.tolist(),
            },
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Votes:
        """Return what :meth:`to_dict` wrote; KeyError, TypeError, ValueError if malformed."""
        given: dict[str, Any] = {
            name: np.asarray(told[name], float) for name in ("counts", "statistic", "noise")
        }
        given |= {name: float(told[name]) for name in ("inflation", "count_variance")}
        places = np.asarray(told["places"], dtype=int)
        shape = len(given["counts"]), int(told["columns"])
        ballots = None
        if (offers := told["ballots"]) is not None:
            counts, weights = (np.asarray(offers[name], float) for name in ("counts", "weights"))
            members = np.zeros((len(counts), len(told["items"])), dtype=bool)
            for row, offered in zip(members, offers["offered"], strict=True):
                row[offered] = True
            ballots = Ballots(members, counts, weights)
        return cls(
            items=tuple(map(str, told["items"])),
            rows=sparse.csr_array((np.asarray(told["values"], float), tuple(places)), shape=shape),
            ties=None if told["ties"] is None else float(told["ties"]),
            ballots=ballots,
            first=bool(told["first"]),
            **given,
        )

    def _among(self, items: tuple[str, ...]) -> Votes:
        """Return the same votes on a board of more items."""
        k, d = len(self.items), self.rows.shape[1]
        style = np.arange(len(items), len(items) + d - k)
        place = np.concatenate([[items.index(name) for name in self.items], style]).astype(int)
        size = len(items) + d - k
        rows = self.rows.tocoo()
        statistic = np.zeros(size)
        statistic[place] = self.statistic
        if self.ties is not None:
            place = np.append(place, size)
        noise = np.zeros((size + (self.ties is not None),) * 2)
        noise[np.ix_(place, place)] = self.noise
        wide = sparse.csr_array(
            (rows.data, (rows.coords[0], place[rows.coords[1]])), shape=(len(self.counts), size)
        )
        ballots = self.ballots
        if ballots is not None:
            members = np.zeros((len(ballots.counts), len(items)), dtype=bool)
            members[:, place[:k]] = ballots.members
            ballots = replace(ballots, members=members)
        return replace(
            self, items=items, rows=wide, statistic=statistic, noise=noise, ballots=ballots
        )


@dataclass(frozen=True)
class _Model:
    """Davidson's model of one vote with difference of ratings η; ν = 0 without ties.

    Win, tie and loss have the odds e^(η/2) : ν : e^(−η/2), so that with ν = 0 it is Bradley–Terry.

    Source:
        docs/ranking.md, "The model".
    """

    mean: Float[np.ndarray, " m"]  # of y − ½
    variance: Float[np.ndarray, " m"]  # of y
    tie: Float[np.ndarray, " m"]  # probability of a tie
    log_sum: Float[np.ndarray, " m"]  # log of the sum of the three odds
    drawn: Float[np.ndarray, " m"]  # the variance of y after its coin

    @classmethod
    def of(cls, eta: Float[np.ndarray, " m"], nu: float, inflation: float = 1.0) -> _Model:
        half = np.abs(eta) / 2
        even, far = nu * np.exp(-half), np.exp(-2 * half)  # odds of a tie and of losing, of winning
        total = 1 + even + far
        mean = np.sign(eta) * (1 - far) / (2 * total)
        variance = (1 + far) / (4 * total) - mean**2
        drawn = variance + (inflation - 1) / 4
        return cls(mean, variance, even / total, half + np.log(total), drawn)

    @classmethod
    def of_first(cls, votes: Votes, theta: Float[np.ndarray, " k"]) -> _Model:
        """Return what every pair of a set of items adds to the choice of one, and how it varies."""
        # Source: docs/ranking.md, "First choices": with chances π by multinomial logit,
        # π_i − 1/K = Σ_j (π_i − π_j)/K and diag π − ππᵀ = Σ_{i<j} π_i π_j xxᵀ; after a die the same
        # with q = (1 − κ)/K + κπ in place of π, and 1/κ² times as much, 1/κ² the inflation.
        assert votes.ballots is not None  # noqa: S101 - for the type checker
        members, kept = votes.ballots.members, votes.inflation**-0.5
        sizes, top = members.sum(axis=1), theta.max()
        pairs = sizes * (sizes - 1) // 2
        which = np.repeat(np.arange(len(sizes)), pairs)
        log_sum = top + np.log(members @ np.exp(theta - top))
        ends = votes.rows.toarray()
        chances = [np.exp(theta[side.argmax(axis=1)] - log_sum[which]) for side in (ends, -ends)]
        one, two = chances
        q_one, q_two = ((1 - kept) / sizes[which] + kept * part for part in chances)
        return cls(
            mean=(one - two) / sizes[which],
            variance=one * two,
            tie=np.zeros(len(which)),
            log_sum=((log_sum - members @ theta / sizes) / pairs)[which],
            drawn=q_one * q_two * votes.inflation,
        )

    def at(self, rows: Int64[np.ndarray, " r"]) -> _Model:
        """Return the same of some rows."""
        return _Model(*(part[rows] for part in vars(self).values()))


class _Fit:
    """The likelihood of votes at one point, and Newton's way to its top."""

    def __init__(self, votes: Votes) -> None:
        self.votes, self.d = votes, votes.rows.shape[1]
        k, self.with_ties = len(votes.items), votes.ties is not None
        self.ridge = _RIDGE if votes.is_public else 1 / _SIZE**2
        same = votes.components[:, None] == votes.components[None, :]
        # Ratings of a component have mean 0; and a true sum has sum 0 over each.
        self.center = np.eye(k) - same / same.sum(axis=0)
        self.level = np.zeros((self.d + self.with_ties,) * 2)
        self.level[:k, :k] = same
        raw = self.center @ votes.statistic[:k]
        least = most = abs(votes.rows[:, :k]).T @ votes.counts / 2
        if votes.first and votes.ballots is not None:  # chosen never, or always
            members, sizes = votes.ballots.members, votes.ballots.members.sum(axis=1)
            least, most = (members.T @ (votes.ballots.counts * n / sizes) for n in (1, sizes - 1))
        least, most = (np.maximum(end - _INSIDE, 0) for end in (least, most))
        self.target = votes.statistic.copy()
        self.target[:k] = self.center @ np.clip(raw, -least, most)
        self.outside = np.sign(raw) * ((raw >= most) | (raw <= -least))
        if self.with_ties:
            n = max(votes.counts.sum(), 2.0)
            ties = min(max(votes.ties or 0.0, _INSIDE), n - _INSIDE)
            self.target = np.append(self.target, ties)
        self.point = np.zeros(len(self.target))
        if self.with_ties:
            self.point[self.d] = math.log(2 * ties / (n - ties))

    def model(self, point: Float[np.ndarray, " s"]) -> _Model:
        if self.votes.first:
            return _Model.of_first(self.votes, point)
        nu = math.exp(point[self.d]) if self.with_ties else 0.0
        return _Model.of(self.votes.rows @ point[: self.d], nu, self.votes.inflation)

    def height(self, point: Float[np.ndarray, " s"]) -> float:
        theta = point[: self.d]
        sums = self.votes.counts @ self.model(point).log_sum
        return float(point @ self.target - sums - self.ridge / 2 * theta @ theta)

    def weighed(
        self, weights: Float[np.ndarray, " m"], *ties: Float[np.ndarray, " m"]
    ) -> Float[np.ndarray, "s s"]:
        """Return Σ w x xᵀ; with the blocks of the number of ties if there is one."""
        rows = self.votes.rows
        matrix = (rows.T @ rows.multiply(weights[:, None])).toarray()
        if not self.with_ties:
            return np.asarray(matrix)
        side = (rows.T @ ties[0])[:, None]
        return np.block([[matrix, side], [side.T, np.full((1, 1), ties[1].sum())]])

    def curvature(self, model: _Model, counts: Float[np.ndarray, " m"]) -> Float[np.ndarray, "s s"]:
        tie = model.tie
        both = (counts * -model.mean * tie, counts * tie * (1 - tie))
        return self.weighed(counts * model.variance, *both)

    def climb(self) -> None:
        """Go to the top."""
        slope_of_ridge = np.zeros(len(self.point))
        slope_of_ridge[: self.d] = self.ridge
        height = self.height(self.point)
        for _ in range(_STEPS):
            model = self.model(self.point)
            expected = self.votes.rows.T @ (self.votes.counts * model.mean)
            if self.with_ties:
                expected = np.append(expected, self.votes.counts @ model.tie)
            slope = self.target - expected - slope_of_ridge * self.point
            # Counts with noise may be below 0; then the sum need not be concave, and only its
            # direction is taken from those that are not.
            bend = self.curvature(model, np.maximum(self.votes.counts, 0))
            bend += np.diag(slope_of_ridge) + self.level
            step = np.linalg.solve(bend, slope)
            step *= min(1.0, _FARTHEST / max(np.abs(step).max(), 1e-300))
            for _ in range(_HALVINGS):
                if (there := self.height(self.point + step)) >= height:
                    break
                step /= 2
            self.point, height = self.point + step, there
            if np.abs(step).max() < _EXACT:
                return

    def covariance(self) -> Float[np.ndarray, "s s"] | None:
        """Return the covariance of what was fitted: sampling, noise, shrinkage; None if unknown."""
        votes, model = self.votes, self.model(self.point)
        bend = self.curvature(model, votes.counts)
        ridge = np.zeros_like(bend)
        ridge[: self.d, : self.d] = self.ridge * np.eye(self.d)
        if np.linalg.eigvalsh(bend + ridge + self.level)[0] <= 0:
            return None  # the noise of counts is larger than the counts
        if votes.ballots is not None and not votes.first:
            spread = votes.ballots.scatter(self.point)
        elif votes.outcomes is None:
            spread = bend + self.weighed(
                votes.counts * (model.drawn - model.variance), *[np.zeros(len(votes.counts))] * 2
            )
        else:  # votes are public: as they scattered, whatever the model
            spread = np.zeros_like(bend)
            for outcome, value, tied in ((0, -0.5, 0), (1, 0.0, 1), (2, 0.5, 0)):
                off, miss, n = value - model.mean, tied - model.tie, votes.outcomes[:, outcome]
                spread += self.weighed(n * off**2, n * off * miss, n * miss**2)
        noise = votes.noise
        if votes.count_variance:
            noise = noise + votes.count_variance * self.weighed(
                model.mean**2, model.mean * model.tie, model.tie**2
            )
        k = len(votes.items)
        spread[:k, :k] += self.center @ noise[:k, :k] @ self.center - noise[:k, :k]
        inverse = np.linalg.inv(bend + ridge + self.level)
        found = inverse @ (spread + noise + ridge) @ inverse
        # The mean of a component is 0 and not estimated: what shrinking says of it is no error.
        found[:k] = self.center @ found[:k]
        found[:, :k] = found[:, :k] @ self.center
        return np.asarray(found)

    def errors_if_even(self) -> Float[np.ndarray, " k"]:
        """Return the standard error that each rating would have if all opponents were equals."""
        # So whether a board speaks of an item depends on how often it was seen and on the noise,
        # hardly on who won.
        votes, k = self.votes, len(self.votes.items)
        met = abs(votes.rows[:, :k])
        # Where counts are noised it is what was seen at least.
        even = 4 * self.model(np.zeros(k)).variance if votes.first else 1
        seen = met.T @ (votes.counts * even) - 2 * np.sqrt(votes.count_variance * met.sum(axis=0))
        noise = np.diag(self.center @ votes.noise[:k, :k] @ self.center)
        spread = votes.inflation * np.maximum(seen, 0) / 4 + noise
        if votes.ballots is not None and not votes.first:
            spread = np.diag(votes.ballots.scatter(np.zeros(k))) + noise
        return np.asarray(np.sqrt(spread) / np.maximum(seen / 4, 1e-9))

    def ends(self, i: int, covariance: Float[np.ndarray, "s s"], z: float) -> tuple[float, float]:
        """Return how low and how high one rating may be, by its own votes; the others as fitted."""
        # Where the likelihood is no parabola: what the item won is compared with what it would win
        # at each end, and what is unsure of the others is added to the variance. (Wilson's interval
        # if there is one opponent, whose rating is known.)
        votes, k = self.votes, len(self.votes.items)
        mine = votes.rows[:, [i]].toarray()[:, 0]
        at = np.flatnonzero(mine)
        own, counts = mine[at], votes.counts[at]
        rest = votes.rows[at] @ self.point[: self.d] - own * self.point[i]
        nu = math.exp(self.point[self.d]) if self.with_ties else 0.0
        noise = (self.center @ votes.noise[:k, :k] @ self.center)[i, i]
        others = covariance[: self.d, : self.d].copy()
        others[i], others[:, i] = 0, 0
        won = float((self.center @ votes.statistic[:k])[i])

        def surplus(rating: float) -> float:
            point = self.point.copy()
            point[i] = rating
            model = _Model.of(rest + own * rating, nu, votes.inflation)
            if votes.first:
                model = self.model(point).at(at)
            expected = float(own @ (counts * model.mean))
            slope = (counts * own * model.variance) @ votes.rows[at]
            spread = counts @ model.drawn
            if votes.ballots is not None and not votes.first:
                spread = votes.ballots.scatter(point)[i, i]
            spread += votes.count_variance * float((model.mean**2).sum())
            spread += noise + slope @ others @ slope
            return (won - expected) / math.sqrt(max(float(spread), 1e-300))

        ends = []
        for sign in (1, -1):  # at the low end it has won z standard deviations more, then less
            near, far = self.point[i] + sign * BEYOND, self.point[i] - sign * BEYOND
            bracketed = sign * surplus(far) > z > sign * surplus(near)
            root = (
                brentq(lambda r, t=sign * z: surplus(r) - t, near, far) if bracketed else math.nan
            )
            ends.append(root if bracketed else -sign * math.inf)
        return ends[0], ends[1]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Leaderboard:
    """Items by rating, with what is sure of each: a rating, an interval, a best and a worst rank.

    Ratings are log-odds with mean 0 over the items that are connected by battles; only those can be
    compared. Where votes are too few for an interval, rating and interval are NaN or open.

    Guarantee:
        None of its own: it is computed from what was released.

    Source:
        docs/ranking.md, "Intervals that hold".
    """

    items: tuple[str, ...]  # the K names, in the order in which they were declared
    ratings: Float[np.ndarray, " k"]
    intervals: Float[np.ndarray, "k 2"]  # two ends for each rating, of which one may be infinite
    bands: Float[np.ndarray, "k 2"]  # the same, of all ratings at once
    ranks: Int64[np.ndarray, "k 2"]  # best and worst among those connected, of all at once
    components: Int64[np.ndarray, " k"]  # which items are connected
    tie_rate: float | None  # ν of Davidson's model; None if a tie is half a win
    style: Float[np.ndarray, " q"]  # one coefficient for each column of style
    confidence: float  # how often an interval, or all ranks together, hold the truth

    def __repr__(self) -> str:
        return f"Leaderboard(items={len(self.items)}, rated={int(np.isfinite(self.ratings).sum())})"

    @property
    def points(self) -> Float[np.ndarray, " k"]:
        """Return ratings in Elo-like points: 1000 is the mean."""
        return 1000 + POINTS * self.ratings

    @property
    def order(self) -> list[int]:
        """Return the places of the items from best to worst; those without a rating last."""
        unrated = np.isnan(self.ratings)
        best = np.where(unrated, -np.inf, self.ratings)
        return [int(i) for i in np.lexsort((np.arange(len(best)), -best, unrated, self.components))]

    @property
    def win_rates(self) -> Float[np.ndarray, "k k"]:
        """Return how often the item of a row beats that of a column, a tie being half a win."""
        eta = self.ratings[:, None] - self.ratings[None, :]
        eta = np.where(self.components[:, None] == self.components[None, :], eta, np.nan)
        wins = 0.5 + _Model.of(eta.ravel(), self.tie_rate or 0.0).mean.reshape(eta.shape)
        return np.asarray(wins)

    @property
    def field_win_rates(self) -> Float[np.ndarray, " k"]:
        """Return how often every item beats one of the others, taken at random."""
        wins = self.win_rates
        np.fill_diagonal(wins, np.nan)
        known = ~np.isnan(wins)
        sums = np.where(known, wins, 0).sum(axis=1)
        return np.where(known.any(axis=1), sums / np.maximum(known.sum(axis=1), 1), np.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return the board for a file, from best to worst; None for what is not known."""
        points, field = self.points, self.field_win_rates

        def known(value: float) -> float | None:
            return float(value) if math.isfinite(value) else None

        return {
            "confidence": self.confidence,
            "tie_rate": self.tie_rate,
            "style": self.style.tolist(),
            "items": [
                {
                    "name": self.items[i],
                    "rating": known(self.ratings[i]),
                    "interval": [known(end) for end in self.intervals[i]],
                    "band": [known(end) for end in self.bands[i]],
                    "rank": self.ranks[i].tolist(),
                    "points": known(points[i]),
                    "field_win_rate": known(field[i]),
                    "component": int(self.components[i]),
                }
                for i in self.order
            ],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas table from best to worst, with the columns that arena boards have."""
        try:
            import pandas as pd  # noqa: PLC0415 (an extra that only this needs)
        except ImportError as error:
            raise UsageError("to_frame needs pandas: pip install pandas.") from error
        order = self.order
        ends = 1000 + POINTS * self.intervals[order]
        return pd.DataFrame(
            {
                "competitors": [self.items[i] for i in order],
                "ratings": self.points[order],
                "rating_lower": ends[:, 0],
                "rating_upper": ends[:, 1],
                "variances": ((ends[:, 1] - ends[:, 0]) / (2 * _quantile(self.confidence))) ** 2,
                "rank_best": self.ranks[order, 0],
                "rank_worst": self.ranks[order, 1],
            }
        )


def fit_board(votes: Votes, *, confidence: float = 0.95) -> Leaderboard:
    """Return the board of votes: ratings of greatest likelihood, and what is sure of them.

    Guarantee:
        None of its own: it computes from what was released, and spends nothing.

    Source:
        docs/ranking.md, "The model" and "Intervals that hold".

    Example:
        >>> rows = sparse.csr_array(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]))
        >>> sums = np.array([60.0, -60.0 + 40.0, -40.0])  # won by the first: 160 and 140 of 200
        >>> counts, noise = np.array([200.0, 200.0]), np.zeros((3, 3))
        >>> given = {"rows": rows, "counts": counts, "statistic": sums, "noise": noise}
        >>> board = fit_board(Votes(items=("a", "b", "c"), **given))
        >>> board.ratings.round(2).tolist(), board.ranks.tolist()
        ([1.21, -0.18, -1.03], [[1, 1], [2, 2], [3, 3]])
    """
    confidence = _validate.failure_probability("confidence", confidence, zero=False)
    fit, k = _Fit(votes), len(votes.items)
    fit.climb()
    ratings, covariance = fit.point[:k].copy(), fit.covariance()
    intervals = np.tile([-np.inf, np.inf], (k, 1))
    bands = intervals.copy()
    ranks = np.array([[1, size] for size in np.bincount(votes.components)[votes.components]])
    alone = ranks[:, 1] == 1
    if covariance is None:
        ratings[:] = np.nan
    else:
        errors = np.sqrt(np.diag(covariance)[:k])
        told = fit.errors_if_even() <= (_WIDEST if votes.ballots is None else _WIDEST / 2)
        sure = (errors <= _WIDEST) & (fit.outside == 0) & ~alone
        if votes.ballots is not None:
            sure &= told  # what is sure of few ballots is sure by chance
            told = sure if votes.count_variance else told
        half = np.where(sure, errors, np.inf)[:, None] * [-1, 1]
        z_one, z_all, ahead = _at_once(ratings, covariance[:k, :k], sure, votes, confidence)
        intervals, bands = (ratings[:, None] + z * half for z in (z_one, z_all))
        ranks[:, 0] += ahead.sum(axis=0)
        ranks[:, 1] -= ahead.sum(axis=1)
        for i in np.flatnonzero(~sure & told & ~alone):
            intervals[i] = fit.ends(int(i), covariance, z_one)
        # and where it may be any number, or the noise would have items win more than all votes
        nowhere = np.isinf(intervals).all(axis=1) | (np.abs(ratings) > BEYOND)
        ratings[~sure & (~told | alone | nowhere)] = np.nan
    return Leaderboard(
        items=votes.items,
        ratings=ratings,
        intervals=intervals,
        bands=bands,
        ranks=ranks,
        components=votes.components,
        tie_rate=math.exp(fit.point[fit.d]) if fit.with_ties else None,
        style=fit.point[k : fit.d].copy(),
        confidence=confidence,
    )


def _quantile(confidence: float) -> float:
    return float(ndtri((1 + confidence) / 2))


def _at_once(
    ratings: Float[np.ndarray, " k"],
    covariance: Float[np.ndarray, "k k"],
    sure: Bool[np.ndarray, " k"],
    votes: Votes,
    confidence: float,
) -> tuple[float, float, Bool[np.ndarray, "k k"]]:
    """Return z of one rating, z of all, and who is surely ahead of whom: of all pairs at once."""
    # Of pairs it is a quantile of maxima over normal draws with the covariance of the ratings; a
    # fixed stream, so that a board is a function of what was released. Bands need no draws.
    # Source: Šidák 1967: with any correlations, normal intervals all hold at least as often as if
    # they were independent.
    k, z_one = len(ratings), _quantile(confidence)
    ahead = np.zeros((k, k), dtype=bool)
    rated = np.flatnonzero(sure)
    if len(rated) < 2:  # noqa: PLR2004 (a pair)
        return z_one, z_one, ahead
    shape = covariance[np.ix_(rated, rated)]
    values, vectors = np.linalg.eigh(shape)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T  # the same on every machine
    normal = normals(SimulatedEntropy(0), _DRAWS * len(rated)).reshape(_DRAWS, -1)
    draws = normal @ root.T
    z_all = _quantile(confidence ** (1 / len(rated)))
    place = votes.components[rated]
    one, two = np.triu_indices(len(rated), 1)
    together = place[one] == place[two]
    one, two = one[together], two[together]
    if not len(one):
        return z_one, z_all, ahead
    errors = np.sqrt(np.maximum(shape[one, one] + shape[two, two] - 2 * shape[one, two], 1e-300))
    largest = np.zeros(_DRAWS)
    for part in range(0, _DRAWS, step := max(1, _AT_ONCE // len(one))):
        some = draws[part : part + step]
        largest[part : part + step] = np.abs((some[:, one] - some[:, two]) / errors).max(axis=1)
    clear = (ratings[rated[one]] - ratings[rated[two]]) / errors
    most = np.quantile(largest, confidence)
    for better, winner, loser in ((clear > most, one, two), (clear < -most, two, one)):
        ahead[rated[winner[better]], rated[loser[better]]] = True
    return z_one, z_all, ahead


BOARD_FORMAT: Final = "sordino.leaderboard"
BOARD_VERSION: Final = 1
BOARD: Final = "leaderboard.json"

_DECIMALS = 4  # of an expected win rate
_MEAN = 1000.0  # points of the mean, where nothing is anchored


@dataclass(frozen=True, kw_only=True)
class BoardRelease:
    """One update: the votes of one release, of all items and of every group."""

    name: str  # what the update is called over time, such as its date
    votes: Mapping[str, Votes]  # what was released, by the name of the group; all votes have none
    release_ids: tuple[str, ...]  # the ledger entries that paid
    artifact: str  # SHA-256 of what they released
    styles: tuple[str, ...] = ()  # names of the columns of style

    def to_dict(self) -> dict[str, Any]:
        """Return the release as JSON holds it."""
        return {
            "name": self.name,
            "release_ids": list(self.release_ids),
            "artifact": self.artifact,
            "styles": list(self.styles),
            "votes": {name: votes.to_dict() for name, votes in self.votes.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BoardRelease:
        """Return the release that JSON holds; KeyError, TypeError, ValueError if malformed."""
        return cls(
            name=str(values["name"]),
            votes={str(name): Votes.from_dict(told) for name, told in values["votes"].items()},
            release_ids=tuple(map(str, values["release_ids"])),
            artifact=str(values["artifact"]),
            styles=tuple(map(str, values["styles"])),
        )


@dataclass(frozen=True, kw_only=True)
class Board:
    """All releases of a board, with what they promise together and what follows from them."""

    releases: tuple[BoardRelease, ...]  # every update, the oldest first
    guarantee: Guarantee  # what all of them promise together
    anchor: tuple[str, float] | None = None  # an item and its points; else the mean has 1000
    confidence: float = 0.95  # how often an interval, or all ranks together, hold the truth
    updates: int | None = None  # for how many the noise is correlated; else each has its own
    counted_apart: ClassVar[bool] = True  # what paid for updates: by who took part in each

    @property
    def release_ids(self) -> tuple[str, ...]:
        """Return every entry that paid for a part of it."""
        return tuple(name for one in self.releases for name in one.release_ids)

    @property
    def items(self) -> tuple[str, ...]:
        """Return the items of all updates, in the order in which they came."""
        named = (name for one in self.releases for name in one.votes[""].items)
        return tuple(dict.fromkeys(named))

    @property
    def artifact(self) -> str:
        """Return the digest of the newest release."""
        return self.releases[-1].artifact

    @cached_property
    def boards(self) -> dict[str, Leaderboard]:
        """Return the board of all votes, whose name is empty, and that of every group."""
        sums = self._sums().items()
        return {name: fit_board(votes, confidence=self.confidence) for name, votes in sums}

    def _sums(self, until: int | None = None) -> dict[str, Votes]:
        """Return the votes of some first updates together, by group."""
        added: dict[str, Votes] = {}
        releases = self.releases[:until]
        weights = np.ones(len(releases)) if self.updates is None else coefficients(len(releases))
        for one, weight in zip(releases, weights[::-1].tolist(), strict=True):
            for name, told in one.votes.items():
                votes = told if self.updates is None else told.times(weight)
                added[name] = added[name].plus(votes) if name in added else votes
        return added

    @cached_property
    def told(self) -> dict[str, Any]:
        """Return all that the board shows: a function of what was released, and of nothing else."""
        every = {}
        for name, board in self.boards.items():
            rates = board.win_rates[np.ix_(board.order, board.order)].round(_DECIMALS).tolist()
            every[name] = {
                **board.to_dict(),
                "items": self._items(board),
                "style": [
                    {"name": style, "effect": float(effect), "interval": None}
                    for style, effect in zip(self.releases[-1].styles, board.style, strict=True)
                ],
                "win_rates": [[None if math.isnan(rate) else rate for rate in r] for r in rates],
            }
        history = [
            {
                "name": one.name,
                "items": self._items(fit_board(self._sums(at)[""], confidence=self.confidence)),
            }
            for at, one in enumerate(self.releases[:-1], 1)
        ]
        newest = {"name": self.releases[-1].name, "items": every[""]["items"]}
        return {
            **every.pop(""),
            "anchor": None if self.anchor is None else list(self.anchor),
            "updates": self.updates,
            "groups": every,
            "history": [*history, newest],
        }

    def _items(self, board: Leaderboard) -> list[dict[str, Any]]:
        """Return the items with their points on the scale of the anchor."""
        rows: list[dict[str, Any]] = board.to_dict()["items"]
        shift = 0.0
        if self.anchor is not None:
            name, points = self.anchor
            held = {row["name"]: row["rating"] for row in rows}
            shift = points - _MEAN - POINTS * (held.get(name) or 0.0)
        return [
            row if row["points"] is None else row | {"points": row["points"] + shift}
            for row in rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the file: what the board shows, then what it was made of."""
        return {
            "format": BOARD_FORMAT,
            "version": BOARD_VERSION,
            **self.told,
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "release_ids": list(self.release_ids),
            "artifact": self.artifact,
            "releases": [one.to_dict() for one in self.releases],
        }

    @classmethod
    def load(cls, path: Path) -> Board:
        """Return the board that a file holds; whatever it shows is made anew."""
        problem = f"{path.name} cannot be used"
        values = read_json(path, kind=BOARD_FORMAT, version=BOARD_VERSION, problem=problem)
        try:
            return cls.of(values)
        except DataError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, UsageError, ValueError):
            pass
        raise DataError(f"{problem}: a field is missing or malformed.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Board:
        """Return the board that JSON holds; KeyError, TypeError or ValueError if malformed."""
        anchor, updates = values["anchor"], values["updates"]
        if updates is not None:
            updates = _validate.integer("updates", updates, at_least=1)
        return cls(
            releases=tuple(map(BoardRelease.from_dict, values["releases"])),
            guarantee=Guarantee.from_dict(values["guarantee"], values["caveats"]),
            anchor=None if anchor is None else (str(anchor[0]), float(anchor[1])),
            confidence=_validate.failure_probability("confidence", values["confidence"]),
            updates=updates,
        )
