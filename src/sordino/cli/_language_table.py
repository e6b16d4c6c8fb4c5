"""``sordino language table``: policies across epsilons, compared with their reference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.cli import _language_options as chosen
from sordino.cli import _options as options
from sordino.cli._accounts import Budget
from sordino.cli._language_comparison import Comparison, run_comparison
from sordino.privatization.stream import FileSettings

__all__ = ["table"]


def table(
    source: chosen.Pairs,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the study.")],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="DIR", help="Label-free checkpoint; a tiny one is built without."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny model and few steps: minutes on two cores.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Releases at each epsilon.")
    ] = None,
    epsilons: Annotated[
        str, typer.Option("--epsilons", metavar="LIST", help="Privacy losses, by commas.")
    ] = "0.1,0.5,2",
    update: Annotated[
        str,
        typer.Option("--update", metavar="LIST", help="dpo, rebel or both, by commas."),
    ] = "dpo",
    central_epsilon: Annotated[
        list[float] | None,
        typer.Option(
            "--central-epsilon",
            metavar="E",
            help="Privacy loss of one record in one run on raw judgments, whose gradients are "
            "clipped and noised; may be given several times. 0.5, 2 and 8 by default.",
        ),
    ] = None,
    no_central: Annotated[
        bool, typer.Option("--no-central", help="No rows on raw judgments.")
    ] = False,
    central_units: Annotated[
        float | None,
        typer.Option(
            "--central-units",
            metavar="N",
            help="A public guess of how many records are learned from; by default their number, "
            "which the table tells.",
        ),
    ] = None,
    central_budget: Annotated[
        float | None,
        typer.Option(
            "--central-budget",
            metavar="EPSILON",
            help="Like --budget, for the ledger of the runs on raw judgments. A run that was "
            "interrupted is paid for again.",
        ),
    ] = None,
    declare_unread: Annotated[
        bool,
        typer.Option(
            "--declare-unread",
            help="Declare that --model and --judge have read none of these records, where they do "
            "not say what they have read. Rows on raw judgments need it; their promise tells it.",
        ),
    ] = False,
    central_budget_delta: Annotated[
        float | None,
        typer.Option(
            "--central-budget-delta",
            metavar="DELTA",
            help="Like --budget-delta, for the ledger of the runs on raw judgments.",
        ),
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option("--judge", metavar="DIR", help="Reward that judges; by default one of half."),
    ] = None,
    public_judge_half: Annotated[
        bool,
        typer.Option(
            "--public-judge-half",
            help="Half of the judgments may be used unprotected, to train the judge: an infinite "
            "spend, recorded on a ledger of its own.",
        ),
    ] = False,
    non_private: Annotated[
        bool,
        typer.Option(
            "--non-private",
            help="Also a row without privacy: the other half's ledger then records an infinite "
            "spend. NOT PRIVATE.",
        ),
    ] = False,
    data: options.Data = "preferences",
    budget: options.Budget = None,
    budget_delta: options.BudgetDelta = None,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    simulate_seed: options.Seed = None,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare policies across epsilons: win rates against the reference, and training curves.

    An interrupted study goes on where it stopped if the same command is given again.
    """
    asked = Comparison(
        source=source,
        out=out,
        model=model,
        quick=quick,
        seeds=seeds,
        epsilons=epsilons,
        update=update,
        central_epsilons=tuple(central_epsilon or ()),
        no_central=no_central,
        central_units=central_units,
        declare_unread=declare_unread,
        central_budget=Budget(central_budget, central_budget_delta),
        judge=judge,
        public_judge_half=public_judge_half,
        non_private=non_private,
        data=data,
        budget=Budget(budget, budget_delta),
        settings=FileSettings(drop_identical=drop_identical, person_field=person_field),
        simulate_seed=simulate_seed,
        force=force,
    )
    run_comparison(asked, dry_run=dry_run, as_json=as_json)
