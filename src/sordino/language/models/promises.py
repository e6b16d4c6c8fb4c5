"""What a checkpoint promises: a file beside its weights, and the front of its model card."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from sordino import _validate
from sordino._files import read_json, write_json, write_text
from sordino.errors import DataError, SordinoError
from sordino.preferences.pairs import PrivatePairs
from sordino.privacy.guarantee import CAVEATS, Guarantee, merge

__all__ = ["CARD_FILE", "PROMISED", "PROMISE_FILE", "TEXTS_READ", "Answers", "CheckpointPromise"]

PROMISE_FILE, CARD_FILE = "sordino.json", "README.md"
"""What stands beside the weights."""

PROMISED = "sordino_promise"
"""The same within the config of a model, so that it goes wherever the weights go."""

TEXTS_READ = "sordino_texts_read"
"""Beside it, and within the settings of a tokenizer: what was read without privacy."""

_FORMAT, _VERSION = "sordino.checkpoint", 1
_PROBLEM = "The checkpoint's promise cannot be used"
_LARGEST_DELTA = math.nextafter(1.0, 0.0)
Kind = Literal["reward", "policy"]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """One release of randomized answers that weights were trained on, or metrics measured on."""

    guarantee: Guarantee  # what it promises
    release_ids: tuple[str, ...] = ()  # ledger entries that paid for it, or recorded its arrival
    artifact: str = ""  # SHA-256 of the released answers

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the entries that paid; answers that no ledger knows say so where one is asked."""
        return self.release_ids or (f"not-recorded:{self.artifact[:16]}",)

    def to_dict(self) -> dict[str, Any]:
        """Return the release as JSON holds it."""
        return {
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "release_ids": list(self.release_ids),
            "artifact": self.artifact,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Answers:
        """Return what :meth:`to_dict` wrote."""
        return cls(
            guarantee=Guarantee.from_dict(found["guarantee"], found["caveats"]),
            release_ids=tuple(map(str, found["release_ids"])),
            artifact=str(found["artifact"]),
        )


@dataclass(frozen=True, kw_only=True)
class CheckpointPromise:
    """What the labels behind a checkpoint were promised, and which entries paid for them."""

    # Every different release of answers that went into the weights counts, and all of them may be
    # of the same people, so that their losses add up.

    kind: Kind  # `"reward"` or `"policy"`
    sources: tuple[Answers, ...]  # the releases, the one that was trained on last first
    # Public settings that a reader needs, such as `loss` and `reward_bound`.
    training: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        """Add up what different releases promise."""
        _validate.one_of("kind", self.kind, get_args(Kind))
        different = tuple(dict.fromkeys(self.sources))
        object.__setattr__(self, "sources", different)
        parts = [one.guarantee for one in different]
        total = merge(
            parts,
            epsilon=math.fsum(part.epsilon for part in parts),
            delta=min(math.fsum(part.delta for part in parts), _LARGEST_DELTA),
        )
        object.__setattr__(self, "guarantee", parts[0] if len(parts) == 1 else total)

    @property
    def release_ids(self) -> tuple[str, ...]:
        """Return the ledger entries that paid for all of it."""
        if len(self.sources) == 1:
            return self.sources[0].release_ids
        return tuple(dict.fromkeys(entry for one in self.sources for entry in one.ids))

    @property
    def artifact(self) -> str:
        """Return the SHA-256 of the answers that were trained on last."""
        return self.sources[0].artifact

    @classmethod
    def of(cls, pairs: PrivatePairs, /, *, kind: Kind, **training: Any) -> CheckpointPromise:
        """Return what a checkpoint promises that was trained on these answers alone."""
        answers = Answers(
            guarantee=pairs.guarantee, release_ids=pairs.release_ids, artifact=pairs.artifact
        )
        return cls(kind=kind, sources=(answers,), training=training)

    def with_those_of(self, *others: CheckpointPromise) -> CheckpointPromise:
        """Return a promise that also covers what others speak for; a release counts once."""
        more = (one for other in others for one in other.sources)
        return replace(self, sources=(*self.sources, *more))

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as JSON holds it."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": self.kind,
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "sources": [one.to_dict() for one in self.sources],
            "training": dict(self.training),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> CheckpointPromise:
        """Return what :meth:`to_dict` wrote."""
        try:
            promise = cls(
                kind=found["kind"],
                sources=tuple(map(Answers.from_dict, found["sources"])),
                training=dict(found["training"]),
            )
            stated = Guarantee.from_dict(found["guarantee"], found["caveats"])
        except (SordinoError, KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(f"{_PROBLEM}: it is malformed.") from error
        if stated != promise.guarantee:
            raise DataError(f"{_PROBLEM}: {stated} is not what its releases add up to.")
        return promise

    @classmethod
    def read(cls, folder: Path) -> CheckpointPromise:
        """Return what :meth:`write` wrote."""
        path = folder / PROMISE_FILE
        return cls.from_dict(read_json(path, kind=_FORMAT, version=_VERSION, problem=_PROBLEM))

    def mark(self, model: Any) -> None:
        """Write the promise into a model's config, which every copy of the model keeps."""
        setattr(model.config, PROMISED, self.to_dict())

    def write(self, folder: Path, *, title: str) -> None:
        """Write ``sordino.json`` and the model card beside the weights of a checkpoint."""
        write_json(folder / PROMISE_FILE, self.to_dict(), force=True)
        write_text(folder / CARD_FILE, self.card(title), force=True)

    def card(self, title: str) -> str:
        """Return a model card whose YAML front carries the promise and every caveat."""
        # The front is written as JSON values, which YAML reads as they are.
        promise = self.guarantee
        sizes = json.dumps({**promise.to_dict(), "caveats": list(promise.caveats)})
        front = [
            "---",
            "library_name: transformers",
            f"tags: {json.dumps(['sordino', 'differential-privacy', self.kind])}",
            f"privacy: {sizes}",
            f"training: {json.dumps(dict(self.training))}",
            "---",
        ]
        banner = ["", "**SIMULATED: a seed was used, so nothing here is private.**"]
        lines = [
            *front,
            "",
            f"# {title}",
            *(banner if promise.simulated else []),
            "",
            f"A {self.kind} trained on private preferences with Sordino.",
            "",
            f"**Promise:** {promise}. One change: {promise.change}.",
            "",
            *(f"- `{name}`: {CAVEATS[name]}" for name in promise.caveats),
        ]
        return "\n".join(lines) + "\n"
