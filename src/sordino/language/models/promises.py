"""What a checkpoint promises: a file beside its weights, and the front of its model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from sordino import _validate
from sordino._files import read_json, write_json, write_text
from sordino.errors import DataError, SordinoError
from sordino.preferences.private_pairs import PrivatePairs
from sordino.privacy.guarantee import CAVEATS, Guarantee

__all__ = ["CheckpointPromise"]

_FORMAT, _VERSION = "sordino.checkpoint", 1
_FILE, _CARD = "sordino.json", "README.md"
Kind = Literal["reward", "policy"]


@dataclass(frozen=True, kw_only=True)
class CheckpointPromise:
    """What the labels behind a checkpoint were promised, and which entries paid for it.

    Attributes:
        kind: ``"reward"`` or ``"policy"``.
        guarantee: The promise of the randomized answers; training is free after that.
        release_ids: Ledger entries that paid for them, or recorded their arrival.
        artifact: SHA-256 of the released answers.
        training: Public settings that a reader needs, such as ``loss`` and ``reward_bound``.
    """

    kind: Kind
    guarantee: Guarantee
    release_ids: tuple[str, ...] = ()
    artifact: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no checkpoint of ours."""
        _validate.one_of("kind", self.kind, get_args(Kind))

    @classmethod
    def of(cls, pairs: PrivatePairs, /, *, kind: Kind, **training: Any) -> CheckpointPromise:
        """Return what a checkpoint promises that was trained on these answers alone."""
        return cls(
            kind=kind,
            guarantee=pairs.guarantee,
            release_ids=pairs.release_ids,
            artifact=pairs.artifact,
            training=training,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as JSON holds it."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": self.kind,
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "release_ids": list(self.release_ids),
            "artifact": self.artifact,
            "training": dict(self.training),
        }

    def write(self, folder: Path, *, title: str) -> None:
        """Write ``sordino.json`` and the model card beside the weights of a checkpoint.

        Raises:
            FileSystemError: They cannot be written.
        """
        write_json(folder / _FILE, self.to_dict(), force=True)
        write_text(folder / _CARD, self.card(title), force=True)

    @classmethod
    def read(cls, folder: Path) -> CheckpointPromise:
        """Return what :meth:`write` wrote.

        Raises:
            DataError: The file is malformed, or written by a newer version.
            FileSystemError: There is none, or it cannot be read.
        """
        problem = "The checkpoint's promise cannot be used"
        found = read_json(folder / _FILE, kind=_FORMAT, version=_VERSION, problem=problem)
        try:
            return cls(
                kind=found["kind"],
                guarantee=Guarantee.from_dict(found["guarantee"], found["caveats"]),
                release_ids=tuple(map(str, found["release_ids"])),
                artifact=str(found["artifact"]),
                training=dict(found["training"]),
            )
        except (SordinoError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{problem}: {_FILE} is malformed.") from error

    def card(self, title: str) -> str:
        """Return a model card whose YAML front carries the promise and every caveat.

        The front is written as JSON values, which YAML reads as they are.
        """
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
            f"A {self.kind} trained on randomized preferences with Sordino.",
            "",
            f"**Promise:** {promise}. One change: {promise.change}.",
            "",
            *(f"- `{name}`: {CAVEATS[name]}" for name in promise.caveats),
        ]
        return "\n".join(lines) + "\n"
