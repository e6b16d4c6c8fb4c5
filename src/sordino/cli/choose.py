"""``sordino choose``: draw answers from the policy of an earlier run.

It spends nothing, unless the run kept its reward to itself: then a curator fits it anew, and every
answer spends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from sordino import _random, _validate
from sordino._files import atomic_writer, read_json, refuse_output, refuse_unwritable
from sordino.auditing.runs.replay import RESULT, malformed, read_result
from sordino.errors import BudgetExceeded, DataError, LedgerMismatch, PrivacyError, UsageError
from sordino.policies.gibbs import CandidatePolicy, ConfidencePolicy, WithheldPolicy, gibbs_policy
from sordino.preferences.containers import Progress
from sordino.preferences.features import HashedText, Intercept
from sordino.preferences.files import read_rows
from sordino.preferences.pairs import Pairs, read_pairs
from sordino.preferences.records import JUDGING_FIELDS, Text, read_text
from sordino.privacy import accounting
from sordino.privacy.guarantee import BoundedRangeEvent, Guarantee, never_less, never_more
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import ledger_of_run
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.finite import FiniteRewards
from sordino.rewards.model import RewardModel
from sordino.rewards.release_checks import weighed
from sordino.rewards.withheld import WithheldReward
from sordino.runs.align_draws import INTRINSIC_FORMAT, INTRINSIC_VERSION
from sordino.runs.align_run import remake_policy
from sordino.runs.align_settings import ClassFile
from sordino.runs.progress import Bar
from sordino.runs.run import Limit, Run, describe_draw, paid_here, quiet
from sordino.runs.settings import (
    Argument,
    Budget,
    Option,
    PrivacyOption,
    RunLedger,
    Spending,
    refuse_options,
)
from sordino.runs.tables import promise_rows

from . import app, command, finish, say_simulated, tell

_TITLE = "sordino choose"
_BATCH = 2048
_Question = tuple[Text, list[Text]]  # a prompt, and answers to it
_PROBLEM = "This run cannot be used"


@dataclass(frozen=True, kw_only=True)
class Choose(Spending):
    """What is asked of which run."""

    title = _TITLE

    folder: Path = Argument("Folder of an earlier align or online.", metavar="RUN")
    prompts: Path = Argument('Lines of {"prompt": ..., "candidates": [...]}.', metavar="PROMPTS")
    out: Path | None = Option("Where to write; else printed.", metavar="FILE")
    temperature: float | None = Option("Instead of the run's own.")
    judgments: Path | None = PrivacyOption(
        "With --noise draws: the raw judgments, from which the reward is fitted anew. Every "
        "answer spends.",
        metavar="PREFS",
    )
    candidates: ClassFile = None
    ledger: RunLedger = None
    simulate_seed: int | None = PrivacyOption("A seed, to repeat the draws.", min=0)

    @property
    def ledger_path(self) -> Path:
        """Return what answers are charged to."""
        return self.ledger or ledger_of_run(self.folder)

    @property
    def asked(self) -> tuple[Path | None, ...]:
        """Return the public files that say what is drawn."""
        return self.prompts, self.folder / RESULT

    def questions(self) -> list[_Question]:
        """Return what is chosen from."""
        with Bar.shown("Choosing") as bar:
            return list(read_questions(self.prompts, bar))

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
    kept: object = None
    with suppress(OSError, ValueError, RecursionError):
        kept = json.loads((settings.folder / RESULT).read_bytes())
    if isinstance(kept, dict) and kept.get("format") == INTRINSIC_FORMAT:
        outcome = _WithheldDraws.of(settings).outcome()
        if settings.dry_run:
            tell(settings, *outcome)
        return
    why = "the reward of this run was paid for, and answers drawn from it are free"
    refuse_options(settings, why, "judgments", "ledger", "dry_run", "resume", "accept_weak")
    if settings.out is not None:
        refuse_output(settings.out, force=settings.force)
    result = read_result(settings.folder)
    known = None if settings.candidates is None else FiniteRewards.read(settings.candidates)
    if "trained" in result:
        raise DataError(f"{_PROBLEM}: it holds a policy over actions, and no reward of answers.")
    reward = RewardModel.load(settings.folder / "reward.json", features=known)
    with malformed(RESULT):
        terms = dict(result["policy"])
        remake_policy(reward, terms, temperature=None)  # what the file says, before an option
    free = remake_policy(reward, terms, temperature=settings.temperature)
    questions = settings.questions()
    rows = list(_drawn(free, iter(questions), settings.simulate_seed))
    effect = None
    if questions and isinstance(free, ConfidencePolicy):
        effect = free.effect(*_columns(questions))
    simulated, out = reward.guarantee.simulated, settings.out
    if settings.write(rows, simulated=simulated):
        if effect is not None:
            typer.echo(effect, err=True)
        return
    value = {
        "prompts": len(rows),
        "temperature": free.temperature,
        "guarantee": reward.guarantee.to_dict(),
        "pessimism": effect and effect.to_dict(),
        "choices": rows if out is None else None,
    }
    table = {"prompts": f"{len(rows):,}", "written": out.name if out else "", "spent": "nothing"}
    table |= {} if effect is None else {"pessimism": str(effect)}
    finish(_TITLE, table, value, as_json=settings.as_json, simulated=simulated)


_JUDGMENTS = {*JUDGING_FIELDS, "winner"} - {"prompt", "first", "second", "candidates"}


def read_questions(
    path: Path, progress: Progress, *, judged: bool = True
) -> Iterator[tuple[Text, list[Text]]]:
    """Yield prompts with their candidates; without ``judged``, refuse whoever judged them."""
    for where, row in read_rows(path, progress=progress):
        if not judged and (said := sorted(_JUDGMENTS & row.keys())):
            raise PrivacyError(
                f"{where}: field {said[0]!r} says what somebody preferred, so this is a file of "
                "judgments. Nothing was written. Give public prompts and candidates alone."
            )
        named = {f"candidates[{at}]": text for at, text in enumerate(_candidates(row, where))}
        question = read_text(row, "prompt", where), [read_text(named, at, where) for at in named]
        written = json.dumps(question, ensure_ascii=False)
        if written != written.encode(errors="replace").decode():  # a lone surrogate
            raise DataError(f"{where}: a text is not valid Unicode.")
        yield question


def _candidates(row: object, where: str) -> list[Any]:
    options = row.get("candidates") if isinstance(row, Mapping) else None
    if not isinstance(options, list) or not options:
        raise DataError(f"{where}: field 'candidates' must be a list of at least one answer.")
    return options


def _columns(questions: Sequence[_Question]) -> tuple[list[Text], list[list[Text]]]:
    """Return prompts and candidates."""
    return [row[0] for row in questions], [row[1] for row in questions]


def _chosen(question: _Question, pick: int) -> dict[str, Any]:
    """Return the answer that was drawn."""
    prompt, answers = question
    return {"prompt": prompt, "answer": answers[pick]}


def _drawn(
    policy: CandidatePolicy, questions: Iterator[_Question], simulate_seed: int | None
) -> Iterator[dict[str, Any]]:
    part = 0
    while batch := list(islice(questions, _BATCH)):
        prompts, candidates = _columns(batch)
        seed = None if simulate_seed is None else simulate_seed + part
        picks, chances = policy.draw(prompts, candidates, simulate_seed=seed)
        for question, pick, chance in zip(batch, picks, chances, strict=True):
            yield _chosen(question, pick) | {"probability": float(chance[pick])}
        part += 1


# A run with noise on draws: the curator refits the reward and withholds it.


@dataclass(frozen=True, kw_only=True)
class _WithheldDraws(Run):
    """Draws that spend, from a reward that is fitted here and now and goes nowhere."""

    settings: Choose
    # What all planned draws promise at most; its unit and relation are the ledger's.
    promise: Guarantee
    named: str  # the data set on the ledger
    policy: WithheldPolicy
    questions: list[_Question]

    @classmethod
    def of(cls, settings: Choose) -> _WithheldDraws:
        """Return draws as ``sordino align --noise draws`` prepared them; nothing is spent."""
        values = read_json(
            settings.folder / RESULT,
            kind=INTRINSIC_FORMAT,
            version=INTRINSIC_VERSION,
            problem=_PROBLEM,
        )
        with malformed(RESULT):
            features: Any = HashedText(dimension=values["dimension"])
            read, families = values["reading"], values["reading"]["families"]
            if families is not None:
                features = Intercept(features, families=families)
            fit: dict[str, Any] = {name: values[name] for name in ("ridge", "ball", "bound")}
            names = ("columns", "drop", "longest", "person_field", "levels", "ratings")
            reading = {name: read[name] for name in names}
            promise = Guarantee.from_dict(values["guarantee"], values["caveats"])
            temperature = _validate.positive("temperature", values["temperature"])
            # of the questions, where they are public
            named, public_digest = values["data"], values["public_digest"]
        if settings.out is not None:
            refuse_output(settings.out, force=settings.force, spends=True)
        Ledger.read(settings.ledger_path, data=named)  # before anything is fitted
        if settings.judgments is None:
            raise UsageError(
                "This run withholds its reward and stored none, so --judgments PREFS is needed: "
                "the raw judgments that it was prepared for. Nothing was drawn. Every answer "
                "spends."
            )
        reading |= {"hides_records": promise.unit == "record"}
        with Bar.shown("Reading") as bar:
            pairs: Any = read_pairs(settings.judgments, **reading, progress=bar)
        if isinstance(pairs, Pairs) and public_digest not in (None, pairs.public_digest):
            raise LedgerMismatch(
                "--judgments are not those that this run was prepared for: prompts or answers "
                "differ. Nothing was drawn. Give the same file, or prepare another run."
            )
        # of what kind they are, is checked there
        fit |= {"unit": promise.unit, "neighbors": promise.neighbors, "features": features}
        reward = WithheldReward(pairs, **fit)
        heat = temperature if settings.temperature is None else settings.temperature
        policy = gibbs_policy(reward, temperature=heat)
        questions = settings.questions()
        return cls(
            settings=settings, promise=promise, named=named, policy=policy, questions=questions
        )

    @property
    def data(self) -> str | None:
        return self.named or None

    @property
    def limit(self) -> Limit:
        # of the ledger, which is there and says what these draws cost
        return Limit(run=self.promise, budget=Budget(), arrived=True)

    @cached_property
    def widest(self) -> float:
        """Return what one draw costs at most."""
        with quiet():
            return max(self.policy.bounded_range(*question) for question in self.questions)

    def account(self, *, planning: bool) -> Ledger:
        ledger = super().account(planning=planning)
        ledger.accepted = self.settings.accepted([self._epsilon(ledger)])
        return ledger

    def _epsilon(self, ledger: Ledger) -> float:
        events = [(BoundedRangeEvent(self.widest), len(self.questions))]
        relation = self.policy.estimate.neighbors
        return accounting.composed_epsilon(events, neighbors=relation, delta=ledger.budget.delta)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        held, one, count = self.policy.estimate, BoundedRangeEvent(self.widest), len(self.questions)
        promise = replace(
            self.promise,
            epsilon=self._epsilon(ledger),
            delta=ledger.budget.delta,
            randomness=_random.entropy(self.settings.simulate_seed).randomness,
            caveats=held.caveats,
        )
        promise = weighed(promise, None, ledger.accepted)
        try:
            ledger.check(
                one, promise=promise, count=count, questions=held.questions, people=held.people
            )
        except BudgetExceeded as error:
            way = "Or ask for fewer answers, or at a higher --temperature."
            raise BudgetExceeded(f"{error} {way}") from None
        return {"spend": promise.epsilon, **self._told(promise, None)}

    def _told(self, promise: Guarantee, remaining: float | None) -> dict[str, Any]:
        return {
            "prompts": len(self.questions),
            "temperature": self.policy.temperature,
            **describe_guarantee_and_caveats(promise),
            "per_draw": describe_draw(self.widest),
            "remaining_epsilon": remaining,
        }

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.settings.out is not None:
            refuse_unwritable(self.settings.out)
        yield

    def spend(self, ledger: Ledger) -> dict[str, Any]:
        """Draw, and write or print: what was paid for is forgotten only when it was shown."""
        settings = self.settings
        prompts, candidates = _columns(self.questions)
        with quiet():
            drawn = self.policy.draw_each(
                prompts, candidates, ledger=ledger, simulate_seed=settings.simulate_seed
            )
        choices = [_chosen(*each) for each in zip(self.questions, drawn, strict=True)]
        told = self._told(paid_here(ledger, ledger.budget.delta), ledger.remaining_epsilon())
        rows = self.rows(told, ledger)
        simulated = told["guarantee"]["randomness"] == "simulated"
        if settings.write(choices, simulated=simulated):
            typer.echo(f"Spent: {rows['spent']}.", err=True)
        else:
            tell(self.settings, rows, told | {"choices": choices if settings.out is None else None})
        sys.stdout.flush()
        return told

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        return {
            "prompts": f"{plan['prompts']:,}",
            "would spend": promise_rows(plan)["guarantee"],
            **self._terms(plan),
        }

    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        del ledger
        out = self.settings.out
        return {
            "prompts": f"{told['prompts']:,}",
            "spent": promise_rows(told)["guarantee"],
            **self._terms(told),
            "remaining epsilon": f"{never_more(told['remaining_epsilon'])}",
            **({} if out is None else {"written": out.name}),
        }

    def _terms(self, told: Mapping[str, Any]) -> dict[str, str]:
        return {
            "caveats": ", ".join(told["caveats"]) or "none",
            "each answer": f"epsilon={never_less(told['per_draw']['epsilon'])} at most",
        }
