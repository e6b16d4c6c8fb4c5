"""``sordino align``: the main job, from a preference file to a private policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino import _random
from sordino.cli import _options as options
from sordino.cli._accounts import Budget, name_of_command
from sordino.cli._app import app
from sordino.rewards.answer_fit import BALL

from ._align_inputs import read_inputs
from ._align_run import plan, run
from ._align_settings import NoiseOn, Settings
from ._app import finish
from ._options import Address, EngineOption, Place, Scratch
from ._tables import align_rows, plan_rows, prepared_rows


@app.command()
def align(
    prefs: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Judgments (.jsonl, .csv or .tsv, also .gz); privatized ones as .jsonl. Or many "
            "files: .parquet, .jsonl, or folders of them.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the results.")],
    noise: Annotated[
        NoiseOn,
        typer.Option(
            "--noise",
            help="Where the noise is: on every single label; on one estimate that a curator "
            "makes of raw judgments; or nowhere but in the draws of choose.",
        ),
    ] = NoiseOn.labels,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon", help="Privacy loss allowed, per --unit; needed for raw judgments."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            help="KL strength of the policy, in units of reward. 0.5 by default; with --noise "
            "intrinsic and --ridge, the least that --epsilon allows.",
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            "--draws",
            help="With --noise draws: how many answers choose may draw for --epsilon together.",
        ),
    ] = None,
    dimension: options.AskedDimension = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            help="Make the policy pessimistic: trust the reward as far as a confidence set of this "
            "level allows. Without it, the reward is taken at its word.",
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale", help="Share of the proved bonus that is used; below 1 it is a heuristic."
        ),
    ] = None,
    method: options.Method = "auto",
    ball: options.Ball = BALL,
    ridge: options.Ridge = None,
    evaluate: Annotated[
        Path | None,
        typer.Option("--evaluate", metavar="PUBLIC", help="Judgments that you declare public."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option("--truth", help="True reward of simulated judgments.")
    ] = None,
    ledger: options.LedgerPath = None,
    budget: options.Budget = None,
    budget_delta: options.BudgetDelta = None,
    data: options.Data = "preferences",
    unit: options.AlignUnit = options.Unit.label,
    cap: options.Cap = None,
    neighbors: options.AlignNeighbors = None,
    delta: options.Delta = None,
    bound: options.Bound = None,
    second_moment: options.Moment = False,
    metrics_epsilon: options.MetricsEpsilon = None,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    all_offered: options.AllOffered = False,
    named_offered: options.NamedOffered = False,
    simulate_seed: options.Seed = None,
    engine: EngineOption = None,
    address: Address = None,
    scratch: Scratch = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn a private reward and policy from judgments, with ledger and report."""
    request = name_of_command("align", locals())
    started = _random.clock()
    settings = Settings(
        out=out,
        noise=noise,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbors=neighbors,
        cap=cap,
        bound=bound,
        second_moment=second_moment,
        metrics_epsilon=metrics_epsilon,
        budget=Budget(budget, budget_delta),
        ledger=ledger,
        data=data,
        asked_dimension=dimension,
        asked_temperature=temperature,
        draws=draws,
        ridge=ridge,
        method=method,
        ball=ball,
        confidence=confidence,
        scale=scale,
        simulate_seed=simulate_seed,
        force=force,
        all_offered=all_offered,
        named_offered=named_offered,
        place=Place(kind=engine, address=address, scratch=scratch),
        request=request,
    )
    inputs = read_inputs(
        prefs,
        settings,
        evaluate=evaluate,
        truth=truth,
        drop_identical=drop_identical,
        person_field=person_field,
    )
    simulated, prepared = simulate_seed is not None, settings.noise is NoiseOn.draws
    if dry_run:
        spend = plan(settings, inputs)
        rows = prepared_rows(spend, None) if prepared else plan_rows(spend)
        finish("sordino align", rows, spend, as_json=as_json, simulated=simulated)
        return
    result = run(settings, inputs, started=started)
    simulated = result["guarantee"]["randomness"] == "simulated"
    rows = prepared_rows(result, out) if prepared else align_rows(result, out)
    finish("sordino align", rows, result, as_json=as_json, simulated=simulated)
