"""``sordino language``: a language model from private preferences, stage by stage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sordino.cli import _language_options as chosen
from sordino.cli import _options as options
from sordino.cli._accounts import Budget
from sordino.cli._app import COMMANDS, app
from sordino.cli._language_table import table
from sordino.preferences.pairs import read_pairs
from sordino.privatization.answers import FileSettings

from . import _language_options as central
from ._app import Bar, finish
from ._language_run import (
    AnswerTerms,
    Judging,
    Training,
    improve,
    measure_policy,
    run_centrally,
    run_training,
)
from ._run import made_folder

language = typer.Typer(help=COMMANDS["language"], no_args_is_help=True)
app.add_typer(language, name="language")


def _train(job: Training, choice: central.CentralChoice, *, dry_run: bool, as_json: bool) -> None:
    """Train in the way that was asked for."""
    if choice.is_central:
        run_centrally(job, choice, dry_run=dry_run, as_json=as_json)
    else:
        run_training(job, dry_run=dry_run, as_json=as_json)


@language.command("tiny")
def tiny(
    source: chosen.Pairs,
    out: chosen.Out,
    architecture: Annotated[
        chosen.Architecture, typer.Option("--architecture", help="What is built.")
    ] = chosen.Architecture.llama,
    width: Annotated[int, typer.Option("--width", help="Numbers for one token.")] = 96,
    layers: Annotated[int, typer.Option("--layers", help="Blocks.")] = 3,
    heads: Annotated[int, typer.Option("--heads", help="Attention heads; divide the width.")] = 4,
    context: Annotated[int, typer.Option("--context", help="Most tokens that it reads.")] = 256,
    vocabulary: Annotated[int, typer.Option("--vocabulary", help="Tokens it knows.")] = 2048,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Of pretraining.")] = 300,
    seed: chosen.Seed = 0,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Build a tiny label-free model: it reads both answers of every pair, and no judgment.

    Their texts count as public: training with --noise updates needs a model of other texts.
    """
    chosen.refuse_folder(out, force=force)
    size = chosen.language_module("references.tiny").TinyModel(
        architecture=architecture.value,
        width=width,
        layers=layers,
        heads=heads,
        context=context,
        vocabulary=vocabulary,
        seed=seed,
    )
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            source, drop_identical=drop_identical, person_field=person_field, progress=bar
        )
    pipeline = chosen.language_module("studies.pipeline")
    with made_folder(out), Bar.shown("Pretraining") as bar:
        losses = pipeline.build_reference(pairs, size, out, steps=steps, progress=bar)
    value = {"texts": 2 * len(pairs), "steps": steps, "first_loss": losses[0], "loss": losses[-1]}
    rows = {
        "written": out.name,
        "labels": "not looked at; nothing was spent",
        "texts": f"{value['texts']:,} (both answers of every pair)",
        "loss": f"{losses[0]:.3f} to {losses[-1]:.3f} nats a token",
    }
    finish("sordino language tiny", rows, value, as_json=as_json)


@language.command("reward")
def reward(
    source: chosen.Pairs,
    model: chosen.Model,
    out: chosen.Out,
    noise: central.NoiseOption = central.TrainingNoise.labels,
    epsilon: chosen.Epsilon = None,
    delta: central.Delta = None,
    unit: central.UnitOption = None,
    cap: central.Cap = None,
    neighbors: central.NeighborsOption = None,
    steps: central.Steps = None,
    batch: central.Batch = None,
    units: central.Units = None,
    clip: central.Clip = None,
    save_every: central.SaveEvery = None,
    resume: central.Resume = False,
    declare_unread: central.DeclareUnread = False,
    ledger: options.LedgerPath = None,
    budget: options.Budget = None,
    budget_delta: options.BudgetDelta = None,
    data: options.Data = "preferences",
    loss: chosen.LossOption = chosen.Loss.debiased,
    lora: chosen.Lora = 0,
    epochs: chosen.Epochs = 1.0,
    head_epochs: chosen.HeadEpochs = 0.0,
    batch_size: chosen.BatchSize = 16,
    learning_rate: chosen.LearningRate = 1e-4,
    max_length: chosen.MaxLength = None,
    drop_overlong: chosen.DropOverlong = False,
    sft: chosen.Sft = None,
    strict: chosen.Strict = False,
    seed: chosen.Seed = 0,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    simulate_seed: options.Seed = None,
    non_private: chosen.NonPrivate = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a reward on randomized answers; raw judgments are randomized first.

    With --noise updates it is trained on raw judgments, and every step is noised.
    """
    choice = central.CentralChoice(
        noise=noise,
        delta=delta,
        unit=unit,
        neighbors=neighbors,
        cap=cap,
        steps=steps,
        batch=batch,
        units=units,
        clip=clip,
        save_every=save_every,
        resume=resume,
        declare_unread=declare_unread,
    )
    answers = AnswerTerms(
        source=source,
        out=out,
        epsilon=epsilon,
        ledger=ledger,
        budget=Budget(budget, budget_delta),
        data=data,
        settings=FileSettings(drop_identical=drop_identical, person_field=person_field),
        simulate_seed=simulate_seed,
        non_private=non_private,
        force=force,
    )
    settings: dict[str, Any] = {
        "loss": loss.value,
        "lora": lora,
        "epochs": epochs,
        "head_epochs": head_epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_length": max_length,
        "overlong": "drop" if drop_overlong else "refuse",
        "seed": seed,
    }
    job = Training(
        title="sordino language reward",
        stage="train_reward",
        answers=answers,
        model=model,
        settings=settings,
        sft=sft,
        strict=strict,
    )
    _train(job, choice, dry_run=dry_run, as_json=as_json)


@language.command("dpo")
def dpo(
    source: chosen.Pairs,
    model: chosen.Model,
    out: chosen.Out,
    noise: central.NoiseOption = central.TrainingNoise.labels,
    epsilon: chosen.Epsilon = None,
    delta: central.Delta = None,
    unit: central.UnitOption = None,
    cap: central.Cap = None,
    neighbors: central.NeighborsOption = None,
    steps: central.Steps = None,
    batch: central.Batch = None,
    units: central.Units = None,
    clip: central.Clip = None,
    save_every: central.SaveEvery = None,
    resume: central.Resume = False,
    declare_unread: central.DeclareUnread = False,
    ledger: options.LedgerPath = None,
    budget: options.Budget = None,
    budget_delta: options.BudgetDelta = None,
    data: options.Data = "preferences",
    temperature: chosen.Temperature = 0.1,
    lora: chosen.Lora = 0,
    epochs: chosen.Epochs = 1.0,
    batch_size: chosen.BatchSize = 16,
    learning_rate: chosen.LearningRate = 1e-5,
    max_length: chosen.MaxLength = None,
    drop_overlong: chosen.DropOverlong = False,
    sft: chosen.Sft = None,
    strict: chosen.Strict = False,
    seed: chosen.Seed = 0,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    simulate_seed: options.Seed = None,
    non_private: chosen.NonPrivate = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a policy on randomized answers by DPO; raw judgments are randomized first.

    With --noise updates it is trained on raw judgments, and every step is noised.
    """
    choice = central.CentralChoice(
        noise=noise,
        delta=delta,
        unit=unit,
        neighbors=neighbors,
        cap=cap,
        steps=steps,
        batch=batch,
        units=units,
        clip=clip,
        save_every=save_every,
        resume=resume,
        declare_unread=declare_unread,
    )
    answers = AnswerTerms(
        source=source,
        out=out,
        epsilon=epsilon,
        ledger=ledger,
        budget=Budget(budget, budget_delta),
        data=data,
        settings=FileSettings(drop_identical=drop_identical, person_field=person_field),
        simulate_seed=simulate_seed,
        non_private=non_private,
        force=force,
    )
    settings: dict[str, Any] = {
        "loss": "debiased",
        "temperature": temperature,
        "lora": lora,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_length": max_length,
        "overlong": "drop" if drop_overlong else "refuse",
        "seed": seed,
    }
    job = Training(
        title="sordino language dpo",
        stage="train_policy",
        answers=answers,
        model=model,
        settings=settings,
        sft=sft,
        strict=strict,
    )
    _train(job, choice, dry_run=dry_run, as_json=as_json)


@language.command("policy")
def policy(
    reward: Annotated[
        Path, typer.Option("--reward", metavar="DIR", help="Reward of an earlier run.")
    ],
    model: chosen.Model,
    prompts: chosen.Prompts,
    out: chosen.Out,
    update: Annotated[
        chosen.Update, typer.Option("--update", help="How the policy follows the reward.")
    ] = chosen.Update.rebel,
    temperature: chosen.Temperature = 0.1,
    pessimism: Annotated[
        float,
        typer.Option("--pessimism", min=0, help="Distrust of answers unlike those compared."),
    ] = 0.0,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Updates.")] = 100,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Prompts (rloo, grpo: answers) in a step.")
    ] = 16,
    learning_rate: chosen.LearningRate = 1e-5,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Longest answer that is tried.")
    ] = 64,
    seed: chosen.Seed = 0,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Improve a policy on a private reward; it spends nothing, and prompts count as public."""
    settings: dict[str, Any] = {
        "update": update.value,
        "temperature": temperature,
        "pessimism": pessimism,
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_new_tokens": max_new_tokens,
        "seed": seed,
    }
    improve(reward, model, prompts, out, settings, force=force, as_json=as_json)


@language.command("evaluate")
def evaluate(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="Checkpoint to measure.")],
    reference: Annotated[
        Path, typer.Option("--reference", metavar="DIR", help="Checkpoint it is compared with.")
    ],
    prompts: chosen.Prompts,
    judge: Annotated[
        Path | None,
        typer.Option("--judge", metavar="DIR", help="Reward that judges; not the one optimized."),
    ] = None,
    judge_command: Annotated[
        str | None,
        typer.Option("--judge-command", metavar="CMD", help="Program of yours that judges."),
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Prompts that are used; all by default.")
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Longest answer.")
    ] = 64,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the answers drawn.")] = 0,
    declare_unread: Annotated[
        bool,
        typer.Option(
            "--declare-unread",
            help="Declare that judge and reference have read none of the records or persons that "
            "the policy hides. Needed where it hides any; the promise tells it.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Result to write (.json).")
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure how often a judge prefers a policy's answers to those of its reference."""
    asked = Judging(
        policy=policy,
        reference=reference,
        prompts=prompts,
        judge=judge,
        command=judge_command,
        n=n,
        max_new_tokens=max_new_tokens,
        seed=seed,
        declare_unread=declare_unread,
    )
    measure_policy(asked, out, force=force, as_json=as_json)


language.command("table")(table)
