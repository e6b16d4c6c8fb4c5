"""A run of the intrinsic way, read again: the curator refits the reward and withholds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino import _validate
from sordino._files import read_json
from sordino.auditing.runs.stored import RESULT
from sordino.cli._console import Bar
from sordino.cli._intrinsic_way import INTRINSIC_FORMAT, INTRINSIC_VERSION
from sordino.errors import DataError, LedgerMismatch, UsageError
from sordino.policies.gibbs import gibbs_policy
from sordino.policies.withheld import WithheldPolicy
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs
from sordino.preferences.reading import read_pairs
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.estimation import fit_reward

__all__ = ["PreparedRun", "is_prepared"]

_PROBLEM = "This run cannot be used"
_MALFORMED = (AttributeError, KeyError, TypeError, UsageError)
_READING = ("drop_identical", "person_field")


def is_prepared(folder: Path) -> bool:
    """Return whether a folder holds a run of the intrinsic way."""
    with suppress(OSError, ValueError, RecursionError):
        value = json.loads((folder / RESULT).read_bytes())
        return isinstance(value, Mapping) and value.get("format") == INTRINSIC_FORMAT
    return False


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """What ``sordino align --way intrinsic`` wrote: how to make draws, and no weights.

    Attributes:
        promise: What all planned draws promise at most; its unit and relation are the ledger's.
        temperature: KL strength, in units of reward.
        fit: Public settings of the fit.
        reading: How judgments are read.
        data: Name of the data set on the ledger.
        public_digest: Of the questions, where they are public.
    """

    promise: Guarantee
    temperature: float
    fit: dict[str, Any]
    reading: dict[str, Any]
    data: str
    public_digest: str | None

    @classmethod
    def read(cls, folder: Path) -> PreparedRun:
        """Return the run in a folder.

        Raises:
            DataError: Its file is malformed, or was written by a newer version.
        """
        values = read_json(
            folder / RESULT, kind=INTRINSIC_FORMAT, version=INTRINSIC_VERSION, problem=_PROBLEM
        )
        try:
            return cls(
                promise=Guarantee.from_dict(values["guarantee"], values["caveats"]),
                temperature=_validate.positive("temperature", values["temperature"]),
                fit={
                    "features": HashedText(dimension=values["dimension"]),
                    "ridge": values["ridge"],
                    "ball": values["ball"],
                    "bound": values["bound"],
                },
                reading={name: values["reading"][name] for name in _READING},
                data=values["data"],
                public_digest=values["public_digest"],
            )
        except _MALFORMED:
            pass
        raise DataError(f"{_PROBLEM}: {RESULT} has a field that is missing or malformed.")

    def policy(self, judgments: Path, temperature: float | None) -> WithheldPolicy:
        """Return the policy of a reward that is fitted here and now; nothing is spent.

        Args:
            judgments: The raw judgments that the run was prepared for.
            temperature: Instead of the run's own.

        Raises:
            DataError: The judgments cannot be used.
            LedgerMismatch: They are about other prompts and answers.
            ConvergenceError: The fit could not be certified.
        """
        with Bar.shown("Reading") as bar:
            hidden = self.promise.unit == "record"
            pairs = read_pairs(judgments, **self.reading, hides_records=hidden, progress=bar)
        found = pairs.public_digest if isinstance(pairs, Pairs) else None
        if isinstance(pairs, Pairs) and self.public_digest not in (None, found):
            raise LedgerMismatch(
                "--judgments are not those that this run was prepared for: prompts or answers "
                "differ. Nothing was drawn. Give the same file, or prepare another run."
            )
        terms: dict[str, Any] = {"unit": self.promise.unit, "neighbors": self.promise.neighbors}
        kept: Any = pairs  # of what kind it is, is checked there
        reward = fit_reward(kept, withhold=True, **terms, **self.fit)
        heat = self.temperature if temperature is None else temperature
        return gibbs_policy(reward, temperature=heat)

    def ledger(self, path: Path) -> Ledger:
        """Return the ledger that draws are charged to, which must be there.

        Raises:
            FileSystemError: It is not.
            LedgerMismatch: It is another data set's.
        """
        Ledger.read(path)
        return Ledger.open(path, data=self.data)
