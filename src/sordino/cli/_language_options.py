"""Options of the language commands, worded once, and the way to the libraries behind them.

Options for training on raw judgments with a curator's noise, and what is chosen without them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino import _validate
from sordino._files import refuse_existing
from sordino.errors import FileSystemError, MissingExtra, UsageError
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, NeighboringRelation

from ._settings import DELTA, Neighbors, Unit, refuse_given


class Architecture(StrEnum):
    """What a tiny model is built as."""

    llama = "llama"
    gpt2 = "gpt2"


class Loss(StrEnum):
    """How randomized answers are read."""

    debiased = "debiased"
    mixture = "mixture"


class Update(StrEnum):
    """How a policy follows a reward."""

    rebel = "rebel"
    rloo = "rloo"
    grpo = "grpo"


Pairs = Annotated[
    Path,
    typer.Argument(
        metavar="PAIRS", help="Judgments, raw or with a manifest (.jsonl, .csv or .tsv, also .gz)."
    ),
]
Model = Annotated[
    Path,
    typer.Option(
        "--model", metavar="DIR", help="Checkpoint to start from, on this machine; label-free."
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Checkpoint to write.")]
Prompts = Annotated[
    Path,
    typer.Option(
        "--prompts", metavar="FILE", help="Public prompts (.jsonl with the field 'prompt')."
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        help="Privacy loss of one label, with --noise updates of one --unit; raw judgments need "
        "it.",
    ),
]
NonPrivate = Annotated[
    bool,
    typer.Option(
        "--non-private",
        help="Train on raw judgments as they are, for comparison: the ledger records an infinite "
        "spend. NOT PRIVATE.",
    ),
]
LossOption = Annotated[
    Loss, typer.Option("--loss", help="Likelihood of randomized answers; debiased is convex.")
]
Lora = Annotated[
    int, typer.Option("--lora", metavar="RANK", min=0, help="Low-rank adapters; 0: all weights.")
]
Epochs = Annotated[float, typer.Option("--epochs", help="Passes over the pairs.")]
HeadEpochs = Annotated[
    float, typer.Option("--head-epochs", help="Passes before them that train the head alone.")
]
BatchSize = Annotated[
    int,
    typer.Option(
        "--batch-size",
        min=1,
        help="Pairs in each step of --noise labels.",
    ),
]
LearningRate = Annotated[float, typer.Option("--learning-rate", help="Of AdamW, at its largest.")]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        min=2,
        help="Most tokens of prompt and answer; the model's context by default. Prompts lose "
        "their beginning, answers nothing.",
    ),
]
DropOverlong = Annotated[
    bool,
    typer.Option("--drop-overlong", help="Leave out pairs with an answer that does not fit."),
]
Temperature = Annotated[
    float, typer.Option("--temperature", help="KL strength, in units of reward.")
]
Sft = Annotated[
    Path | None,
    typer.Option(
        "--sft",
        metavar="FILE",
        help="The text that --model was fine-tuned on (.jsonl): warns if it gives labels away.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse where --sft would only warn.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Of order and first weights, which are public.")
]


def language_module(name: str) -> Any:
    """Return a module of ``sordino.language``, and say what to install if it cannot be loaded."""
    # Warnings of its libraries say nothing about the user's job and are not shown.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(f"sordino.language.{name}")
    except ImportError as error:
        if (error.name or "").startswith("sordino"):
            raise
        raise MissingExtra(
            "The language commands need libraries that are not installed. Nothing was done. Make "
            "sure you have installed everything with: pip install 'sordino[language]'"
        ) from error


def refuse_folder(out: Path, *, force: bool) -> None:
    """Refuse to write a checkpoint where something is already."""
    refuse_existing(out, force=force)
    if out.is_file():
        raise FileSystemError(f"{out.name} is a file; give the name of a folder.")
    if out.is_dir() and any(out.glob("*.db")):
        raise UsageError(
            f"{out.name} holds a ledger or another database, and a checkpoint is published as a "
            "whole. Nothing was done. Choose another name."
        )


_STEPS, _BATCH, _CLIP = 200, 64.0, 1.0
_RESUMED = "--resume goes on with what is there: what is left to pay for shows as it starts"


class TrainingNoise(StrEnum):
    """Where the noise is."""

    labels = "labels"
    updates = "updates"


NoiseOption = Annotated[
    TrainingNoise,
    typer.Option(
        "--noise",
        help="Where the noise is: on every single label; or on the updates of every step, sums of "
        "clipped gradients that a curator makes of raw judgments.",
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta", help="Failure probability allowed with --noise updates. 1e-6 by default."
    ),
]
UnitOption = Annotated[
    Unit | None,
    typer.Option(
        "--unit",
        help="What --epsilon is about with --noise updates: one record, prompt and answers "
        "included (by default), or all records of one person (needs person ids and --cap). With "
        "--noise labels it is one label.",
    ),
]
Cap = Annotated[
    int | None,
    typer.Option(
        "--cap",
        metavar="M",
        min=1,
        help="With --unit person: use the first M records of each person, leave out the others.",
    ),
]
NeighborsOption = Annotated[
    Neighbors | None,
    typer.Option(
        "--neighbors",
        help="What one change is with --noise updates: add-remove (by default), under which the "
        "number of units is private too, or zero-out.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps", min=1, help=f"With --noise updates: how many there are. {_STEPS} by default."
    ),
]
Batch = Annotated[
    float | None,
    typer.Option(
        "--batch",
        metavar="B",
        help="With --noise updates: how many units to expect in a step. Each takes part with "
        f"chance B/N, and sums are divided by B. {_BATCH:g} by default.",
    ),
]
Units = Annotated[
    float | None,
    typer.Option(
        "--units",
        metavar="N",
        help="With --noise updates, and needed there: a public guess of how many records, or "
        "persons, there are; not a count of them where their number is private.",
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(
        "--clip",
        metavar="C",
        help="With --noise updates: norm to which the gradient of each unit is shortened. "
        f"{_CLIP:g} by default.",
    ),
]
SaveEvery = Annotated[
    int | None,
    typer.Option(
        "--save-every",
        metavar="N",
        min=1,
        help="With --noise updates: steps between two checkpoints within --out.",
    ),
]
DeclareUnread = Annotated[
    bool,
    typer.Option(
        "--declare-unread",
        help="With --noise updates: declare that --model, and its tokenizer, have read none of "
        "these "
        "records. Needed for a model that does not say what it has read; the promise tells it.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="With --noise updates: go on from the last checkpoint that --save-every left in "
        "--out. Steps after it are paid for again.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class CentralChoice:
    """What the user said of noise on updates; None where an option was left out."""

    # Attributes are the options of the commands.

    noise: TrainingNoise
    delta: float | None
    unit: Unit | None
    neighbors: Neighbors | None
    cap: int | None
    steps: int | None
    batch: float | None
    units: float | None
    clip: float | None
    save_every: int | None
    resume: bool
    declare_unread: bool

    def __post_init__(self) -> None:
        """Refuse what does not fit together before a file is opened."""
        if self.noise is TrainingNoise.updates:
            self._refuse_in_central_way()
            return
        if self.unit not in {None, Unit.label}:
            raise UsageError(
                f"--unit {self.unit}: --noise labels randomizes single labels. Nothing was done. "
                "Use --noise updates."
            )
        self._refuse_in_local_way()

    def _refuse_in_local_way(self) -> None:
        """Refuse what single randomized labels have no use for."""
        names = ("delta", "neighbors", "cap", "steps", "batch", "units", "clip", "save_every")
        given = {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}
        refuse_given(
            given
            | {"--resume": self.resume or None, "--declare-unread": self.declare_unread or None},
            "only with --noise updates is every step paid for; randomized labels are paid for once",
        )

    def _refuse_in_central_way(self) -> None:
        """Refuse a unit that is not hidden, and numbers that do not fit together."""
        if self.unit is Unit.label:
            raise UsageError(
                "--unit label: clipped gradients hide whole records, or persons. Nothing was done. "
                "Use --unit record, which covers the label; or --noise labels."
            )
        if self.relation not in {ADD_OR_REMOVE_ONE, Neighbors.zero_out.relation}:
            raise UsageError(
                "--neighbors must be 'add-remove' or 'zero-out' with --noise updates, got "
                f"{str(self.neighbors)!r}. Nothing was done."
            )
        if self.whose is not Unit.person:
            refuse_given({"--cap": self.cap}, "A cap is for --unit person")
        elif self.cap is None:
            raise UsageError(
                "--unit person needs --cap M: how many records of each person are used. Nothing "
                "was done. Choose it without looking at the data."
            )
        self._refuse_sizes()

    def _refuse_sizes(self) -> None:
        """Refuse a missing guess, and a batch that is no part of it."""
        if self.units is None:
            raise UsageError(
                f"--noise updates needs --units N: a public guess of how many {self.whose}s there "
                "are. Nothing was done."
            )
        units, batch = _validate.positive("--units", self.units), self.expected_batch
        if _validate.positive("--batch", batch) > units:
            raise UsageError(
                f"--batch must be at most --units={units:g}, got {batch:g}: it is how many units "
                "of them are expected in a step. Nothing was done."
            )

    @property
    def is_central(self) -> bool:
        """Return whether a curator adds the noise."""
        return self.noise is TrainingNoise.updates

    @property
    def whose(self) -> Unit:
        """Return whose change is hidden; records where nothing was said."""
        return self.unit or Unit.record

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is; a unit more or less where nothing was said."""
        return (self.neighbors or Neighbors.add_remove).relation

    @property
    def failure(self) -> float:
        """Return the failure probability; chosen here if it was left out."""
        return DELTA if self.delta is None else self.delta

    @property
    def expected_batch(self) -> float:
        """Return what sums are divided by; chosen here if it was left out."""
        return _BATCH if self.batch is None else self.batch

    @property
    def chosen_here(self) -> str:
        """Return the options that the command line chose for the user, with their values."""
        values = {
            "unit": (self.unit, Unit.record.value),
            "neighbors": (self.neighbors, Neighbors.add_remove.value),
            "delta": (self.delta, f"{DELTA:g}"),
            "steps": (self.steps, str(_STEPS)),
            "batch": (self.batch, f"{_BATCH:g}"),
            "clip": (self.clip, f"{_CLIP:g}"),
        }
        return ", ".join(
            f"--{name} {mine}" for name, (said, mine) in values.items() if said is None
        )

    def privacy(self, epsilon: float | None) -> Any:
        """Return the public settings of the training."""
        if epsilon is None:
            raise UsageError(
                f"--noise updates needs --epsilon E: the privacy loss allowed per {self.whose}. "
                "Nothing was done."
            )
        return language_module("dp_sgd.privacy").CentralPrivacy(
            epsilon,
            self.failure,
            unit=self.whose.value,
            neighbors=self.relation,
            sampling_probability=self.expected_batch / float(self.units or 0),
            steps=_STEPS if self.steps is None else self.steps,
            expected_batch=self.expected_batch,
            clip=_CLIP if self.clip is None else self.clip,
            cap=self.cap,
        )

    def refuse_beside(self, *, force: bool, dry_run: bool) -> None:
        """Refuse to go on with a run and to begin, or only plan, another one."""
        if self.resume:
            refuse_given({"--force": force or None, "--dry-run": dry_run or None}, _RESUMED)
