"""Text that a reference is trained on: what in it the model is taught to say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from sordino.errors import DataError
from sordino.preferences.files import every_line, read_mappings
from sordino.preferences.records import Text, read_text

__all__ = ["Document", "Spoken", "lines", "read_documents", "spoken"]

Document: TypeAlias = Text | tuple[Text, Text] | Mapping[str, Any]
"""A text; chat messages; (prompt, answer); or an object with ``messages``, with ``text``, or with
``prompt`` and ``completion``."""

_ASKING = frozenset({"user", "human", "system", "developer", "tool"})
_BREAK = re.compile(r"\n|<\|[^|<>]{1,40}\|>|</?s>|\[/?INST\]")
_SPEAKER = re.compile(r"[\s#*]*\w{1,20}[\s*]*:[\s*]*")
_PAIR = ("prompt", "completion")
_LARGEST = 1 << 20  # characters of one block of a plain text
_WANTED = (
    "a text, chat messages, (prompt, answer), or an object with 'messages', with 'text', or with "
    "'prompt' and 'completion'"
)


class Spoken(NamedTuple):
    """What a document teaches a model to say."""

    texts: list[str]  # everything that the model learns to say, to search in
    pieces: list[str]  # parts of it that may each be one whole answer


def spoken(document: Document, where: str = "the document") -> Spoken:
    """Return what a document teaches a model to say."""
    # Of chat messages, that is every turn but those of who asks. A plain text does not say where an
    # answer begins, so each of its lines may be one, with or without a speaker's name before it.
    if isinstance(document, tuple) and len(document) == len(_PAIR):
        document = dict(zip(_PAIR, document, strict=True))
    row = document if isinstance(document, Mapping) else {"messages": document}
    named = [name for name in ("messages", "completion", "text") if name in row]
    if not named or ("completion" in row and "prompt" not in row):
        raise DataError(f"{where}: expected {_WANTED}.")
    parts = [_part(read_text(row, name, where), plain=name != "completion") for name in named]
    return Spoken(*(list(chain.from_iterable(column)) for column in zip(*parts, strict=True)))


def _part(text: Text, *, plain: bool) -> tuple[list[str], list[str]]:
    """Return what one field teaches to say, and the pieces of it."""
    if not isinstance(text, str):
        turns = [turn["content"] for turn in text if turn["role"] not in _ASKING]
        return turns, turns
    return [text], [text, *lines(text)] if plain else [text]


def lines(text: str) -> Iterator[str]:
    """Yield each line of a plain text as it is, and without the name of a speaker."""
    for line in _BREAK.split(text):
        if line and not line.isspace():
            yield line
            if speaker := _SPEAKER.match(line):
                yield line[speaker.end() :]


def read_documents(path: str | Path) -> Iterator[Document]:
    """Return the documents of a file, one at a time; ``.gz`` is unpacked."""
    # A name that ends in `.txt` (or that and `.gz`) is plain text, whose documents stand apart by
    # blank lines; every other is JSON Lines, with one object of `Document` on each line.
    path = Path(path)
    if path.name.lower().removesuffix(".gz").endswith(".txt"):
        return _some(_blocks(every_line(path)))
    return _checked(read_mappings(path))


def _checked(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Document]:
    """Yield objects; refuse the first that teaches nothing that we can read."""
    for where, row in rows:
        spoken(row, where)
        yield row


def _blocks(lines: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    """Yield what stands between blank lines, or 1 MiB of it."""
    block: list[str] = []
    size = 0
    for number, line in chain(lines, [(0, b"")]):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = None
        if text is None:
            raise DataError(f"line {number}: not valid UTF-8.")
        if block and (size > _LARGEST or not text.strip()):
            yield "".join(block)
            block, size = [], 0
        if text.strip():
            block.append(text)
            size += len(text)


def _some(blocks: Iterator[str]) -> Iterator[str]:
    """Yield blocks; refuse a text without any."""
    first = next(blocks, None)
    if first is None:
        raise DataError("The input is empty: no text in it.")
    yield first
    yield from blocks
