"""One comparison, read from a mapping into a form that does not depend on the label.

Whatever the file calls its columns, a record ends as (prompt, first, second, outcome, person),
where ``first`` and ``second`` are ordered by a hash of their text. The outcome says whether
``first`` is preferred, and is the only part of a raw record that is private.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

from sordino.errors import DataError

__all__ = ["Record", "Text", "canonical", "parse_record", "person_key", "read_text"]

Text: TypeAlias = str | list[dict[str, Any]]
"""A text, or a list of chat messages with ``role`` and ``content``."""

_TURN = "\n\nAssistant:"


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """One comparison in canonical order.

    ``outcome`` is 1 if ``first`` is preferred, else 0: the raw label of a raw record, the
    randomized answer of a privatized one. ``key`` identifies the question (prompt and unordered
    pair of answers), not the outcome; ``where`` says where it stood, for messages.
    """

    prompt: Text
    first: Text
    second: Text
    outcome: int
    privatized: bool
    person: str | None
    key: bytes
    where: str

    @property
    def identical(self) -> bool:
        """Return whether both answers are the same, so that nothing can be preferred."""
        return self.first == self.second


def _framed(part: bytes) -> bytes:
    """Return bytes with their length in front, so that no two lists of parts look alike."""
    return len(part).to_bytes(8, "big") + part


def _encoded(text: Text) -> bytes:
    """Return a text as bytes; raises UnicodeEncodeError for a lone surrogate."""
    if isinstance(text, str):
        return b"s" + text.encode()
    plain = json.dumps(text, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"m" + plain.encode()


def canonical(prompt: Text, one: Text, other: Text) -> tuple[bool, bytes]:
    """Return whether two answers must be swapped, and the key of their question.

    The order is by SHA-256 of the length-prefixed prompt and answer. It is fixed before any
    label is looked at, and is the same on every machine.

    Source:
        The specification, local label privacy, "Order".

    Example:
        >>> canonical("p", "a", "b")[1] == canonical("p", "b", "a")[1]
        True
    """
    start = hashlib.sha256(_framed(_encoded(prompt)))
    digests = []
    for answer in (one, other):
        whole = start.copy()
        whole.update(_framed(_encoded(answer)))
        digests.append(whole.digest())
    low, high = sorted(digests)
    return digests[0] > digests[1], hashlib.sha256(low + high).digest()


def person_key(person: str) -> bytes:
    """Return a fixed-length key for a public person id."""
    return hashlib.sha256(_framed(person.encode())).digest()


def parse_record(row: Any, where: str, *, person_field: str = "person") -> Record:
    """Return one record in canonical order.

    Args:
        row: A mapping with ``chosen`` and ``rejected`` (``prompt`` may be shared text at their
            beginning instead), or ``prompt``, ``first``, ``second`` and either ``label`` (raw)
            or ``answer`` (privatized), 1 if ``first`` is preferred.
        where: Where it stands, for messages: ``"line 3"``.
        person_field: Name of the optional public person id.

    Raises:
        DataError: A field is missing, of a wrong type, or contradicts another. The message
            names place and field and never quotes the data.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object with named fields.")
    privatized, prompt, one, other, prefers_one = _sides(row, where)
    person = _person(row, where, person_field)
    try:
        swap, key = canonical(prompt, one, other)
    except (UnicodeEncodeError, TypeError, ValueError):
        swap, key = False, b""
    if not key:
        raise DataError(f"{where}: a text is not valid Unicode.")
    first, second = (other, one) if swap else (one, other)
    return Record(prompt, first, second, prefers_one ^ swap, privatized, person, key, where)


def _sides(row: Mapping[str, Any], where: str) -> tuple[bool, Text, Text, Text, int]:
    """Return whether the record is privatized, its texts as given, and its outcome."""
    outcomes = [name for name in ("label", "answer") if name in row]
    ranked = [name for name in ("chosen", "rejected") if name in row]
    if len(outcomes) > 1 or (outcomes and ranked):
        raise DataError(
            f"{where}: fields {' and '.join(map(repr, outcomes + ranked))} exclude each other: "
            "'label' and 'chosen'/'rejected' are raw judgments, 'answer' is a randomized one."
        )
    if outcomes:
        texts = [read_text(row, name, where) for name in ("prompt", "first", "second")]
        return outcomes[0] == "answer", *texts, _bit(row, outcomes[0], where)  # type: ignore[return-value]
    if not ranked and "first" in row and "second" in row:
        raise DataError(f"{where}: field 'label' (or 'answer') is missing.")
    chosen, rejected = (read_text(row, name, where) for name in ("chosen", "rejected"))
    if type(chosen) is not type(rejected):
        raise DataError(f"{where}: 'chosen' and 'rejected' must both be texts or both be messages.")
    if "prompt" in row:
        return False, read_text(row, "prompt", where), chosen, rejected, 1
    return False, *_shared_prompt(chosen, rejected), 1  # type: ignore[return-value]


def read_text(row: Mapping[str, Any], name: str, where: str) -> Text:
    """Return one field as a text or as a list of messages."""
    if name not in row:
        raise DataError(f"{where}: field {name!r} is missing.")
    value = row[name]
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        messages = [dict(message) for message in value if isinstance(message, Mapping)]
        whole = all(
            isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
            for message in messages
        )
        if whole and len(messages) == len(value) and (messages or name == "prompt"):
            return messages
    raise DataError(
        f"{where}: field {name!r} must be a text, or a list of messages with a 'role' and a "
        "'content' text each."
    )


def _bit(row: Mapping[str, Any], name: str, where: str) -> int:
    """Return an outcome; the message does not say what stood there instead."""
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) not in (0, 1):
        raise DataError(f"{where}: field {name!r} must be 0 or 1 (1: 'first' is preferred).")
    return int(value)


def _person(row: Mapping[str, Any], where: str, field: str) -> str | None:
    """Return the public person id as text, or None if there is none."""
    value = row.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, Integral)):
        raise DataError(f"{where}: field {field!r} must be a text or a whole number.")
    person = str(value)
    if not person.isascii() and person != person.encode(errors="replace").decode():
        raise DataError(f"{where}: field {field!r} is not valid Unicode.")
    return person


def _shared_prompt(chosen: Text, rejected: Text) -> tuple[Text, Text, Text]:
    """Return the prompt that both sides begin with, and what is left of each.

    Messages share whole messages; transcripts share up to their last common "Assistant:" turn;
    other texts share up to a common space. The rule is symmetric in the two sides.
    """
    cut = 0
    if isinstance(chosen, str) and isinstance(rejected, str):
        common = os.path.commonprefix([chosen, rejected])  # noqa: RUF071 (by character is meant)
        turn = common.rfind(_TURN)
        cut = turn + len(_TURN) if turn >= 0 else max(common.rfind(" "), common.rfind("\n")) + 1
    else:
        most = min(len(chosen), len(rejected)) - 1
        while cut < most and chosen[cut] == rejected[cut]:
            cut += 1
    return chosen[:cut], chosen[cut:], rejected[cut:]
