"""``sordino privatize``: raw judgments to a file that anybody may read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino._files import refuse_output, refuse_unwritable
from sordino.cli import _options as options
from sordino.cli._app import app
from sordino.cli._console import Bar, finish
from sordino.cli._table import dropped_row, plan_rows
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.manifest import manifest_path
from sordino.privacy.guarantee import never_less
from sordino.privatization.crossing import Crossing
from sordino.privatization.stream import (
    FileSettings,
    default_ledger_path,
    plan_file,
    privatize_file,
)


def _refuse_clashes(source: Path, out: Path, ledger: Path, *, force: bool) -> None:
    """Refuse to overwrite without leave, and to write two things under one name.

    Raises:
        UsageError: An output exists, or is also the input or the ledger.
    """
    for path in (out, manifest_path(out)):
        if path.absolute() in (source.absolute(), ledger.absolute()):
            raise UsageError("IN, --out, its manifest and --ledger must be different files.")
        refuse_output(path, force=force)


@app.command()
def privatize(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="Raw judgments (.jsonl, .jsonl.gz).")
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss allowed per label.")],
    out: Annotated[Path, typer.Option("--out", metavar="OUT", help="Privatized file to write.")],
    ledger: options.LedgerPath = None,
    budget: options.Budget = None,
    data: options.Data = "preferences",
    on_device: options.OnDevice = False,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    simulate_seed: options.Seed = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Randomize every label once, and write answers with a manifest that says how."""
    coin = RandomizedResponse(epsilon)
    limit = options.label_budget(epsilon, budget, trust="local" if on_device else "central")
    where = ledger or default_ledger_path(out)
    _refuse_clashes(source, out, where, force=force)
    settings = FileSettings(drop_identical=drop_identical, person_field=person_field)
    simulated = simulate_seed is not None
    known = options.future_ledger(where, data, limit, change=budget is not None)
    crossing = Crossing.of(coin, known, on_device=on_device, simulate_seed=simulate_seed)
    with Bar.shown("Reading") as bar:
        spend, surveyed = plan_file(source, crossing, settings, data=data, progress=bar)
    if dry_run:
        finish("sordino privatize", plan_rows(spend), spend, as_json=as_json, simulated=simulated)
        return
    refuse_unwritable(out)
    account = options.open_ledger(where, data, limit, change=budget is not None)
    with Bar.shown("Randomizing") as bar:
        manifest = privatize_file(
            source,
            out,
            coin,
            ledger=account,
            settings=settings,
            on_device=on_device,
            simulate_seed=simulate_seed,
            force=force,
            surveyed=surveyed,
            progress=bar,
        )
    head = account.head
    value = {
        **manifest.to_dict(),
        "spend": spend["spend"],
        "dropped_identical": spend["dropped_identical"],
        "ledger": {"head": head.digest, "rows": head.rows},
    }
    rows = {
        "written": f"{out.name} and {manifest_path(out).name}",
        "guarantee": f"epsilon={never_less(manifest.epsilon)} per label, trust: {manifest.trust}",
        "caveats": ", ".join(manifest.caveats) or "none",
        **dropped_row(spend["dropped_identical"]),
        "ledger head": head.digest,
        "ledger rows": f"{head.rows} (note the head elsewhere)",
    }
    finish("sordino privatize", rows, value, as_json=as_json, simulated=simulated)
