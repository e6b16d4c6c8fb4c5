"""``sordino choose``: draw answers from the policy of an earlier run; it spends nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino._files import atomic_writer, refuse_output
from sordino.auditing.runs.stored import read_result
from sordino.cli import _options as options
from sordino.cli._app import app
from sordino.cli._console import Bar, finish, say_simulated
from sordino.cli._policy import remake_policy
from sordino.errors import DataError
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.files import Progress, read_mappings
from sordino.preferences.records import Text, read_text
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
    simulate_seed: Annotated[
        int | None, typer.Option("--simulate-seed", min=0, help="A seed, to repeat the draws.")
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw one answer for every prompt, with its probability."""
    if out is not None:
        refuse_output(out, force=force)
    result = read_result(folder)
    reward = RewardModel.load(folder / "reward.json")
    policy = remake_policy(reward, result["policy"], temperature=temperature)
    with Bar.shown("Choosing") as bar:
        rows = list(_drawn(policy, _questions(prompts, bar), simulate_seed))
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if out is not None:
        with atomic_writer(out, force=force) as file:
            file.write(lines.encode())
    elif not as_json:
        typer.echo(lines, nl=False)
        if reward.guarantee.simulated:
            say_simulated()
        return
    value: dict[str, Any] = {"prompts": len(rows), "temperature": policy.temperature}
    value |= {"guarantee": reward.guarantee.to_dict(), "choices": rows if out is None else None}
    table = {"prompts": f"{len(rows):,}", "written": out.name if out else "", "spent": "nothing"}
    finish("sordino choose", table, value, as_json=as_json, simulated=reward.guarantee.simulated)
