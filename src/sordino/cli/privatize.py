"""``sordino privatize``: raw judgments to a file, or many, that anybody may read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sordino._files import refuse_unwritable
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunks, find_chunks
from sordino.preferences.files import rating_of
from sordino.preferences.pairs import Manifest, manifest_path
from sordino.privacy.guarantee import Trust
from sordino.privacy.ledger import Ledger
from sordino.privatization.chunks import plan_chunks, privatize_chunks
from sordino.privatization.publication import ChunkOutputs, digest_of_request
from sordino.privatization.randomization import Randomization
from sordino.reporting.result import describe_guarantee_and_caveats, judge
from sordino.runs.run import Limit, Run, future_ledger, spending_limit
from sordino.runs.settings import (
    Argument,
    Cap,
    LabelUnit,
    ManyFiles,
    Option,
    Paying,
    PrivacyOption,
    Rated,
    Unit,
    choose_coin,
    refuse_records,
)
from sordino.runs.tables import dropped_row, ledger_rows, promise_rows, unit_rows

from . import app, command, tell

_PASSES = 2  # one to see what is public, one to answer
_BY_PERSON = 2  # more, where it is known who answered: to plan, and to answer


@dataclass(frozen=True, kw_only=True)
class Privatize(Paying, Rated, ManyFiles):
    """What the user chose for a randomization."""

    title = "sordino privatize"

    sources: list[Path] = Argument(
        "Raw judgments (.jsonl, .csv or .tsv, also .gz). Or many files: .parquet, .jsonl, or "
        "folders of them.",
        metavar="DATA...",
    )
    out: Path = Option(
        "Privatized file to write; for many files the folder of theirs.",
        required=True,
        metavar="OUT",
    )
    epsilon: float = PrivacyOption("Privacy loss allowed, per --unit.", required=True)
    unit: LabelUnit = Unit.label
    cap: Cap = None
    on_device: bool = PrivacyOption(
        "These are my own labels and this is my own device: nobody else sees them raw.", False
    )

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger: what this run spends."""
        trust: Trust = "local" if self.on_device else "central"
        return spending_limit(self.epsilon, self.limits, unit=self.unit.counted, trust=trust)

    def coin(self, most: Callable[[], int]) -> RandomizedResponse:
        """Return the coin for one label, where somebody gave ``most`` at most."""
        return choose_coin(self.epsilon, unit=self.unit, cap=self.cap, most=most)


@dataclass(frozen=True, kw_only=True)
class _Privatization(Run):
    """A run whose labels are each randomized once, wherever they are."""

    settings: Privatize
    mechanism: RandomizedResponse  # for one label
    chunks: Chunks
    outputs: ChunkOutputs  # a file for each
    survey: ChunkSurvey  # all that is public of the files

    @property
    def limit(self) -> Limit:
        return self.settings.limit

    @cached_property
    def randomization(self) -> Randomization:
        """Return what will be done to every label, on the ledger as it would be."""
        return Randomization(self.mechanism, self.account(planning=True), **self.terms)

    @property
    def terms(self) -> dict[str, Any]:
        """Return how many labels of a person count, who sees them, and the seed of a study."""
        settings = self.settings
        terms = {"cap": settings.cap, "simulate_seed": settings.simulate_seed}
        return terms | {"on_device": settings.on_device}

    @property
    def read_by(self) -> dict[str, Any]:
        """Return where the files are read, and what is known of them."""
        known = self.survey
        where = {"engine": known.engine, "scratch": self.settings.scratch, "taken": known.taken}
        return where | {"surveyed": known}

    @cached_property
    def finished(self) -> tuple[Manifest, ...]:
        """Return the manifests of an interrupted run that has only to show its files."""
        request = digest_of_request(self.chunks, self.randomization)
        return self.outputs.finished(request, self.randomization.ledger)

    @cached_property
    def expected(self) -> dict[str, Any]:
        """Return what is spent, known from what is public."""
        settings, survey, plan = self.settings, self.survey, None
        # of a person, on the other hand, all may be used up
        if not settings.dry_run and self.finished and not survey.linked:
            unit, n = {"unit": "label"}, survey.n  # which was paid for before
            plan = {"spend": 0.0, "guarantee": unit, "pairs": n, "dropped": survey.dropped}
        plan = plan or plan_chunks(self.chunks, self.randomization, **self.read_by)
        if self.outputs.is_one_file:
            return plan
        passes = _PASSES + (_BY_PERSON if "persons" in plan else 0)
        return plan | {"files": settings.describe_files(self.chunks, passes=passes)}

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        del ledger  # that of the randomization
        settings = self.settings
        rating = rating_of(settings.sources[0], settings.reading["columns"])
        return self.expected | ({"rating": rating} if rating else {})

    def spend(self, ledger: Ledger) -> dict[str, Any]:
        """Randomize and write; of many files each has its own digest."""
        outputs = self.outputs
        terms = self.terms | self.read_by | {"force": outputs.force}
        manifests = self.finished or privatize_chunks(
            self.chunks,
            self.settings.out,
            self.mechanism,
            ledger=ledger,
            one_file=outputs.is_one_file,
            **terms,
        )
        told = self.told(manifests[0], ledger)
        if not outputs.is_one_file:
            told["files"] = len(manifests)
            del told["sha256"]
        return told

    def told(self, said: Manifest, ledger: Ledger) -> dict[str, Any]:
        """Return what was done, which is what all manifests say."""
        plan, head = self.expected, ledger.head
        coin = {"name": "randomized-response", "epsilon_per_label": self.mechanism.realized_epsilon}
        # on a device there is the share of one person, to which that of everybody else is added
        there = None if self.settings.on_device else plan["pairs"] - plan.get("capped_questions", 0)
        known = describe_guarantee_and_caveats(said.guarantee) | {"mechanism": coin}
        return {
            "verdict": judge(known | {"data": {"pairs": there, "persons": plan.get("persons")}}),
            **said.to_dict(),
            "spend": plan["spend"],
            "dropped": plan["dropped"],
            "epsilon_per_label": self.mechanism.realized_epsilon,
            **{name: plan[name] for name in ("persons", "capped_questions") if name in plan},
            "ledger": {"head": head.digest, "rows": head.rows},
        }

    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        out, plan = self.settings.out, self.expected
        return {
            "written": f"{told['files']:,} files and their manifests in {out.name}"
            if "files" in told
            else f"{out.name} and {manifest_path(out).name}",
            **promise_rows({"guarantee": told | {"delta": 0.0}, "caveats": told["caveats"]}),
            **unit_rows(plan),
            **dropped_row(plan["dropped"]),
            **ledger_rows(*ledger.head),
        }

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.outputs.is_one_file:
            refuse_unwritable(self.settings.out)
        yield


@command(app, Privatize)
def privatize(settings: Privatize) -> None:
    """Randomize every label once, and write answers with a manifest that says how."""
    one_file = not settings.reads_chunks(settings.sources, most=math.inf)
    if settings.on_device and not one_file:
        raise UsageError("--on-device is for one file of one's own labels. Nothing was done.")
    refuse_records(settings.unit)
    out, reading = settings.out, settings.reading if one_file else settings.reading_in_chunks
    if one_file:
        if out.name in {"", ".."}:
            raise UsageError(f"--out {out} is a folder. Nothing was done. Give the name of a file.")
        for path in (out, manifest_path(out)):
            if path.absolute() in (settings.sources[0].absolute(), settings.ledger_path.absolute()):
                raise UsageError("DATA, --out, its manifest and --ledger must be different files.")
    _ = settings.coin(lambda: 1)  # refuses before reading
    chunks = find_chunks(settings.sources, **reading)
    outputs = ChunkOutputs.of(chunks, out, force=settings.force, one_file=one_file)  # so does this
    # A ledger that cannot pay for this is refused before anything is read.
    future_ledger(settings.ledger_path, settings.data, settings.limit, request=settings.request)
    with settings.surveyed(chunks) as survey:
        outcome = _Privatization(
            settings=settings,
            mechanism=settings.coin(lambda: survey.largest),
            chunks=chunks,
            outputs=outputs,
            survey=survey,
        ).outcome()
    tell(settings, *outcome)
