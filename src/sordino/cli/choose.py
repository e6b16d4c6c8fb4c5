"""``sordino choose``: draw answers from the policy of an earlier run.

It spends nothing, unless the run kept its reward to itself: then every answer spends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino._files import atomic_writer, refuse_output, refuse_unwritable
from sordino.auditing.runs.stored import RESULT, malformed, read_result
from sordino.cli import _options as options
from sordino.cli._app import app
from sordino.cli._console import Bar, finish, say_simulated
from sordino.cli._draw_table import chosen_rows
from sordino.cli._policy import remake_policy
from sordino.cli._prepared_run import PreparedRun, is_prepared
from sordino.cli._run import spend_is_said
from sordino.cli._settings import refuse_given
from sordino.cli._withheld_answers import Asked
from sordino.errors import DataError, UsageError
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.files import Progress, read_mappings
from sordino.preferences.records import Text, read_text
from sordino.privacy.ledger import Ledger
from sordino.rewards.model import RewardModel

_BATCH = 2048
Question = tuple[Text, list[Text]]


def _questions(path: Path, progress: Progress) -> Iterator[Question]:
    """Yield (prompt, candidates) of every line."""
    for where, row in read_mappings(path, progress):
        options = row.get("candidates")
        if not isinstance(options, list) or not options:
            raise DataError(f"{where}: field 'candidates' must be a list of at least one answer.")
        named = {f"candidates[{index}]": text for index, text in enumerate(options)}
        question = read_text(row, "prompt", where), [read_text(named, at, where) for at in named]
        if not _is_unicode(question):
            raise DataError(f"{where}: a text is not valid Unicode.")
        yield question


def _is_unicode(question: Question) -> bool:
    """Return whether a question can be written as UTF-8, which lone surrogates cannot."""
    try:
        json.dumps(question, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _drawn(
    policy: CandidatePolicy, questions: Iterator[Question], simulate_seed: int | None
) -> Iterator[dict[str, Any]]:
    """Yield what was drawn for every question."""
    part = 0
    while batch := list(islice(questions, _BATCH)):
        prompts, candidates = [row[0] for row in batch], [row[1] for row in batch]
        seed = None if simulate_seed is None else simulate_seed + part
        picks, chances = policy.draw(prompts, candidates, simulate_seed=seed)
        for (prompt, answers), pick, chance in zip(batch, picks, chances, strict=True):
            yield {"prompt": prompt, "answer": answers[pick], "probability": float(chance[pick])}
        part += 1


@app.command()
def choose(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an earlier align.")],
    prompts: Annotated[Path, typer.Argument(help='Lines of {"prompt": ..., "candidates": [...]}.')],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write; else printed.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Instead of the run's own.")
    ] = None,
    judgments: Annotated[
        Path | None,
        typer.Option(
            "--judgments",
            metavar="PREFS",
            help="With --way intrinsic: the raw judgments, from which the reward is fitted "
            "anew. Every answer spends.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            metavar="DB",
            help="With --way intrinsic: what answers are charged to; RUN/spend.db by default.",
        ),
    ] = None,
    simulate_seed: Annotated[
        int | None, typer.Option("--simulate-seed", min=0, help="A seed, to repeat the draws.")
    ] = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw one answer for every prompt, with its probability unless that is withheld."""
    if out is not None:
        refuse_output(out, force=force)
    if is_prepared(folder):
        run = PreparedRun.read(folder)
        account = run.ledger(ledger or folder / "spend.db")
        policy = run.policy(_given(judgments), temperature)
        with Bar.shown("Choosing") as bar:
            asked = Asked.of(policy, list(_questions(prompts, bar)))
        if dry_run:
            plan = asked.plan(account, simulate_seed)
            finish("sordino choose", chosen_rows(plan, None), plan, as_json=as_json)
            return
        _charge(asked, account, out, simulate_seed, force=force, as_json=as_json)
        return
    refuse_given(
        {"--judgments": judgments, "--ledger": ledger, "--dry-run": dry_run or None},
        "the reward of this run was paid for, and answers drawn from it are free",
    )
    result = read_result(folder)
    reward = RewardModel.load(folder / "reward.json")
    with malformed(RESULT):
        settings = dict(result["policy"])
        remake_policy(reward, settings, temperature=None)  # what the file says, before an option
    free = remake_policy(reward, settings, temperature=temperature)
    with Bar.shown("Choosing") as bar:
        rows = list(_drawn(free, _questions(prompts, bar), simulate_seed))
    simulated = reward.guarantee.simulated
    if _written(rows, out, simulated=simulated, force=force, as_json=as_json):
        return
    value: dict[str, Any] = {"prompts": len(rows), "temperature": free.temperature}
    value |= {"guarantee": reward.guarantee.to_dict(), "choices": rows if out is None else None}
    table = {"prompts": f"{len(rows):,}", "written": out.name if out else "", "spent": "nothing"}
    finish("sordino choose", table, value, as_json=as_json, simulated=simulated)


def _given(judgments: Path | None) -> Path:
    """Return the raw judgments; refuse none.

    Raises:
        UsageError: They were left out.
    """
    if judgments is None:
        raise UsageError(
            "This run withholds its reward and stored none, so --judgments PREFS is needed: the "
            "raw judgments that it was prepared for. Nothing was drawn. Every answer spends."
        )
    return judgments


def _written(
    rows: list[dict[str, Any]], out: Path | None, *, simulated: bool, force: bool, as_json: bool
) -> bool:
    """Write what was drawn, or print it; return whether nothing is left to say."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if out is not None:
        with atomic_writer(out, force=force) as file:
            file.write(lines.encode())
    elif not as_json:
        typer.echo(lines, nl=False)
        if simulated:
            say_simulated()
        return True
    return False


def _charge(
    asked: Asked,
    ledger: Ledger,
    out: Path | None,
    simulate_seed: int | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Draw from a withheld reward after recording the spend; tell no probability."""
    asked.plan(ledger, simulate_seed)
    if out is not None:
        refuse_unwritable(out)
    with spend_is_said(ledger):
        drawn, told = asked.answers(ledger, simulate_seed)
        rows = [
            {"prompt": prompt, "answer": answers[pick]}
            for prompt, answers, pick in zip(asked.prompts, asked.candidates, drawn, strict=True)
        ]
        simulated = told["guarantee"]["randomness"] == "simulated"
        if _written(rows, out, simulated=simulated, force=force, as_json=as_json):
            typer.echo(f"Spent: {chosen_rows(told, None)['spent']}.", err=True)
            return
    value = {**told, "choices": rows if out is None else None}
    finish("sordino choose", chosen_rows(told, out), value, as_json=as_json, simulated=simulated)
