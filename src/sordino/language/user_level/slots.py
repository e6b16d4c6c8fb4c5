"""Who has which slot of which batch: by order and public person id, whatever anybody says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sordino import _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.models.tokens import Overlong
from sordino.preferences.records import Text, read_text

from .slot_privacy import SlotPrivacy

_FORM = "a mapping with 'person', a public id, and 'prompt', a text, chat messages or None"
_HIDDEN = "Which one is not said, as prompts are private. Nothing was trained."


class Person(NamedTuple):
    """Who has a slot."""

    id: str  # public
    prompt: Text | None  # what they ask; None where the slot is left empty


def batches_of(
    rows: Any,
    privacy: SlotPrivacy,
    *,
    length: Callable[[Text], int],
    room: int,
    overlong: Overlong,
) -> list[list[Person]]:
    """Return the people of every batch, in the order of the data."""
    # The first row of a person counts, and no other: whoever has a slot gets no second one. Ids
    # alone decide, so that no prompt moves anybody's slot.
    found: dict[str, Person] = {}
    for person, row in _rows(rows):
        if len(found) < privacy.people and person not in found:
            found[person] = Person(person, _prompt(row, length, room, overlong))
    if len(found) < privacy.people:
        raise UsageError(
            f"There are {len(found)} different people, and {privacy.batches} batches of "
            f"{privacy.slots} slots need {privacy.people}. Nothing was trained. Choose fewer "
            "batches or slots, or give rows with prompt=None for people who are not there."
        )
    people, size = list(found.values()), privacy.slots
    return [people[start : start + size] for start in range(0, len(people), size)]


def _rows(rows: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the person of every row, and the row."""
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise UsageError(
            f"train_dataset must hold for each person {_FORM}, got {type(rows).__name__}. Nothing "
            "was trained."
        )
    for row in rows:
        if not isinstance(row, Mapping) or "prompt" not in row:
            raise UsageError(f"Each row of train_dataset must be {_FORM}. Nothing was trained.")
        yield _person(row.get("person")), row


def _person(value: Any) -> str:
    """Return an id, written as everywhere in this library, so that nobody counts as two."""
    try:
        return _validate.person_id("a person", value)
    except DataError:
        raise PrivacyError(
            "What is hidden is a person, and a row does not say whose it is. Nothing was "
            "trained. Give every row a 'person': a public id, a text or a whole number."
        ) from None


def _prompt(
    row: Mapping[str, Any], length: Callable[[Text], int], room: int, overlong: Overlong
) -> Text | None:
    """Return a prompt that leaves room for an answer, or None."""
    if row["prompt"] is None:
        return None
    try:
        prompt = read_text(row, "prompt", "a row")
    except DataError:
        raise DataError(f"A prompt is neither text nor chat messages. {_HIDDEN}") from None
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise DataError(
            f"A prompt is empty. {_HIDDEN} Give prompt=None to leave the slot of a person empty."
        )
    if length(prompt) <= room:
        return prompt
    if overlong == "drop":
        return None
    raise DataError(
        f"A prompt has more than {room} tokens, which leaves no room for an answer. {_HIDDEN} "
        "Lower max_completion_length, or leave such slots empty with overlong='drop'."
    )
