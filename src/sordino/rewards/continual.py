"""Releases that go on: how much votes of earlier updates count in the next one, and who pays.

Update t releases Σ c_(t−s) Y_s with noise of its own, Y_s the sum of the votes that were new in
update s, and c the series of (1 − x)^(−1/2). What all votes together add up to after update t is
Σ c_(t−s) of these releases, since the series times itself is that of 1/(1 − x). Every release is
an ordinary noised sum of weighted votes, so that a ledger composes them as it does any others.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from sordino.errors import UsageError
from sordino.mechanisms.label_sum import LabelMechanism, SumMechanism
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import person_key
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.guarantee import REPLACE_ONE, GaussianEvent, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privacy.persons import KEY_BYTES, People

_UP: Final = 1 + 2.0**-30  # so that rounding makes no event smaller
_EXACT: Final = 2.0**-31  # of a count that is rounded up
_CLASSES: Final = 64  # of persons by how often they came; of more, some are charged a bit more
_FINE: Final = 8  # such classes between a loss and twice that


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


class Share(NamedTuple):
    """A part of what one release spends: an event, and whom it is about."""

    event: GaussianEvent
    questions: np.ndarray | None
    people: People | None


def shares_of(
    mechanism: LabelMechanism,
    promise: Guarantee,
    ages: Int64[np.ndarray, " k"],
    keys: Sequence[bytes],
    persons: Sequence[bytes] | None,
) -> list[Share]:
    """Return what a release of weighted votes spends, by age of the votes or by how often one came.

    Guarantee:
        Nobody's loss is more than that of the events with which a ledger finds them here: a label
        of age k moves the sum by at most c_k of what the noise hides; all labels of a person, or
        at most the cap of them from every update, by the sum of that over them. Shown by
        tests/soundness/test_continual.py.
    """
    weights = coefficients(int(ages.max()) + 1)

    def event(share: float) -> GaussianEvent:
        return GaussianEvent(mechanism.mu * share * (1 if share == 1 else _UP))

    came = defaultdict[bytes, list[int]](list)  # how old votes are, by person
    for key, age in zip(persons or (), ages.tolist(), strict=persons is not None):
        came[key].append(age)
    if promise.unit == "person":  # whatever one said in an update, it is up to the cap
        spent = np.array([weights[sorted({*mine})].sum() for mine in came.values()])
        if len(np.unique(spent)) > _CLASSES:
            spent = 2 ** (np.ceil(_FINE * np.log2(spent)) / _FINE)
        sizes = np.unique(spent)[::-1]
        return [Share(event(one), None, People.of(compress(came, spent == one))) for one in sizes]
    # Whoever has votes of several ages is in one row, since what they move in one release adds up.
    oldest, counts = int(ages.max()), defaultdict[int, dict[bytes, int]](dict)
    for key, mine in came.items():
        row = mine[0] if len({*mine}) == 1 else oldest
        counts[row][key] = math.ceil(weights[mine].sum() / weights[row] - _EXACT)
    found = []
    for age in np.unique(ages).tolist():
        asked = b"".join(keys[row][:8] for row in np.flatnonzero(ages == age).tolist())
        here = counts[age]
        who = People(b"".join(key[:KEY_BYTES] for key in here), np.array([*here.values()], int))
        questions = np.unique(np.frombuffer(asked, "<u8"))
        found.append(Share(event(weights[age]), questions, None if persons is None else who))
    return found


def votes_of(pairs: Pairs, rows: Sequence[int] | Int64[np.ndarray, " k"]) -> list[bytes]:
    """Return the keys of person and question of votes; nothing if these do not tell them apart."""
    if pairs.persons is None:
        unique = len({*pairs.keys}) == len(pairs)
        return [pairs.keys[row] for row in rows] if unique else []
    return [person_key(pairs.persons[row]) + pairs.keys[row] for row in rows]


def new_votes(
    votes: Pairs, path: Path, paid: Sequence[Sequence[str]], *, spread: bool
) -> tuple[Pairs, Int64[np.ndarray, " n"] | None]:
    """Return the votes that a release is about, and how old each is where old ones are in it.

    Args:
        votes: New ones, and any of those that are on the board already.
        path: The ledger, which knows these by keyed digests of person and question.
        paid: Which of its entries paid for each update so far.
        spread: Whether noise is correlated over updates: then all votes so far are needed.

    Raises:
        UsageError: None is new; or votes cannot be known again, or are lacking.
    """
    keys = votes_of(votes, range(len(votes)))
    if spread and not keys:
        raise UsageError(
            "Later updates have to know these votes again. Nothing was done. Say who voted "
            "(person), or which question it was (question_id), each once; or leave --updates out."
        )
    if not paid or not path.exists():  # a board without its ledger is refused later
        return votes, np.zeros(len(votes), np.int64) if spread else None
    ledger = Ledger.read(path)
    said = {row.release_id: json.loads(row.payload) for row in ledger.rows if row.kind == "reserve"}
    behind = [said.get(name, {}) for names in paid for name in names]
    notes = [payload for payload in behind if "votes" in payload]
    if not notes or not keys:
        return votes, np.zeros(len(votes), np.int64) if spread else None
    marks = [payload["votes"] for payload in notes]
    places, sizes = ledger.rosters.places(keys, marks, notes[0]["secret"])
    new = np.flatnonzero(places < 0)
    if not len(new):
        raise UsageError(
            "All of these votes are on the board already. Nothing was released. Give new ones, too."
        )
    if not spread:
        return (votes if len(new) == len(votes) else votes.part(new.tolist())), None
    here = Counter(dict(zip(keys, places.tolist(), strict=True)).values())
    if lacking := [str(at + 1) for at, size in enumerate(sizes) if here[at] != size]:
        raise UsageError(
            "The noise of this board is correlated, so an update needs all votes so far, and those "
            f"of update {', '.join(lacking)} are not all here. Nothing was released. Give the "
            "files of every update."
        )
    return votes, np.where(places < 0, 0, len(sizes) - places)


def loss_of_each(epsilon: float, *, delta: float, updates: int) -> float:
    """Return the loss of one release, so that one vote loses epsilon at most in so many updates."""
    mu = SumMechanism(epsilon, delta=delta).mu * (1 - 2.0**-20) / math.sqrt(growth(updates))
    return composed_epsilon([(GaussianEvent(mu), 1)], neighbors=REPLACE_ONE, delta=delta)


def plan_updates(planned: int) -> dict[str, Any]:
    """Return how the noise of so many updates adds up, in standard errors of one release.

    All at the same loss of a vote in all of them; of a person who comes ``visits`` times, at the
    same loss of that person.

    Source:
        docs/ranking.md, "A board that goes on".
    """
    squares = np.cumsum(coefficients(planned) ** 2)
    counts = np.arange(1, planned + 1)
    first = int(counts[squares * squares[-1] < counts][0])
    # Whoever comes k times moves the releases most by the first k updates: of two updates, what
    # both count together is least the later and the farther apart they are.
    sums = np.cumsum(coefficients(planned))
    moved = [
        float(((sums - np.append(np.zeros(k), sums)[:planned]) ** 2).sum()) for k in counts.tolist()
    ]
    visits = int(counts[squares[-1] * np.array(moved) < planned * counts].max())
    single, correlated = math.sqrt(planned), float(squares[-1])
    says = (
        f"correlated noise, whose standard error after {planned} updates is {correlated:.3g} times "
        f"that of one release; one by one it would be {single:.3g} times. It is less from update "
        f"{first} on, and for people who come to at most {visits} of them"
    )
    told = {"planned": planned, "used": "correlated", "single": single, "correlated": correlated}
    return told | {"from": first, "visits": visits, "says": says}
