"""``sordino bandit``: arms drawn from a private policy of logged pulls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino import _random
from sordino.cli import _options as options
from sordino.cli._accounts import Budget
from sordino.cli._app import app
from sordino.cli._bandit_run import BanditRun

from ._app import finish
from ._bandit_run import BanditMethod, BanditSettings, read_bandit_inputs
from ._settings import DELTA, Neighbors, Unit
from ._tables import bandit_plan_rows, bandit_rows


@app.command()
def bandit(
    logs: Annotated[
        Path, typer.Argument(help="Logged pulls (.jsonl, .csv or .tsv, also .gz), one in a record.")
    ],
    arm: Annotated[str, typer.Option("--arm", metavar="FIELD", help="Field of the pulled arm.")],
    reward: Annotated[str, typer.Option("--reward", metavar="FIELD", help="Field of its reward.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the result.")],
    arms: Annotated[
        str | None,
        typer.Option(
            "--arms",
            metavar="N|CATALOGUE:FIELD",
            help="Needed: how many arms there are (named 0 to N-1), or a public file that names "
            "them. Never read from the logs; records of other arms are left out silently.",
        ),
    ] = None,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--reward-range",
            metavar="LOW HIGH",
            help="Needed: least and largest reward, such as 0 1. Never read from the logs; rewards "
            "beyond are set to the nearer end silently.",
        ),
    ] = None,
    method: Annotated[
        BanditMethod,
        typer.Option(
            "--method",
            help="What is estimated: the mean reward of each arm, or a regression on features of "
            "arms and contexts.",
        ),
    ] = BanditMethod.multi_armed,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="Privacy loss allowed for all draws together, per --unit. Left out, it follows "
            "from --temperature and --regularization.",
        ),
    ] = None,
    delta: Annotated[
        float,
        typer.Option("--delta", help="Failure probability allowed; 0 for none."),
    ] = DELTA,
    draws: Annotated[
        int, typer.Option("--draws", help="How many arms to draw, for every context.")
    ] = 1,
    unit: Annotated[
        Unit,
        typer.Option(
            "--unit",
            help="What one change is about: a whole record, or (label) its reward alone, if it is "
            "public who was given which arm.",
        ),
    ] = Unit.record,
    neighbors: Annotated[
        Neighbors | None,
        typer.Option(
            "--neighbors",
            help="What one change is. Records are added or removed unless you say otherwise; "
            "rewards alone are replaced.",
        ),
    ] = None,
    reference: Annotated[
        str,
        typer.Option(
            "--reference",
            metavar="uniform|FILE",
            help="Public starting probabilities: a table of arm and probability, or .json.",
        ),
    ] = "uniform",
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            help="KL strength of the policy, in units of reward; by default what --epsilon allows.",
        ),
    ] = None,
    regularization: Annotated[
        float | None,
        typer.Option(
            "--regularization",
            help="Made-up pulls of each arm (multi-armed), or ridge (linear); by default what "
            "--epsilon asks for.",
        ),
    ] = None,
    penalty: Annotated[
        float, typer.Option("--penalty", help="Pessimism about what was seen rarely.")
    ] = 0.0,
    center: Annotated[
        float | None,
        typer.Option(
            "--center",
            help="Multi-armed: reward of a made-up pull; the middle of --reward-range by default. "
            "Where rewards are rare, a public guess of the typical one serves better, and "
            "costs more.",
        ),
    ] = None,
    ball: Annotated[
        float | None,
        typer.Option(
            "--ball", help="Linear: bound on the norm of the weights; by default HIGH less LOW."
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            "--records",
            metavar="N",
            help="A public guess of how many records there are, to choose --regularization by. "
            "Never count them: that is private.",
        ),
    ] = None,
    action_features: Annotated[
        Path | None,
        typer.Option(
            "--action-features", metavar="CATALOGUE", help="Linear: public features of every arm."
        ),
    ] = None,
    action_columns: Annotated[
        str | None,
        typer.Option(
            "--action-columns",
            metavar="A,B:8",
            help="Its columns: numbers, or (B:8) texts hashed into 8 entries; by default all that "
            "hold numbers only.",
        ),
    ] = None,
    context_columns: Annotated[
        str | None,
        typer.Option(
            "--context-columns",
            metavar="A,B:8",
            help="Linear: fields of the logs that were known before the pull, likewise.",
        ),
    ] = None,
    context_bound: Annotated[
        float | None,
        typer.Option(
            "--context-bound",
            help="Norm to which contexts are shortened; by default the root of the number of "
            "fields, which leaves fields within -1 and 1 as they are.",
        ),
    ] = None,
    contexts: Annotated[
        Path | None,
        typer.Option(
            "--contexts",
            metavar="FILE",
            help="Public contexts to draw for, --draws arms for each; without it, one of zeros.",
        ),
    ] = None,
    test_epsilon: Annotated[
        float | None,
        typer.Option(
            "--test-epsilon",
            metavar="EPSILON",
            help="Multi-armed: spend this part of --epsilon on a private test of how rare the "
            "rarest arm is, and make the policy as sharp as that allows.",
        ),
    ] = None,
    test_delta: Annotated[
        float | None,
        typer.Option("--test-delta", help="Part of --delta for the test; half of it by default."),
    ] = None,
    ledger: options.LedgerPath = None,
    budget: options.Budget = None,
    budget_delta: options.BudgetDelta = None,
    data: options.Data = "preferences",
    simulate_seed: options.Seed = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw arms from a private policy of logged pulls; the randomness of the draws is the noise."""
    started = _random.clock()
    settings = BanditSettings(
        out=out,
        arm=arm,
        arms=arms,
        reward=reward,
        reward_range=reward_range,
        method=method,
        action_features=action_features,
        action_columns=action_columns,
        context_columns=context_columns,
        context_bound=context_bound,
        contexts=contexts,
        unit=unit,
        neighbors=neighbors,
        epsilon=epsilon,
        delta=delta,
        draws=draws,
        temperature=temperature,
        regularization=regularization,
        penalty=penalty,
        center=center,
        ball=ball,
        records=records,
        test_epsilon=test_epsilon,
        test_delta=test_delta,
        reference=reference,
        ledger=ledger,
        data=data,
        budget=Budget(budget, budget_delta),
        simulate_seed=simulate_seed,
        force=force,
    )
    run = BanditRun.prepared(settings, read_bandit_inputs(logs, settings))
    if dry_run:
        plan, simulated = run.plan(), simulate_seed is not None
        finish("sordino bandit", bandit_plan_rows(plan), plan, as_json=as_json, simulated=simulated)
        return
    result, account = run.run(started=started)
    simulated = result["guarantee"]["randomness"] == "simulated"
    rows = bandit_rows(result, account, out)
    finish("sordino bandit", rows, result, as_json=as_json, simulated=simulated)
