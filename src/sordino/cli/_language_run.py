"""Training a language model on randomized answers, or on raw judgments with noise in every step.

Answers are made first if there are none; they, or every step, are paid for before they are drawn.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from sordino import _validate
from sordino._files import refuse_existing, refuse_output, refuse_unwritable
from sordino.engines.engine import InProcess
from sordino.errors import FileSystemError, UsageError
from sordino.language.training.losses import LOSSES
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
from sordino.preferences.chunks import find_chunks
from sordino.preferences.pairs import Pairs, PrivatePairs, manifest_path, read_manifest, read_pairs
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, never_less
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import use_unprotected
from sordino.privatization.chunks import plan_chunks, privatize_chunks
from sordino.privatization.randomization import Randomization, memo_keys
from sordino.reporting.result import describe_guarantee_and_caveats, judge
from sordino.runs.progress import Bar
from sordino.runs.run import (
    Limit,
    Run,
    imagined_ledger,
    limit_of_private,
    made_folder,
    refuse_randomized,
    spending_limit,
)
from sordino.runs.settings import (
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
    terms_of,
)
from sordino.runs.tables import ledger_rows, promise_rows

from . import tell

if TYPE_CHECKING:
    from sordino.language.dp_sgd.privacy import CentralPrivacy
    from sordino.language.models.promises import CheckpointPromise
    from sordino.language.training.private_training import TrainingTerms

_UPDATES, _LABELS = ("updates",), ("labels",)
_UpdatesOption = partial(PrivacyOption, noise=_UPDATES)
_LabelsOption = partial(TrainingOption, noise=_LABELS)
_FOREIGN = {
    "labels": "only with --noise updates is every step paid for; randomized labels are paid for "
    "once",
    "updates": "it is for randomized labels, and with --noise updates none are",
}
_CHOSEN: dict[str, Any] = {
    "unit": Unit.record,
    "neighbors": Neighbors.add_remove,
    "delta": DELTA,
    "steps": 200,
    "batch": 64.0,
    "clip": 1.0,
}
"""What the command line chooses for the user, if noise is on updates, and says."""

_LAST = "training_log.json"  # which a training writes last: without it, it is not over
_A_RELEASE = "what a comparison with the raw records says would be a release of its own"


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

    kind: ClassVar[str]  # of checkpoint that is trained
    measures_tokens = True

    source: Source
    model: Start
    out: Checkpoint
    noise: str = PrivacyOption(
        "Where the noise is: on every single label; or on the updates of every step, sums of "
        "clipped gradients that a curator makes of raw judgments.",
        "labels",
        choices=tuple(_FOREIGN),
    )
    epsilon: float | None = PrivacyOption(
        "Privacy loss of one label, with --noise updates of one --unit; raw judgments need it."
    )
    delta: float | None = _UpdatesOption(
        "Failure probability allowed with --noise updates. 1e-6 by default."
    )
    unit: Unit | None = PrivacyOption(
        "What --epsilon is about with --noise updates: one record, prompt and answers "
        "included (by default), or all records of one person (needs person ids and --cap). "
        "With --noise labels it is one label."
    )
    cap: int | None = _UpdatesOption(
        "With --unit person: use the first M records of each person, leave out the others.",
        metavar="M",
        min=1,
    )
    neighbors: Neighbors | None = _UpdatesOption(
        "What one change is with --noise updates: add-remove (by default), under which the "
        "number of units is private too, or zero-out."
    )
    steps: int | None = _UpdatesOption(
        f"With --noise updates: how many there are. {_CHOSEN['steps']} by default.", min=1
    )
    batch: float | None = _UpdatesOption(
        "With --noise updates: how many units to expect in a step. Each takes part with "
        f"chance B/N, and sums are divided by B. {_CHOSEN['batch']:g} by default.",
        metavar="B",
    )
    units: float | None = _UpdatesOption(
        "With --noise updates, and needed there: a public guess of how many records, or "
        "persons, there are; not a count of them where their number is private.",
        metavar="N",
    )
    clip: float | None = _UpdatesOption(
        "With --noise updates: norm to which the gradient of each unit is shortened. "
        f"{_CHOSEN['clip']:g} by default.",
        metavar="C",
    )
    declare_unread: bool = _UpdatesOption(
        "With --noise updates: declare that --model, and its tokenizer, have read none of these "
        "records. Needed for a model that does not say what it has read; the promise tells it.",
        False,
    )
    non_private: bool = PrivacyOption(
        "Train on raw judgments as they are, for comparison: the ledger records an infinite "
        "spend. NOT PRIVATE.",
        False,
        noise=_LABELS,
        why="--noise updates always adds noise",
    )
    save_every: int | None = TrainingOption(
        "With --noise updates: steps between two checkpoints within --out, from the last of "
        "which an interrupted run goes on; else it starts anew, for nothing either way.",
        noise=_UPDATES,
        metavar="N",
        min=1,
    )
    lora: Lora = 0
    epochs: float = _LabelsOption("Passes over the pairs.", 1.0)
    batch_size: int = _LabelsOption("Pairs in each step of --noise labels.", 16, min=1)
    max_length: int | None = TrainingOption(
        "Most tokens of prompt and answer; the model's context by default. Prompts lose their "
        "beginning, answers nothing.",
        min=2,
    )
    sft: Path | None = _LabelsOption(
        "The text that --model was fine-tuned on (.jsonl): warns if it gives labels away.",
        why=_A_RELEASE,
        metavar="FILE",
    )
    strict: bool = _LabelsOption("Refuse where --sft would only warn.", False, why=_A_RELEASE)
    seed: Seed = 0

    def __post_init__(self) -> None:
        """Refuse what does not fit together before a file is opened."""
        if self.noise == "updates":
            self._refuse_on_updates()
        elif self.unit not in {None, Unit.label}:
            raise UsageError(
                f"--unit {self.unit}: --noise labels randomizes single labels. Nothing was done. "
                "Use --noise updates."
            )
        refuse_foreign(self, self.noise, _FOREIGN[self.noise])
        done = os.path.lexists(self.out / _LAST)
        hidden = self.out.is_dir() and all(path.name[0] == "." for path in self.out.iterdir())
        left = hidden or (not done and self.is_begun)
        refuse_folder(self.out, force=self.force or left, spends=True)
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
        if self.neighbors is Neighbors.replace_one:
            raise UsageError(
                "--neighbors must be 'add-remove' or 'zero-out' with --noise updates, got "
                f"{str(self.neighbors)!r}. Nothing was done."
            )
        if self.unit is not Unit.person:
            refuse_given({"--cap": self.cap}, "A cap is for --unit person")
        elif self.cap is None:
            raise UsageError(
                "--unit person needs --cap M: how many records of each person are used. Nothing "
                "was done. Choose it without looking at the data."
            )
        if self.units is None:
            raise UsageError(
                "--noise updates needs --units N: a public guess of how many "
                f"{self.chosen('unit')}s there are. Nothing was done."
            )
        units, batch = _validate.positive("--units", self.units), self.chosen("batch")
        if _validate.positive("--batch", batch) > units:
            raise UsageError(
                f"--batch must be at most --units={units:g}, got {batch:g}: it is how many units "
                "of them are expected in a step. Nothing was done."
            )

    @property
    def answers_path(self) -> Path:
        """Return where randomized answers are kept: training on them again spends nothing."""
        return self.out.with_name(f"{self.out.name}.answers.jsonl")

    def chosen(self, name: str) -> Any:
        """Return what was said of an option, or what is chosen here if it was left out."""
        said = getattr(self, name)
        return _CHOSEN[name] if said is None else said

    def privacy(self) -> CentralPrivacy:
        """Return the public settings of noise on updates."""
        if self.epsilon is None:
            raise UsageError(
                "--noise updates needs --epsilon E: the privacy loss allowed per "
                f"{self.chosen('unit')}. Nothing was done."
            )
        known = {name: self.chosen(name) for name in ("delta", "steps", "clip")}
        batch = self.chosen("batch")
        privacy: CentralPrivacy = terms_of(
            self,
            language_module("dp_sgd.privacy").CentralPrivacy,
            unit=self.chosen("unit").value,
            neighbors=self.chosen("neighbors").relation,
            sampling_probability=batch / float(self.units or 0),
            expected_batch=batch,
            **known,
        )
        return privacy

    def terms(self) -> TrainingTerms:
        """Return the settings of the trainer."""
        kind: type[TrainingTerms] = language_module("studies.pipeline").TrainingTerms
        return terms_of(self, kind, overlong="drop" if self.drops_unfit else "refuse")


@dataclass(frozen=True, kw_only=True)
class TrainReward(Train):
    """What the user chose for a reward."""

    title = "sordino language reward"
    kind = "reward"

    loss: str = _LabelsOption(
        "Loss on randomized answers; mixture is not convex.", "debiased", choices=tuple(LOSSES)
    )
    head_epochs: float = _LabelsOption("Passes before them that train the head alone.", 0.0)
    learning_rate: LearningRate = 1e-4


@dataclass(frozen=True, kw_only=True)
class TrainPolicy(Train):
    """What the user chose for a policy that is trained by DPO."""

    title = "sordino language dpo"
    kind = "policy"

    temperature: Temperature = 0.1
    learning_rate: LearningRate = 1e-5


def refuse_folder(out: Path, *, force: bool, spends: bool = False) -> None:
    """Refuse to write a checkpoint where something is already."""
    refuse_existing(out, force=force, spends=spends)
    if out.is_file():
        raise FileSystemError(f"{out.name} is a file; give the name of a folder.")
    if out.is_dir() and any(out.glob("*.db")):
        raise UsageError(
            f"{out.name} holds a ledger or another database, and a checkpoint is published as a "
            "whole. Nothing was done. Choose another name."
        )


def train(settings: Train) -> None:
    """Do the whole job and tell how it ended; whatever can be refused is refused first."""
    if settings.noise == "labels":
        tell(settings, *_on_answers(settings).outcome())
        return
    privacy, terms = settings.privacy(), settings.terms()
    pairs = settings.read(settings.source, hides_records=True)
    refuse_randomized(pairs)
    caveats = language_module("studies.pipeline").refuse_unusable(
        pairs,
        settings.model,
        terms,
        privacy,
        writes=settings.kind == "policy",
        declare_unread=settings.declare_unread,
    )
    promise = privacy.promise(settings.simulate_seed).with_caveats(*caveats)
    run = _OnJudgments(
        settings=settings, terms=terms, pairs=pairs, privacy=privacy, promise=promise
    )
    tell(settings, *run.outcome())


def promised(folder: Path) -> CheckpointPromise:
    """Return what the checkpoint in a folder promises."""
    promise: CheckpointPromise = language_module("models.promises").CheckpointPromise.read(folder)
    return promise


def _with_start(own: CheckpointPromise | Guarantee, model: Path) -> Guarantee:
    """Return what a checkpoint promises together with the one that it starts from."""
    promises = language_module("models.promises")
    if isinstance(own, Guarantee):
        source = promises.Answers(guarantee=own)
        own = cast(
            "CheckpointPromise", promises.CheckpointPromise(kind="policy", sources=(source,))
        )
    return own.with_those_of(*promises.folder_promises(model)).guarantee


@dataclass(frozen=True, kw_only=True)
class _Training(Run):
    """A run that writes a checkpoint."""

    settings: Train
    terms: TrainingTerms

    @contextmanager
    def place(self) -> Iterator[None]:
        with made_folder(self.settings.out):
            (self.settings.out / _LAST).unlink(missing_ok=True)
            yield

    def promise_rows(self, told: dict[str, Any], spent: str) -> dict[str, str]:
        return {"written": self.settings.out.name, **promise_rows(told), "spent": spent}


def told_of(promise: Guarantee, spend: float) -> dict[str, Any]:
    """Return what a checkpoint promises and what it cost, after what that amounts to."""
    terms = describe_guarantee_and_caveats(promise)
    return {"verdict": judge(terms), **terms, "spend": spend}


def _head(ledger: Ledger) -> dict[str, Any]:
    return {"head": ledger.head.digest, "rows": ledger.head.rows}


# Randomized answers: read as they are, or made first, through the ledger.


def _on_answers(settings: Train) -> _OnAnswers:
    """Return training on what the file holds, after refusing settings that do not fit it."""
    pairs = settings.read(settings.source)
    pairs.refuse_alone()
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
        kept, left = settings.answers_path, settings.is_begun
        if not (settings.force or left) and kept.exists():  # an earlier run has paid for them
            raise UsageError(
                f"{kept.name} holds the randomized answers of an earlier run. Nothing was done. "
                f"Train on them, which spends nothing: give {kept.name} instead of the raw "
                "judgments. Another --out randomizes anew, which spends again."
            )
        for path in (kept, manifest_path(kept)):
            refuse_output(path, force=settings.force or left, spends=True)
    pipeline, terms = language_module("studies.pipeline"), settings.terms()
    writes = settings.kind == "policy"
    fitting = len(pipeline.checkpoint_tokens(settings.model, terms, writes=writes).pairs(pairs)[2])
    if settings.sft is not None:
        texts = language_module("references.texts")
        texts.warn_of_labels(texts.read_documents(settings.sft), pairs, strict=settings.strict)
    return _OnAnswers(settings=settings, terms=terms, pairs=pairs, left_out=len(pairs) - fitting)


@dataclass(frozen=True, kw_only=True)
class _OnAnswers(_Training):
    """Training on randomized answers; raw judgments are randomized first."""

    pairs: Pairs | PrivatePairs
    left_out: int  # pairs with an answer that does not fit

    @contextmanager
    def place(self) -> Iterator[None]:
        with super().place():
            if isinstance(self.pairs, Pairs) and not self.settings.non_private:
                refuse_unwritable(self.settings.answers_path)
            yield

    @cached_property
    def _plan(self) -> dict[str, Any]:
        return super().planned()

    def planned(self) -> dict[str, Any]:
        return self._plan

    @property
    def coin(self) -> RandomizedResponse:
        if self.settings.epsilon is None:
            raise UsageError(
                "These are raw judgments: a model trained on them would give them away. Nothing "
                "was done. Say what one label may cost (--epsilon E), or --non-private for a "
                "baseline that protects nobody."
            )
        return RandomizedResponse(self.settings.epsilon)

    @property
    def limit(self) -> Limit:
        settings, pairs = self.settings, self.pairs
        if isinstance(pairs, PrivatePairs):
            return limit_of_private(pairs.guarantee, settings.limits)
        spend = math.inf if settings.non_private else self.coin.epsilon
        return spending_limit(spend, settings.limits, unit="label")

    @property
    def pays(self) -> bool:
        """Return whether a ledger takes note: where answers arrived private, one that is named."""
        return not (isinstance(self.pairs, PrivatePairs) and self.settings.ledger is None)

    @property
    def request(self) -> str | None:
        """Return the name of the command; where no ledger takes note, nothing is found by it."""
        return self.settings.request if self.pays else None

    def account(self, *, planning: bool) -> Ledger:
        if self.pays:
            return super().account(planning=planning)
        return imagined_ledger(self.settings.ledger_path, self.settings.data, self.limit)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what training would spend, and what the checkpoint will promise in all."""
        settings, pairs = self.settings, self.pairs
        counts = {"pairs": len(pairs), "dropped": pairs.dropped}
        if isinstance(pairs, PrivatePairs):
            own = language_module("models.promises").CheckpointPromise.of(pairs, kind="policy")
            return counts | told_of(_with_start(own, settings.model), 0.0)
        if settings.non_private:
            mechanism = NonPrivate()
            promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
            ledger.check(mechanism.event, promise=promise)
            planned: dict[str, Any] = {"spend": math.inf, **counts}
        else:
            randomization = Randomization(
                self.coin, ledger, on_device=False, simulate_seed=settings.simulate_seed
            )
            chunks = find_chunks(settings.source, **settings.reading)
            planned = plan_chunks(chunks, randomization, engine=InProcess())
            promise = Guarantee.from_dict(planned["guarantee"], planned["caveats"])
        return planned | told_of(_with_start(promise, settings.model), planned["spend"])

    def spend(self, ledger: Ledger) -> dict[str, Any]:
        settings, private = self.settings, self._private(ledger)
        learn = partial(language_module("studies.pipeline").train, settings.kind)
        with Bar.shown("Training") as bar:
            log = learn(private, settings.model, settings.out, self.terms, progress=bar)
        losses = [row["loss"] for row in log if "loss" in row]
        raw = isinstance(self.pairs, Pairs)
        return {
            **told_of(promised(settings.out).guarantee, self._plan["spend"]),
            "pairs": len(private),
            "dropped": self.pairs.dropped,
            "dropped_overlong": self.left_out,
            "loss": self.terms.loss,
            "final_loss": losses[-1] if losses else None,
            "steps": log[-1].get("step", 0) if log else 0,
            "answers": settings.answers_path.name if raw and not settings.non_private else None,
            "ledger": _head(ledger) if self.pays else None,
        }

    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        spent, loss, answers = told["spend"], told["final_loss"], told["answers"]
        cost = f"epsilon={never_less(spent)}" if spent else "nothing"
        rows = self.promise_rows(told, "everything (NOT PRIVATE)" if math.isinf(spent) else cost)
        rows["pairs"] = f"{told['pairs']:,}"
        if self.left_out:
            rows["left out"] = f"{self.left_out:,} with an answer that does not fit"
        if loss is not None:
            rows["loss"] = f"{loss:.4f} ({told['loss']}, last logged, on randomized answers)"
        if answers is not None:
            rows["answers"] = f"{answers} (train on it again: it spends nothing)"
        return rows | (ledger_rows(*ledger.head) if self.pays else {})

    def _private(self, ledger: Ledger) -> PrivatePairs:
        """Return randomized answers: those that were read, or new ones that are kept in a file."""
        settings, private = self.settings, self.pairs
        if isinstance(private, Pairs):
            if settings.non_private:
                return use_unprotected(private, NonPrivate(), ledger=ledger)
            with Bar.shown("Randomizing") as bar:
                privatize_chunks(
                    find_chunks(settings.source, **settings.reading),
                    settings.answers_path,
                    self.coin,
                    ledger=ledger,
                    engine=InProcess(),
                    one_file=True,
                    simulate_seed=settings.simulate_seed,
                    force=settings.force or settings.is_begun,
                    taken=bar,
                )
            private = read_pairs(settings.answers_path)
            assert isinstance(private, PrivatePairs)  # noqa: S101 - for the type checker
        elif not self.pays:
            return private
        # the entries that paid for it, each once
        spent = (row for row in ledger.rows if row.kind in {"commit", "repeat"})
        mine = (row for row in spent if json.loads(row.payload)["artifact"] == private.artifact)
        paid = list(dict.fromkeys(row.release_id for row in mine))
        if not paid:
            answers = memo_keys(private.keys, private.persons) or None
            manifest = read_manifest(settings.source)
            paid = [ledger.receive(settings.source, manifest, answers=answers)]
        for release_id in paid:
            private = private.received(release_id)
        return private


# Raw judgments: what is released is the sum of clipped gradients of every step.


@dataclass(frozen=True, kw_only=True)
class _OnJudgments(_Training):
    """Training on raw judgments; every step is noised, and paid for before it is drawn."""

    pairs: Pairs | PrivatePairs
    privacy: CentralPrivacy
    promise: Guarantee  # of all steps

    @property
    def limit(self) -> Limit:
        privacy = self.privacy
        terms: dict[str, Any] = {"delta": privacy.delta, "neighbors": privacy.neighbors}
        limits = self.settings.limits
        return spending_limit(privacy.epsilon, limits, unit=privacy.unit, **terms)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        settings, privacy = self.settings, self.privacy
        if not settings.is_begun:  # else the trainer knows which steps are left
            ledger.check(privacy.event(privacy.steps), promise=self.promise)
        own = self.promise.with_caveats(*(ledger.accepted or ()))
        promise = _with_start(own, settings.model)
        return {**told_of(promise, privacy.epsilon), "privacy": privacy.to_dict()}

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        return {
            "would spend": f"epsilon={never_less(plan['spend'])}",
            **promise_rows(plan),
            **self._noise_rows(),
        }

    def spend(self, ledger: Ledger) -> dict[str, Any]:
        """Train; nothing is told that was computed from the pairs."""
        settings = self.settings
        if not settings.is_begun:
            for folder in settings.out.glob("checkpoint-*"):  # which a later run would go on from
                shutil.rmtree(folder, ignore_errors=True)
        with Bar.shown("Training") as bar:
            language_module("studies.pipeline").train(
                settings.kind,
                self.pairs,
                settings.model,
                settings.out,
                self.terms,
                privacy=self.privacy,
                ledger=ledger,
                declare_unread=settings.declare_unread,
                simulate_seed=settings.simulate_seed,
                save_every=settings.save_every,
                progress=bar,
            )
        promise = promised(settings.out)
        return {
            **told_of(promise.guarantee, promise.sources[0].guarantee.epsilon),
            "privacy": self.privacy.to_dict(),
            "ledger": _head(ledger),
        }

    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        return {
            **self.promise_rows(told, f"epsilon={never_less(told['spend'])}"),
            **self._noise_rows(),
            **ledger_rows(*ledger.head),
        }

    def _noise_rows(self) -> dict[str, str]:
        """Return lines on the noise, on what was chosen for the user, and on what is not known."""
        privacy, settings = self.privacy, self.settings
        values = {name: v for name, v in _CHOSEN.items() if getattr(settings, name) is None}
        said = (f"--{n} {v:g}" if isinstance(v, float) else f"--{n} {v}" for n, v in values.items())
        chosen = ", ".join(said)
        return {
            "noise": f"{privacy.noise_multiplier:.4g} times the clip of {privacy.clip:g} on the "
            f"sum of each of {privacy.steps:,} steps; a {privacy.unit} takes part in one with "
            f"chance {privacy.sampling_probability:.4g}",
            **({"chosen here": chosen} if chosen else {}),
            "loss, accuracy": "not measured: on raw judgments each would be a release of its own",
        }
