"""``sordino audit``: try to break a promise, ours or somebody else's."""

from __future__ import annotations

import math
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sordino._files import refuse_output
from sordino.auditing.dispatch import audit as run_audit
from sordino.auditing.findings import Audit, Finding, Verdict
from sordino.auditing.releases.leaks import audit_release
from sordino.auditing.runs.replay import audit_run
from sordino.auditing.statistical.distinguishing import NAMES, audit_mechanism, build_mechanism
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import read_pairs
from sordino.privacy.guarantee import Guarantee
from sordino.reporting.html import write_audit
from sordino.runs.progress import Bar
from sordino.runs.settings import (
    Argument,
    LabelUnit,
    Neighbors,
    Option,
    Output,
    PersonField,
    RunLedger,
    Unit,
    refuse_records,
    terms_of,
)

from . import COMMANDS, app, command, finish, grid

_WORDS = {"refutes": "REFUTES", "warning": "warning", "skipped": "not tried", "clear": "clear"}


_PAGES = (".html", ".htm")
_COIN = "randomized-response"

audit = typer.Typer(help=COMMANDS["audit"], no_args_is_help=True)
app.add_typer(audit, name="audit")


@dataclass(frozen=True, kw_only=True)
class _Audit(Output):
    out: Path | None = Option("Page to write (.html): claimed against measured.", metavar="PAGE")

    def __post_init__(self) -> None:
        """Refuse a page that no browser would open, or that is there, before a long audit."""
        if self.out is None:
            return
        if self.out.suffix.lower() not in _PAGES:
            raise UsageError(
                f"--out writes a page: its name must end in {' or '.join(_PAGES)}, got "
                f"{self.out.suffix or 'no ending'!r}. Nothing was audited. For a text use --json, "
                "or the table that is printed."
            )
        refuse_output(self.out, force=self.force)

    def tell(self, audit: Audit) -> None:
        """Print an audit, write its page, and leave with the exit code of its verdict."""
        if self.out is not None:
            write_audit(self.out, audit, force=self.force)
        verdicts: dict[Verdict, str] = {
            "refuted": f"REFUTED by {', '.join(audit.refuted_by)}",
            "not refuted": "not refuted (which is no proof)",
            "cannot tell": "CANNOT TELL whether the claim holds",
        }
        rows = {"verdict": verdicts[audit.verdict]}
        if audit.verdict == "cannot tell":
            rows["because"] = "\n".join(audit.reasons)
        if audit.would_have_found is not None and not audit.refuted:
            rows["power"] = str(audit.would_have_found)
        rows |= {"claim": str(audit.claim), "subject": audit.subject}
        for measured in audit.measured:  # of several in one metric the decisive one comes first
            rows.setdefault(f"measured {measured.metric}", str(measured))
        if audit.confidential:
            rows["confidential"] = "computed from raw judgments: not for publication"
        if self.out is not None:
            rows["written"] = self.out.name
        title, simulated = f"sordino audit {audit.kind}", audit.claim.simulated
        finish(title, rows, audit.to_dict(), as_json=self.as_json, simulated=simulated)
        told: dict[str, list[Finding]] = {}  # what was not tried for one reason shares a row
        for number, each in enumerate(audit.findings):
            told.setdefault(str(number) if each.ran else each.summary, []).append(each)
        tried = [
            [", ".join(each.attack for each in alike), _WORDS[alike[0].outcome], alike[0].summary]
            for alike in told.values()
        ]
        if not self.as_json:
            grid("what was tried", ("attack", "outcome", "what came of it"), tried)
        if audit.exit_code:
            raise typer.Exit(audit.exit_code)


@dataclass(frozen=True, kw_only=True)
class _AuditedRelease(_Audit):
    path: Path = Argument(
        "Randomized answers (.jsonl, .csv, .tsv, .gz), or a folder.", metavar="FILE"
    )
    epsilon: float = Option("Privacy loss that is claimed.", required=True)
    manifest: Path | None = Option("What was published about the file; JSON of any kind.")
    raw: Path | None = Option("The raw judgments, if you hold them: many more attacks.")
    unit: LabelUnit = Unit.label
    person_field: PersonField = "person"
    covariate: list[str] | None = Option(
        "A column that was fixed and public before anybody judged; may be repeated.",
        metavar="COLUMN",
    )


@command(audit, _AuditedRelease)
def release(settings: _AuditedRelease) -> None:
    """Attack a file that claims local privacy: order, ids, seeds, repeats, flip rates."""
    refuse_records(settings.unit)
    columns, unit = tuple(settings.covariate or ()), settings.unit.counted
    with Bar.shown("Attacking") as bar:
        found = terms_of(settings, audit_release, unit=unit, covariates=columns, progress=bar)
    settings.tell(found)


@dataclass(frozen=True, kw_only=True)
class _AuditedMechanism(_Audit):
    name: str = Argument(f"{', '.join(NAMES)}, or module:attribute of your own.", metavar="NAME")
    epsilon: float = Option("Privacy loss that is claimed.", required=True)
    delta: float = Option("Failure probability that is claimed.", 0.0)
    neighbors: Neighbors = Option("What one change is; labels are replaced.", Neighbors.replace_one)
    unit: Unit | None = Option("Whose change it hides; by default label for a coin, else record.")
    trials: int = Option("Releases of each of the two inputs; more detect less.", 20_000)
    processes: int = Option("How many play at once, for a slow mechanism.", 1)
    confidence: float = Option("Coverage of the bound that is shown.", 0.95)
    simulate_seed: int | None = Option("Play with a seed, to repeat it.", min=0)


@command(audit, _AuditedMechanism)
def mechanism(settings: _AuditedMechanism) -> None:
    """Play a mechanism on two neighboring inputs and tell them apart; no data are needed."""
    name, epsilon, delta = settings.name, settings.epsilon, settings.delta
    if not math.isfinite(epsilon):
        raise UsageError("--epsilon must be finite: a claim of inf promises nothing.")
    if settings.unit is Unit.person and ":" not in name:
        raise UsageError(
            f"{name} is played for one {'label' if name == _COIN else 'record'}: --unit person "
            "needs a mechanism that says how many records of one person count. Nothing was "
            "audited. Make one in a Python file of this folder, say mine.py with noise = "
            "sordino.mechanisms.gaussian.GaussianMechanism.calibrated(..., records_per_person=3), "
            "and audit mine:noise; or leave --unit out."
        )
    relation = settings.neighbors.relation
    with redirect_stdout(sys.stderr):  # what somebody's code prints is no part of the answer
        played = build_mechanism(name, epsilon=epsilon, delta=delta, neighbors=relation)
        usual = Unit.label if isinstance(played, RandomizedResponse) else Unit.record
        whose = (settings.unit or usual).whose
        terms: dict[str, Any] = {"unit": whose, "neighbors": relation, "trust": "central"}
        claim = Guarantee(epsilon, delta=delta, **terms)
        terms |= {"mechanism": played, "claim": claim}
        with Bar.shown("Playing") as bar:
            found = terms_of(settings, audit_mechanism, **terms, progress=bar)
    settings.tell(found)


@dataclass(frozen=True, kw_only=True)
class _AuditedModel(_Audit):
    model: Path = Argument("Checkpoint of a reward or a policy, whoever made it.", metavar="MODEL")
    canaries: Path = Option("Pairs that were trained on; coins chose labels.", required=True)
    held_out: Path | None = Option("Pairs that were not; coins chose these instead of labels.")
    reference: Path | None = Option("What training started from.", metavar="MODEL")
    epsilon: float | None = Option("Privacy loss that is claimed; the model's own by default.")
    delta: float | None = Option("Failure probability that is claimed.")
    confidence: float = Option("Coverage of the bound that is shown.", 0.95)


@command(audit, _AuditedModel)
def model(settings: _AuditedModel) -> None:
    """Guess from the weights what coins decided: labels of canaries, or which were trained on."""
    given = {name: getattr(settings, name) for name in ("canaries", "held_out")}
    read = {name: read_pairs(path) for name, path in given.items() if path is not None}
    names = ("reference", "epsilon", "delta", "confidence")
    terms = {name: getattr(settings, name) for name in names}
    with redirect_stdout(sys.stderr):  # what libraries print is no part of the answer
        found = run_audit(settings.model, **read, **terms)
    settings.tell(found)


@dataclass(frozen=True, kw_only=True)
class _AuditedRun(_Audit):
    folder: Path = Argument("Folder of an earlier run, or of a checkpoint.", metavar="DIR")
    ledger: RunLedger = None


@command(audit, _AuditedRun)
def run(settings: _AuditedRun) -> None:
    """Derive a run's or a checkpoint's certificate anew from its ledger and its files."""
    settings.tell(audit_run(settings.folder, ledger=settings.ledger))
