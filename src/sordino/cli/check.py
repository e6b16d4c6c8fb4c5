"""``sordino check``: hold a policy against everything that a project released."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from sordino._files import refuse_output
from sordino.auditing.compliance import Compliance, Policy
from sordino.errors import PolicyViolated, UsageError
from sordino.privacy.ledger_chain import LEDGER, nearest_ledger
from sordino.reporting.html import write_sign_off
from sordino.runs.settings import Argument, Option, Output

from . import app, command, finish, grid


@dataclass(frozen=True, kw_only=True)
class _Check(Output):
    folder: Path = Argument(
        "Where the released files lie.", Path(), required=False, metavar="[FOLDER]"
    )
    policy: Path = Option(
        "What must hold (docs/what_to_sign.md).", Path("sordino.toml"), metavar="TOML"
    )
    ledger: Path | None = Option(
        f"The ledger; by default the nearest {LEDGER}, here or above.", metavar="DB"
    )
    strict: bool = Option(
        "Let no warning pass, and need a policy: for continuous integration.", False
    )
    page: Path | None = Option("Page to write (.html), with a place to sign.", metavar="PAGE")


@command(app, _Check)
def check(settings: _Check) -> None:
    """Hold a policy against a ledger and the files of a folder; nothing is changed or spent."""
    if settings.page is not None:
        refuse_output(settings.page, force=settings.force)
    there = settings.policy.exists() or settings.policy != Path("sordino.toml")
    if settings.strict and not there:
        raise UsageError(
            "There is no policy sordino.toml here, and --strict needs one. Nothing was checked. "
            "Write one (docs/what_to_sign.md), or say where it is: --policy."
        )
    ledger = settings.ledger or nearest_ledger(Path())
    if ledger is None:
        raise UsageError(
            f"There is no {LEDGER} in this folder or above it. Nothing was checked. Say where the "
            "ledger is: --ledger."
        )
    policy = Policy.read(settings.policy) if there else None
    found = Compliance.of(settings.folder, ledger, policy, strict=settings.strict)
    value = found.to_dict()
    if settings.page is not None:
        write_sign_off(settings.page, value, force=settings.force)
    rows = {
        "verdict": found.verdict.upper(),
        "policy": "none" if policy is None else f"{policy.name} (SHA-256 {policy.digest})",
        "ledger": f"{found.ledger}, {found.head.rows} rows",
        "head": f"{found.head.digest} (note it elsewhere)",
        "check": value["sha256"],
        "files": f"{len(found.artifacts):,} that state a promise",
    } | ({} if settings.page is None else {"written": settings.page.name})
    finish("sordino check", rows, value, as_json=settings.as_json, simulated=found.simulated)
    if not settings.as_json:
        held = [[c.state, c.subject, c.allowed, f"{c.found}\n{c.way_out}"] for c in found.clauses]
        grid("policy", ("", "what", "allowed", "found"), held)
        files = [[a.state, a.name, a.sha256[:12], a.problem] for a in found.artifacts]
        grid("files", ("", "file", "SHA-256", "what is wrong"), files)
    if found.verdict == "not met":
        raise typer.Exit(PolicyViolated.exit_code)
