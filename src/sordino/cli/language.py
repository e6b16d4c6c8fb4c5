"""``sordino language``: a language model from private preferences, stage by stage."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sordino._files import finite, refuse_existing, refuse_output, write_json
from sordino.errors import DataError, UsageError
from sordino.preferences.features import caveats_of_reading
from sordino.preferences.files import read_rows
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import Text, read_text
from sordino.privacy.guarantee import never_less
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

from . import COMMANDS, app, command, finish
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
    told_of,
    train,
)
from ._language_study import Comparison, Study

if TYPE_CHECKING:
    from sordino.language.models.promises import CheckpointPromise

language = typer.Typer(help=COMMANDS["language"], no_args_is_help=True)
app.add_typer(language, name="language")


_SHARED = "the judge learned from the same answers as the policy: it favors it"
Prompts = Annotated[
    Path, Option("Public prompts (.jsonl with the field 'prompt').", metavar="FILE")
]


@dataclass(frozen=True, kw_only=True)
class Tiny(Output, Reading):
    """What is built, and of which texts."""

    source: Source
    out: Checkpoint
    architecture: str = Option("What is built.", "llama", choices=("llama", "gpt2"))
    width: int = Option("Numbers for one token.", 96)
    layers: int = Option("Blocks.", 3)
    heads: int = Option("Attention heads; divide the width.", 4)
    context: int = Option("Most tokens that it reads.", 256)
    vocabulary: int = Option("Tokens it knows.", 2048)
    steps: int = Option("Of pretraining.", 300, min=1)
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
    reward: Path = Option("Reward of an earlier run.", required=True, metavar="DIR")
    model: Start
    prompts: Prompts
    out: Checkpoint
    temperature: Temperature = 0.1
    pessimism: float = TrainingOption("Distrust of answers unlike those compared.", 0.0, min=0)
    steps: int = TrainingOption("Updates.", 100, min=1)
    batch_size: int = TrainingOption("Prompts in a step.", 16, min=1)
    learning_rate: LearningRate = 1e-5
    max_new_tokens: int = TrainingOption("Longest answer that is tried.", 64, min=1)
    seed: Seed = 0


@command(language, _Improvement)
def policy(settings: _Improvement) -> None:
    """Improve a policy on a private reward by REBEL; nothing is spent, prompts count as public."""
    out, steps = settings.out, settings.steps
    refuse_folder(out, force=settings.force)
    prompts = _read_prompts(settings.prompts)
    pipeline = language_module("studies.pipeline")
    terms = terms_of(settings, pipeline.PolicyTerms)
    score = language_module("rewards.text_rewards").TextRewardModel.load(settings.reward)
    with made_folder(out), Bar.shown("Improving") as bar:
        log = pipeline.improve_policy(score, settings.model, prompts, out, terms, progress=bar)
    promise = promised(out).guarantee
    rewards = [row["reward"] for row in log if "reward" in row]
    value = {
        **told_of(promise, 0.0),
        "prompts": len(prompts),
        "update": "rebel",
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
    told = {"as_json": settings.as_json, "simulated": promise.simulated}
    finish("sordino language policy", rows, value, **told)


@dataclass(frozen=True, kw_only=True)
class Judging(Output):
    """What is compared, on which prompts, and who judges."""

    policy: Path = Argument("Checkpoint to measure.", metavar="POLICY")
    reference: Path = Option("Checkpoint it is compared with.", required=True, metavar="DIR")
    prompts: Prompts
    judge: Path | None = Option("Reward that judges; not the one optimized.", metavar="DIR")
    judge_command: str | None = Option("Program of yours that judges.", metavar="CMD")
    n: int | None = Option("Prompts that are used; all by default.", min=1)
    max_new_tokens: int = Option("Longest answer.", 64, min=1)
    seed: int = Option("Of the answers drawn.", 0, min=0)
    declare_unread: bool = Option(
        "Declare that judge and reference have read none of the records or persons that the "
        "policy hides. Needed where it hides any; the promise tells it.",
        False,
    )
    out: Path | None = Option("Result to write (.json).", metavar="FILE")

    def program(self) -> list[str]:
        """Return the words of the command that judges, if it is one; refuse no judge, and two."""
        if (self.judge is None) == (self.judge_command is None):
            raise UsageError(
                "Give one judge: --judge DIR, a reward that was not optimized, or --judge-command "
                "CMD, a program of yours. Nothing was judged."
            )
        if self.judge_command is None:
            return []
        words: list[str] = []
        with suppress(ValueError):
            words = shlex.split(self.judge_command)
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
    comparison = terms_of(settings, judging.compare_policies, prompts=prompts, judge=judge)
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
    rows = {
        "found": str(comparison),
        **({"judge's labels": "nobody said"} if comparison.guarantee is None else {}),
        **({"beware": _SHARED} if shared else {}),
    }
    for name, own in promises.items():
        rows[f"{name}'s labels"] = "no promise with it" if own is None else str(own.guarantee)
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


# A comparison of policies across epsilons: what is planned, and told.


@command(language, Comparison)
def table(settings: Comparison) -> None:
    """Compare policies across epsilons: win rates against the reference, and training curves."""
    settings.refuse()
    pairs = settings.read(settings.source)
    pairs.refuse_alone()
    if not isinstance(pairs, Pairs):
        raise DataError(
            "A comparison across epsilons needs raw judgments, and these are randomized already. "
            "Nothing was done. Train on them with sordino language dpo."
        )
    study = Study.of(settings, pairs)
    study.check()
    if settings.dry_run:
        value = study.planned()
        judge, one = value["judge_spend"], value["central"]
        rows = {
            "would spend": f"{_size(value['spend'])} per label on {value['pairs']:,} judgments, "
            f"all releases together ({value['runs']} policies would be trained)"
        }
        if one is not None:
            cost = f"epsilon={never_less(one['spend'])}, delta={never_less(one['delta'])}"
            cost = f"{cost} per record ({one['neighbors']}): all {one['runs']} runs together"
            rows["on central rows"] = cost
        on_judge = f"{_size(judge)} on {value['judge_pairs']:,}" if judge else "nothing"
        rows |= {"on the judge": on_judge, "touched": "nothing (dry run)"}
    else:
        refuse_existing(settings.out / "table.json", force=settings.force, spends=True)
        with made_folder(settings.out), Bar.shown("Comparing") as bar:
            value = finite(study.run(progress=bar))
        rows = verdict_rows(value) | _table_rows(value, settings.out)
        if not settings.as_json:
            typer.echo((settings.out / "table.md").read_text("utf-8"))
    finish(settings.title, rows, value, as_json=settings.as_json, simulated=study.simulated)


def _size(epsilon: float) -> str:
    return "everything (NOT PRIVATE)" if math.isinf(epsilon) else f"epsilon={never_less(epsilon)}"


def _table_rows(value: dict[str, Any], out: Path) -> dict[str, str]:
    """Return the closing summary; what is promised stands below the table."""
    spent = value["spent"]
    rows = {
        "prompts": f"{value['prompts']:,} held out, judged by {value['judge']['name']}",
        "spent": "everything (NOT PRIVATE)"
        if spent is None
        else f"epsilon={never_less(spent)} per label: all rows together",
    }
    rows["written"] = f"table.json, table.md and curves.svg in {out.name}"
    if value["seconds"] is not None:
        rows["seconds"] = f"{value['seconds']:.0f}"
    return rows
