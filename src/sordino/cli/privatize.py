"""``sordino privatize``: raw judgments to a file, or many, that anybody may read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from sordino._files import refuse_output, refuse_unwritable
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.pairs import Manifest, manifest_path
from sordino.privacy.guarantee import never_less
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import is_begun
from sordino.privatization.answers import (
    FileRows,
    FileSettings,
    count_labels,
    default_ledger_path,
    plan_answers,
    privatize_file,
    refuse_table,
)
from sordino.privatization.chunks import plan_chunks, privatize_chunks
from sordino.privatization.publication import ChunkOutputs, digest_of_request
from sordino.privatization.randomization import Randomization

from ._app import Bar, app, finish
from ._run import Limit, future_ledger, open_ledger, spending_limit
from ._settings import (
    Argument,
    Cap,
    LabelUnit,
    ManyFiles,
    Option,
    Passes,
    Paying,
    PrivacyOption,
    Reading,
    Unit,
    choose_coin,
    command,
    refuse_records,
)
from ._tables import dropped_row, plan_rows, unit_rows

_TITLE = "sordino privatize"
_PASSES = 2  # one to see what is public, one to answer
_BY_PERSON = 2  # more, where it is known who answered: to plan, and to answer


@dataclass(frozen=True, kw_only=True)
class Privatize(Paying, Reading, ManyFiles):
    """What the user chose for a randomization."""

    sources: Annotated[
        list[Path],
        Argument(
            "Raw judgments (.jsonl, .csv or .tsv, also .gz). Or many files: .parquet, .jsonl, or "
            "folders of them.",
            metavar="DATA...",
        ),
    ]
    out: Annotated[
        Path,
        Option("Privatized file to write; for many files the folder of theirs.", metavar="OUT"),
    ]
    epsilon: Annotated[float, PrivacyOption("Privacy loss allowed, per --unit.")]
    unit: LabelUnit = Unit.label
    cap: Cap = None
    on_device: Annotated[
        bool,
        PrivacyOption(
            "These are my own labels and this is my own device: nobody else sees them raw."
        ),
    ] = False

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or default_ledger_path(self.out)

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger."""
        return spending_limit(
            self.epsilon,
            self.limits,
            unit=self.unit.counted,
            trust="local" if self.on_device else "central",
        )

    def randomization(self, coin: RandomizedResponse) -> Randomization:
        """Return what will be done to every label, on the ledger as it would be."""
        return Randomization.of(
            coin,
            future_ledger(self.ledger_path, self.data, self.limit, request=self.request),
            on_device=self.on_device,
            simulate_seed=self.simulate_seed,
            cap=self.cap,
        )

    def tell_plan(self, spend: dict[str, Any]) -> None:
        """Say what would be spent."""
        simulated = self.simulate_seed is not None
        finish(_TITLE, plan_rows(spend), spend, as_json=self.as_json, simulated=simulated)


@command(app, Privatize)
def privatize(settings: Privatize) -> None:
    """Randomize every label once, and write answers with a manifest that says how."""
    if settings.reads_chunks(settings.sources):
        _privatize_files(settings)
    else:
        _privatize_file(settings)


def _privatize_file(settings: Privatize) -> None:
    """Randomize one file as it streams by."""
    (source,), out = settings.sources, settings.out
    if out.name in {"", ".."}:
        raise UsageError(f"--out {out} is a folder. Nothing was done. Give the name of a file.")
    refuse_records(settings.unit)
    # A killed run may have left a manifest whose file has not appeared.
    left = not os.path.lexists(out) and is_begun(settings.ledger_path, settings.request)
    force = settings.force or left
    refuse_table(out)
    for path in (out, manifest_path(out)):
        if path.absolute() in (source.absolute(), settings.ledger_path.absolute()):
            raise UsageError("DATA, --out, its manifest and --ledger must be different files.")
        refuse_output(path, force=force)
    reading = FileSettings(
        drop_identical=settings.drop_identical, person_field=settings.person_field
    )
    coin = choose_coin(
        settings.epsilon,
        unit=settings.unit,
        cap=settings.cap,
        most=lambda: count_labels(FileRows(source, reading)),
    )
    randomization = settings.randomization(coin)
    with Bar.shown("Reading") as bar:
        spend, surveyed = plan_answers(
            FileRows(source, reading, bar), randomization, data=settings.data
        )
    if settings.dry_run:
        settings.tell_plan(spend)
        return
    refuse_unwritable(out)
    account = open_ledger(settings.ledger_path, settings.data, settings.limit)
    with account.attempt(settings.request), Bar.shown("Randomizing") as bar:
        manifest = privatize_file(
            source,
            out,
            coin,
            ledger=account,
            settings=reading,
            cap=settings.cap,
            on_device=settings.on_device,
            simulate_seed=settings.simulate_seed,
            force=force,
            surveyed=surveyed,
            progress=bar,
        )
    _tell(settings, [manifest], spend, coin, account)


def _privatize_files(settings: Privatize) -> None:
    """Randomize every label in many files, each of which gets one of its own."""
    if settings.on_device:
        raise UsageError("--on-device is for one file of one's own labels. Nothing was done.")
    refuse_records(settings.unit)

    def coin_for(most: int) -> RandomizedResponse:
        """Return the coin for one label; ``most`` are the most labels of one person."""
        return choose_coin(
            settings.epsilon, unit=settings.unit, cap=settings.cap, most=lambda: most
        )

    first = coin_for(1)
    chunks = find_chunks(
        settings.sources,
        drop_identical=settings.drop_identical,
        person_field=settings.person_field,
    )
    outputs = ChunkOutputs.of(chunks, settings.out, force=settings.force)  # refuses before reading
    randomization = settings.randomization(first)
    with settings.started_engine() as engine, Bar.shown("Reading") as bar, ExitStack() as stack:
        scratch, taken = settings.scratch, Passes(bar)
        survey = stack.enter_context(survey_chunks(chunks, engine, scratch=scratch, taken=taken))
        coin = coin_for(survey.largest)
        planned = replace(randomization, mechanism=coin)
        request = digest_of_request(chunks, planned)
        manifests = () if settings.dry_run else outputs.finished(request, planned.ledger)
        if manifests and not survey.linked:  # of a person, on the other hand, all may be used up
            spend: dict[str, Any] = {
                "spend": 0.0,  # paid for before
                "guarantee": {"unit": "label"},
                "dropped_identical": survey.dropped,
            }
        else:
            spend = plan_chunks(
                chunks,
                planned,
                data=settings.data,
                engine=engine,
                scratch=scratch,
                surveyed=survey,
                taken=taken,
            )
        passes = _PASSES + (_BY_PERSON if "persons" in spend else 0)
        spend["files"] = settings.describe_files(chunks, passes=passes)
        if settings.dry_run:
            settings.tell_plan(spend)
            return
        account = open_ledger(settings.ledger_path, settings.data, settings.limit)
        with account.attempt(settings.request):
            manifests = manifests or privatize_chunks(
                chunks,
                settings.out,
                coin,
                ledger=account,
                cap=settings.cap,
                simulate_seed=settings.simulate_seed,
                force=settings.force,
                surveyed=survey,
                engine=engine,
                scratch=scratch,
                taken=taken,
            )
    _tell(settings, manifests, spend, coin, account, files=len(manifests))


def _tell(
    settings: Privatize,
    manifests: Sequence[Manifest],
    spend: dict[str, Any],
    coin: RandomizedResponse,
    account: Ledger,
    *,
    files: int | None = None,
) -> None:
    """Say what was done, which is what all manifests say; of many files each has its own digest."""
    said, out, head = manifests[0], settings.out, account.head
    value: dict[str, Any] = {
        **said.to_dict(),
        "spend": spend["spend"],
        "dropped_identical": spend["dropped_identical"],
        "epsilon_per_label": coin.realized_epsilon,
        **{name: spend[name] for name in ("persons", "capped_questions") if name in spend},
        **({} if files is None else {"files": files}),
        "ledger": {"head": head.digest, "rows": head.rows},
    }
    if files is not None:
        del value["sha256"]
    rows = {
        "written": f"{out.name} and {manifest_path(out).name}"
        if files is None
        else f"{files:,} files and their manifests in {out.name}",
        "guarantee": f"epsilon={never_less(said.epsilon)} per {said.unit}, trust: {said.trust}",
        **unit_rows(spend),
        "caveats": ", ".join(said.caveats) or "none",
        **dropped_row(spend["dropped_identical"]),
        "ledger head": head.digest,
        "ledger rows": f"{head.rows} (note the head elsewhere)",
    }
    simulated = settings.simulate_seed is not None
    finish(_TITLE, rows, value, as_json=settings.as_json, simulated=simulated)
