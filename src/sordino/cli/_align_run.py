"""One run of the main job, step by step: read, learn, measure, write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sordino import _random
from sordino._files import (
    atomic_draft,
    clear,
    explained,
    finite,
    refuse_existing,
    refuse_output,
    refuse_unwritable,
    sole_holder,
    to_json,
)
from sordino._version import __version__
from sordino.auditing.runs.stored import RESULT_FORMAT, RESULT_VERSION
from sordino.certificates import certify
from sordino.errors import SordinoError
from sordino.preferences.chunks import Chunks
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.rankings import Rankings
from sordino.privacy.ledger import Ledger
from sordino.reporting.html import render_report
from sordino.reporting.result import (
    describe_guarantee_and_caveats,
    describe_ledger_rows,
    measure_public,
    measure_truth,
)
from sordino.reporting.summary import summarize

from . import (
    _align_draws,
    _align_estimate,
    _align_files,
    _align_labels,
    _align_rankings,
    _align_record_files,
)
from ._align_inputs import Inputs, Learned
from ._align_settings import NoiseOn, Settings


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
    """
    planned: dict[str, Any] = _way(settings, inputs).plan(settings, inputs)
    return planned


def _way(settings: Settings, inputs: Inputs) -> Any:
    """Return the module that plans, opens the ledger and learns."""
    if isinstance(inputs.pairs, Rankings):
        return _align_rankings
    if isinstance(inputs.pairs, Chunks):
        return _align_record_files if settings.hides_texts else _align_files
    ways = {
        NoiseOn.labels: _align_labels,
        NoiseOn.estimate: _align_estimate,
        NoiseOn.draws: _align_draws,
    }
    return ways[settings.noise]


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Make the folder of a run and hold it; a failure takes it away if it is still empty."""
    lock = path / ".sordino.lock"
    busy = (
        f"Another run is writing into {path.name or path}. Nothing was done. Try again when it "
        "is done, or give another folder."
    )
    made = not path.exists()
    with explained(f"{path.name} cannot be made"):
        path.mkdir(parents=True, exist_ok=True)
    try:
        with sole_holder(lock, f"{path.name or path} cannot be written", busy):
            if made and any(not found.name.startswith(".") for found in path.iterdir()):
                refuse_existing(path, force=False)
            yield
    except BaseException:
        if made:
            with suppress(OSError):
                path.rmdir()
        raise


def publish(folder: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Write files that belong together: all of them or, short of a power cut, none."""
    names = list(files)
    with ExitStack() as stack:
        drafts = []
        for name in reversed(names):  # a stack closes the other way round
            drafts.append(stack.enter_context(atomic_draft(folder / name, force=force)))
            drafts[-1].file.write(files[name].encode())
        for draft in drafts:
            draft.finish()
        clear(folder / names[-1], force=force)  # no old result beside a new reward


def run(settings: Settings, inputs: Inputs, *, started: float) -> dict[str, Any]:
    """Do the whole job after the inputs were read; return what ``result.json`` holds."""
    # Whatever can be refused is refused before anything is spent.
    plan(settings, inputs)
    if isinstance(inputs.pairs, Chunks) and inputs.surveyed is None:
        with _align_files.surveyed(settings, inputs) as surveyed:
            return run(settings, surveyed, started=started)
    way = _way(settings, inputs)
    with made_folder(settings.out):
        refuse_output(settings.out / "result.json", force=settings.force)  # nobody writes now
        settings = replace(settings, force=settings.force or settings.was_interrupted)
        refuse_unwritable(settings.out / "result.json")
        ledger = way.open_account(settings, inputs)
        if way is _align_draws:
            return _prepared(settings, way.describe(settings, inputs, ledger))
        with add_spend_to_errors(ledger), ledger.attempt(settings.request):
            return _written(settings, inputs, way.learn(settings, inputs, ledger), started)


def _prepared(settings: Settings, result: dict[str, Any]) -> dict[str, Any]:
    """Write down how draws will be made; nothing was spent, and nothing else leaves."""
    publish(settings.out, {"result.json": to_json(result)}, force=settings.force)
    return result


@contextmanager
def add_spend_to_errors(ledger: Ledger) -> Iterator[None]:
    """Add to an error that the spend before it stays recorded."""
    try:
        yield
    except SordinoError as error:
        problem = error
    else:
        return
    stays = f" What was spent before stays on {ledger.path.name}." if ledger.spends else ""
    raise type(problem)(f"{problem}{stays}")


def _written(
    settings: Settings, inputs: Inputs, learned: Learned, started: float
) -> dict[str, Any]:
    """Measure what public files allow, certify, and write everything."""
    certificate = certify(learned.policy, learned.ledger, for_study=True)
    model = to_json(learned.reward.to_dict())
    result: dict[str, Any] = finite(
        {
            "format": RESULT_FORMAT,
            "version": RESULT_VERSION,
            "sordino": __version__,
            "noise": settings.noise.value,
            **describe_guarantee_and_caveats(certificate.guarantee),
            **learned.parts,
            **_extras(settings, inputs, learned),
            "certificate": certificate.to_dict(),
            "reward_sha256": hashlib.sha256(model.encode()).hexdigest(),
            "seconds": round(_random.clock() - started, 3) if learned.timed else None,
        }
    )
    files = {"reward.json": model, "report.html": page(result, learned.ledger)}
    files["result.json"] = to_json(result)
    publish(settings.out, files, force=settings.force)
    return result


def _extras(settings: Settings, inputs: Inputs, learned: Learned) -> dict[str, Any]:
    """Return the metrics that need a public file or a known truth."""
    extras: dict[str, Any] = {}
    if inputs.public is not None:
        extras["public_evaluation"] = measure_public(
            learned.reward, inputs.public, learned.policy.temperature
        )
    if inputs.truth is not None:
        known = inputs.public if settings.hides_texts else inputs.pairs
        assert isinstance(known, Comparisons)  # noqa: S101 - for the type checker
        extras["truth"] = measure_truth(learned.policy, known, inputs.truth)
    return extras


def page(result: dict[str, Any], ledger: Ledger) -> str:
    """Return the report of a run as one HTML file."""
    summary = summarize(
        result, calibration=result["calibration"], ledger=describe_ledger_rows(ledger)
    )
    return render_report(summary)
