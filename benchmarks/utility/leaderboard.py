"""How good a private leaderboard is, and how often its intervals and ranks hold.

Prints one JSON object. Ratings are normal with standard deviation 1, every two items meet equally
often, and ties follow Davidson's model. Each board is drawn from the exact mean and covariance of
the mechanism's own noise, and is held against the same votes without privacy.

    python benchmarks/utility/leaderboard.py --boards 300
    python benchmarks/utility/leaderboard.py --ballots
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import time
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

import sordino
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.ranking_sum import BallotGaussian
from sordino.rewards.leaderboard import Votes, _Fit, fit_board
from sordino.rewards.vote_release import votes_of_ballots

DELTA = 1e-6
SIZES = (
    (5, 2_000),
    (5, 20_000),
    (30, 2_000),
    (30, 20_000),
    (30, 200_000),
    (100, 20_000),
    (100, 200_000),
)
Promise = tuple[str, float, int | None]
Ballots = tuple[int, int, int, str]
PROMISES: tuple[Promise, ...] = (
    ("label", 1.0, None),
    ("person", 2.0, 1),
    ("person", 2.0, 7),
    ("person", 2.0, 50),
)


def pairs_of(k: int) -> sparse.csr_array:
    """Return one row for each two items."""
    one, two = np.triu_indices(k, 1)
    m = len(one)
    ends = np.concatenate([np.ones(m), -np.ones(m)])
    places = np.tile(np.arange(m), 2), np.concatenate([one, two])
    return sparse.csr_array((ends, places), shape=(m, k))


def noise_of(
    rows: np.ndarray, n: int, unit: str, epsilon: float, most: int | None, *, ties: bool, seed: int
) -> np.ndarray:
    """Return F, the factor of the noise that the mechanism has for n such votes."""
    if ties:
        rows = np.hstack([rows, np.ones((len(rows), 1))])
    made = LabelGaussian(
        epsilon, delta=DELTA, shaped=False, ties=int(ties),
        records_per_person=most if unit == "person" else None,
    )  # fmt: skip
    if unit != "person":
        return made.prepare(rows).factor
    assert most is not None
    met = np.random.default_rng(seed).integers(0, len(rows), n)  # of one draw of who met whom
    return made.prepare(rows[met], persons=np.arange(n) // most).factor


def best(rows: np.ndarray, n: int, noise: np.ndarray, theta: np.ndarray) -> list[float]:
    """Return mean squares of errors: of votes alone, with the noise, and of who knows the prior."""
    # Of Bradley-Terry without ties, to first order: H is the information of all votes.
    k, eta = len(theta), rows @ theta
    level = np.full((k, k), 1 / k)
    center = np.eye(k) - level
    bend = rows.T @ (rows / (2 + np.exp(eta) + np.exp(-eta))[:, None]) * n / len(rows)
    back = np.linalg.inv(bend + level) - level
    with_noise = back + back @ center @ noise @ center @ back
    known = center @ np.linalg.inv(np.linalg.inv(with_noise + level) + center) @ center
    return [np.trace(one) / k for one in (back, with_noise, known)]


def cell(k: int, n: int, tie: float, promise: Promise, boards: int, seed: int) -> dict[str, Any]:
    """Return what many boards of one world and one promise were worth."""
    unit, epsilon, most = promise
    rng, rows = np.random.default_rng(seed), pairs_of(k)
    dense = rows.toarray()
    factor = noise_of(dense, n, unit, epsilon, most, ties=tie > 0, seed=seed)
    nu = 2.2 * tie / (1 - tie)
    errors, plain, inside, band, ranks, said, seconds = [], [], [], [], [], [], 0.0
    bounds = []
    for _ in range(boards):
        theta = rng.normal(size=k)
        theta -= theta.mean()
        counts = rng.multinomial(n, np.full(rows.shape[0], 1 / rows.shape[0])).astype(float)
        half = np.exp(rows @ theta / 2)
        odds = np.stack([1 / half, np.full_like(half, nu), half], axis=1)
        won = rng.multinomial(counts.astype(int), odds / odds.sum(axis=1, keepdims=True))
        sums = rows.T @ ((won[:, 2] - won[:, 0]) / 2)
        if tie:
            sums = np.append(sums, won[:, 1].sum())
        drawn = sums + factor @ rng.normal(size=factor.shape[1])
        given = {"items": tuple(map(str, range(k))), "rows": rows, "counts": counts}
        size = len(sums)
        start = time.process_time()
        board = fit_board(
            Votes(
                statistic=drawn[:k], ties=float(drawn[k]) if tie else None,
                noise=factor @ factor.T, **given,
            )
        )  # fmt: skip
        seconds += time.process_time() - start
        free = _Fit(  # of whose board only the ratings are looked at
            Votes(
                statistic=sums[:k], ties=float(sums[k]) if tie else None,
                noise=np.zeros((size, size)), outcomes=won.astype(float), **given,
            )
        )  # fmt: skip
        free.climb()
        bounds.append(best(dense, n, (factor @ factor.T)[:k, :k], theta))
        rated = np.isfinite(board.ratings)
        low, high = board.intervals.T
        inside.append(((low <= theta) & (theta <= high))[rated])
        band.append(bool(((board.bands[:, 0] <= theta) & (theta <= board.bands[:, 1])).all()))
        place = 1 + (theta[None, :] > theta[:, None]).sum(axis=1)
        ranks.append(bool(((board.ranks[:, 0] <= place) & (place <= board.ranks[:, 1])).all()))
        said.append(rated.mean())
        errors.append((board.ratings - theta)[rated] ** 2)
        plain.append((free.point[:k] - theta)[rated] ** 2)
    spoken = np.concatenate(inside)
    rmse, without = (
        float(np.sqrt(np.concatenate(one).mean())) if len(spoken) else None
        for one in (errors, plain)
    )
    alone, noised, known = np.sqrt(np.mean(bounds, axis=0))
    return {
        "items": k, "votes": n, "ties": tie, "unit": unit, "epsilon": epsilon,
        "votes_of_a_person": most, "rated": float(np.mean(said)), "rmse": rmse,
        "rmse_without_privacy": without, "ratio": rmse / without if rmse and without else None,
        "interval_coverage": float(spoken.mean()) if len(spoken) else None,
        "band_coverage": float(np.mean(band)), "rank_coverage": float(np.mean(ranks)),
        "bound": float(noised / alone), "bound_with_prior": float(known / alone),
        "seconds": seconds / boards,
    }  # fmt: skip


BALLOTS: tuple[Ballots, ...] = tuple(
    (k, of, n, ends)
    for n in (10, 100, 1000)
    for k, of, ends in (
        (5, 5, "full"), (10, 10, "full"), (5, 5, "2"), (10, 10, "3"), (10, 10, "1"),
        (10, 5, "1 to 5"), (10, 10, "good enough"),
    )
)  # fmt: skip
"""Items, how many of them each ballot is offered, how many ballots, and where they end."""


def ballots_cell(world: Ballots, epsilon: float, boards: int, seed: int) -> dict[str, Any]:
    """Return what many boards of ballots were worth: by Plackett–Luce, full or ending early."""
    k, of, n, ends = world
    rng, names = np.random.default_rng(seed), tuple(map(str, range(k)))
    mechanism = BallotGaussian(epsilon, delta=DELTA, counted=ends != "full")
    errors, plain, inside, ranks, said = [], [], [], [], []
    for _ in range(boards):
        theta = rng.normal(size=k)
        theta -= theta.mean()
        offered = np.sort(rng.random((n, k)).argsort(axis=1)[:, :of], axis=1)
        when = -theta[offered] - rng.gumbel(size=(n, of))
        place = when.argsort(axis=1).argsort(axis=1) + 1
        last: dict[str, Any] = {
            "full": of,
            "1 to 5": rng.integers(1, 6, (n, 1)),
            "good enough": (when < 0.5) * of,
        }
        ranks_of = np.where(place <= (last[ends] if ends in last else int(ends)), place, 0)
        design = mechanism.prepare(offered.ravel(), np.arange(0, n * of + 1, of), items=k)
        total = design._total(ranks_of.ravel())
        drawn = total + design.scale * rng.normal(size=len(total))
        board = fit_board(votes_of_ballots(design, drawn * design.worth, names))
        clean = votes_of_ballots(design, total * design.worth, names)
        free = fit_board(
            replace(clean, noise=clean.noise * 1e-12, count_variance=clean.count_variance * 1e-12)
        )
        rated, (low, high) = np.isfinite(board.ratings), board.intervals.T
        inside.append(((low <= theta) & (theta <= high))[rated])
        along = board.components[None, :] == board.components[:, None]
        best = 1 + ((theta[None, :] > theta[:, None]) & along).sum(axis=1)
        ranks.append(bool(((board.ranks[:, 0] <= best) & (best <= board.ranks[:, 1])).all()))
        said.append(rated.mean())
        both = rated & np.isfinite(free.ratings) & np.isfinite(board.intervals).all(axis=1)
        errors.append((board.ratings - theta)[both] ** 2)
        plain.append((free.ratings - theta)[both] ** 2)
    spoken, off, open_ = (np.concatenate(one) for one in (inside, errors, plain))
    return {
        "items": k, "offered": of, "ballots": n, "list": ends, "epsilon": epsilon,
        "rated": float(np.mean(said)), "rmse": float(np.sqrt(off.mean())) if len(off) else None,
        "rmse_without_privacy": float(np.sqrt(open_.mean())) if len(off) else None,
        "interval_coverage": float(spoken.mean()) if len(spoken) else None,
        "rank_coverage": float(np.mean(ranks)),
    }  # fmt: skip


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--boards", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--items", type=int, nargs="*", default=[5, 30, 100], help="Sizes to run.")
    parser.add_argument("--most", type=int, nargs="*", default=[1, 7, 50], help="Votes a person.")
    parser.add_argument("--ballots", action="store_true", help="Worlds of ballots instead.")
    parser.add_argument("--votes", type=int, nargs="*", help="Numbers of votes to run; all if out.")
    parser.add_argument("--units", nargs="*", default=["label", "person"], help="Units to run.")
    given = parser.parse_args()
    rows = [
        ballots_cell(world, 1.0, given.boards, given.seed) for world in BALLOTS if given.ballots
    ] or [
        cell(k, n, tie, promise, given.boards, given.seed)
        for (k, n), promise in itertools.product(SIZES, PROMISES)
        if k in given.items
        and promise[2] in {None, *given.most}
        and promise[0] in given.units
        and (not given.votes or n in given.votes)
        for tie in ((0.0, 0.1, 0.3) if (k, n) == (30, 20_000) else (0.1,))
    ]
    worst = min(row["interval_coverage"] for row in rows if row["interval_coverage"])
    print(
        json.dumps(
            {
                "name": "leaderboard" + "_ballots" * given.ballots,
                "boards": given.boards, "seed": given.seed, "results": rows,
                "least_interval_coverage": worst,
                "least_rank_coverage": min(row["rank_coverage"] for row in rows),
                "versions": {
                    "sordino": sordino.__version__, "numpy": np.__version__,
                    "python": platform.python_version(),
                },
            },
            indent=2,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
