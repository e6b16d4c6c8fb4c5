"""A leaderboard as its file holds it: what was released, what paid for it, what follows from it.

Everything that a board shows is computed anew from what was released, so whoever reads the file can
check it, and a later update adds its own votes to those that are there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from scipy import sparse

from sordino import _validate
from sordino._files import read_json
from sordino.errors import DataError, UsageError
from sordino.mechanisms.label_sum import coefficients
from sordino.privacy.guarantee import Guarantee

from .leaderboard import POINTS, Ballots, Leaderboard, Votes, fit_board

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
            "votes": {name: _votes_to_dict(votes) for name, votes in self.votes.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BoardRelease:
        """Return the release that JSON holds; KeyError, TypeError, ValueError if malformed."""
        return cls(
            name=str(values["name"]),
            votes={str(name): _votes_of(told) for name, told in values["votes"].items()},
            release_ids=tuple(map(str, values["release_ids"])),
            artifact=str(values["artifact"]),
            styles=tuple(map(str, values["styles"])),
        )


def _votes_to_dict(votes: Votes) -> dict[str, Any]:
    rows = votes.rows.tocoo()
    return {
        "items": list(votes.items),
        "columns": rows.shape[1],
        "places": [part.tolist() for part in rows.coords],
        "values": rows.data.tolist(),
        "counts": votes.counts.tolist(),
        "statistic": votes.statistic.tolist(),
        "ties": votes.ties,
        "noise": votes.noise.tolist(),
        "inflation": votes.inflation,
        "count_variance": votes.count_variance,
        "ballots": None
        if (ballots := votes.ballots) is None
        else {
            "offered": [np.flatnonzero(members).tolist() for members in ballots.members],
            "counts": ballots.counts.tolist(),
            "weights": ballots.weights.tolist(),
        },
    }


def _votes_of(told: Mapping[str, Any]) -> Votes:
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
    return Votes(
        items=tuple(map(str, told["items"])),
        rows=sparse.csr_array((np.asarray(told["values"], float), tuple(places)), shape=shape),
        ties=None if told["ties"] is None else float(told["ties"]),
        ballots=ballots,
        **given,
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
        every = {name: self._describe(board) for name, board in self.boards.items()}
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

    def _describe(self, board: Leaderboard) -> dict[str, Any]:
        told, order = board.to_dict(), board.order
        rates = board.win_rates[np.ix_(order, order)].round(_DECIMALS).tolist()
        names = self.releases[-1].styles
        return {
            **told,
            "items": self._items(board),
            "style": [
                {"name": name, "effect": float(effect), "interval": None}
                for name, effect in zip(names, board.style, strict=True)
            ],
            "win_rates": [[None if math.isnan(rate) else rate for rate in row] for row in rates],
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
