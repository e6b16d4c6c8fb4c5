"""Whether something other than the answers of a released file tells who was preferred.

The raw file says what the labels are. A channel refutes the claim if it is right more often
than ε permits anything in the file to be, given what is public anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Integer
from scipy.special import expit

from sordino.auditing.releases.columns import MOST_VALUES, Reading, numbered, readings, row_readings
from sordino.auditing.releases.evidence import Channel, Evidence
from sordino.auditing.releases.strata import FAILURE, PublicKnowledge, independent_rows

from .columns import quoting_channels
from .evidence import mixed_at_least
from .reading import UNKNOWN, Released
from .recipes import AGREEMENT, OrderRule, in_canonical_order, reproduces

__all__ = ["attack_channels", "order_channels"]

WRITTEN = "written"
_MOST_CONSTANT = 0.95
_SUBJECTS = {
    "position": "The order in which two answers are written",
    "row-order": "The place of a row in the file",
    "id-hash": "An id",
}


def order_channels(released: Released) -> list[Channel]:
    """Return everything in a file, but ids and answers, that may say who was preferred.

    Guarantee:
        No released answer is looked at, and no label of a row for a guess about that row or any
        row of its half.
    """
    channels = []
    if released.layout != "chosen-rejected":
        guesses = np.ones(len(released), dtype=np.int64)
        channels.append(Channel(name="position", guesses=guesses))
    places: list[tuple[Reading, dict[str, str]]] = [
        (reading, {}) for reading in row_readings(len(released))
    ]
    said = [
        (reading, {"column": name})
        for name, values in released.columns.items()
        for reading in readings(values)
    ]
    usable = independent_rows(released)
    for reading, details in places + said:
        channels += _read(released, reading, details, usable)
    return [*channels, *quoting_channels(released)]


def _read(
    released: Released,
    reading: Reading,
    details: Mapping[str, Any],
    usable: Bool[np.ndarray, " n"],
) -> Iterator[Channel]:
    """Yield what one reading says, in the order written and in canonical order."""
    swapped = released.swapped
    frames = {WRITTEN: np.zeros_like(swapped), "canonical": swapped}
    for frame, turn in frames.items():
        if frame != WRITTEN and swapped.min(initial=True) == swapped.max(initial=False):
            continue  # one order is the other, or its reverse: nothing new
        said = {**details, "reading": reading.name, "order": frame}
        if reading.groups.max() == 1:
            guesses = in_canonical_order(reading.groups, turn)
            yield Channel(name=reading.attack, guesses=guesses, details=said)
        elif released.truth is not None:
            labels = in_canonical_order(released.truth, turn)
            learned_from = usable & (labels != UNKNOWN)
            guesses = _cross_fitted(reading.groups, labels, learned_from)
            yield Channel(
                name=reading.attack,
                guesses=in_canonical_order(guesses, turn),
                details={**said, "learned": True},
            )


def _halves(n: int) -> Integer[np.ndarray, " n"]:
    """0 or 1 for every row: two rows of one, two of the other, so that both have parities."""
    # Alternating single rows would hide a label written into the parity of the row.
    return np.arange(n) // 2 % 2


def _cross_fitted(
    groups: Integer[np.ndarray, " n"],
    labels: Integer[np.ndarray, " n"],
    usable: Bool[np.ndarray, " n"],
) -> Integer[np.ndarray, " n"]:
    """Return the majority label of each row's group in the other half of the rows."""
    # Given the labels of one half, and all that is public, the labels of the other half are as
    # independent as ever; so each half may be judged by a binomial tail.
    guesses, half = np.full(len(groups), UNKNOWN), _halves(len(groups))
    for learnt in (0, 1):
        seen = usable & (half == learnt)
        votes = np.bincount(groups[seen], weights=2 * labels[seen] - 1, minlength=groups.max() + 1)
        majority = np.where(votes == 0, UNKNOWN, votes > 0)
        guesses[half != learnt] = majority[groups[half != learnt]]
    return guesses


def attack_channels(
    released: Released,
    channels: Iterable[Channel],
    *,
    covariates: Sequence[str] = (),
    rules: Mapping[str, OrderRule] | None = None,
) -> list[Evidence]:
    """Return, for every channel, how surely it tells more about labels than the claim permits.

    Guarantee:
        If the file is ε-private for each label, labels of different (person, question) are
        independent given what is public, and every public factor that a channel may know is the
        person, the question, a declared column or a public order, then each p-value is at most
        α with probability at most α. Shown by tests/statistical/test_release_attacks.py.
    """
    # Source: Under ε the odds of a label move by at most e^ε when the file is seen, so that a guess
    # is right with probability at most σ(ε + |log-odds given what is public|); the number right has
    # a tail no heavier than the binomial with the mean of these (Hoeffding 1956). The mean is
    # bounded with failure probability `FAILURE`, which is added to the p-value (Berger & Boos
    # 1994).
    if released.truth is None:
        return []
    public = PublicKnowledge(released=released, covariates=tuple(covariates), rules=rules)
    spoken = [(channel, np.asarray(public.known & channel.speaks)) for channel in channels]
    return [_evidence(public, channel, rows) for channel, rows in spoken if rows.any()]


def _evidence(public: PublicKnowledge, channel: Channel, rows: Bool[np.ndarray, " n"]) -> Evidence:
    """Return what a channel shows in the rows where it may be judged."""
    share = float(np.mean((channel.guesses == public.truth)[rows]))
    reverse = share < 1 / 2 and not _learned(channel)
    recovered = 1 - share if reverse else share
    details = {**channel.details, "rows": int(rows.sum()), "reversed": reverse}
    reason = _exemption(public, channel, rows)
    if reason is not None:
        p_value, said, otherwise = 1.0, reason, reason
        details |= {"exempt": True}
    else:
        p_value, permitted = _judged(public, channel, rows)
        details |= {"permitted": permitted}
        said = (
            f"{_called(channel)} tells {100 * recovered:.1f} % of the labels; the claim and all "
            f"that is public let it tell {100 * permitted:.1f} %."
        )
        otherwise = f"{said} What is more may be chance." if recovered > permitted else said
        said += _way_out(channel)
    return Evidence(
        attack=channel.name,
        p_value=p_value,
        if_refutes=said,
        if_clear=otherwise,
        recovered=None if reason == _as_written(channel) else recovered,
        details=details,
    )


def _as_written(channel: Channel) -> str:
    """Return that a channel reads out no more than the order of the two answers does."""
    return f"{_called(channel)} says no more than the order written."


def _learned(channel: Channel) -> bool:
    """Return whether labels of one half of the rows made the guesses about the other."""
    return bool(channel.details.get("learned", False))


def _judged(
    public: PublicKnowledge, channel: Channel, rows: Bool[np.ndarray, " n"]
) -> tuple[float, float]:
    """Return the p-value of a channel, and the share of labels that the claim lets it tell."""
    # What was learned is judged on each half on its own; what was not, both as it is and reversed.
    # The smaller tail counts twice (Bonferroni), for the two need not be independent.
    right = channel.guesses == public.truth
    halves = [rows & (_halves(len(rows)) == half) for half in (0, 1)]
    tries = (
        [(half, right) for half in halves] if _learned(channel) else [(rows, right), (rows, ~right)]
    )
    written = channel.details.get("order") == WRITTEN
    tails, permitted = [], []
    for judged, hits in tries:
        n = int(judged.sum())
        odds = public.released.epsilon + public.log_odds(judged, written=written)
        permitted.append(float(expit(odds)))
        tails.append(mixed_at_least(int(hits[judged].sum()), n, permitted[-1]))
    p_value = len(tries) * (min(tails) + len(public.factors) * FAILURE)
    return min(1.0, p_value), max(permitted)


def _exemption(
    public: PublicKnowledge, channel: Channel, rows: Bool[np.ndarray, " n"]
) -> str | None:
    """Return why a channel says nothing about labels that is not public, or None."""
    guesses = channel.guesses[rows]
    if channel.details.get("column") in public.covariates:
        return f"{_called(channel)} is declared to have been fixed before the labels."
    for name, bits in public.orders.items():
        if reproduces(bits[rows], guesses):
            return f"{_called(channel)} is explained by a public order ({name})."
    if channel.details.get("order") == WRITTEN and reproduces(np.ones_like(guesses), guesses):
        return _as_written(channel)
    for name in public.covariates:
        if _explained(public.released, name, channel.guesses, rows):
            return f"{_called(channel)} is explained by the declared column {name!r}."
    return None


def _explained(
    released: Released, name: str, guesses: Integer[np.ndarray, " n"], rows: Bool[np.ndarray, " n"]
) -> bool:
    """Return whether what a channel says follows from the value of a column, in either order."""
    # A channel that says nearly always the same is not explained by a column, whatever it holds.
    groups = numbered(released.columns.get(name, ()))
    if not len(groups) or groups.max() >= min(MOST_VALUES, len(groups) // 8):
        return False
    groups = groups[rows]
    for turn in (np.zeros_like(released.swapped), released.swapped):
        said = in_canonical_order(guesses, turn)[rows]
        ones, sizes = np.bincount(groups, weights=said), np.bincount(groups)
        constant = max(said.mean(), 1 - said.mean()) > _MOST_CONSTANT
        if not constant and np.maximum(ones, sizes - ones).sum() >= AGREEMENT * len(said):
            return True
    return False


def _called(channel: Channel) -> str:
    """Return a channel in words."""
    details = channel.details
    column = f"The column {details['column']!r}" if "column" in details else ""
    subject = column or _SUBJECTS.get(channel.name, f"The channel {channel.name!r}")
    reading = [str(details[key]) for key in ("reading",) if key in details]
    return " ".join([subject, *(f"(read by {one})" for one in reading)])


def _way_out(channel: Channel) -> str:
    """Return what an honest party may do about an order or a column."""
    if "column" not in channel.details:
        return (
            " No public order rule explains it. If this is the order in which the answers were "
            "shown, give the raw file as first, second, label."
        )
    name = channel.details["column"]
    return (
        " No public order rule explains it. If it was fixed before the labels were given, declare "
        f"covariates=[{name!r}] (--covariate {name!r})."
    )
