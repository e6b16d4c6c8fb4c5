"""``sordino language``: a language model from private preferences, stage by stage."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sordino._files import finite, refuse_output, write_json
from sordino.errors import UsageError
from sordino.preferences.features import caveats_of_reading
from sordino.preferences.files import read_rows
from sordino.preferences.records import Text, read_text
from sordino.reporting.result import describe_guarantee_and_caveats, judge
from sordino.runs.progress import Bar
from sordino.runs.run import made_folder
from sordino.runs.settings import (
    Argument,
    Option,
    Output,
    Reading,
    TrainingOption,
    language_module,
    terms_of,
)
from sordino.runs.tables import promise_rows, verdict_rows

from ._app import COMMANDS, app, command, finish
from ._language_run import (
    Checkpoint,
    LearningRate,
    Seed,
    Source,
    Start,
    Temperature,
    TrainPolicy,
    TrainReward,
    promised,
    refuse_folder,
    train,
)
from ._language_table import Comparison, compare

if TYPE_CHECKING:
    from sordino.language.judging import WinRate
    from sordino.language.models.promises import CheckpointPromise

language = typer.Typer(help=COMMANDS["language"], no_args_is_help=True)
app.add_typer(language, name="language")


class Architecture(StrEnum):
    """What a tiny model is built as."""

    llama = "llama"
    gpt2 = "gpt2"


class Update(StrEnum):
    """How a policy follows a reward."""

    rebel = "rebel"
    rloo = "rloo"
    grpo = "grpo"


Prompts = Annotated[
    Path, Option("Public prompts (.jsonl with the field 'prompt').", metavar="FILE")
]


@dataclass(frozen=True, kw_only=True)
class Tiny(Output, Reading):
    """What is built, and of which texts."""

    source: Source
    out: Checkpoint
    architecture: Annotated[Architecture, Option("What is built.")] = Architecture.llama
    width: Annotated[int, Option("Numbers for one token.")] = 96
    layers: Annotated[int, Option("Blocks.")] = 3
    heads: Annotated[int, Option("Attention heads; divide the width.")] = 4
    context: Annotated[int, Option("Most tokens that it reads.")] = 256
    vocabulary: Annotated[int, Option("Tokens it knows.")] = 2048
    steps: Annotated[int, Option("Of pretraining.", min=1)] = 300
    seed: Seed = 0


@command(language, Tiny)
def tiny(settings: Tiny) -> None:
    """Build a tiny label-free model: it reads both answers of every pair, and no judgment.

    Their texts count as public: training with --noise updates needs a model of other texts.
    """
    out = settings.out
    refuse_folder(out, force=settings.force)
    size = terms_of(settings, language_module("references.tiny").TinyModel)
    pairs = settings.read(settings.source)
    pairs.refuse_alone()
    pipeline = language_module("studies.pipeline")
    with made_folder(out), Bar.shown("Pretraining") as bar:
        losses = pipeline.build_reference(pairs, size, out, steps=settings.steps, progress=bar)
    first, last, texts = losses[0], losses[-1], 2 * len(pairs)
    value = {"texts": texts, "steps": settings.steps, "first_loss": first, "loss": last}
    rows = {
        "written": out.name,
        "labels": "not looked at; nothing was spent",
        "texts": f"{texts:,} (both answers of every pair)",
        "loss": f"{first:.3f} to {last:.3f} nats a token",
    }
    finish("sordino language tiny", rows, value, as_json=settings.as_json)


@command(language, TrainReward)
def reward(settings: TrainReward) -> None:
    """Train a reward on randomized answers; raw judgments are randomized first.

    With --noise updates it is trained on raw judgments, and every step is noised.
    """
    train(settings)


@command(language, TrainPolicy)
def dpo(settings: TrainPolicy) -> None:
    """Train a policy on randomized answers by DPO; raw judgments are randomized first.

    With --noise updates it is trained on raw judgments, and every step is noised.
    """
    train(settings)


def _read_prompts(path: Path, n: int | None = None) -> list[Text]:
    """Return the different prompts of a file, the first n of them; other fields go nowhere."""
    texts = [read_text(row, "prompt", where) for where, row in read_rows(path)]
    unique: list[Text] = language_module("studies.comparison_table").unique_prompts(texts)
    return unique[:n]


@dataclass(frozen=True, kw_only=True)
class _Improvement(Output):
    """Which policy follows which reward, and how."""

    reward: Annotated[Path, Option("Reward of an earlier run.", metavar="DIR")]
    model: Start
    prompts: Prompts
    out: Checkpoint
    update: Annotated[Update, TrainingOption("How the policy follows the reward.")] = Update.rebel
    temperature: Temperature = 0.1
    pessimism: Annotated[
        float, TrainingOption("Distrust of answers unlike those compared.", min=0)
    ] = 0.0
    steps: Annotated[int, TrainingOption("Updates.", min=1)] = 100
    batch_size: Annotated[
        int, TrainingOption("Prompts (rloo, grpo: answers) in a step.", min=1)
    ] = 16
    learning_rate: LearningRate = 1e-5
    max_new_tokens: Annotated[int, TrainingOption("Longest answer that is tried.", min=1)] = 64
    seed: Seed = 0


@command(language, _Improvement)
def policy(settings: _Improvement) -> None:
    """Improve a policy on a private reward; it spends nothing, and prompts count as public."""
    out, steps = settings.out, settings.steps
    refuse_folder(out, force=settings.force)
    prompts = _read_prompts(settings.prompts)
    pipeline = language_module("studies.pipeline")
    terms = terms_of(settings, pipeline.PolicyTerms, update=settings.update.value)
    score = language_module("rewards.text_rewards").TextRewardModel.load(settings.reward)
    with made_folder(out), Bar.shown("Improving") as bar:
        log = pipeline.improve_policy(score, settings.model, prompts, out, terms, progress=bar)
    promise = promised(out).guarantee
    rewards = [row["reward"] for row in log if "reward" in row]
    terms = describe_guarantee_and_caveats(promise)
    value = {
        "verdict": judge(terms),
        **terms,
        "spend": 0.0,
        "prompts": len(prompts),
        "update": settings.update.value,
        "steps": steps,
        "first_reward": rewards[0] if rewards else None,
        "reward": rewards[-1] if rewards else None,
    }
    rows = {
        **verdict_rows(value),
        "written": out.name,
        **promise_rows(value),
        "spent": "nothing: a private reward may be optimized for ever",
        "prompts": f"{len(prompts):,}, which count as public",
    }
    if rewards:
        rows["reward"] = f"{rewards[0]:.3f} to {rewards[-1]:.3f} in {steps:,} steps"
    finish(
        "sordino language policy",
        rows,
        value,
        as_json=settings.as_json,
        simulated=promise.simulated,
    )


@dataclass(frozen=True, kw_only=True)
class Judging(Output):
    """What is compared, on which prompts, and who judges."""

    policy: Annotated[Path, Argument("Checkpoint to measure.", metavar="POLICY")]
    reference: Annotated[Path, Option("Checkpoint it is compared with.", metavar="DIR")]
    prompts: Prompts
    judge: Annotated[
        Path | None, Option("Reward that judges; not the one optimized.", metavar="DIR")
    ] = None
    judge_command: Annotated[str | None, Option("Program of yours that judges.", metavar="CMD")] = (
        None
    )
    n: Annotated[int | None, Option("Prompts that are used; all by default.", min=1)] = None
    max_new_tokens: Annotated[int, Option("Longest answer.", min=1)] = 64
    seed: Annotated[int, Option("Of the answers drawn.", min=0)] = 0
    declare_unread: Annotated[
        bool,
        Option(
            "Declare that judge and reference have read none of the records or persons that the "
            "policy hides. Needed where it hides any; the promise tells it."
        ),
    ] = False
    out: Annotated[Path | None, Option("Result to write (.json).", metavar="FILE")] = None

    def program(self) -> list[str]:
        """Return the words of the command that judges, if it is one; refuse no judge, and two."""
        if (self.judge is None) == (self.judge_command is None):
            raise UsageError(
                "Give one judge: --judge DIR, a reward that was not optimized, or --judge-command "
                "CMD, a program of yours. Nothing was judged."
            )
        if self.judge_command is None:
            return []
        try:
            words = shlex.split(self.judge_command)
        except ValueError:
            words = []
        if not words:
            raise UsageError(
                "--judge-command is empty, or a quote in it is not closed. Nothing was judged. "
                "Give the program and its arguments as in a shell."
            )
        return words


@command(language, Judging)
def evaluate(settings: Judging) -> None:
    """Measure how often a judge prefers a policy's answers to those of its reference."""
    words, out = settings.program(), settings.out
    if out is not None:
        refuse_output(out, force=settings.force)
    prompts = _read_prompts(settings.prompts, settings.n)
    promises = {"policy": _promise(settings.policy), "reference": _promise(settings.reference)}
    caveats = caveats_of_judge(promises, declared=settings.declare_unread)
    judging, shared = language_module("judging"), False
    if words:
        judge = judging.CommandJudge(words, seed=settings.seed)
    else:
        rewarding = language_module("rewards.text_rewards").TextRewardModel.load(settings.judge)
        judge, learned = judging.RewardJudge(rewarding), promises["policy"]
        # whether it learned from the very answers that the policy did
        shared = learned is not None and bool(_known_by(learned) & _known_by(rewarding.promise))
    comparison = judging.compare_policies(
        settings.policy,
        settings.reference,
        prompts,
        judge,
        max_new_tokens=settings.max_new_tokens,
        seed=settings.seed,
    )
    guarantees = {
        name: None if promise is None else promise.guarantee.with_caveats(*caveats)
        for name, promise in promises.items()
    }
    value: dict[str, Any] = finite(
        {
            **comparison.to_dict(),
            "judge": "reward" if settings.judge else "command",
            "judge_shares_answers": shared,
            **{
                f"{name}_guarantee": each and {**each.to_dict(), "caveats": list(each.caveats)}
                for name, each in guarantees.items()
            },
        }
    )
    if out is not None:
        write_json(out, value, force=settings.force)
    sources = [comparison.guarantee, *guarantees.values()]
    simulated = any(each is not None and each.simulated for each in sources)
    rows = _rows(comparison, shared=shared, promises=promises)
    rows |= {"written": out.name} if out else {}
    finish("sordino language evaluate", rows, value, as_json=settings.as_json, simulated=simulated)


def caveats_of_judge(
    promises: Mapping[str, CheckpointPromise | None], *, declared: bool
) -> tuple[str, ...]:
    """Return what qualifies a win rate of what hides whole records or persons."""
    # A judge, or a reference, that has read those texts tells of them by whom it prefers. The texts
    # are not here to be compared with.
    if all(one is None or one.guarantee.unit == "label" for one in promises.values()):
        return ()
    return caveats_of_reading(known=False, read=False, declared=declared)


def _known_by(promise: CheckpointPromise) -> set[str]:
    """Return every release that a promise speaks for, by its entries and by its answers."""
    names = (name for each in promise.sources for name in (*each.release_ids, each.artifact))
    return {name for name in names if name}


def _promise(folder: Path) -> CheckpointPromise | None:
    """Return what a checkpoint of ours promises, or None for one of somebody else."""
    kept: list[CheckpointPromise] = language_module("models.promises").folder_promises(folder)
    return kept[0].with_those_of(*kept[1:]) if kept else None


def _rows(
    comparison: WinRate, *, shared: bool, promises: Mapping[str, CheckpointPromise | None]
) -> dict[str, str]:
    matched, promise = comparison.length_matched, comparison.guarantee
    rows = {
        "win rate": f"{comparison.mean:.3f} [{comparison.low:.3f}, {comparison.high:.3f}]",
        "length-matched": "not known" if matched is None else str(matched),
        "mean length": f"{comparison.mean_length:.0f} against "
        f"{comparison.reference_length:.0f} characters",
        "compared": f"{comparison.n:,} answers to {comparison.prompts:,} prompts, "
        f"{comparison.ties:,} ties",
        "judge's labels": "nobody said" if promise is None else str(promise),
    }
    if shared:
        rows["beware"] = "the judge learned from the same answers as the policy: it favors it"
    for name, own in promises.items():
        rows[f"{name}'s labels"] = "no promise with it" if own is None else str(own.guarantee)
    return rows


@command(language, Comparison)
def table(settings: Comparison) -> None:
    """Compare policies across epsilons: win rates against the reference, and training curves."""
    compare(settings)
