"""Noise on labels over many files: a privatized file for each, and a reward from all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Manifest
from sordino.privacy.guarantee import never_less
from sordino.privacy.ledger import Ledger
from sordino.privatization.chunk_outputs import ChunkOutputs
from sordino.privatization.chunks import plan_chunks, privatize_chunks
from sordino.privatization.randomization import Randomization
from sordino.privatization.stream import default_ledger_path, digest_of_request
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.chunk_fit import fit_and_measure_chunks

from . import _options as options
from ._accounts import Budget, Limit, future_ledger, open_ledger, spending_limit
from ._app import Bar, finish
from ._options import Passes, Place, describe_files
from ._tables import describe_accuracy, describe_promise, dropped_row, plan_rows, unit_rows

_PASSES = 2  # one to see what is public, one to answer
_BY_PERSON = 2  # more, where it is known who answered: to plan, and to answer
_METHODS = ("auto", "debiased")
_FREE: Mapping[str, Any] = {"spend": 0.0, "guarantee": {"unit": "label"}}  # paid for before


@dataclass(frozen=True, kw_only=True)
class FilesRandomization:
    """What the user chose for the randomization of many files: options of ``sordino privatize``."""

    out: Path
    place: Place
    epsilon: float
    unit: options.Unit
    cap: int | None
    ledger: Path | None
    budget: Budget
    data: str
    simulate_seed: int | None
    force: bool
    request: str

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        options.refuse_records(self.unit)
        self.coin(1)

    def coin(self, most: int) -> RandomizedResponse:
        """Return the coin for one label; ``most`` are the most labels of one person."""
        return options.choose_coin(self.epsilon, unit=self.unit, cap=self.cap, most=lambda: most)

    def randomization(self) -> Randomization:
        """Return the settings with the coin of a person who has one label; nothing is spent."""
        more: Any = {"simulate_seed": self.simulate_seed, "cap": self.cap}
        return Randomization.of(self.coin(1), self.planned_ledger(), on_device=False, **more)

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or default_ledger_path(self.out)

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger."""
        return spending_limit(self.epsilon, self.budget, unit=self.unit.counted, trust="central")

    def planned_ledger(self) -> Ledger:
        """Return the ledger as it would be; nothing on disk is touched."""
        return future_ledger(self.ledger_path, self.data, self.limit, request=self.request)

    def opened_ledger(self) -> Ledger:
        """Return the ledger, made if there is none."""
        return open_ledger(self.ledger_path, self.data, self.limit)


def privatize_files(
    sources: Sequence[Path],
    asked: FilesRandomization,
    *,
    reading: Mapping[str, Any],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Randomize every label in many files once, and say how; or say what it would spend."""
    chunks, simulated = find_chunks(sources, **reading), asked.simulate_seed is not None
    outputs = ChunkOutputs.of(chunks, asked.out, force=asked.force)  # refuses before reading
    randomization = asked.randomization()
    with asked.place.engine() as engine, Bar.shown("Reading") as bar, ExitStack() as stack:
        told: Any = {"engine": engine, "scratch": asked.place.scratch, "taken": Passes(bar)}
        told["surveyed"] = found = stack.enter_context(survey_chunks(chunks, **told))
        coin = asked.coin(found.largest)
        planned = replace(randomization, mechanism=coin)
        request = digest_of_request(chunks, planned)
        manifests = () if dry_run else outputs.finished(request, planned.ledger)
        if manifests and not found.linked:  # whose budget may be used up
            spend = {**_FREE, "dropped_identical": found.dropped}
        else:
            spend = plan_chunks(chunks, planned, data=asked.data, **told)
        passes = _PASSES + (_BY_PERSON if "persons" in spend else 0)
        spend["files"] = describe_files(chunks, asked.place, passes=passes)
        if dry_run:
            lines = plan_rows(spend)
            finish("sordino privatize", lines, spend, as_json=as_json, simulated=simulated)
            return
        account = asked.opened_ledger()
        with account.attempt(asked.request):
            manifests = manifests or privatize_chunks(
                chunks,
                asked.out,
                coin,
                ledger=account,
                cap=asked.cap,
                simulate_seed=asked.simulate_seed,
                force=asked.force,
                **told,
            )
    value = _described(manifests, spend, coin, account)
    rows = _rows(asked.out, manifests, spend, account)
    finish("sordino privatize", rows, value, as_json=as_json, simulated=simulated)


def _described(
    manifests: Sequence[Manifest],
    spend: Mapping[str, Any],
    coin: RandomizedResponse,
    account: Ledger,
) -> dict[str, Any]:
    """Return what was done, for programs: what all manifests say, and what is known besides."""
    common = {name: told for name, told in manifests[0].to_dict().items() if name != "sha256"}
    return {
        **common,
        "spend": spend["spend"],
        "dropped_identical": spend["dropped_identical"],
        "epsilon_per_label": coin.realized_epsilon,
        **{name: spend[name] for name in ("persons", "capped_questions") if name in spend},
        "files": len(manifests),
        "ledger": {"head": account.head.digest, "rows": account.head.rows},
    }


def _rows(
    out: Path, manifests: Sequence[Manifest], spend: Mapping[str, Any], account: Ledger
) -> dict[str, str]:
    """Return the closing summary."""
    told = manifests[0]
    return {
        "written": f"{len(manifests):,} files and their manifests in {out.name}",
        "guarantee": f"epsilon={never_less(told.epsilon)} per {told.unit}, trust: {told.trust}",
        **unit_rows(spend),
        "caveats": ", ".join(told.caveats) or "none",
        **dropped_row(spend["dropped_identical"]),
        "ledger head": account.head.digest,
        "ledger rows": f"{account.head.rows} (note the head elsewhere)",
    }


def fit_files(
    sources: Sequence[Path],
    out: Path,
    *,
    place: Place,
    reading: Mapping[str, Any],
    dimension: int,
    method: str,
    asked: Mapping[str, Any],
    force: bool,
    as_json: bool,
) -> None:
    """Fit a reward on randomized answers in many files; say what it promises and measures."""
    if method not in _METHODS:
        raise UsageError(
            f"--method {method} reads one file into memory; many files are fitted by the debiased "
            "likelihood. Nothing was done. Leave it out."
        )
    chunks = find_chunks(sources, privatized=True, **reading)
    features = HashedText(dimension=dimension) if chunks.dimension is None else None
    with place.engine() as engine, Bar.shown("Reading") as bar:
        reward, measured = fit_and_measure_chunks(
            chunks,
            features=features,
            engine=engine,
            scratch=place.scratch,
            taken=Passes(bar),
            **asked,
        )
    reward.save(out, force=force)
    promise = reward.guarantee
    value = {
        **describe_guarantee_and_caveats(promise),
        "reward": measured.to_dict(),
        "files": len({chunk.file for chunk in chunks.chunks}),
    }
    rows = {
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(promise.caveats) or "none",
        "accuracy": describe_accuracy(value["reward"]),
        "written": out.name,
    }
    finish("sordino fit", rows, value, as_json=as_json, simulated=promise.simulated)
