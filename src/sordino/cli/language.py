"""``sordino language``: a language model from private preferences, stage by stage."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sordino import _validate
from sordino._files import finite, refuse_existing, refuse_output, write_json
from sordino.errors import DataError, UsageError
from sordino.preferences.features import caveats_of_reading
from sordino.preferences.files import read_rows
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import Text, read_text
from sordino.privacy.guarantee import never_less
from sordino.reporting.result import describe_guarantee_and_caveats, judge
from sordino.runs.progress import Bar
from sordino.runs.run import made_folder
from sordino.runs.settings import (
    Argument,
    Option,
    Output,
    Paying,
    PrivacyOption,
    Reading,
    TrainingOption,
    language_module,
    refuse_options,
    terms_of,
)
from sordino.runs.tables import describe_promise, promise_rows, verdict_rows

from ._app import COMMANDS, app, command, finish, grid
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
from ._language_study import (
    NON_PRIVATE,
    CentralRows,
    Releases,
    Study,
    refuse_reference,
    refuse_texts,
    unlinked,
)

if TYPE_CHECKING:
    from sordino.language.judging import WinRate
    from sordino.language.models.promises import CheckpointPromise

language = typer.Typer(help=COMMANDS["language"], no_args_is_help=True)
app.add_typer(language, name="language")


_UPDATES = ("rebel", "rloo", "grpo")
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
    update: str = TrainingOption("How the policy follows the reward.", "rebel", choices=_UPDATES)
    temperature: Temperature = 0.1
    pessimism: float = TrainingOption("Distrust of answers unlike those compared.", 0.0, min=0)
    steps: int = TrainingOption("Updates.", 100, min=1)
    batch_size: int = TrainingOption("Prompts (rloo, grpo: answers) in a step.", 16, min=1)
    learning_rate: LearningRate = 1e-5
    max_new_tokens: int = TrainingOption("Longest answer that is tried.", 64, min=1)
    seed: Seed = 0


@command(language, _Improvement)
def policy(settings: _Improvement) -> None:
    """Improve a policy on a private reward; it spends nothing, and prompts count as public."""
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
    terms = describe_guarantee_and_caveats(promise)
    value = {
        "verdict": judge(terms),
        **terms,
        "spend": 0.0,
        "prompts": len(prompts),
        "update": settings.update,
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


# A comparison of policies across epsilons: what is asked, refused, planned and told.


_TABLE = "sordino language table"
_METHODS = ("dpo", "rebel")
_CENTRAL = (0.5, 2.0, 8.0)


def _different(name: str, listed: Sequence[float], usual: str, said: object) -> tuple[float, ...]:
    """Return epsilons in order; refuse none, one that is there twice, and one that is no loss."""
    if not listed or len({*listed}) < len(listed) or not all(0 < e < math.inf for e in listed):
        raise UsageError(
            f"{name} must be different positive numbers {usual}; got {said!r}. Nothing was done."
        )
    return tuple(sorted(listed))


@dataclass(frozen=True, kw_only=True)
class _Comparison(Paying, Reading):
    """What the user asked for; an interrupted study goes on if the same command is given again."""

    measures_tokens = True

    source: Source
    out: Path = Option("Folder of the study.", required=True, metavar="DIR")
    model: Path | None = Option(
        "Label-free checkpoint; a tiny one is built without.", metavar="DIR"
    )
    quick: bool = Option("A tiny model and few steps: minutes on two cores.", False)
    seeds: int | None = Option("Releases at each epsilon.", min=1)
    epsilons: str = PrivacyOption("Privacy losses, by commas.", "0.1,0.5,2", metavar="LIST")
    update: str = Option("dpo, rebel or both, by commas.", "dpo", metavar="LIST")
    central_epsilon: list[float] | None = PrivacyOption(
        "Privacy loss of one record in one run on raw judgments, whose gradients are clipped "
        "and noised; may be given several times. 0.5, 2 and 8 by default.",
        metavar="E",
    )
    no_central: bool = PrivacyOption("No rows on raw judgments.", False)
    central_units: float | None = PrivacyOption(
        "A public guess of how many records are learned from; by default their number, which "
        "the table tells.",
        metavar="N",
    )
    declare_unread: bool = PrivacyOption(
        "Declare that --model and --judge have read none of these records, where they do not "
        "say what they have read. Rows on raw judgments need it; their promise tells it.",
        False,
    )
    judge: Path | None = Option("Reward that judges; by default one of half.", metavar="DIR")
    public_judge_half: bool = PrivacyOption(
        "Half of the judgments may be used unprotected, to train the judge: the ledger records "
        "an infinite spend of that half, and its budget must allow it.",
        False,
    )
    non_private: bool = PrivacyOption(
        "Also a row without privacy: the ledger then records an infinite spend. NOT PRIVATE.", False
    )

    def rows(self) -> tuple[float, ...]:
        """Return the epsilons of the table, the infinite one last."""
        listed: list[float] = []
        with suppress(ValueError):
            listed = [float(part) for part in self.epsilons.split(",")]
        usual = "with commas between, such as 0.1,0.5,2"
        found = _different("--epsilons", listed, usual, self.epsilons)
        return (*found, *([NON_PRIVATE] if self.non_private else []))

    def central_rows(self) -> tuple[float, ...]:
        """Return the epsilons of rows on raw judgments; none if there are to be none."""
        if self.no_central:
            why = "--no-central leaves those rows out"
            refuse_options(self, why, "central_epsilon", "central_units")
            return ()
        listed = self.central_epsilon or _CENTRAL
        return _different("--central-epsilon", listed, "such as 0.5", list(listed))

    def methods(self) -> tuple[str, ...]:
        """Return how policies are trained."""
        parts = self.update.split(",")
        if len(set(parts)) < len(parts):
            raise UsageError(
                f"--update names a method twice: {self.update!r}. Nothing was done. Name each once."
            )
        return tuple(_validate.one_of("--update", part, _METHODS) for part in parts)

    def refuse_models(self, *, central: bool) -> None:
        """Refuse a comparison that nobody may judge, or that starts from what it must hide."""
        if (self.judge is None) != self.public_judge_half:
            raise UsageError(
                "A judge is needed whose judgments are not those that are protected. Nothing was "
                "done. Give one (--judge DIR), or say with --public-judge-half that half of the "
                "prompts of this file have judgments that may be used unprotected: the win rates "
                "tell about them, and the other half stays protected."
            )
        if central and self.model is None and self.judge is not None:
            raise UsageError(
                "Rows on raw judgments hide whole records, and a reference that is built from "
                "their texts gives words of every one away. Nothing was done. Give a checkpoint of "
                "other texts (--model DIR); or leave these rows out (--no-central)."
            )
        if self.model is not None:
            refuse_reference(self.model)


@command(language, _Comparison)
def table(settings: _Comparison) -> None:
    """Compare policies across epsilons: win rates against the reference, and training curves."""
    if settings.resume and not (settings.out / "study.json").exists():
        raise UsageError(
            f"--resume: no study was begun in {settings.out.name}, so there is nothing to finish. "
            "Nothing was done."
        )
    epsilons, methods, central = settings.rows(), settings.methods(), settings.central_rows()
    settings.refuse_models(central=bool(central))
    settings.accepted((*epsilons, *central))  # refuses
    pairs = settings.read(settings.source)
    pairs.refuse_alone()
    if not isinstance(pairs, Pairs):
        raise DataError(
            "A comparison across epsilons needs raw judgments, and these are randomized already. "
            "Nothing was done. Train on them with sordino language dpo."
        )
    study = _study(settings, pairs, epsilons, methods, central)
    study.check(anew=settings.force)
    refuse_texts(study)
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
        finish(_TABLE, rows, value, as_json=settings.as_json, simulated=study.simulated)
        return
    refuse_existing(settings.out / "table.json", force=settings.force, spends=True)
    with made_folder(settings.out), Bar.shown("Comparing") as bar:
        value = finite(study.run(progress=bar, force=settings.force))
    if not settings.as_json:
        _show(value)
    rows = verdict_rows(value) | _table_rows(value, settings.out)
    finish(_TABLE, rows, value, as_json=settings.as_json, simulated=study.simulated)


def _study(
    settings: _Comparison,
    pairs: Pairs,
    epsilons: tuple[float, ...],
    methods: tuple[str, ...],
    central: tuple[float, ...],
) -> Study:
    tables, presets = (
        language_module("studies.comparison_table"),
        language_module("studies.pipeline"),
    )
    split = tables.split_by_prompt(pairs, judge=0.0 if settings.judge else 0.5)
    sizes = presets.QUICK if settings.quick else presets.FULL
    sizes = sizes if settings.model is None else sizes.for_checkpoint()
    learned, alone, held_out = split.learned, unlinked(pairs), set(split.held_out)
    common: dict[str, Any] = {
        "seeds": settings.seeds or sizes.seeds,
        "path": settings.ledger_path,
        # halves with names, for what is spent of the judge's is no spend of the other
        "data": f"{settings.data or 'preferences'}-training" if split.judge else settings.data,
        "request": settings.request,
        "simulate_seed": settings.simulate_seed,
    }
    rows = None
    if central:
        # A record that repeats a text of the judge's half, which is public, is left out by itself:
        # a reference that is built from that half has read it. Their number is public in a table.
        records = pairs.part(split.training)
        units = float(len(records)) if settings.central_units is None else settings.central_units
        if settings.model is None:
            read = language_module("references.texts").TextsRead
            records = records.part(read.of(pairs.part(split.judge)).unread(records))
        rows = CentralRows(
            pairs=records,
            epsilons=central,
            units=_validate.positive("--central-units", units),
            sizes=sizes.central,
            folder=settings.out / "runs",
            declare_unread=settings.declare_unread,
            accepted=settings.accepted(central),
            **common,
        )
    training = Releases(
        pairs=alone.part(learned),
        held_out=frozenset(at for at, row in enumerate(learned) if row in held_out),
        epsilons=epsilons,
        answers=settings.out / "answers",
        budget=settings.limits,
        accepted=settings.accepted(epsilons),
        central=rows,
        **common,
    )
    return Study(
        folder=settings.out,
        all_pairs=pairs,
        parts={name: part for name, part in split._asdict().items() if part},
        training=training,
        judge_pairs=alone.part(split.judge) if split.judge else None,
        judge=settings.judge,
        model=settings.model,
        methods=methods,
        sizes=sizes,
        data=settings.data or "preferences",
        central=rows,
    )


def _size(epsilon: float) -> str:
    return "everything (NOT PRIVATE)" if math.isinf(epsilon) else f"epsilon={never_less(epsilon)}"


def _show(value: dict[str, Any]) -> None:
    table = language_module("studies.comparison_table")
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "method": lambda row: row["method"],
        "one release": lambda row: row["labels"],
        "win rate [95 %]": lambda row: table.describe_share(row["win_rate"]),
        "at equal length": lambda row: table.describe_share(row["length_matched"]),
        "seeds": lambda row: str(row["seeds"]),
        "all releases": table.describe_cost,
    }
    rows = [[tell(row) for tell in columns.values()] for row in value["rows"]]
    grid("win rate against the reference", tuple(columns), rows)


def _table_rows(value: dict[str, Any], out: Path) -> dict[str, str]:
    """Return the closing summary; the promise of central rows is another one, never added up."""
    spent, promise, central = value["spent"], value["guarantee"], value["central"]
    rows = {
        "prompts": f"{value['prompts']:,} held out, judged by {value['judge']['name']}",
        "spent": "everything (NOT PRIVATE)"
        if spent is None
        else f"epsilon={never_less(spent)} per label: all rows together",
    }
    if promise is not None:
        rows["guarantee"] = describe_promise(promise)
    rows["caveats"] = ", ".join(value["caveats"]) or "none"
    if central is not None and central["guarantee"] is not None:
        rows["central rows"] = f"{describe_promise(central['guarantee'])}; all of them together"
        rows["their caveats"] = ", ".join(central["caveats"]) or "none"
    rows["written"] = f"table.json, table.md and curves.svg in {out.name}"
    if value["seconds"] is not None:
        rows["seconds"] = f"{value['seconds']:.0f}"
    return rows
