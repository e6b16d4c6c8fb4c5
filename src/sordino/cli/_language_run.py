"""Training a language model on randomized answers, or on raw judgments with noise in every step.

Answers are made first if there are none; they, or every step, are paid for before they are drawn.
"""

from __future__ import annotations

import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from sordino import _validate
from sordino._files import refuse_existing, refuse_output, refuse_unwritable
from sordino.errors import BudgetExceeded, FileSystemError, UsageError
from sordino.language.training.losses import LOSSES
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import Pairs, PrivatePairs, manifest_path, read_manifest, read_pairs
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    Guarantee,
    NeighboringRelation,
    never_less,
)
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import (
    FileRows,
    FileSettings,
    default_ledger_path,
    plan_answers,
    privatize_file,
    use_unprotected,
)
from sordino.privatization.randomization import Randomization
from sordino.reporting.result import describe_guarantee_and_caveats

from ._app import Bar, finish
from ._run import (
    Limit,
    add_spend_to_errors,
    future_ledger,
    made_folder,
    open_ledger,
    refuse_randomized,
    spending_limit,
)
from ._settings import (
    DELTA,
    Argument,
    Lora,
    Neighbors,
    Option,
    Paying,
    PrivacyOption,
    Reading,
    TrainingOption,
    Unit,
    language_module,
    refuse_foreign,
    refuse_given,
)
from ._tables import describe_promise, plan_rows

if TYPE_CHECKING:
    from sordino.language.dp_sgd.privacy import CentralPrivacy
    from sordino.language.models.promises import CheckpointPromise
    from sordino.language.training.private_training import TrainingTerms

_STEPS, _BATCH, _CLIP = 200, 64.0, 1.0
_UPDATES, _LABELS = ("updates",), ("labels",)
_UpdatesOption = partial(PrivacyOption, noise=_UPDATES)
_LabelsOption = partial(TrainingOption, noise=_LABELS)
_FOREIGN = {
    "labels": "only with --noise updates is every step paid for; randomized labels are paid for "
    "once",
    "updates": "it is for randomized labels, and with --noise updates none are",
}
_A_RELEASE = "what a comparison with the raw records says would be a release of its own"
_RESUMED = "--resume goes on with what is there: what is left to pay for shows as it starts"


class TrainingNoise(StrEnum):
    """Where the noise is."""

    labels = "labels"
    updates = "updates"


Source = Annotated[
    Path,
    Argument(
        "Judgments, raw or with a manifest (.jsonl, .csv or .tsv, also .gz).", metavar="PAIRS"
    ),
]
Start = Annotated[
    Path, Option("Checkpoint to start from, on this machine; label-free.", metavar="DIR")
]
Checkpoint = Annotated[Path, Option("Checkpoint to write.", metavar="DIR")]
LearningRate = Annotated[float, TrainingOption("Of AdamW, at its largest.")]
Temperature = Annotated[float, TrainingOption("KL strength, in units of reward.")]
Seed = Annotated[int, TrainingOption("Of order and first weights, which are public.", min=0)]


@dataclass(frozen=True, kw_only=True)
class Train(Paying, Reading):
    """What the user chose for a training; None where an option was left out."""

    title: ClassVar[str]
    stage: ClassVar[str]  # which function of the pipeline trains

    source: Source
    model: Start
    out: Checkpoint
    noise: Annotated[
        TrainingNoise,
        PrivacyOption(
            "Where the noise is: on every single label; or on the updates of every step, sums of "
            "clipped gradients that a curator makes of raw judgments."
        ),
    ] = TrainingNoise.labels
    epsilon: Annotated[
        float | None,
        PrivacyOption(
            "Privacy loss of one label, with --noise updates of one --unit; raw judgments need it."
        ),
    ] = None
    delta: Annotated[
        float | None,
        _UpdatesOption("Failure probability allowed with --noise updates. 1e-6 by default."),
    ] = None
    unit: Annotated[
        Unit | None,
        PrivacyOption(
            "What --epsilon is about with --noise updates: one record, prompt and answers "
            "included (by default), or all records of one person (needs person ids and --cap). "
            "With --noise labels it is one label."
        ),
    ] = None
    cap: Annotated[
        int | None,
        _UpdatesOption(
            "With --unit person: use the first M records of each person, leave out the others.",
            metavar="M",
            min=1,
        ),
    ] = None
    neighbors: Annotated[
        Neighbors | None,
        _UpdatesOption(
            "What one change is with --noise updates: add-remove (by default), under which the "
            "number of units is private too, or zero-out.",
        ),
    ] = None
    steps: Annotated[
        int | None,
        _UpdatesOption(f"With --noise updates: how many there are. {_STEPS} by default.", min=1),
    ] = None
    batch: Annotated[
        float | None,
        _UpdatesOption(
            "With --noise updates: how many units to expect in a step. Each takes part with "
            f"chance B/N, and sums are divided by B. {_BATCH:g} by default.",
            metavar="B",
        ),
    ] = None
    units: Annotated[
        float | None,
        _UpdatesOption(
            "With --noise updates, and needed there: a public guess of how many records, or "
            "persons, there are; not a count of them where their number is private.",
            metavar="N",
        ),
    ] = None
    clip: Annotated[
        float | None,
        _UpdatesOption(
            "With --noise updates: norm to which the gradient of each unit is shortened. "
            f"{_CLIP:g} by default.",
            metavar="C",
        ),
    ] = None
    declare_unread: Annotated[
        bool,
        _UpdatesOption(
            "With --noise updates: declare that --model, and its tokenizer, have read none of "
            "these records. Needed for a model that does not say what it has read; the promise "
            "tells it.",
        ),
    ] = False
    non_private: Annotated[
        bool,
        PrivacyOption(
            "Train on raw judgments as they are, for comparison: the ledger records an infinite "
            "spend. NOT PRIVATE.",
            noise=_LABELS,
            why="--noise updates always adds noise",
        ),
    ] = False
    save_every: Annotated[
        int | None,
        TrainingOption(
            "With --noise updates: steps between two checkpoints within --out.",
            noise=_UPDATES,
            metavar="N",
            min=1,
        ),
    ] = None
    resume: Annotated[
        bool,
        TrainingOption(
            "With --noise updates: go on from the last checkpoint that --save-every left in "
            "--out. Steps after it are paid for again.",
            noise=_UPDATES,
        ),
    ] = False
    lora: Lora = 0
    epochs: Annotated[float, _LabelsOption("Passes over the pairs.")] = 1.0
    batch_size: Annotated[int, _LabelsOption("Pairs in each step of --noise labels.", min=1)] = 16
    max_length: Annotated[
        int | None,
        TrainingOption(
            "Most tokens of prompt and answer; the model's context by default. Prompts lose their "
            "beginning, answers nothing.",
            min=2,
        ),
    ] = None
    drop_overlong: Annotated[
        bool, TrainingOption("Leave out pairs with an answer that does not fit.")
    ] = False
    sft: Annotated[
        Path | None,
        _LabelsOption(
            "The text that --model was fine-tuned on (.jsonl): warns if it gives labels away.",
            why=_A_RELEASE,
            metavar="FILE",
        ),
    ] = None
    strict: Annotated[
        bool, _LabelsOption("Refuse where --sft would only warn.", why=_A_RELEASE)
    ] = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        """Refuse what does not fit together before a file is opened."""
        updates = self.noise is TrainingNoise.updates
        if updates:
            self._refuse_on_updates()
        elif self.unit not in {None, Unit.label}:
            raise UsageError(
                f"--unit {self.unit}: --noise labels randomizes single labels. Nothing was done. "
                "Use --noise updates."
            )
        refuse_foreign(self, self.noise, _FOREIGN[self.noise])
        if self.resume:
            refuse_given({"--force": self.force, "--dry-run": self.dry_run}, _RESUMED)
        refuse_folder(self.out, force=self.force or self.resume)
        if self.ledger is not None and self.ledger.resolve().is_relative_to(self.out.resolve()):
            raise UsageError(
                f"--ledger {self.ledger.name} lies inside {self.out.name}, and a checkpoint is "
                "published as a whole. Nothing was done. Keep the ledger elsewhere."
            )

    def _refuse_on_updates(self) -> None:
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
    def ledger_path(self) -> Path:
        """Return the ledger: never inside a checkpoint, which is published as a whole."""
        return self.ledger or default_ledger_path(self.out)

    @property
    def answers_path(self) -> Path:
        """Return where randomized answers are kept: training on them again spends nothing."""
        return self.out.with_name(f"{self.out.name}.answers.jsonl")

    @property
    def reading(self) -> FileSettings:
        """Return how the file is read."""
        return FileSettings(drop_identical=self.drop_identical, person_field=self.person_field)

    @property
    def whose(self) -> Unit:
        """Return whose change noise on updates hides; records where nothing was said."""
        return self.unit or Unit.record

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is to updates; a unit more or less where nothing was said."""
        return (self.neighbors or Neighbors.add_remove).relation

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

    def privacy(self) -> CentralPrivacy:
        """Return the public settings of noise on updates."""
        if self.epsilon is None:
            raise UsageError(
                f"--noise updates needs --epsilon E: the privacy loss allowed per {self.whose}. "
                "Nothing was done."
            )
        privacy: CentralPrivacy = language_module("dp_sgd.privacy").CentralPrivacy(
            self.epsilon,
            DELTA if self.delta is None else self.delta,
            unit=self.whose.value,
            neighbors=self.relation,
            sampling_probability=self.expected_batch / float(self.units or 0),
            steps=_STEPS if self.steps is None else self.steps,
            expected_batch=self.expected_batch,
            clip=_CLIP if self.clip is None else self.clip,
            cap=self.cap,
        )
        return privacy

    @property
    def own_terms(self) -> dict[str, object]:
        """Return the settings that not both commands have."""
        raise NotImplementedError

    def terms(self) -> TrainingTerms:
        """Return the settings of the trainer."""
        terms: TrainingTerms = language_module("studies.pipeline").TrainingTerms(
            lora=self.lora,
            epochs=self.epochs,
            batch_size=self.batch_size,
            max_length=self.max_length,
            overlong="drop" if self.drop_overlong else "refuse",
            seed=self.seed,
            **self.own_terms,
        )
        return terms


@dataclass(frozen=True, kw_only=True)
class TrainReward(Train):
    """What the user chose for a reward."""

    title = "sordino language reward"
    stage = "train_reward"

    loss: Annotated[
        str,
        _LabelsOption(
            "Loss on randomized answers; all but mixture are convex.", choices=tuple(LOSSES)
        ),
    ] = "debiased"
    head_epochs: Annotated[
        float, _LabelsOption("Passes before them that train the head alone.")
    ] = 0.0
    learning_rate: LearningRate = 1e-4

    @property
    def own_terms(self) -> dict[str, object]:
        """Return the settings of a reward."""
        return {
            "loss": self.loss,
            "head_epochs": self.head_epochs,
            "learning_rate": self.learning_rate,
        }


@dataclass(frozen=True, kw_only=True)
class TrainPolicy(Train):
    """What the user chose for a policy that is trained by DPO."""

    title = "sordino language dpo"
    stage = "train_policy"

    temperature: Temperature = 0.1
    learning_rate: LearningRate = 1e-5

    @property
    def own_terms(self) -> dict[str, object]:
        """Return the settings of a policy."""
        return {"temperature": self.temperature, "learning_rate": self.learning_rate}


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


def train(settings: Train) -> None:
    """Do the whole job and tell how it ended; whatever can be refused is refused first."""
    if settings.noise is TrainingNoise.updates:
        _train_on_judgments(settings)
    else:
        _train_on_answers(settings)


def promised(folder: Path) -> CheckpointPromise:
    """Return what the checkpoint in a folder promises."""
    promise: CheckpointPromise = language_module("models.promises").CheckpointPromise.read(folder)
    return promise


def _with_start(own: CheckpointPromise, model: Path) -> Guarantee:
    """Return what a checkpoint promises together with the one that it starts from."""
    before = language_module("models.promises").folder_promises(model)
    return own.with_those_of(*before).guarantee


def _promise_with_start(promise: Guarantee, model: Path) -> Guarantee:
    """Return what a new promise comes to together with those of the model that is started from."""
    promises = language_module("models.promises")
    source = promises.Answers(guarantee=promise)
    return _with_start(promises.CheckpointPromise(kind="policy", sources=(source,)), model)


def _promise_rows(settings: Train, value: dict[str, Any], spent: str) -> dict[str, str]:
    """Return lines on what was written, what it promises and what it cost."""
    return {
        "written": settings.out.name,
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        "spent": spent,
    }


def _ledger_rows(settings: Train, ledger: Ledger) -> dict[str, str]:
    """Return lines on the ledger that paid."""
    rows = {
        "ledger head": ledger.head.digest,
        "ledger rows": f"{ledger.head.rows} (note the head elsewhere)",
    }
    if settings.ledger is None:
        rows["beware"] = "releases of the same judgments add up; only one shared --ledger sees it"
    return rows


# Randomized answers: read as they are, or made first, through the ledger.


@dataclass(frozen=True, kw_only=True)
class _Answers:
    """Randomized answers, the ledger that they were paid on, and the file that keeps them."""

    private: PrivatePairs
    ledger: Ledger | None
    file: Path | None = None


def _train_on_answers(settings: Train) -> None:
    """Train on randomized answers; raw judgments are randomized first."""
    pairs = _read_answers(settings)
    pipeline, terms = language_module("studies.pipeline"), settings.terms()
    writes = settings.stage == "train_policy"
    fitting = pipeline.count_fitting(pairs, settings.model, terms, writes=writes)
    if settings.sft is not None:
        texts = language_module("references.texts")
        texts.warn_of_labels(texts.read_documents(settings.sft), pairs, strict=settings.strict)
    planned, expected = _plan(settings, pairs)
    if settings.dry_run:
        planned |= describe_guarantee_and_caveats(expected)
        rows, simulated = plan_rows(planned), expected.simulated
        finish(settings.title, rows, planned, as_json=settings.as_json, simulated=simulated)
        return
    with made_folder(settings.out):
        answers = _made_private(settings, pairs)
        ledger = answers.ledger
        with (
            nullcontext() if ledger is None else add_spend_to_errors(ledger),
            Bar.shown("Training") as bar,
        ):
            learn = getattr(pipeline, settings.stage)
            log = learn(answers.private, settings.model, settings.out, terms, progress=bar)
    promise = promised(settings.out).guarantee
    losses = [row["loss"] for row in log if "loss" in row]
    left_out, spend = len(pairs) - fitting, planned["spend"]
    value = {
        **describe_guarantee_and_caveats(promise),
        "spend": spend,
        "pairs": len(answers.private),
        "dropped_identical": planned["dropped_identical"],
        "dropped_overlong": left_out,
        "loss": terms.loss,
        "final_loss": losses[-1] if losses else None,
        "steps": log[-1].get("step", 0) if log else 0,
        "answers": answers.file and answers.file.name,
        "ledger": ledger and {"head": ledger.head.digest, "rows": ledger.head.rows},
    }
    spent = "nothing" if not spend else f"epsilon={never_less(spend)}"
    rows = {
        **_promise_rows(
            settings, value, "everything (NOT PRIVATE)" if math.isinf(spend) else spent
        ),
        "pairs": f"{len(answers.private):,}",
    }
    if left_out:
        rows["left out"] = f"{left_out:,} with an answer that does not fit"
    if losses:
        rows["loss"] = f"{losses[-1]:.4f} ({terms.loss}, last logged, on randomized answers)"
    if answers.file is not None:
        rows["answers"] = f"{answers.file.name} (train on it again: it spends nothing)"
    rows |= {} if ledger is None else _ledger_rows(settings, ledger)
    finish(settings.title, rows, value, as_json=settings.as_json, simulated=promise.simulated)


def _read_answers(settings: Train) -> Pairs | PrivatePairs:
    """Return what the file holds, after refusing settings that do not fit it."""
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            settings.source,
            drop_identical=settings.drop_identical,
            person_field=settings.person_field,
            progress=bar,
        )
    if isinstance(pairs, PrivatePairs):
        promise = pairs.guarantee
        more = settings.epsilon is not None and settings.epsilon < promise.epsilon
        wanted = {
            "--non-private": settings.non_private,
            "--simulate-seed": settings.simulate_seed is not None,
            f"--epsilon {settings.epsilon}": more,
        }
        for name in (name for name, given in wanted.items() if given):
            raise UsageError(
                f"These answers were randomized with epsilon={never_less(promise.epsilon)} per "
                f"{promise.unit} already, so {name} comes too late. Nothing was done. Leave it out."
            )
    elif not settings.non_private:
        kept = settings.answers_path
        if not settings.force and kept.exists():  # an earlier run has paid for them
            raise UsageError(
                f"{kept.name} holds the randomized answers of an earlier run. Nothing was done. "
                f"Train on them, which spends nothing: give {kept.name} instead of the raw "
                "judgments; or pass --force to randomize anew, which spends again."
            )
        for path in (kept, manifest_path(kept)):
            refuse_output(path, force=settings.force)
    return pairs


def _coin(settings: Train) -> RandomizedResponse:
    """Return the coin for one label."""
    if settings.epsilon is None:
        raise UsageError(
            "These are raw judgments: a model trained on them would give them away. Nothing was "
            "done. Say what one label may cost (--epsilon E), or --non-private for a baseline that "
            "protects nobody."
        )
    return RandomizedResponse(settings.epsilon)


def _limit(settings: Train) -> Limit:
    """Return the limit of a new ledger of labels."""
    spend = math.inf if settings.non_private else _coin(settings).epsilon
    return spending_limit(spend, settings.limits, unit="label", trust="central")


def _plan(settings: Train, pairs: Pairs | PrivatePairs) -> tuple[dict[str, Any], Guarantee]:
    """Return what training would spend, and what the checkpoint will promise of all that counts."""
    counts = {"pairs": len(pairs), "dropped_identical": pairs.dropped}
    if isinstance(pairs, PrivatePairs):
        own = language_module("models.promises").CheckpointPromise.of(pairs, kind="policy")
        told = describe_guarantee_and_caveats(pairs.guarantee)
        return {"spend": 0.0, **counts, **told}, _with_start(own, settings.model)
    ledger = future_ledger(settings.ledger_path, settings.data, _limit(settings))
    if settings.non_private:
        mechanism = NonPrivate()
        promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
        ledger.check_data(settings.data, pairs.public_digest)
        ledger.check(mechanism.event, promise=promise)
        planned = {"spend": math.inf, **counts, **describe_guarantee_and_caveats(promise)}
    else:
        randomization = Randomization.of(
            _coin(settings), ledger, on_device=False, simulate_seed=settings.simulate_seed
        )
        rows = FileRows(settings.source, settings.reading)
        planned = plan_answers(rows, randomization, data=settings.data)[0]
    promise = Guarantee.from_dict(planned["guarantee"], planned["caveats"])
    return planned, _promise_with_start(promise, settings.model)


def _made_private(settings: Train, pairs: Pairs | PrivatePairs) -> _Answers:
    """Return randomized answers: those that were read, or new ones that are kept in a file."""
    if isinstance(pairs, PrivatePairs):
        return _received(settings, pairs)
    if not settings.non_private:
        refuse_unwritable(settings.answers_path)
    ledger = open_ledger(settings.ledger_path, settings.data, _limit(settings))
    if settings.non_private:
        return _Answers(private=use_unprotected(pairs, NonPrivate(), ledger=ledger), ledger=ledger)
    with Bar.shown("Randomizing") as bar:
        privatize_file(
            settings.source,
            settings.answers_path,
            _coin(settings),
            ledger=ledger,
            settings=settings.reading,
            simulate_seed=settings.simulate_seed,
            force=settings.force,
            progress=bar,
        )
    private = read_pairs(settings.answers_path)
    assert isinstance(private, PrivatePairs)  # noqa: S101 - for the type checker: just written
    for release_id in _paying(ledger, private.artifact):
        private = private.received(release_id)
    return _Answers(private=private, ledger=ledger, file=settings.answers_path)


def _received(settings: Train, private: PrivatePairs) -> _Answers:
    """Return answers that arrived private; a ledger that was named takes note of them."""
    if settings.ledger is None:
        return _Answers(private=private, ledger=None)
    promise = private.guarantee
    limit = spending_limit(
        promise.epsilon,
        settings.limits,
        unit=promise.unit,
        trust=promise.trust,
        delta=promise.delta,
    )
    ledger = open_ledger(settings.ledger, settings.data, limit)
    paid = _paying(ledger, private.artifact)
    for release_id in paid or [ledger.receive(settings.source, read_manifest(settings.source))]:
        private = private.received(release_id)
    return _Answers(private=private, ledger=ledger)


def _paying(ledger: Ledger, artifact: str) -> list[str]:
    """Return the entries of a ledger that paid for a privatized file, each once."""
    kinds = {"commit", "repeat", "receive"}
    rows = (row for row in ledger.rows if row.kind in kinds)
    ids = [row.release_id for row in rows if json.loads(row.payload)["artifact"] == artifact]
    return list(dict.fromkeys(ids))


# Raw judgments: what is released is the sum of clipped gradients of every step.


def _train_on_judgments(settings: Train) -> None:
    """Train on raw judgments; every step is noised, and paid for before it is drawn."""
    privacy, pipeline = settings.privacy(), language_module("studies.pipeline")
    terms = settings.terms()
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            settings.source, hides_records=True, person_field=settings.person_field, progress=bar
        )
    refuse_randomized(pairs)
    caveats = pipeline.refuse_unusable(
        pairs,
        settings.model,
        terms,
        privacy,
        writes=settings.stage == "train_policy",
        declare_unread=settings.declare_unread,
    )
    promise = privacy.promise(settings.simulate_seed).with_caveats(*caveats)
    expected = _promise_with_start(promise, settings.model)
    limit = spending_limit(
        privacy.epsilon,
        settings.limits,
        unit=privacy.unit,
        trust="central",
        delta=privacy.delta,
        neighbors=privacy.neighbors,
    )
    planned = future_ledger(settings.ledger_path, settings.data, limit)
    planned.check_data(settings.data, None)
    if not settings.resume:  # else the trainer knows which steps are left
        planned.check(privacy.event(privacy.steps), promise=promise)
    if settings.dry_run:
        _tell_plan(settings, privacy, expected)
        return
    with made_folder(settings.out):
        ledger = open_ledger(settings.ledger_path, settings.data, limit)
        if not settings.resume:
            for folder in settings.out.glob("checkpoint-*"):  # which a later run would go on from
                shutil.rmtree(folder, ignore_errors=True)
        with add_spend_to_errors(ledger), Bar.shown("Training") as bar:
            try:
                pipeline.train_centrally(
                    settings.stage.removeprefix("train_"),
                    pairs,
                    settings.model,
                    settings.out,
                    terms,
                    privacy=privacy,
                    ledger=ledger,
                    declare_unread=settings.declare_unread,
                    simulate_seed=settings.simulate_seed,
                    save_every=settings.save_every,
                    resume=settings.resume,
                    progress=bar,
                )
            except BudgetExceeded as error:
                raise BudgetExceeded(f"{error}{_PAYS_AGAIN if settings.resume else ''}") from None
    _tell(settings, privacy, ledger)


_PAYS_AGAIN = (
    " A run that goes on pays again for the steps after its checkpoint: --budget EPSILON raises "
    "the limit, and the ledger records it."
)


def _tell_plan(settings: Train, privacy: CentralPrivacy, expected: Guarantee) -> None:
    """Print what a run would spend."""
    told = describe_guarantee_and_caveats(expected)
    value = {"spend": privacy.epsilon, **told, "privacy": privacy.to_dict()}
    rows = {
        "would spend": f"epsilon={never_less(privacy.epsilon)}",
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        **_noise_rows(settings, privacy),
        "touched": "nothing (dry run)",
    }
    finish(settings.title, rows, value, as_json=settings.as_json, simulated=expected.simulated)


def _tell(settings: Train, privacy: CentralPrivacy, ledger: Ledger) -> None:
    """Print what came out and what it cost; nothing that was computed from the pairs."""
    promise = promised(settings.out)
    spend = promise.sources[0].guarantee.epsilon
    value = {
        **describe_guarantee_and_caveats(promise.guarantee),
        "spend": spend,
        "privacy": privacy.to_dict(),
        "ledger": {"head": ledger.head.digest, "rows": ledger.head.rows},
    }
    rows = {
        **_promise_rows(settings, value, f"epsilon={never_less(spend)}"),
        **_noise_rows(settings, privacy),
        **_ledger_rows(settings, ledger),
    }
    simulated = promise.guarantee.simulated
    finish(settings.title, rows, value, as_json=settings.as_json, simulated=simulated)


def _noise_rows(settings: Train, privacy: CentralPrivacy) -> dict[str, str]:
    """Return lines on the noise, on what was chosen for the user, and on what is not measured."""
    return {
        "noise": f"{privacy.noise_multiplier:.4g} times the clip of {privacy.clip:g} on the sum of "
        f"each of {privacy.steps:,} steps; a {privacy.unit} takes part in one with chance "
        f"{privacy.sampling_probability:.4g}",
        **({"chosen here": settings.chosen_here} if settings.chosen_here else {}),
        "loss, accuracy": "not measured: on raw judgments each would be a release of its own",
    }
