"""What a raw label may say, and records that hold the labels of several people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Final

from sordino.errors import DataError
from sordino.privacy.label_values import UNDECIDED

__all__ = ["LABELS", "UNDECIDED", "WANTED", "label_value", "separate", "turned"]

LABELS: Final = "labels"
"""The field of a record that holds one label for each of several people."""

WANTED: Final = (
    '0 or 1 (1: \'first\' is preferred), or "tie", "both bad", "both good" or "skip"; '
    'write "skip" where nobody decided'
)
"""What a label may say, for messages."""

_NUMBERS: Mapping[Any, int] = {0: 0, 1: 1, 0.5: UNDECIDED}
_WORDS: Mapping[str, int] = {
    **dict.fromkeys(("1", "1.0", "first"), 1),
    **dict.fromkeys(("0", "0.0", "second"), 0),
    **dict.fromkeys(("0.5", "tie", "tie (bothbad)", "skip"), UNDECIDED),
    **dict.fromkeys(("both bad", "both_bad", "bothbad"), UNDECIDED),
    **dict.fromkeys(("both good", "both_good", "bothgood"), UNDECIDED),
}
_OTHERS = ("label", "answer", "chosen", "rejected")
_QUESTION = ("prompt", "first", "second")


def label_value(value: Any) -> int | None:
    """Return 1, 0 or 2 (undecided) for what a raw label says, or None if it says nothing.

    Example:
        >>> [label_value(value) for value in (1, "0", "Tie (bothbad)", 0.5, "skip", "", None)]
        [1, 0, 2, 2, 2, None, None]
    """
    if isinstance(value, str):
        return _WORDS.get(" ".join(value.lower().split()))
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return _NUMBERS.get(value)


def turned(outcome: Any, *, swap: Any) -> Any:
    """Return outcomes after their answers were swapped: undecided stays undecided.

    Args:
        outcome: 1, 0 or 2, one or an array of them.
        swap: Whether ``first`` and ``second`` change places, one or an array.

    Example:
        >>> [turned(outcome, swap=True) for outcome in (1, 0, 2)]
        [0, 1, 2]
    """
    return outcome ^ (swap & (outcome != UNDECIDED))


def separate(
    row: Mapping[str, Any], where: str, *, person_field: str
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield (record, place) for every label of a record that holds several, in their order.

    How many labels there are, and who gave them, is public.

    Args:
        row: ``prompt``, ``first``, ``second``, ``labels`` and, if people are known, the field
            named as the person field with an "s" behind it: one id for each label.
        where: Where the record stands, for messages.
        person_field: Name of the public person id of a record with one label.

    Raises:
        DataError: There is no label, or not one person for each, or the record also holds what
            a record with one label does.
    """
    people = f"{person_field}s"
    if LABELS not in row:
        raise DataError(f"{where}: field {people!r} is for records with {LABELS!r}, a list.")
    others = [name for name in _OTHERS if name in row]
    if row.get(person_field) is not None:
        others.append(person_field)
    if others:
        raise DataError(
            f"{where}: fields {LABELS!r} and {' and '.join(map(repr, others))} exclude each other: "
            f"{LABELS!r} is one judgment for each of several people, who are named in {people!r}."
        )
    labels = row[LABELS]
    if not _is_list(labels) or not labels:
        raise DataError(f"{where}: field {LABELS!r} must be a list of at least one label.")
    persons = row.get(people)
    if persons is not None and (not _is_list(persons) or len(persons) != len(labels)):
        raise DataError(f"{where}: field {people!r} must be a list of one id for each label.")
    question = {name: row[name] for name in _QUESTION if name in row}
    for index, label in enumerate(labels):
        person = {} if people not in row else {person_field: persons and persons[index]}
        yield {**question, "label": label, **person}, f"{where}, label {index + 1}"


def _is_list(value: Any) -> bool:
    """Return whether a value is a list of things, not a text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
