"""``sordino choose``: draw answers from the policy of an earlier run.

It spends nothing, unless the run kept its reward to itself: then a curator fits it anew, and every
answer spends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
from sordino.privacy.guarantee import BoundedRangeEvent, Guarantee
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
from ._tables import chosen_rows

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
    """Yield (prompt, candidates) of every line."""
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
    """Yield what was drawn for every question."""
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
        """Return the run in a folder.

        Raises:
            DataError: Its file is malformed, or was written by a newer version.
        """
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
        """Return the policy of a reward that is fitted here and now; nothing is spent.

        Raises:
            DataError: The judgments cannot be used.
            LedgerMismatch: They are about other prompts and answers.
            ConvergenceError: The fit could not be certified.
        """
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


@dataclass(frozen=True, kw_only=True)
class WithheldQuery:
    """What is asked of a withheld policy, and what one answer costs at most."""

    policy: WithheldPolicy  # what is drawn from
    prompts: Sequence[Text]  # one for each answer
    candidates: Sequence[Sequence[Text]]  # the answers to choose from
    bounded_range: float  # the largest of one draw

    @classmethod
    def of(cls, policy: WithheldPolicy, questions: Sequence[Question]) -> WithheldQuery:
        """Return questions with what they cost; warn where that protects nobody."""
        prompts, candidates = [row[0] for row in questions], [row[1] for row in questions]
        with quiet():
            widest = max(policy.bounded_range(*row) for row in questions)
        warn_if_vacuous(widest, "Use a higher --temperature, or prepare a run with a larger ridge.")
        return cls(policy=policy, prompts=prompts, candidates=candidates, bounded_range=widest)

    def plan(self, ledger: Ledger, simulate_seed: int | None) -> dict[str, Any]:
        """Return what the answers would spend; nothing is touched.

        Raises:
            BudgetExceeded: The ledger has not enough left for all.
            LedgerMismatch: It belongs to other prompts and answers.
        """
        held, delta, count = self.policy.estimate, ledger.budget.delta, len(self.prompts)
        one = BoundedRangeEvent(self.bounded_range)
        spend = accounting.composed_epsilon([(one, count)], neighbors=held.neighbors, delta=delta)
        promise = Guarantee(
            spend,
            delta=delta,
            unit=held.unit,
            neighbors=held.neighbors,
            trust="central",
            randomness=entropy_of(simulate_seed).randomness,
            caveats=held.caveats,
        )
        ledger.check_data(None, held.public_digest)
        try:
            ledger.check(one, promise=promise, count=count)
        except BudgetExceeded as error:
            raise BudgetExceeded(
                f"{error} Or ask for fewer answers, or at a higher --temperature."
            ) from None
        return {"spend": spend, **self._told(promise), "remaining_epsilon": None}

    def _told(self, promise: Guarantee) -> dict[str, Any]:
        """Return what is public of the answers and of what they cost."""
        return {
            "prompts": len(self.prompts),
            "temperature": self.policy.temperature,
            **describe_guarantee_and_caveats(promise),
            "per_draw": describe_draw(self.bounded_range),
        }

    def answers(
        self, ledger: Ledger, simulate_seed: int | None
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return what was drawn, without its probability, and what that spent, which comes first.

        Raises:
            BudgetExceeded: The ledger has not enough left for all; nothing was drawn.
        """
        before = len(ledger.rows)
        with quiet():
            drawn = self.policy.draw_each(
                self.prompts, self.candidates, ledger=ledger, simulate_seed=simulate_seed
            )
        rows = [
            {"prompt": prompt, "answer": answers[pick]}
            for prompt, answers, pick in zip(self.prompts, self.candidates, drawn, strict=True)
        ]
        told = self._told(paid_since(ledger, before, ledger.budget.delta))
        return rows, told | {"remaining_epsilon": ledger.remaining_epsilon()}


def _draw_withheld(settings: Choose, run: PreparedRun) -> None:
    """Draw from a withheld reward after recording the spend; tell no probability."""
    path, seed = settings.ledger or settings.folder / "spend.db", settings.simulate_seed
    Ledger.read(path)  # it must be there
    ledger = Ledger.open(path, data=run.data)
    if settings.judgments is None:
        raise UsageError(
            "This run withholds its reward and stored none, so --judgments PREFS is needed: the "
            "raw judgments that it was prepared for. Nothing was drawn. Every answer spends."
        )
    policy = run.policy(settings.judgments, settings.temperature)
    with Bar.shown("Choosing") as bar:
        query = WithheldQuery.of(policy, list(_questions(settings.prompts, bar)))
    plan = query.plan(ledger, seed)
    if settings.dry_run:
        finish(_TITLE, chosen_rows(plan, None), plan, as_json=settings.as_json)
        return
    out = settings.out
    if out is not None:
        refuse_unwritable(out)
    with add_spend_to_errors(ledger):
        rows, told = query.answers(ledger, seed)
        simulated = told["guarantee"]["randomness"] == "simulated"
        if settings.write(rows, simulated=simulated):
            typer.echo(f"Spent: {chosen_rows(told, None)['spent']}.", err=True)
            return
    value = {**told, "choices": rows if out is None else None}
    finish(_TITLE, chosen_rows(told, out), value, as_json=settings.as_json, simulated=simulated)
