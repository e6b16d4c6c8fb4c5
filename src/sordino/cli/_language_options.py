"""Options of the language commands, worded once, and the way to the libraries behind them."""

from __future__ import annotations

import warnings
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino._files import refuse_existing
from sordino.errors import FileSystemError, MissingExtra, UsageError

__all__ = [
    "Architecture",
    "Loss",
    "Update",
    "language_module",
    "refuse_folder",
]


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
        help="Privacy loss of one label, with --way central of one --unit; raw judgments need it.",
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
        help="Pairs in each step of --way local.",
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
    """Return a module of ``sordino.language``, and say what to install if it cannot be loaded.

    Warnings of its libraries say nothing about the user's job and are not shown.

    Raises:
        MissingExtra: The extra ``language`` is not installed.
    """
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
    """Refuse to write a checkpoint where something is already.

    Raises:
        UsageError: The path exists and ``force`` is False; or with it, the folder holds a ledger,
            which a checkpoint must never carry along.
        FileSystemError: The path is a file.
    """
    refuse_existing(out, force=force)
    if out.is_file():
        raise FileSystemError(f"{out.name} is a file; give the name of a folder.")
    if out.is_dir() and any(out.glob("*.db")):
        raise UsageError(
            f"{out.name} holds a ledger or another database, and a checkpoint is published as a "
            "whole. Nothing was done. Choose another name."
        )
