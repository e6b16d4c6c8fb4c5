"""``sordino audit``: try to break a promise, ours or somebody else's.

An audit in a few lines: the verdict, the numbers, and what was tried.

A trainer that is audited before there are data: a model of the user, and a pair of nobody.
"""

from __future__ import annotations

import math
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino._files import refuse_output
from sordino.auditing.findings import Audit, Measurement
from sordino.auditing.releases.leaks import audit_release
from sordino.auditing.runs.replay import audit_run
from sordino.auditing.statistical.catalogue import build_mechanism, catalogue_names
from sordino.auditing.statistical.distinguishing import audit_mechanism
from sordino.engines.exchange import passing_folder
from sordino.errors import AuditRefuted, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import read_pairs
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, never_less, never_more
from sordino.privacy.ledger import Ledger
from sordino.reporting.html import write_audit

from . import _language_options as chosen
from . import _options as options
from ._app import COMMANDS, Bar, app, finish, grid
from ._language_options import language_module
from ._settings import DELTA, Neighbors, Unit, refuse_records
from ._tables import describe_promise

_ORDER = ("refutes", "warning", "clear", "skipped")
_WORDS = {"refutes": "REFUTES", "warning": "warning", "clear": "clear", "skipped": "not tried"}


def audit_rows(found: Audit) -> dict[str, str]:
    """Return the verdict and every number that was measured, in words."""
    rows = {
        "verdict": _verdict(found),
        "claim": describe_promise(found.claim.to_dict()),
        "subject": found.subject,
    }
    for measured in found.measured:  # of several in one metric the decisive one comes first
        rows.setdefault(f"measured {measured.metric}", _measured(measured))
    if found.confidential:
        rows["confidential"] = "computed from raw judgments: not for publication"
    return rows


def _verdict(found: Audit) -> str:
    """Return the verdict, with what broke the claim."""
    if found.refuted:
        return f"REFUTED by {', '.join(found.refuted_by)}"
    return "not refuted (which is no proof)"


def _measured(found: Measurement) -> str:
    """Return one measurement; bounds are rounded away from what they bound."""
    text = f"at least {never_more(found.lower, 4)} ({100 * found.confidence:g} % confidence)"
    text += f", claimed {never_less(found.claimed)}"
    if found.power is not None:
        text += f"; would have detected {never_less(found.power, 4)} or more"
    return text


def finding_rows(found: Audit) -> list[list[str]]:
    """Return (attack, outcome, sentence) of everything that was tried, what refutes first."""
    ordered = sorted(found.findings, key=lambda finding: _ORDER.index(finding.outcome))
    return [[each.attack, _WORDS[each.outcome], each.summary] for each in ordered]


_UNITS = 100.0  # a number, as the settings ask for one; nothing here depends on it
_NOBODY = {"prompt": "Who?", "first": "Nobody.", "second": "No one.", "label": 1}


def audit_model(
    model: Path,
    *,
    policy: bool,
    lora: int,
    epsilon: float,
    delta: float,
    neighbors: NeighboringRelation,
    chance: float,
    steps: int,
    **settings: Any,
) -> Audit:
    """Return what attacks on the training of a model show, before anything is trained or paid.

    Args:
        model: A checkpoint.
        policy: Whether a policy is trained, by DPO; a reward otherwise.
        lora: Rank of adapters; 0 for all weights.
        epsilon: What all steps together are to cost.
        delta: Failure probability.
        neighbors: What one change is.
        chance: Of each record to take part in a step.
        steps: How many there are.
        settings: As for ``audit_training``.

    Raises:
        FileSystemError: There is no such folder.
        UsageError: A setting is out of range, or the model cannot be trained so.
    """
    privacy = language_module("dp_sgd.privacy").CentralPrivacy(
        epsilon,
        delta,
        unit="record",
        neighbors=neighbors,
        sampling_probability=chance,
        steps=steps,
        expected_batch=_UNITS * chance,
    )
    name, task = ("DPO", "CAUSAL_LM") if policy else ("Reward", "SEQ_CLS")
    module = language_module("dp_sgd.trainers")
    with passing_folder(None) as scratch:
        trainer = getattr(module, f"Central{name}Trainer")(
            str(model),
            args=getattr(module, f"Central{name}Config")(
                scratch, disable_tqdm=True, save_strategy="no"
            ),
            train_dataset=read_pairs([_NOBODY]),
            privacy=privacy,
            ledger=Ledger.open(Path(scratch) / "spend.db", data="nobody", budget=privacy.guarantee),
            peft_config=language_module("studies.pipeline").adapters(lora, task),
            declare_unread=True,  # nobody has said anything
        )
        from sordino.auditing.training.training_audit import (  # noqa: PLC0415 (needs the extra)
            audit_training,
        )

        return audit_training(trainer, **settings)


_PAGES = (".html", ".htm")
_COIN = "randomized-response"

audit = typer.Typer(help=COMMANDS["audit"], no_args_is_help=True)
app.add_typer(audit, name="audit")


def _finish(found: Audit, out: Path | None, *, force: bool, as_json: bool) -> None:
    """Print an audit, write its page, and leave with the exit code of its verdict."""
    if out is not None:
        write_audit(out, found, force=force)
    simulated = found.claim.simulated
    rows = audit_rows(found) | ({} if out is None else {"written": out.name})
    if not as_json:
        grid("what was tried", ("attack", "outcome", "what came of it"), finding_rows(found))
    finish(
        f"sordino audit {found.kind}", rows, found.to_dict(), as_json=as_json, simulated=simulated
    )
    if found.refuted:
        raise typer.Exit(AuditRefuted.exit_code)


def _refuse_page(out: Path | None, *, force: bool) -> None:
    """Refuse a page that cannot be written, or that no browser would open, before a long audit."""
    if out is None:
        return
    if out.suffix.lower() not in _PAGES:
        raise UsageError(
            f"--out writes a page: its name must end in {' or '.join(_PAGES)}, got "
            f"{out.suffix or 'no ending'!r}. Nothing was audited. For a text use --json, or the "
            "table that is printed."
        )
    refuse_output(out, force=force)


def _refuse_person(name: str, unit: Unit | None) -> None:
    """Refuse to play a built-in mechanism for a person: how many records count is no option."""
    if unit is Unit.person and ":" not in name:
        raise UsageError(
            f"{name} is played for one {'label' if name == _COIN else 'record'}: --unit person "
            "needs a mechanism that says how many records of one person count. Nothing was "
            "audited. Make one in a Python file of this folder, say mine.py with noise = "
            "sordino.mechanisms.gaussian.GaussianMechanism.calibrated(..., records_per_person=3), "
            "and audit mine:noise; or leave --unit out."
        )


@audit.command("release")
def release(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Randomized answers (.jsonl, .csv, .tsv, .gz), or a folder."
        ),
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss that is claimed.")],
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", help="What was published about the file; JSON of any kind."),
    ] = None,
    raw: Annotated[
        Path | None,
        typer.Option("--raw", help="The raw judgments, if you hold them: many more attacks."),
    ] = None,
    unit: options.UnitOption = Unit.label,
    person_field: options.PersonField = "person",
    covariate: Annotated[
        list[str] | None,
        typer.Option(
            "--covariate",
            metavar="COLUMN",
            help="A column that was fixed and public before anybody judged; may be repeated.",
        ),
    ] = None,
    out: options.Page = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Attack a file that claims local privacy: order, ids, seeds, repeats, flip rates."""
    refuse_records(unit)
    _refuse_page(out, force=force)
    with Bar.shown("Attacking") as bar:
        found = audit_release(
            path,
            epsilon=epsilon,
            unit=unit.counted,
            manifest=manifest,
            raw=raw,
            covariates=tuple(covariate or ()),
            person_field=person_field,
            progress=bar,
        )
    _finish(found, out, force=force, as_json=as_json)


@audit.command("mechanism")
def mechanism(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help=f"{', '.join(catalogue_names())}, or module:attribute of your own."
        ),
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss that is claimed.")],
    delta: Annotated[
        float, typer.Option("--delta", help="Failure probability that is claimed.")
    ] = 0.0,
    neighbors: options.NeighborsOption = Neighbors.replace_one,
    unit: Annotated[
        Unit | None,
        typer.Option(
            "--unit",
            help="Whose change it hides; by default label for a coin, else record.",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", help="Releases of each of the two inputs; more detect less.")
    ] = 20_000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Coverage of the bound that is shown.")
    ] = 0.95,
    processes: Annotated[
        int, typer.Option("--processes", help="How many play at once, for a slow mechanism.")
    ] = 1,
    simulate_seed: Annotated[
        int | None, typer.Option("--simulate-seed", min=0, help="Play with a seed, to repeat it.")
    ] = None,
    out: options.Page = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Play a mechanism on two neighboring inputs and tell them apart; no data are needed."""
    _refuse_page(out, force=force)
    if not math.isfinite(epsilon):
        raise UsageError("--epsilon must be finite: a claim of inf promises nothing.")
    _refuse_person(name, unit)
    with redirect_stdout(sys.stderr):  # what somebody's code prints is no part of the answer
        found = _play(
            name,
            epsilon=epsilon,
            delta=delta,
            relation=neighbors.relation,
            unit=unit,
            trials=trials,
            confidence=confidence,
            processes=processes,
            simulate_seed=simulate_seed,
        )
    _finish(found, out, force=force, as_json=as_json)


def _play(
    name: str,
    *,
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
    unit: Unit | None,
    **settings: Any,
) -> Audit:
    """Return the audit of a mechanism by name."""
    played = build_mechanism(name, epsilon=epsilon, delta=delta, neighbors=relation)
    usual = Unit.label if isinstance(played, RandomizedResponse) else Unit.record
    whose = (unit or usual).whose
    claim = Guarantee(epsilon, delta=delta, unit=whose, neighbors=relation, trust="central")
    with Bar.shown("Playing") as bar:
        return audit_mechanism(
            played,
            unit=whose,
            neighbors=relation,
            trust="central",
            claim=claim,
            progress=bar,
            **settings,
        )


@audit.command("training")
def training(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Checkpoint that is to be trained.")
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss of all steps.")],
    policy: Annotated[
        bool, typer.Option("--policy", help="Train a policy by DPO; a reward otherwise.")
    ] = False,
    lora: chosen.Lora = 0,
    raw: Annotated[
        Path | None,
        typer.Option("--raw", help="The records, if you hold them: has the model read them?"),
    ] = None,
    partners: Annotated[
        int,
        typer.Option(
            "--partners", min=2, max=2048, help="Made-up records that share a step with a long one."
        ),
    ] = 32,
    delta: Annotated[float, typer.Option("--delta", help="Failure probability.")] = DELTA,
    neighbors: options.NeighborsOption = Neighbors.add_remove,
    chance: Annotated[
        float, typer.Option("--chance", help="Of each record to take part in a step.")
    ] = 0.05,
    steps: Annotated[int, typer.Option("--steps", min=1, help="How many there are.")] = 200,
    trials: Annotated[
        int, typer.Option("--trials", help="Noisy steps on each side, at least 4000.")
    ] = 10_000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Coverage of the bound that is shown.")
    ] = 0.95,
    simulate_seed: Annotated[
        int | None, typer.Option("--simulate-seed", min=0, help="Play with a seed, to repeat it.")
    ] = None,
    out: options.Page = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Play the central training of a language model before it; no data are needed, none is paid."""
    _refuse_page(out, force=force)
    with redirect_stdout(sys.stderr):  # what libraries print is no part of the answer
        found = audit_model(
            model,
            policy=policy,
            lora=lora,
            epsilon=epsilon,
            delta=delta,
            neighbors=neighbors.relation,
            chance=chance,
            steps=steps,
            partners=partners,
            trials=trials,
            confidence=confidence,
            records=None if raw is None else read_pairs(raw),
            simulate_seed=simulate_seed,
        )
    _finish(found, out, force=force, as_json=as_json)


@audit.command("run")
def run(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an earlier align.")],
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger", metavar="DB", help="The run's ledger, if it is not spend.db in that folder."
        ),
    ] = None,
    out: options.Page = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Derive a run's certificate anew from its ledger and its files."""
    _refuse_page(out, force=force)
    _finish(audit_run(folder, ledger=ledger), out, force=force, as_json=as_json)
