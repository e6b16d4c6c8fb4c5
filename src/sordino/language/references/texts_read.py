"""What a model, or a vocabulary, has read without privacy: a part of its mark, by public digests.

Noise on gradients hides a record from what training makes of it. It hides nothing that the start
knew before: a model or a tokenizer that was made from the texts of a data set gives words of every
record away with its first weights. So training that hides whole records or people asks what its
start has read. The digests are of texts that somebody published as they are; of records that are to
be hidden they are compared, and never written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any, Final

import torch

from sordino.errors import DataError
from sordino.language.models.model_digests import tokenizer_digest
from sordino.language.models.promises import TEXTS_READ
from sordino.language.references.documents import lines
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import caveats_of_reading
from sordino.preferences.rankings import Rankings
from sordino.preferences.records import Text

from .label_free import plain

__all__ = ["TextsRead"]

_TELLING: Final = 40  # characters from which on two texts do not agree by chance
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
    def on(cls, *marked: Any) -> TextsRead:
        """Return what models and tokenizers have read together, as far as they say so."""
        # A mark lists everything only as long as its weights, or rules, are those that it was made
        # for: whatever was trained further by others may have read more.
        found = [_marked(one) for one in marked if one is not None]
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

    def mark(self, thing: Any) -> None:
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


def _marked(thing: Any) -> TextsRead:
    """Return what one model or tokenizer says."""
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


def _made(thing: Any) -> str:
    """Return what changes when a vocabulary, or the body of a model, does; heads are apart."""
    if hasattr(thing, "init_kwargs"):
        return tokenizer_digest(thing)
    return _of_weights(sorted(thing.base_model.state_dict().items()))


def _heads(thing: Any) -> Iterator[str]:
    """Yield the digests of weights outside the body; one that is all 0 has learned nothing yet."""
    if not hasattr(thing, "init_kwargs"):
        body = {tensor.data_ptr() for tensor in thing.base_model.state_dict().values()}
        for tensor in thing.state_dict().values():
            if tensor.data_ptr() not in body and tensor.any():
                yield _of_weights([("", tensor)])


def _of_weights(named: Iterable[tuple[str, Any]]) -> str:
    """Return a SHA-256 over tensors as 32-bit floats."""
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(f"\0{name} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()


def _of_question(row: tuple[Text, Text, Text]) -> Iterator[bytes]:
    """Yield the digests of a prompt with two answers."""
    prompt, *answers = map(_whole, row)
    yield _digest("question", "\0".join([prompt, *sorted(answers)]))
    yield from chain.from_iterable(map(_long, row))


def _short(prompts: Iterable[Text]) -> Iterator[bytes]:
    """Yield the digests of prompts that are too short to tell where they are from."""
    for prompt in map(_whole, prompts):
        if len(prompt) < _TELLING:
            yield _digest("prompt", prompt)


def _whole(text: Text) -> str:
    """Return what was said, in one line."""
    return " ".join(map(plain, _turns(text)))


def _long(text: Text) -> Iterator[bytes]:
    """Yield the digests of all parts of a text that are long enough to tell where they are from."""
    parts = chain.from_iterable((turn, *lines(turn)) for turn in _turns(text))
    for part in (_whole(text), *map(plain, parts)):
        if len(part) >= _TELLING:
            yield _digest("text", part)


def _turns(text: Text) -> list[str]:
    """Return a text, or what people and models said in a chat."""
    if isinstance(text, str):
        return [text]
    return [turn["content"] for turn in text if turn["role"] not in _SHARED]


def _digest(kind: str, text: str) -> bytes:
    """Return the short digest of a text."""
    return hashlib.sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest()[:_SIZE]
