"""Texts that a model is taught, and whether they tell the judgments or the records that are hidden.

Noise on gradients hides a record from what training makes of it. It hides nothing that the start
knew before: a model or a tokenizer that was made from the texts of a data set gives words of every
record away with its first weights. So training that hides whole records or people asks what its
start has read. The digests are of texts that somebody published as they are; of records that are to
be hidden they are compared, and never written.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
from jaxtyping import Bool

from sordino.errors import DataError, PrivacyError, PrivacyWarning
from sordino.language.models.promises import TEXTS_READ, tensors_digest, tokenizer_digest
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import caveats_of_reading
from sordino.preferences.files import read_rows
from sordino.preferences.rankings import Rankings
from sordino.preferences.records import Text, read_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    _Marked: TypeAlias = PreTrainedModel | PreTrainedTokenizerBase

_Document: TypeAlias = Text | tuple[Text, Text] | Mapping[str, Any]
"""A text; chat messages; (prompt, answer); or an object with ``messages``, with ``text``, or with
``prompt`` and ``completion``."""

_ASKING = frozenset({"user", "human", "system", "developer", "tool"})
_BREAK = re.compile(r"\n|<\|[^|<>]{1,40}\|>|</?s>|\[/?INST\]")
_SPEAKER = re.compile(r"[\s#*]*\w{1,20}[\s*]*:[\s*]*")
_PAIR = ("prompt", "completion")
_WANTED = (
    "a text, chat messages, (prompt, answer), or an object with 'messages', with 'text', or with "
    "'prompt' and 'completion'"
)


class _Spoken(NamedTuple):
    """What a document teaches a model to say."""

    texts: list[str]  # everything that the model learns to say, to search in
    pieces: list[str]  # parts of it that may each be one whole answer


def _spoken(document: _Document, where: str = "the document") -> _Spoken:
    # Of chat messages, that is every turn but those of who asks. A plain text does not say where an
    # answer begins, so each of its lines may be one, with or without a speaker's name before it.
    if isinstance(document, tuple) and len(document) == len(_PAIR):
        document = dict(zip(_PAIR, document, strict=True))
    row = document if isinstance(document, Mapping) else {"messages": document}
    named = [name for name in ("messages", "completion", "text") if name in row]
    if not named or ("completion" in row and "prompt" not in row):
        raise DataError(f"{where}: expected {_WANTED}.")
    said = _Spoken([], [])
    for name in named:
        text = read_text(row, name, where)
        if isinstance(text, str):
            said.texts.append(text)
            said.pieces.extend([text, *lines(text)] if name != "completion" else [text])
        else:
            turns = [turn["content"] for turn in text if turn["role"] not in _ASKING]
            said.texts.extend(turns)
            said.pieces.extend(turns)
    return said


def lines(text: str) -> Iterator[str]:
    """Yield each line of a plain text as it is, and without the name of a speaker."""
    for line in _BREAK.split(text):
        if line and not line.isspace():
            yield line
            if speaker := _SPEAKER.match(line):
                yield line[speaker.end() :]


def read_documents(path: str | Path) -> Iterator[_Document]:
    """Yield the documents of a file, one at a time; refuse the first that teaches nothing."""
    for where, row in read_rows(path):
        _spoken(row, where)
        yield row


_TELLING: Final = 40  # characters that two texts do not share by chance
_START = re.compile(r"(?<!\w)\S")
_Places: TypeAlias = list[tuple[int, int]]  # rows, and 0 for the first answer or 1


class _AnswerSearch:
    """The answers of all pairs, each looked for until it is found: no text is read twice."""

    # Texts are compared without regard to case, line breaks and the width of spaces (NFC). A short
    # answer occurs if it is one whole turn or line. A longer one occurs already if its beginning
    # does, up to 40 characters past where it parts from every other answer: so it does not matter
    # where the text, or the answer, was cut, nor that many answers open with the same words.

    def __init__(self, pairs: Comparisons) -> None:
        """Index every answer as a whole, and every long one by its beginning."""
        if pairs.given is not None:
            raise DataError(
                "A reference is trained on texts, and these pairs hold feature vectors."
            )
        self.found: Bool[np.ndarray, "n 2"] = np.zeros((len(pairs), 2), dtype=bool)
        self._whole: dict[str, _Places] = defaultdict(list)
        for row, both in enumerate(zip(pairs.first, pairs.second, strict=True)):
            for side, answer in enumerate(both):
                self._whole[_answer(answer)].append((row, side))
        self._beginnings: dict[str, dict[int, dict[str, _Places]]] = {}
        ordered = sorted(self._whole)  # beside each stands the one that begins most like it
        shared = [len(os.path.commonprefix(pair)) for pair in pairwise(ordered)]  # noqa: RUF071 (by character is meant)
        partings = map(max, [0, *shared], [*shared, 0])
        for answer, parting in zip(ordered, partings, strict=True):
            beginning = answer[: parting + _TELLING]
            if len(beginning) >= _TELLING and len(answer) > parting:
                sizes = self._beginnings.setdefault(beginning[:_TELLING], {})
                sizes.setdefault(len(beginning), {})[beginning] = self._whole[answer]

    def look_in(self, said: _Spoken) -> None:
        """Mark the answers that occur; what was found is not looked for again."""
        for piece in said.pieces:
            self._mark(self._whole.pop(plain(piece), []))
        for text in map(plain, said.texts):
            for start in _START.finditer(text):
                place = start.start()
                sizes = self._beginnings.get(text[place : place + _TELLING], {})
                for size, beginnings in sizes.items():
                    self._mark(beginnings.pop(text[place : place + size], []))

    def _mark(self, places: _Places) -> None:
        for row, side in places:
            self.found[row, side] = True


def _answer(text: Text) -> str:
    return plain(text if isinstance(text, str) else " ".join(_spoken(text).texts))


def plain(text: str) -> str:
    """Return a text in one case and one form, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


_FEWEST = 10
_BY_CHANCE = 0.05  # the share of pairs of which other text may hold one answer


@dataclass(frozen=True)
class _OneSided:
    """How many pairs have both answers, exactly one, or neither in a text; no label is in it."""

    both: int  # pairs whose answers both occur
    one: int  # pairs of which exactly one answer occurs
    none: int  # pairs of which neither does

    @property
    def n(self) -> int:
        return self.both + self.one + self.none

    @property
    def share(self) -> float:
        return self.one / self.n if self.n else 0.0

    def __str__(self) -> str:
        return (
            f"exactly one of the two answers occurs in the text for {self.one} of {self.n} pairs "
            f"({100 * self.share:.1f} %), both for {self.both}, neither for {self.none}"
        )


def warn_of_labels(
    documents: Iterable[_Document], pairs: Comparisons, *, strict: bool = False
) -> _OneSided:
    """Warn if a text seems to hold the preferred answers only; return what was found."""
    # Text in which both answers of every pair occur gives a share of 0. Text of another source has
    # few short answers by chance: the preferred answers of 2,100 dialogues gave 2.3 % on 2,313
    # other pairs of the same people. Preferred answers themselves give nearly 100 %. One answer of
    # every pair that was chosen without looking at a label leaks nothing and is warned of all the
    # same, because no label is looked at here either.
    # Warns:
    #     PrivacyWarning: The share is above 5 %.
    # What counts as an occurrence is said at `_AnswerSearch`: cuts, case and spaces do not matter.
    # What this cannot see: a text that holds both answers but tells them apart, by order or by how
    # often they occur; and answers that were rewritten.
    answers = _AnswerSearch(pairs)
    for index, document in enumerate(documents):
        answers.look_in(_spoken(document, f"document {index}"))
    counts = np.bincount(answers.found.sum(axis=1), minlength=3)
    found = _OneSided(both=int(counts[2]), one=int(counts[1]), none=int(counts[0]))
    if found.one < _FEWEST or found.share <= _BY_CHANCE:
        return found
    message = (
        f"The text seems to tell the judgments: {found}. If what people preferred decided which, "
        "then a model trained on it has seen their labels before any noise is drawn, and no "
        "epsilon covers that. Train on both answers of every pair in canonical order (sordino "
        "language tiny), or on other text."
    )
    if strict:
        raise PrivacyError(f"{message} Nothing was done.")
    warnings.warn(message, PrivacyWarning, stacklevel=2)
    return found


_SIZE: Final = 8  # bytes of a digest: a million texts meet another million with chance 5e-8
_SHARED: Final = frozenset({"system", "developer", "tool"})  # turns that many people's chats share


@dataclass(frozen=True)
class TextsRead:
    """Texts that weights or a vocabulary were made from, as they were."""

    # Of each text that does not occur elsewhere by chance; see `of`.
    digests: frozenset[bytes] = frozenset()
    short: frozenset[bytes] = frozenset()  # of prompts that may
    complete: bool = False  # whether nothing else was read

    @classmethod
    def of(cls, pairs: Comparisons | Rankings) -> TextsRead:
        """Return what somebody has read who read prompts and answers, and nothing else."""
        # Told apart are whole questions (a prompt with both answers), prompts, and every text or
        # line of at least 40 characters, all without regard to case, line breaks and spaces: a part
        # of the pairs, more of them, or others in between, in any order, under any name, are
        # recognized.
        if isinstance(pairs, Rankings):
            return cls.of_prompts([*pairs.prompts, *pairs.candidates])
        rows = zip(pairs.prompts, pairs.first, pairs.second, strict=True)
        digests = frozenset(chain.from_iterable(map(_of_question, rows)))
        return cls(digests, frozenset(_short(pairs.prompts)), complete=True)

    @classmethod
    def of_prompts(cls, prompts: Iterable[Text]) -> TextsRead:
        """Return what somebody has read who read these prompts."""
        texts = list(prompts)
        digests = frozenset(chain.from_iterable(map(_long, texts)))
        return cls(digests, frozenset(_short(texts)), complete=True)

    @classmethod
    def on(cls, *marked: object) -> TextsRead:
        """Return what models and tokenizers have read together, as far as they say so."""
        # A mark lists everything only as long as its weights, or rules, are those that it was made
        # for: whatever was trained further by others may have read more.
        found = [_marked(cast("_Marked", one)) for one in marked if one is not None]
        return reduce(TextsRead.with_those_of, found, cls(complete=True))

    def with_those_of(self, other: TextsRead) -> TextsRead:
        """Return what two have read together."""
        complete = self.complete and other.complete
        return TextsRead(self.digests | other.digests, self.short | other.short, complete=complete)

    def beside(self, private: TextsRead) -> dict[str, bool]:
        """Return what :func:`~sordino.preferences.features.caveats_of_reading` asks of a reader."""
        known = self.complete and self.digests.isdisjoint(private.short)
        return {"known": known, "read": not self.digests.isdisjoint(private.digests)}

    def caveats(self, private: TextsRead, *, declared: bool) -> tuple[str, ...]:
        """The caveats of private training by what has read these; refuse what knows it all."""
        return caveats_of_reading(**self.beside(private), declared=declared)

    def unread(self, pairs: Comparisons) -> list[int]:
        """Return the rows of pairs of which no text is among these; each row is judged alone."""
        known = self.digests | self.short
        rows = enumerate(zip(pairs.prompts, pairs.first, pairs.second, strict=True))
        return [
            row
            for row, texts in rows
            if known.isdisjoint([*_of_question(texts), *_short(texts[:1])])
        ]

    def mark(self, thing: _Marked) -> None:
        """Add it to the config of a model, or the settings of a tokenizer: copies keep it."""
        known = self.digests | self.short | _marked(thing).digests
        mark = {
            "texts": b"".join(sorted(known)).hex(),
            "made": _made(thing) if self.complete else "",
            "heads": sorted(_heads(thing)),
        }
        if hasattr(thing, "init_kwargs"):
            thing.init_kwargs[TEXTS_READ] = mark
        else:
            setattr(thing.config, TEXTS_READ, mark)


def _marked(thing: _Marked) -> TextsRead:
    kept = getattr(thing, "init_kwargs", None)
    config = getattr(thing, "config", None)
    mark = getattr(config, TEXTS_READ, None) if kept is None else kept.get(TEXTS_READ)
    if mark is None:
        return TextsRead()
    try:
        raw, made, heads = bytes.fromhex(mark["texts"]), mark["made"], set(mark["heads"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("The mark that says what a model has read is malformed.") from error
    digests = frozenset(raw[at : at + _SIZE] for at in range(0, len(raw), _SIZE))
    same = bool(made) and made == _made(thing)
    return TextsRead(digests, complete=same and heads.issuperset(_heads(thing)))


def _made(thing: _Marked) -> str:
    """Return what changes when a vocabulary, or the body of a model, does; heads are apart."""
    if hasattr(thing, "init_kwargs"):
        return tokenizer_digest(thing)
    return tensors_digest(sorted(thing.base_model.state_dict().items()))


def _heads(thing: _Marked) -> Iterator[str]:
    """Yield the digests of weights outside the body; one that is all 0 has learned nothing yet."""
    if not hasattr(thing, "init_kwargs"):
        body = {tensor.data_ptr() for tensor in thing.base_model.state_dict().values()}
        for tensor in thing.state_dict().values():
            if tensor.data_ptr() not in body and tensor.any():
                yield tensors_digest([("", tensor)])


def _of_question(row: tuple[Text, Text, Text]) -> Iterator[bytes]:
    prompt, *answers = map(_whole, row)
    yield _digest("question", "\0".join([prompt, *sorted(answers)]))
    yield from chain.from_iterable(map(_long, row))


def _short(prompts: Iterable[Text]) -> Iterator[bytes]:
    """Yield the digests of prompts that are too short to tell where they are from."""
    for prompt in map(_whole, prompts):
        if len(prompt) < _TELLING:
            yield _digest("prompt", prompt)


def _whole(text: Text) -> str:
    return " ".join(map(plain, _turns(text)))


def _long(text: Text) -> Iterator[bytes]:
    """Yield the digests of all parts of a text that are long enough to tell where they are from."""
    parts = chain.from_iterable((turn, *lines(turn)) for turn in _turns(text))
    for part in (_whole(text), *map(plain, parts)):
        if len(part) >= _TELLING:
            yield _digest("text", part)


def _turns(text: Text) -> list[str]:
    if isinstance(text, str):
        return [text]
    return [turn["content"] for turn in text if turn["role"] not in _SHARED]


def _digest(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest()[:_SIZE]
