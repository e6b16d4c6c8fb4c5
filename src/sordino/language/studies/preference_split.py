"""One file of pairs as three parts that share no prompt, chosen without looking at a label."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sordino._validate import number
from sordino.errors import DataError, UsageError
from sordino.preferences.comparisons import Comparisons, PublicDigest
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.records import Text, encoded

__all__ = ["PreferenceSplit", "part_of_answers", "split_by_prompt", "unique_prompts"]

_SALT = b"sordino.split\0"  # so that no other hash of a prompt decides where it goes
_WORDS = 2**64


class PreferenceSplit(NamedTuple):
    """Row numbers of each part, ascending.

    Attributes:
        training: What policies learn from.
        held_out: Whose randomized answers measure them, and whose prompts they are compared on.
        judge: What the judge of the comparison learns from; no policy sees its prompts.
    """

    training: list[int]
    held_out: list[int]
    judge: list[int]

    @property
    def learned(self) -> list[int]:
        """Return the rows whose answers are randomized: training and held out, in order."""
        return sorted([*self.training, *self.held_out])


def split_by_prompt(
    pairs: Comparisons, *, judge: float = 0.5, held_out: float = 0.1
) -> PreferenceSplit:
    """Return three parts of the pairs; a public hash of its prompt places every pair.

    All pairs of one prompt are in one part, so nobody is measured on a prompt that was learned
    from, and who owns the file cannot choose where a judgment goes.

    Args:
        pairs: Of texts.
        judge: Share of the prompts whose pairs train the judge; 0 for a judge of your own.
        held_out: Share of the prompts that are left for measuring.

    Raises:
        DataError: The pairs hold no texts, or a part is left without a pair.
        UsageError: The shares are no shares.
    """
    if pairs.given is not None:
        raise DataError("A split goes by prompts, and these pairs hold feature vectors.")
    _refuse_shares(judge, held_out)
    parts = PreferenceSplit([], [], [])
    for row, prompt in enumerate(pairs.prompts):
        place = _place(prompt)
        part = parts.judge if place < judge else parts.training
        (parts.held_out if judge <= place < judge + held_out else part).append(row)
    if not parts.training or not parts.held_out or bool(parts.judge) != (judge > 0):
        raise DataError(
            f"{len(pairs)} pairs are too few prompts to split: a part would be empty. Nothing was "
            "done. Take more pairs."
        )
    return parts


def _refuse_shares(judge: float, held_out: float) -> None:
    """Refuse shares that leave nothing to learn from."""
    if not (number("judge", judge) >= 0 < number("held_out", held_out) and judge + held_out < 1):
        raise UsageError(
            "judge must be at least 0, held_out above 0, and both together below 1; got "
            f"{judge!r} and {held_out!r}."
        )


def _place(prompt: Text) -> float:
    """Return where in [0, 1) a prompt falls."""
    digest = hashlib.sha256(_SALT + encoded(prompt)).digest()
    return int.from_bytes(digest[:8], "big") / _WORDS


def part_of_answers(private: PrivatePairs, rows: Sequence[int]) -> PrivatePairs:
    """Return some of the randomized answers, under the promise and the entries of them all.

    Args:
        private: What one release answered.
        rows: Row numbers, ascending; any choice is free, for the answers are released.
    """
    digest = PublicDigest()
    for row in rows:
        digest.add(private.keys[row], None if private.persons is None else private.persons[row])
    columns: dict[str, Any] = {}
    for name in ("keys", "prompts", "first", "second", "persons"):
        column = getattr(private, name)
        columns[name] = tuple(column[row] for row in rows) if column else column
    if private.given is not None:
        columns["given"] = private.given[list(rows)]
    return replace(
        private,
        **columns,
        answers=private.answers[list(rows)],
        public_digest=digest.hexdigest(),
        seal=None,
    )


def unique_prompts(prompts: Sequence[Text]) -> list[Text]:
    """Return each prompt once, in the order of its first occurrence."""
    found: dict[bytes, Text] = {}
    for prompt in prompts:
        found.setdefault(encoded(prompt), prompt)
    return list(found.values())
