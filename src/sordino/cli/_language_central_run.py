"""One training run on raw judgments, step by step: check, pay, train, tell."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sordino.cli._accounts import future_ledger, open_ledger, spending_limit
from sordino.cli._console import Bar, finish
from sordino.cli._inputs import refuse_randomized
from sordino.cli._language_answers import AnswerTerms
from sordino.cli._language_central import CentralChoice
from sordino.cli._language_options import language_module, refuse_folder
from sordino.cli._language_training import Training, promise_with_start, refuse_ledger_within
from sordino.cli._run import made_folder, spend_is_said
from sordino.cli._settings import refuse_given
from sordino.cli._table import describe_promise
from sordino.errors import BudgetExceeded
from sordino.preferences.pairs import Pairs
from sordino.preferences.reading import read_pairs
from sordino.privacy.guarantee import Guarantee, never_less
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats

__all__ = ["run_centrally"]

_ALONE = "it is for randomized labels, and with --way central none are"
_USUAL = {"loss": "debiased", "epochs": 1.0, "head_epochs": 0.0, "batch_size": 16}


def run_centrally(job: Training, choice: CentralChoice, *, dry_run: bool, as_json: bool) -> None:
    """Do the whole job and tell how it ended; whatever can be refused is refused first."""
    terms = job.answers
    _refuse_settings(job, choice, dry_run=dry_run)
    privacy = choice.privacy(terms.epsilon)
    pipeline = language_module("studies.central_pipeline")
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
    """Refuse options that do not fit, and outputs that are there.

    Raises:
        UsageError: There are.
        FileSystemError: The output is a file.
    """
    terms = job.answers
    choice.refuse_beside(force=terms.force, dry_run=dry_run)
    given = {
        f"--{name.replace('_', '-')}": None if job.settings.get(name, usual) == usual else True
        for name, usual in _USUAL.items()
    }
    refuse_given(given, _ALONE)
    refuse_given({"--non-private": terms.non_private or None}, "--way central always adds noise")
    texts = {"--sft": job.sft, "--strict": job.strict or None}
    refuse_given(texts, "what a comparison with the raw records says would be a release of its own")
    refuse_folder(terms.out, force=terms.force or choice.resume)
    refuse_ledger_within(terms)


def _raw(terms: AnswerTerms) -> Pairs:
    """Return raw judgments; there may be none.

    Raises:
        DataError: A record cannot be used; which one is not said.
        UsageError: They are randomized already.
    """
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
    with spend_is_said(ledger), Bar.shown("Training") as bar:
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
