"""What a run of policy optimization has paid for: enough to go on, and nothing that is private.

A step is written here after its noise was drawn and before its entry is committed. Whoever resumes
therefore finds one of three things: no entry, and nothing was drawn; an entry without a step, whose
draw nobody saw, so the batch is paid for again; or a step, which is used as it is. No entry ever
pays for two draws that somebody could see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sordino._files import read_json, write_json
from sordino.errors import DataError, LedgerMismatch, UsageError
from sordino.privacy.chain import canonical_json
from sordino.privacy.ledger import Ledger, Reservation

from .policy_updates import Direction

__all__ = ["PaidStep", "RunState", "read_state"]

FORMAT: Final = "sordino.policy_optimization"
VERSION: Final = 1
_UNUSABLE: Final = "The checkpoint cannot be used and nothing was spent"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PaidStep:
    """One released direction and the entry that paid for it.

    Attributes:
        release_id: The entry on the ledger.
        direction: What came out.
    """

    release_id: str
    direction: Direction

    @property
    def digest(self) -> str:
        """Return the SHA-256 of what was released, which the ledger keeps."""
        return hashlib.sha256(canonical_json(self.direction.to_dict()).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the step as JSON holds it."""
        return {"release_id": self.release_id, **self.direction.to_dict()}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunState:
    """The public settings of a run and what it has released so far.

    Attributes:
        settings: Everything that must be the same when it goes on; no seed.
        run: A random name, with which the names of its scopes begin.
        drawn: Which iterate is the output if one is to be drawn.
        steps: What was released, batch by batch.
    """

    settings: Mapping[str, Any]
    run: str
    drawn: int
    steps: tuple[PaidStep, ...] = field(default=())

    def __repr__(self) -> str:
        """Return how far it is."""
        return f"RunState({len(self.steps)} steps)"

    def with_step(self, step: PaidStep) -> RunState:
        """Return the state one step further."""
        return replace(self, steps=(*self.steps, step))

    def write(self, path: Path | None) -> None:
        """Write the state whole and durably, over an older one.

        Raises:
            FileSystemError: It cannot be written.
            UsageError: The name is that of a ledger or another database.
        """
        if path is None:
            return
        content = {
            "format": FORMAT,
            "version": VERSION,
            "settings": dict(self.settings),
            "run": self.run,
            "drawn": self.drawn,
            "steps": [step.to_dict() for step in self.steps],
        }
        write_json(path, content, force=True)

    def refuse_other_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse to go on with other settings than those that were paid for.

        Raises:
            UsageError: A setting differs; its name is said.
        """
        differ = sorted(
            name
            for name in {*settings, *self.settings}
            if settings.get(name) != self.settings.get(name)
        )
        if differ:
            raise UsageError(
                f"The checkpoint was written with another {' and '.join(differ)}. Nothing was "
                "spent. Use the settings it was started with, or another checkpoint."
            )

    def settle(self, ledger: Ledger, scopes: list[str]) -> None:
        """Check every step against its entry, and commit the one that was not committed yet.

        Raises:
            LedgerMismatch: An entry is not on this ledger, or paid for something else.
        """
        paid = {row.release_id: row.scope for row in ledger.spends}
        committed = {
            row.release_id: json.loads(row.payload)["artifact"]
            for row in ledger.rows
            if row.kind == "commit"
        }
        for step, scope in zip(self.steps, scopes, strict=False):
            if paid.get(step.release_id) != scope:
                raise LedgerMismatch(
                    f"{ledger.path.name} holds no entry for a step of this checkpoint. Nothing "
                    "was spent. Use the ledger that the run was started on."
                )
            if committed.get(step.release_id, step.digest) != step.digest:
                raise LedgerMismatch(
                    "A step of this checkpoint is not what its entry paid for. Nothing was spent. "
                    "Restore the checkpoint, or start another run."
                )
        for step in self.steps:
            if step.release_id not in committed:
                Reservation(ledger, step.release_id).commit(step.digest)


def read_state(path: Path | None) -> RunState | None:
    """Return the state that :meth:`RunState.write` wrote, or None if there is none yet.

    Raises:
        DataError: It is no checkpoint of a run, or a newer one.
        FileSystemError: It cannot be read.
    """
    if path is None or not path.exists():
        return None
    content = read_json(path, kind=FORMAT, version=VERSION, problem=_UNUSABLE)
    try:
        return RunState(
            settings=dict(content["settings"]),
            run=str(content["run"]),
            drawn=int(content["drawn"]),
            steps=tuple(_step(step) for step in content["steps"]),
        )
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{_UNUSABLE}: {path.name} lacks a part of a run.") from None


def _step(values: Mapping[str, Any]) -> PaidStep:
    """Return one step."""
    return PaidStep(
        release_id=str(values["release_id"]), direction=Direction.from_dict(dict(values))
    )
