"""``sordino privatize``: raw judgments to a file that anybody may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino._files import refuse_output, refuse_unwritable
from sordino.cli import _options as options
from sordino.cli._accounts import (
    Budget,
    future_ledger,
    name_of_command,
    open_ledger,
    spending_limit,
)
from sordino.cli._app import app
from sordino.errors import UsageError
from sordino.preferences.pairs import manifest_path
from sordino.privacy.attempts import is_begun
from sordino.privacy.guarantee import never_less
from sordino.privatization.randomization import Randomization
from sordino.privatization.stream import (
    FileSettings,
    count_labels,
    default_ledger_path,
    plan_file,
    privatize_file,
    refuse_table,
)

from ._answer_files import FilesRandomization, privatize_files
from ._app import Bar, finish
from ._options import Address, EngineOption, Place, Scratch
from ._tables import dropped_row, plan_rows, unit_rows


def _refuse_clashes(source: Path, out: Path, ledger: Path, *, force: bool) -> None:
    """Refuse to overwrite without leave, and to write two things under one name."""
    refuse_table(out)
    for path in (out, manifest_path(out)):
        if path.absolute() in (source.absolute(), ledger.absolute()):
            raise UsageError("DATA, --out, its manifest and --ledger must be different files.")
        refuse_output(path, force=force)


@app.command()
def privatize(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Raw judgments (.jsonl, .csv or .tsv, also .gz). Or many files: .parquet, .jsonl, "
            "or folders of them.",
        ),
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss allowed, per --unit.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="OUT",
            help="Privatized file to write; for many files the folder of theirs.",
        ),
    ],
    ledger: options.LedgerPath = None,
    budget: options.Budget = None,
    budget_delta: options.BudgetDelta = None,
    data: options.Data = "preferences",
    unit: options.UnitOption = options.Unit.label,
    cap: options.Cap = None,
    on_device: options.OnDevice = False,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    simulate_seed: options.Seed = None,
    engine: EngineOption = None,
    address: Address = None,
    scratch: Scratch = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Randomize every label once, and write answers with a manifest that says how."""
    request = name_of_command("privatize", locals())
    wanted = Budget(budget, budget_delta)
    place = Place(kind=engine, address=address, scratch=scratch)
    if place.reads(sources):
        if on_device:
            raise UsageError("--on-device is for one file of one's own labels. Nothing was done.")
        asked = FilesRandomization(
            out=out,
            place=place,
            epsilon=epsilon,
            unit=unit,
            cap=cap,
            ledger=ledger,
            budget=wanted,
            data=data,
            simulate_seed=simulate_seed,
            force=force,
            request=request,
        )
        reading = {"drop_identical": drop_identical, "person_field": person_field}
        privatize_files(sources, asked, reading=reading, dry_run=dry_run, as_json=as_json)
        return
    (source,) = sources
    if out.name in {"", ".."}:
        raise UsageError(f"--out {out} is a folder. Nothing was done. Give the name of a file.")
    options.refuse_records(unit)
    where = ledger or default_ledger_path(out)
    # A killed run may have left a manifest whose file has not appeared.
    force = force or (not os.path.lexists(out) and is_begun(where, request))
    _refuse_clashes(source, out, where, force=force)
    settings = FileSettings(drop_identical=drop_identical, person_field=person_field)
    simulated = simulate_seed is not None
    coin = options.choose_coin(
        epsilon, unit=unit, cap=cap, most=lambda: count_labels(source, settings)
    )
    limit = spending_limit(
        epsilon, wanted, unit=unit.counted, trust="local" if on_device else "central"
    )
    known = future_ledger(where, data, limit, request=request)
    randomization = Randomization.of(
        coin, known, on_device=on_device, simulate_seed=simulate_seed, cap=cap
    )
    with Bar.shown("Reading") as bar:
        spend, surveyed = plan_file(source, randomization, settings, data=data, progress=bar)
    if dry_run:
        finish("sordino privatize", plan_rows(spend), spend, as_json=as_json, simulated=simulated)
        return
    refuse_unwritable(out)
    account = open_ledger(where, data, limit)
    with account.attempt(request), Bar.shown("Randomizing") as bar:
        manifest = privatize_file(
            source,
            out,
            coin,
            ledger=account,
            settings=settings,
            cap=cap,
            on_device=on_device,
            simulate_seed=simulate_seed,
            force=force,
            surveyed=surveyed,
            progress=bar,
        )
    head = account.head
    value: dict[str, Any] = {
        **manifest.to_dict(),
        "spend": spend["spend"],
        "dropped_identical": spend["dropped_identical"],
        "epsilon_per_label": coin.realized_epsilon,
        **{name: spend[name] for name in ("persons", "capped_questions") if name in spend},
        "ledger": {"head": head.digest, "rows": head.rows},
    }
    rows = {
        "written": f"{out.name} and {manifest_path(out).name}",
        "guarantee": f"epsilon={never_less(manifest.epsilon)} per {manifest.unit}, "
        f"trust: {manifest.trust}",
        **unit_rows(spend),
        "caveats": ", ".join(manifest.caveats) or "none",
        **dropped_row(spend["dropped_identical"]),
        "ledger head": head.digest,
        "ledger rows": f"{head.rows} (note the head elsewhere)",
    }
    finish("sordino privatize", rows, value, as_json=as_json, simulated=simulated)
