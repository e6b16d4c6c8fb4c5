"""``sordino choose``: draw answers from the policy of an earlier run.

It spends nothing, unless the run kept its reward to itself: then a curator fits it anew, and every
answer spends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino import _validate
from sordino._files import atomic_writer, read_json, refuse_output, refuse_unwritable
from sordino.auditing.runs.stored import RESULT, malformed, read_result
from sordino.errors import BudgetExceeded, DataError, LedgerMismatch, UsageError
from sordino.policies.gibbs import CandidatePolicy, gibbs_policy
from sordino.policies.withheld import WithheldPolicy
from sordino.preferences.features import HashedText
from sordino.preferences.files import Progress, read_mappings
from sordino.preferences.pairs import Pairs, read_pairs
from sordino.preferences.records import Text, read_text
from sordino.privacy import accounting
from sordino.privacy.guarantee import BoundedRangeEvent, Guarantee, never_less, never_more
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.estimation import fit_reward
from sordino.rewards.model import RewardModel
from sordino.rewards.release_checks import entropy_of

from ._align_draws import INTRINSIC_FORMAT, INTRINSIC_VERSION
from ._align_run import remake_policy
from ._app import Bar, app, finish, say_simulated
from ._run import add_spend_to_errors, describe_draw, paid_since, quiet, warn_if_vacuous
from ._settings import (
    Argument,
    LedgerOption,
    Option,
    Output,
    PrivacyOption,
    command,
    refuse_given,
)
from ._tables import describe_promise

_TITLE = "sordino choose"
_BATCH = 2048
_PROBLEM = "This run cannot be used"
Question = tuple[Text, list[Text]]


@dataclass(frozen=True, kw_only=True)
class Choose(Output):
    """What is asked of which run."""

    folder: Annotated[Path, Argument("Folder of an earlier align.", metavar="RUN")]
    prompts: Annotated[Path, Argument('Lines of {"prompt": ..., "candidates": [...]}.')]
    out: Annotated[Path | None, Option("Where to write; else printed.", metavar="FILE")] = None
    temperature: Annotated[float | None, Option("Instead of the run's own.")] = None
    judgments: Annotated[
        Path | None,
        PrivacyOption(
            "With --noise draws: the raw judgments, from which the reward is fitted anew. Every "
            "answer spends.",
            metavar="PREFS",
        ),
    ] = None
    ledger: Annotated[
        Path | None,
        LedgerOption(
            "With --noise draws: what answers are charged to; RUN/spend.db by default.",
            metavar="DB",
        ),
    ] = None
    simulate_seed: Annotated[int | None, PrivacyOption("A seed, to repeat the draws.", min=0)] = (
        None
    )
    dry_run: Annotated[bool, Option("Print what would be spent; touch nothing.")] = False

    def write(self, rows: list[dict[str, Any]], *, simulated: bool) -> bool:
        """Write what was drawn, or print it; return whether nothing is left to say."""
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        if self.out is not None:
            with atomic_writer(self.out, force=self.force) as file:
                file.write(lines.encode())
        elif not self.as_json:
            typer.echo(lines, nl=False)
            if simulated:
                say_simulated()
            return True
        return False


@command(app, Choose)
def choose(settings: Choose) -> None:
    """Draw one answer for every prompt, with its probability unless that is withheld."""
    if settings.out is not None:
        refuse_output(settings.out, force=settings.force)
    kept: object = None
    with suppress(OSError, ValueError, RecursionError):
        kept = json.loads((settings.folder / RESULT).read_bytes())
    if isinstance(kept, dict) and kept.get("format") == INTRINSIC_FORMAT:
        _draw_withheld(settings, PreparedRun.read(settings.folder))
    else:
        _draw_freely(settings)


def _questions(path: Path, progress: Progress) -> Iterator[Question]:
    for where, row in read_mappings(path, progress):
        options = row.get("candidates")
        if not isinstance(options, list) or not options:
            raise DataError(f"{where}: field 'candidates' must be a list of at least one answer.")
        named = {f"candidates[{index}]": text for index, text in enumerate(options)}
        question = read_text(row, "prompt", where), [read_text(named, at, where) for at in named]
        written = json.dumps(question, ensure_ascii=False)
        if written != written.encode(errors="replace").decode():  # a lone surrogate
            raise DataError(f"{where}: a text is not valid Unicode.")
        yield question


def _draw_freely(settings: Choose) -> None:
    """Draw from a reward that was paid for."""
    refuse_given(
        {
            "--judgments": settings.judgments,
            "--ledger": settings.ledger,
            "--dry-run": settings.dry_run,
        },
        "the reward of this run was paid for, and answers drawn from it are free",
    )
    result = read_result(settings.folder)
    reward = RewardModel.load(settings.folder / "reward.json")
    with malformed(RESULT):
        terms = dict(result["policy"])
        remake_policy(reward, terms, temperature=None)  # what the file says, before an option
    policy = remake_policy(reward, terms, temperature=settings.temperature)
    with Bar.shown("Choosing") as bar:
        rows = list(_drawn(policy, _questions(settings.prompts, bar), settings.simulate_seed))
    simulated, out = reward.guarantee.simulated, settings.out
    if settings.write(rows, simulated=simulated):
        return
    value = {
        "prompts": len(rows),
        "temperature": policy.temperature,
        "guarantee": reward.guarantee.to_dict(),
        "choices": rows if out is None else None,
    }
    table = {"prompts": f"{len(rows):,}", "written": out.name if out else "", "spent": "nothing"}
    finish(_TITLE, table, value, as_json=settings.as_json, simulated=simulated)


def _drawn(
    policy: CandidatePolicy, questions: Iterator[Question], simulate_seed: int | None
) -> Iterator[dict[str, Any]]:
    part = 0
    while batch := list(islice(questions, _BATCH)):
        prompts, candidates = [row[0] for row in batch], [row[1] for row in batch]
        seed = None if simulate_seed is None else simulate_seed + part
        picks, chances = policy.draw(prompts, candidates, simulate_seed=seed)
        for (prompt, answers), pick, chance in zip(batch, picks, chances, strict=True):
            yield {"prompt": prompt, "answer": answers[pick], "probability": float(chance[pick])}
        part += 1


# A run with noise on draws: the curator refits the reward and withholds it.


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """What ``sordino align --noise draws`` wrote: how to make draws, and no weights."""

    # What all planned draws promise at most; its unit and relation are the ledger's.
    promise: Guarantee
    temperature: float  # KL strength, in units of reward
    fit: dict[str, Any]  # public settings of the fit
    reading: dict[str, Any]  # how judgments are read
    data: str  # name of the data set on the ledger
    public_digest: str | None  # of the questions, where they are public

    @classmethod
    def read(cls, folder: Path) -> PreparedRun:
        """Return the run in a folder; refuse a file that is malformed, or of a newer version."""
        values = read_json(
            folder / RESULT, kind=INTRINSIC_FORMAT, version=INTRINSIC_VERSION, problem=_PROBLEM
        )
        try:
            return cls(
                promise=Guarantee.from_dict(values["guarantee"], values["caveats"]),
                temperature=_validate.positive("temperature", values["temperature"]),
                fit={
                    "features": HashedText(dimension=values["dimension"]),
                    **{name: values[name] for name in ("ridge", "ball", "bound")},
                },
                reading={
                    name: values["reading"][name] for name in ("drop_identical", "person_field")
                },
                data=values["data"],
                public_digest=values["public_digest"],
            )
        except (AttributeError, KeyError, TypeError, UsageError):
            pass
        raise DataError(f"{_PROBLEM}: {RESULT} has a field that is missing or malformed.")

    def policy(self, judgments: Path, temperature: float | None) -> WithheldPolicy:
        """Return the policy of a reward that is fitted here and now; nothing is spent."""
        with Bar.shown("Reading") as bar:
            hidden = self.promise.unit == "record"
            pairs = read_pairs(judgments, **self.reading, hides_records=hidden, progress=bar)
        digest = pairs.public_digest if isinstance(pairs, Pairs) else None
        if isinstance(pairs, Pairs) and self.public_digest not in (None, digest):
            raise LedgerMismatch(
                "--judgments are not those that this run was prepared for: prompts or answers "
                "differ. Nothing was drawn. Give the same file, or prepare another run."
            )
        whose: dict[str, Any] = {"unit": self.promise.unit, "neighbors": self.promise.neighbors}
        kept: Any = pairs  # of what kind it is, is checked there
        reward = fit_reward(kept, withhold=True, **whose, **self.fit)
        heat = self.temperature if temperature is None else temperature
        return gibbs_policy(reward, temperature=heat)


def _draw_withheld(settings: Choose, run: PreparedRun) -> None:
    """Draw from a withheld reward after recording the spend; tell no probability."""
    path = settings.ledger or settings.folder / "spend.db"
    seed, out = settings.simulate_seed, settings.out
    Ledger.read(path).check_data(run.data, None)  # before anything is fitted
    if settings.judgments is None:
        raise UsageError(
            "This run withholds its reward and stored none, so --judgments PREFS is needed: the "
            "raw judgments that it was prepared for. Nothing was drawn. Every answer spends."
        )
    policy = run.policy(settings.judgments, settings.temperature)
    ledger = Ledger.open(path, data=run.data, unit=policy.estimate.unit)
    with Bar.shown("Choosing") as bar:
        questions = list(_questions(settings.prompts, bar))
    prompts, candidates = [row[0] for row in questions], [row[1] for row in questions]
    with quiet():
        widest = max(policy.bounded_range(*row) for row in questions)
    warn_if_vacuous(widest, "Use a higher --temperature, or prepare a run with a larger ridge.")
    held, delta, one = policy.estimate, ledger.budget.delta, BoundedRangeEvent(widest)
    promise = Guarantee(
        accounting.composed_epsilon([(one, len(prompts))], neighbors=held.neighbors, delta=delta),
        delta=delta,
        unit=held.unit,
        neighbors=held.neighbors,
        trust="central",
        randomness=entropy_of(settings.simulate_seed).randomness,
        caveats=held.caveats,
    )
    ledger.check_data(None, held.public_digest)
    try:
        ledger.check(one, promise=promise, count=len(prompts))
    except BudgetExceeded as error:
        raise BudgetExceeded(
            f"{error} Or ask for fewer answers, or at a higher --temperature."
        ) from None

    def told(promise: Guarantee, remaining: float | None) -> dict[str, Any]:
        return {
            "prompts": len(prompts),
            "temperature": policy.temperature,
            **describe_guarantee_and_caveats(promise),
            "per_draw": describe_draw(widest),
            "remaining_epsilon": remaining,
        }

    if settings.dry_run:
        plan = {"spend": promise.epsilon, **told(promise, None)}
        finish(_TITLE, _withheld_rows(plan, None), plan, as_json=settings.as_json)
        return
    if out is not None:
        refuse_unwritable(out)
    with add_spend_to_errors(ledger):
        before = len(ledger.rows)
        with quiet():
            drawn = policy.draw_each(prompts, candidates, ledger=ledger, simulate_seed=seed)
        rows = [
            {"prompt": prompt, "answer": answers[pick]}
            for prompt, answers, pick in zip(prompts, candidates, drawn, strict=True)
        ]
        value = told(paid_since(ledger, before, delta), ledger.remaining_epsilon())
        simulated = value["guarantee"]["randomness"] == "simulated"
        if settings.write(rows, simulated=simulated):
            typer.echo(f"Spent: {_withheld_rows(value, None)['spent']}.", err=True)
            return
    value["choices"] = rows if out is None else None
    finish(_TITLE, _withheld_rows(value, out), value, as_json=settings.as_json, simulated=simulated)


def _withheld_rows(told: Mapping[str, Any], out: Path | None) -> dict[str, str]:
    """Return the closing summary of answers that were drawn from a withheld reward, or would be."""
    planned = "spend" in told
    rows = {
        "prompts": f"{told['prompts']:,}",
        "would spend" if planned else "spent": describe_promise(told["guarantee"]),
        "caveats": ", ".join(told["caveats"]) or "none",
        "each answer": f"epsilon={never_less(told['per_draw']['epsilon'])} at most",
    }
    if planned:
        return rows | {"touched": "nothing (dry run)"}
    written = {} if out is None else {"written": out.name}
    return rows | {"remaining epsilon": f"{never_more(told['remaining_epsilon'])}"} | written
