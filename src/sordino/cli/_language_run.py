"""Randomized answers for a language model: read as they are, or made first, through the ledger.

One training run on randomized answers, step by step: check, cross, train, tell.

One training run on raw judgments, step by step: check, pay, train, tell.

Policies that follow a private reward, and how often a judge prefers them: both spend nothing.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino._files import finite, refuse_output, refuse_unwritable, write_json
from sordino.errors import BudgetExceeded, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import caveats_of_reading
from sordino.preferences.files import read_mappings
from sordino.preferences.pairs import Pairs, PrivatePairs, manifest_path, read_manifest, read_pairs
from sordino.preferences.records import Text, read_text
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, never_less
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

from ._accounts import Budget, Limit, future_ledger, open_ledger, spending_limit
from ._app import Bar, finish
from ._language_options import CentralChoice, language_module, refuse_folder
from ._run import add_spend_to_errors, made_folder, refuse_randomized
from ._settings import refuse_given
from ._tables import describe_promise, plan_rows


@dataclass(frozen=True, kw_only=True)
class AnswerTerms:
    """What the user said of the judgments, and of what they may cost."""

    source: Path  # raw judgments, or a privatized file with its manifest beside it
    out: Path  # the checkpoint; randomized answers are kept beside it
    epsilon: float | None  # what one label may cost; None for answers that are randomized already
    ledger: Path | None  # where the spend is kept; None for one beside the checkpoint
    budget: Budget  # as `--budget`
    data: str  # name of the data set on the ledger
    settings: FileSettings  # how the file is read
    simulate_seed: int | None  # as `--simulate-seed`
    non_private: bool  # whether judgments are used as they are
    force: bool  # whether outputs may be overwritten

    @property
    def answers_path(self) -> Path:
        """Return where randomized answers are kept: training on them again spends nothing."""
        return self.out.with_name(f"{self.out.name}.answers.jsonl")

    @property
    def ledger_path(self) -> Path:
        """Return the ledger: never inside a checkpoint, which is published as a whole."""
        return self.ledger or default_ledger_path(self.out)

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger."""
        spend = math.inf if self.non_private else self._wanted
        return spending_limit(spend, self.budget, unit="label", trust="central")

    @property
    def coin(self) -> RandomizedResponse:
        """Return the coin for one label."""
        return RandomizedResponse(self._wanted)

    @property
    def _wanted(self) -> float:
        """Return what one label may cost, which raw judgments need."""
        if self.epsilon is None:
            raise UsageError(
                "These are raw judgments: a model trained on them would give them away. Nothing "
                "was done. Say what one label may cost (--epsilon E), or --non-private for a "
                "baseline that protects nobody."
            )
        return self.epsilon


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Randomized answers, the ledger that they were paid on, and the file that keeps them."""

    private: PrivatePairs
    ledger: Ledger | None
    file: Path | None = None


def read_answers(terms: AnswerTerms) -> Pairs | PrivatePairs:
    """Return what the file holds, after refusing settings that do not fit it."""
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            terms.source,
            drop_identical=terms.settings.drop_identical,
            person_field=terms.settings.person_field,
            progress=bar,
        )
    if isinstance(pairs, PrivatePairs):
        _refuse_more(terms, pairs.guarantee)
    elif not terms.non_private:
        _refuse_second_answers(terms)
    return pairs


def _refuse_more(terms: AnswerTerms, promise: Guarantee) -> None:
    """Refuse to promise more of randomized answers than their manifest does."""
    wanted = {
        "--non-private": terms.non_private,
        "--simulate-seed": terms.simulate_seed is not None,
        f"--epsilon {terms.epsilon}": terms.epsilon is not None and terms.epsilon < promise.epsilon,
    }
    for name, given in wanted.items():
        if given:
            raise UsageError(
                f"These answers were randomized with epsilon={never_less(promise.epsilon)} per "
                f"{promise.unit} already, so {name} comes too late. Nothing was done. Leave it out."
            )


def _refuse_second_answers(terms: AnswerTerms) -> None:
    """Refuse to randomize again by accident what an earlier run has paid for."""
    kept = terms.answers_path
    if not terms.force and kept.exists():
        raise UsageError(
            f"{kept.name} holds the randomized answers of an earlier run. Nothing was done. Train "
            f"on them, which spends nothing: give {kept.name} instead of the raw judgments; or "
            "pass --force to randomize anew, which spends again."
        )
    for path in (kept, manifest_path(kept)):
        refuse_output(path, force=terms.force)


def planned_spend(terms: AnswerTerms, pairs: Pairs | PrivatePairs) -> dict[str, Any]:
    """Return what training would spend; nothing is touched."""
    if isinstance(pairs, PrivatePairs):
        promise = describe_guarantee_and_caveats(pairs.guarantee)
        return {"spend": 0.0, "pairs": len(pairs), "dropped_identical": pairs.dropped, **promise}
    ledger = future_ledger(terms.ledger_path, terms.data, terms.limit)
    if terms.non_private:
        return _planned_exposure(terms, pairs, ledger)
    randomization = Randomization.of(
        terms.coin, ledger, on_device=False, simulate_seed=terms.simulate_seed
    )
    rows = FileRows(terms.source, terms.settings)
    return plan_answers(rows, randomization, data=terms.data)[0]


def _planned_exposure(terms: AnswerTerms, pairs: Pairs, ledger: Ledger) -> dict[str, Any]:
    """Return that everything would be spent."""
    mechanism = NonPrivate()
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    ledger.check_data(terms.data, pairs.public_digest)
    ledger.check(mechanism.event, promise=promise)
    told = describe_guarantee_and_caveats(promise)
    return {"spend": math.inf, "pairs": len(pairs), "dropped_identical": pairs.dropped, **told}


def made_private(terms: AnswerTerms, pairs: Pairs | PrivatePairs) -> Answers:
    """Return randomized answers: those that were read, or new ones that are kept in a file."""
    if isinstance(pairs, PrivatePairs):
        return _received(terms, pairs)
    if not terms.non_private:
        refuse_unwritable(terms.answers_path)
    ledger = open_ledger(terms.ledger_path, terms.data, terms.limit)
    if terms.non_private:
        return Answers(private=use_unprotected(pairs, NonPrivate(), ledger=ledger), ledger=ledger)
    with Bar.shown("Randomizing") as bar:
        privatize_file(
            terms.source,
            terms.answers_path,
            terms.coin,
            ledger=ledger,
            settings=terms.settings,
            simulate_seed=terms.simulate_seed,
            force=terms.force,
            progress=bar,
        )
    private = read_pairs(terms.answers_path)
    assert isinstance(private, PrivatePairs)  # noqa: S101 - for the type checker: just written
    for release_id in _paying(ledger, private.artifact):
        private = private.received(release_id)
    return Answers(private=private, ledger=ledger, file=terms.answers_path)


def _received(terms: AnswerTerms, private: PrivatePairs) -> Answers:
    """Return answers that arrived private; a ledger that was named takes note of them."""
    if terms.ledger is None:
        return Answers(private=private, ledger=None)
    promise = private.guarantee
    limit = spending_limit(
        promise.epsilon, terms.budget, unit=promise.unit, trust=promise.trust, delta=promise.delta
    )
    ledger = open_ledger(terms.ledger, terms.data, limit)
    paid = _paying(ledger, private.artifact)
    for release_id in paid or [ledger.receive(terms.source, read_manifest(terms.source))]:
        private = private.received(release_id)
    return Answers(private=private, ledger=ledger)


def _paying(ledger: Ledger, artifact: str) -> list[str]:
    """Return the entries of a ledger that paid for a privatized file, each once."""
    kinds = {"commit", "repeat", "receive"}
    rows = (row for row in ledger.rows if row.kind in kinds)
    found = [row.release_id for row in rows if json.loads(row.payload)["artifact"] == artifact]
    return list(dict.fromkeys(found))


Train = Callable[..., list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What one command asked for."""

    title: str  # of the command
    stage: str  # which function of the pipeline trains
    answers: AnswerTerms  # the judgments, and what they may cost
    model: Path  # checkpoint to start from
    settings: dict[str, Any]  # fields of `TrainingTerms`
    sft: Path | None  # the text that the model was fine-tuned on, if it was said
    strict: bool  # whether that text is refused where it gives labels away


def check_reference(pairs: Comparisons, sft: Path | None, *, strict: bool) -> None:
    """Warn, or refuse, if the text that a reference was fine-tuned on gives labels away."""
    if sft is None:
        return
    documents = language_module("references.texts").read_documents(sft)
    language_module("references.texts").warn_of_labels(documents, pairs, strict=strict)


def run_training(job: Training, *, dry_run: bool, as_json: bool) -> None:
    """Do the whole job and tell how it ended; whatever can be refused is refused first."""
    out = job.answers.out
    refuse_folder(out, force=job.answers.force)
    refuse_ledger_within(job.answers)
    pairs = read_answers(job.answers)
    pipeline = language_module("studies.pipeline")
    terms = pipeline.TrainingTerms(**job.settings)
    writes = job.stage == "train_policy"
    fitting = pipeline.count_fitting(pairs, job.model, terms, writes=writes)
    check_reference(pairs, job.sft, strict=job.strict)
    planned = planned_spend(job.answers, pairs)
    expected = _expected_promise(job, pairs, planned)
    if dry_run:
        planned |= describe_guarantee_and_caveats(expected)
        simulated = expected.simulated
        finish(job.title, plan_rows(planned), planned, as_json=as_json, simulated=simulated)
        return
    with made_folder(out):
        answers = made_private(job.answers, pairs)
        with nullcontext() if answers.ledger is None else add_spend_to_errors(answers.ledger):
            log = _logged(getattr(pipeline, job.stage), job, answers, terms)
    promise = language_module("models.promises").CheckpointPromise.read(out).guarantee
    value = {
        **describe_guarantee_and_caveats(promise),
        **_told(job, answers, planned, log, left_out=len(pairs) - fitting),
    }
    rows = _rows(value, job.answers)
    finish(job.title, rows, value, as_json=as_json, simulated=promise.simulated)


def refuse_ledger_within(terms: AnswerTerms) -> None:
    """Refuse a ledger inside the checkpoint, which is published as a whole."""
    if terms.ledger is not None and terms.ledger.resolve().is_relative_to(terms.out.resolve()):
        raise UsageError(
            f"--ledger {terms.ledger.name} lies inside {terms.out.name}, and a checkpoint is "
            "published as a whole. Nothing was done. Keep the ledger elsewhere."
        )


def _expected_promise(
    job: Training, pairs: Pairs | PrivatePairs, planned: dict[str, Any]
) -> Guarantee:
    """Return what the checkpoint will promise: of these answers, and of all that came before."""
    if isinstance(pairs, PrivatePairs):
        return _with_start(
            language_module("models.promises").CheckpointPromise.of(pairs, kind="policy"), job.model
        )
    return promise_with_start(
        Guarantee.from_dict(planned["guarantee"], planned["caveats"]), job.model
    )


def promise_with_start(promise: Guarantee, model: Path) -> Guarantee:
    """Return what a new promise comes to together with those of the model that is started from."""
    promises = language_module("models.promises")
    source = promises.Answers(guarantee=promise)
    return _with_start(promises.CheckpointPromise(kind="policy", sources=(source,)), model)


def _with_start(own: Any, model: Path) -> Guarantee:
    """Return what a checkpoint promises together with the one that it starts from."""
    before = language_module("models.promises").folder_promises(model)
    guarantee: Guarantee = own.with_those_of(*before).guarantee
    return guarantee


def _logged(train: Train, job: Training, answers: Answers, terms: Any) -> list[dict[str, Any]]:
    """Train and return the log."""
    with Bar.shown("Training") as bar:
        return train(answers.private, job.model, job.answers.out, terms, progress=bar)


def _told(
    job: Training,
    answers: Answers,
    planned: dict[str, Any],
    log: list[dict[str, Any]],
    *,
    left_out: int,
) -> dict[str, Any]:
    """Return what the command answers as JSON."""
    ledger = answers.ledger
    losses = [row["loss"] for row in log if "loss" in row]
    return {
        "spend": planned["spend"],
        "pairs": len(answers.private),
        "dropped_identical": planned["dropped_identical"],
        "dropped_overlong": left_out,
        "loss": job.settings["loss"],
        "final_loss": losses[-1] if losses else None,
        "steps": log[-1].get("step", 0) if log else 0,
        "answers": answers.file and answers.file.name,
        "ledger": None
        if ledger is None
        else {"head": ledger.head.digest, "rows": ledger.head.rows},
    }


def _rows(value: dict[str, Any], terms: AnswerTerms) -> dict[str, str]:
    """Return the closing summary."""
    ledger, loss = value["ledger"], value["final_loss"]
    spent = "nothing" if not value["spend"] else f"epsilon={never_less(value['spend'])}"
    rows = {
        "written": terms.out.name,
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        "spent": "everything (NOT PRIVATE)" if math.isinf(value["spend"]) else spent,
        "pairs": f"{value['pairs']:,}",
    }
    if value["dropped_overlong"]:
        rows["left out"] = f"{value['dropped_overlong']:,} with an answer that does not fit"
    if loss is not None:
        rows["loss"] = f"{loss:.4f} ({value['loss']}, last logged, on randomized answers)"
    if value["answers"]:
        rows["answers"] = f"{value['answers']} (train on it again: it spends nothing)"
    if ledger is not None:
        rows["ledger head"] = ledger["head"]
        rows["ledger rows"] = f"{ledger['rows']} (note the head elsewhere)"
    if ledger is not None and terms.ledger is None:
        rows["beware"] = "releases of the same judgments add up; only one shared --ledger sees it"
    return rows


_ALONE = "it is for randomized labels, and with --noise updates none are"
_USUAL = {"loss": "debiased", "epochs": 1.0, "head_epochs": 0.0, "batch_size": 16}


def run_centrally(job: Training, choice: CentralChoice, *, dry_run: bool, as_json: bool) -> None:
    """Do the whole job and tell how it ended; whatever can be refused is refused first."""
    terms = job.answers
    _refuse_settings(job, choice, dry_run=dry_run)
    privacy = choice.privacy(terms.epsilon)
    pipeline = language_module("studies.pipeline")
    settings = language_module("studies.pipeline").TrainingTerms(**job.settings)
    pairs = _raw(terms)
    writes = job.stage == "train_policy"
    declared = {"writes": writes, "declare_unread": choice.declare_unread}
    caveats = pipeline.refuse_unusable(pairs, job.model, settings, privacy, **declared)
    promise = privacy.promise(terms.simulate_seed).with_caveats(*caveats)
    expected = promise_with_start(promise, job.model)
    limit = spending_limit(
        privacy.epsilon,
        terms.budget,
        unit=privacy.unit,
        trust="central",
        delta=privacy.delta,
        neighbors=privacy.neighbors,
    )
    planned = future_ledger(terms.ledger_path, terms.data, limit)
    planned.check_data(terms.data, None)
    if not choice.resume:  # else the trainer knows which steps are left
        planned.check(privacy.event(privacy.steps), promise=promise)
    if dry_run:
        _tell_plan(job.title, choice, privacy, expected, as_json=as_json)
        return
    with made_folder(terms.out):
        ledger = open_ledger(terms.ledger_path, terms.data, limit)
        _train(getattr(pipeline, f"{job.stage}_centrally"), job, choice, privacy, pairs, ledger)
    _tell(job, choice, privacy, ledger, as_json=as_json)


def _refuse_settings(job: Training, choice: CentralChoice, *, dry_run: bool) -> None:
    """Refuse options that do not fit, and outputs that are there."""
    terms = job.answers
    choice.refuse_beside(force=terms.force, dry_run=dry_run)
    given = {
        f"--{name.replace('_', '-')}": None if job.settings.get(name, usual) == usual else True
        for name, usual in _USUAL.items()
    }
    refuse_given(given, _ALONE)
    refuse_given({"--non-private": terms.non_private or None}, "--noise updates always adds noise")
    texts = {"--sft": job.sft, "--strict": job.strict or None}
    refuse_given(texts, "what a comparison with the raw records says would be a release of its own")
    refuse_folder(terms.out, force=terms.force or choice.resume)
    refuse_ledger_within(terms)


def _raw(terms: AnswerTerms) -> Pairs:
    """Return raw judgments; there may be none."""
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            terms.source,
            hides_records=True,
            person_field=terms.settings.person_field,
            progress=bar,
        )
    refuse_randomized(pairs)
    assert isinstance(pairs, Pairs)  # noqa: S101 - for the type checker
    return pairs


def _train(
    train: Any,
    job: Training,
    choice: CentralChoice,
    privacy: Any,
    pairs: Pairs,
    ledger: Ledger,
) -> None:
    """Train; every part of the run is paid for before it is drawn."""
    terms = job.answers
    settings = language_module("studies.pipeline").TrainingTerms(**job.settings)
    if not choice.resume:
        _forget_checkpoints(terms.out)
    with add_spend_to_errors(ledger), Bar.shown("Training") as bar:
        try:
            train(
                pairs,
                job.model,
                terms.out,
                settings,
                privacy=privacy,
                ledger=ledger,
                declare_unread=choice.declare_unread,
                simulate_seed=terms.simulate_seed,
                save_every=choice.save_every,
                resume=choice.resume,
                progress=bar,
            )
        except BudgetExceeded as error:
            raise BudgetExceeded(f"{error}{_way_out(choice)}") from None


def _way_out(choice: CentralChoice) -> str:
    """Return why a run that was interrupted may lack budget, and what helps."""
    if not choice.resume:
        return ""
    return (
        " A run that goes on pays again for the steps after its checkpoint: --budget EPSILON "
        "raises the limit, and the ledger records it."
    )


def _forget_checkpoints(out: Path) -> None:
    """Remove the checkpoints of an earlier run, which a later one would go on from."""
    for folder in out.glob("checkpoint-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _tell_plan(
    title: str, choice: CentralChoice, privacy: Any, expected: Guarantee, *, as_json: bool
) -> None:
    """Print what a run would spend."""
    told = describe_guarantee_and_caveats(expected)
    value = {"spend": privacy.epsilon, **told, "privacy": privacy.to_dict()}
    rows = {
        "would spend": f"epsilon={never_less(privacy.epsilon)}",
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        **_noise_rows(choice, privacy),
        "touched": "nothing (dry run)",
    }
    finish(title, rows, value, as_json=as_json, simulated=expected.simulated)


def _tell(
    job: Training, choice: CentralChoice, privacy: Any, ledger: Ledger, *, as_json: bool
) -> None:
    """Print what came out and what it cost; nothing that was computed from the pairs."""
    promise = language_module("models.promises").CheckpointPromise.read(job.answers.out)
    spend = promise.sources[0].guarantee.epsilon
    value = {
        **describe_guarantee_and_caveats(promise.guarantee),
        "spend": spend,
        "privacy": privacy.to_dict(),
        "ledger": {"head": ledger.head.digest, "rows": ledger.head.rows},
    }
    rows = {
        "written": job.answers.out.name,
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        "spent": f"epsilon={never_less(spend)}",
        **_noise_rows(choice, privacy),
        "ledger head": ledger.head.digest,
        "ledger rows": f"{ledger.head.rows} (note the head elsewhere)",
    }
    if job.answers.ledger is None:
        rows["beware"] = "releases of the same judgments add up; only one shared --ledger sees it"
    simulated = promise.guarantee.simulated
    finish(job.title, rows, value, as_json=as_json, simulated=simulated)


def _noise_rows(choice: CentralChoice, privacy: Any) -> dict[str, str]:
    """Return lines on the noise, on what was chosen for the user, and on what is not measured."""
    chosen = choice.chosen_here
    return {
        "noise": f"{privacy.noise_multiplier:.4g} times the clip of {privacy.clip:g} on the sum of "
        f"each of {privacy.steps:,} steps; a {privacy.unit} takes part in one with chance "
        f"{privacy.sampling_probability:.4g}",
        **({"chosen here": chosen} if chosen else {}),
        "loss, accuracy": "not measured: on raw judgments each would be a release of its own",
    }


def read_prompts(path: Path, n: int | None = None) -> list[Text]:
    """Return the different prompts of a file, the first n of them; other fields go nowhere."""
    texts = [read_text(row, "prompt", where) for where, row in read_mappings(path)]
    unique: list[Text] = language_module("studies.comparison_table").unique_prompts(texts)
    return unique[:n]


def improve(
    reward: Path,
    model: Path,
    prompts: Path,
    out: Path,
    settings: dict[str, Any],
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Improve a policy on a private reward, and tell what it promises."""
    refuse_folder(out, force=force)
    asked = read_prompts(prompts)
    pipeline = language_module("studies.pipeline")
    terms = pipeline.PolicyTerms(**settings)
    score = language_module("rewards.text_rewards").TextRewardModel.load(reward)
    with made_folder(out), Bar.shown("Improving") as bar:
        log = pipeline.improve_policy(score, model, asked, out, terms, progress=bar)
    promise = language_module("models.promises").CheckpointPromise.read(out).guarantee
    rewards = [row["reward"] for row in log if "reward" in row]
    value = {
        **describe_guarantee_and_caveats(promise),
        "spend": 0.0,
        "prompts": len(asked),
        "update": settings["update"],
        "steps": settings["steps"],
        "first_reward": rewards[0] if rewards else None,
        "reward": rewards[-1] if rewards else None,
    }
    rows = {
        "written": out.name,
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        "spent": "nothing: a private reward may be optimized for ever",
        "prompts": f"{len(asked):,}, which count as public",
    }
    if rewards:
        rows["reward"] = f"{rewards[0]:.3f} to {rewards[-1]:.3f} in {settings['steps']:,} steps"
    finish("sordino language policy", rows, value, as_json=as_json, simulated=promise.simulated)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """What is compared, on which prompts, and who judges."""

    policy: Path
    reference: Path
    prompts: Path
    judge: Path | None
    command: str | None
    n: int | None
    max_new_tokens: int
    seed: int
    declare_unread: bool


def _refuse_other_judges(asked: Judging) -> None:
    """Refuse a comparison with no judge, or two."""
    if (asked.judge is None) == (asked.command is None):
        raise UsageError(
            "Give one judge: --judge DIR, a reward that was not optimized, or --judge-command CMD, "
            "a program of yours. Nothing was judged."
        )


def measure_policy(asked: Judging, out: Path | None, *, force: bool, as_json: bool) -> None:
    """Compare a policy with its reference, and tell who won and what was promised."""
    _refuse_other_judges(asked)
    words = _program(asked.command)
    if out is not None:
        refuse_output(out, force=force)
    prompts = read_prompts(asked.prompts, asked.n)
    promises = {"policy": _promise(asked.policy), "reference": _promise(asked.reference)}
    caveats = _caveats_of_judge(asked, promises)
    comparison = language_module("judging")
    judge, shared = _judge(asked, words, promises["policy"])
    found = comparison.compare_policies(
        asked.policy,
        asked.reference,
        prompts,
        judge,
        max_new_tokens=asked.max_new_tokens,
        seed=asked.seed,
    )
    value: dict[str, Any] = finite(
        {
            **found.to_dict(),
            "judge": "reward" if asked.judge else "command",
            "judge_shares_answers": shared,
            **{f"{name}_guarantee": _in_json(one, caveats) for name, one in promises.items()},
        }
    )
    if out is not None:
        write_json(out, value, force=force)
    sources = [found.guarantee, *(each and each.guarantee for each in promises.values())]
    simulated = any(each is not None and each.simulated for each in sources)
    rows = _policy_rows(found, shared=shared, promises=promises) | (
        {"written": out.name} if out else {}
    )
    finish("sordino language evaluate", rows, value, as_json=as_json, simulated=simulated)


def _program(command: str | None) -> list[str]:
    """Return the words of a command line."""
    try:
        words = [] if command is None else shlex.split(command)
    except ValueError:
        words = []
    if command is not None and not words:
        raise UsageError(
            "--judge-command is empty, or a quote in it is not closed. Nothing was judged. Give "
            "the program and its arguments as in a shell."
        )
    return words


def _in_json(promise: Any, caveats: tuple[str, ...]) -> dict[str, Any] | None:
    """Return a checkpoint's promise with its caveats, and those of the judge."""
    if promise is None:
        return None
    found = promise.guarantee.with_caveats(*caveats)
    return {**found.to_dict(), "caveats": list(found.caveats)}


def _caveats_of_judge(asked: Judging, promises: dict[str, Any]) -> tuple[str, ...]:
    """Return what qualifies a win rate of what hides whole records or persons."""
    # A judge, or a reference, that has read those texts tells of them by whom it prefers. The texts
    # are not here to be compared with.
    if all(one is None or one.guarantee.unit == "label" for one in promises.values()):
        return ()
    return caveats_of_reading(known=False, read=False, declared=asked.declare_unread)


def _judge(asked: Judging, words: list[str], policy: Any) -> tuple[Any, bool]:
    """Return the judge, and whether it learned from the very answers that the policy did."""
    if asked.command is not None:
        return language_module("judging").CommandJudge(words, seed=asked.seed), False
    reward = language_module("rewards.text_rewards").TextRewardModel.load(asked.judge)
    judge = language_module("judging").RewardJudge(reward)
    return judge, policy is not None and bool(_known_by(policy) & _known_by(reward.promise))


def _known_by(promise: Any) -> set[str]:
    """Return every release that a promise speaks for, by its entries and by its answers."""
    return {
        name
        for source in promise.sources
        for name in (*source.release_ids, source.artifact)
        if name
    }


def _promise(folder: Path) -> Any:
    """Return what a checkpoint of ours promises, or None for one of somebody else."""
    found = language_module("models.promises").folder_promises(folder)
    return found[0].with_those_of(*found[1:]) if found else None


def _policy_rows(found: Any, *, shared: bool, promises: dict[str, Any]) -> dict[str, str]:
    """Return the closing summary."""
    matched = found.length_matched
    promise = found.guarantee
    rows = {
        "win rate": f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]",
        "length-matched": "not known" if matched is None else str(matched),
        "mean length": f"{found.mean_length:.0f} against {found.reference_length:.0f} characters",
        "compared": f"{found.n:,} answers to {found.prompts:,} prompts, {found.ties:,} ties",
        "judge's labels": "nobody said" if promise is None else str(promise),
    }
    if shared:
        rows["beware"] = "the judge learned from the same answers as the policy: it favors it"
    for name, promise in promises.items():
        rows[f"{name}'s labels"] = (
            "no promise with it" if promise is None else str(promise.guarantee)
        )
    return rows
