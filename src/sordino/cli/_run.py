"""One run of the main job, step by step: read, cross, fit, measure, write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino import _random
from sordino._files import (
    atomic_draft,
    explained,
    finite,
    refuse_unwritable,
    to_json,
)
from sordino._version import __version__
from sordino.auditing.runs.stored import RESULT_FORMAT, RESULT_VERSION
from sordino.certificates import certify
from sordino.cli._console import Bar
from sordino.cli._policy import describe_policy, make_policy
from sordino.cli._spending import Settings, cross, plan
from sordino.environments.truth import TrueReward
from sordino.errors import DataError, PrivacyError, SordinoError
from sordino.policies.gibbs import CandidatePolicy
from sordino.policies.pessimism import ConfidencePolicy
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.reading import read_pairs
from sordino.privacy.label_values import UNDECIDED
from sordino.privacy.ledger import Ledger
from sordino.reporting.html import render_report
from sordino.reporting.result import (
    calibration,
    describe_fit_settings,
    describe_guarantee_and_caveats,
    describe_ledger_rows,
    measure_confidence,
    measure_decisive,
    measure_examples,
    measure_policy,
    measure_public,
    measure_reward,
    measure_truth,
    predict_utility,
)
from sordino.reporting.summary import summarize
from sordino.rewards.answer_fit import cross_fit
from sordino.rewards.design import Design, HeldOut, refuse_too_few
from sordino.rewards.estimation import fit_answers
from sordino.rewards.model import RewardModel

__all__ = ["Inputs", "page", "read_inputs", "run"]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that a run reads, checked before anything is spent."""

    pairs: Pairs | PrivatePairs
    public: Pairs | None
    truth: TrueReward | None


def read_inputs(
    source: Path,
    *,
    evaluate: Path | None,
    truth: Path | None,
    drop_identical: bool,
    person_field: str,
) -> Inputs:
    """Return the inputs of a run.

    Raises:
        DataError: A file cannot be used; place and field are named.
        PrivacyError: The file that was declared public is the private one.
    """
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            source, drop_identical=drop_identical, person_field=person_field, progress=bar
        )
    refuse_too_few(pairs)
    public = None if evaluate is None else _read_public(evaluate, pairs, person_field)
    return Inputs(
        pairs=pairs, public=public, truth=None if truth is None else TrueReward.load(truth)
    )


def _read_public(path: Path, pairs: Pairs | PrivatePairs, person_field: str) -> Pairs:
    """Return judgments that the user declares public, without questions of the private file."""
    problem: SordinoError | None = None
    try:
        public = read_pairs(path, drop_identical=True, person_field=person_field)
    except SordinoError as error:
        problem = error
    if problem is not None:
        raise type(problem)(f"--evaluate: {problem}")
    if isinstance(public, PrivatePairs):
        raise DataError("--evaluate: a public file holds judgments, not randomized answers.")
    private = set(pairs.keys)
    shared = sum(key in private for key in public.keys)
    if shared * 2 >= len(public):
        raise PrivacyError(
            "--evaluate holds the private judgments themselves: at least half of its pairs are "
            "in both files, and their labels would show in the metrics. Nothing was done. Give "
            "a file whose judgments are public."
        )
    left = public.without(private)
    if (left.labels == UNDECIDED).all():
        raise DataError("--evaluate: every judgment in it is undecided. Nothing was spent.")
    return left


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Make the folder of a run; a failure takes it away again if it is still empty."""
    made = not path.exists()
    with explained(f"{path.name} cannot be made"):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                path.rmdir()
        raise


def _publish(folder: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Write files that belong together: all of them or, short of a power cut, none.

    Args:
        folder: Where.
        files: Text by name; the last one appears last and says that the others are there.
        force: Overwrite.
    """
    names = list(files)
    with ExitStack() as stack:
        drafts = []
        for name in reversed(names):  # a stack closes the other way round
            drafts.append(stack.enter_context(atomic_draft(folder / name, force=force)))
            drafts[-1].file.write(files[name].encode())
        for draft in drafts:
            draft.finish()
        (folder / names[-1]).unlink(missing_ok=True)  # no old result beside a new reward


def run(settings: Settings, inputs: Inputs, *, started: float) -> dict[str, Any]:
    """Do the whole job after the inputs were read; return what ``result.json`` holds.

    Whatever can be refused is refused before anything is spent.
    """
    plan(settings, inputs.pairs)
    with _folder(settings.out):
        refuse_unwritable(settings.out / "result.json")
        private, ledger = cross(settings, inputs.pairs)
        with _spend_is_said(ledger):
            return _released(settings, inputs, private, ledger, started)


@contextmanager
def _spend_is_said(ledger: Ledger) -> Iterator[None]:
    """Add to an error that the spend before it stays recorded."""
    try:
        yield
    except SordinoError as error:
        problem = error
    else:
        return
    stays = f" What was spent before stays on {ledger.path.name}." if ledger.spends else ""
    raise type(problem)(f"{problem}{stays}")


def _released(
    settings: Settings, inputs: Inputs, private: PrivatePairs, ledger: Ledger, started: float
) -> dict[str, Any]:
    """Fit, measure and write from answers that are private already."""
    features = HashedText(dimension=settings.dimension)
    with Bar.shown("Fitting") as bar:
        asked: dict[str, Any] = {
            "ridge": settings.ridge,
            "ball": settings.ball,
            "method": settings.fitted_by,
        }
        reward, design = fit_answers(private, features=features, **asked)
        held_out = cross_fit(design, **asked, progress=bar)
    policy = make_policy(
        reward,
        temperature=settings.temperature,
        confidence=settings.confidence,
        scale=settings.scale,
    )
    certificate = certify(policy, ledger, for_study=True)
    model = to_json(reward.to_dict())
    result: dict[str, Any] = finite(
        {
            "format": RESULT_FORMAT,
            "version": RESULT_VERSION,
            "sordino": __version__,
            "way": "local",
            **describe_guarantee_and_caveats(certificate.guarantee),
            "mechanism": {
                "name": "randomized-response",
                "flip_probability": private.flip_probability,
                "epsilon_per_label": private.label_epsilon,
            },
            "data": _data(ledger.data, inputs.pairs, private),
            "reward": {
                **measure_reward(held_out),
                **describe_fit_settings(reward, asked=settings.method),
            },
            "policy": _policy(held_out, policy, private),
            **_extras(inputs, policy, reward),
            **_findings(inputs, policy, reward, design, private),
            "calibration": calibration(held_out),
            "certificate": certificate.to_dict(),
            "reward_sha256": hashlib.sha256(model.encode()).hexdigest(),
            "seconds": round(_random.clock() - started, 3),
        }
    )
    files = {"reward.json": model, "report.html": page(result, ledger)}
    files["result.json"] = to_json(result)
    _publish(settings.out, files, force=settings.force)
    return result


def _data(name: str, pairs: Pairs | PrivatePairs, private: PrivatePairs) -> dict[str, Any]:
    """Return what was used, in public numbers."""
    people = {} if private.persons is None else {"persons": len(set(private.persons))}
    return {
        "name": name,
        "pairs": len(private),
        "dropped_identical": private.dropped,
        "capped": len(pairs) - len(private),
        **people,
    }


def _policy(held_out: HeldOut, policy: CandidatePolicy, private: PrivatePairs) -> dict[str, Any]:
    """Return what the policy is and does.

    Between two answers pessimism changes nothing: both lie equally far from their mean.
    """
    distrust = measure_confidence(policy, private) if isinstance(policy, ConfidencePolicy) else None
    return {
        **describe_policy(policy),
        **measure_policy(held_out, policy.temperature),
        "pessimism": distrust,
    }


def _findings(
    inputs: Inputs,
    policy: CandidatePolicy,
    reward: RewardModel,
    design: Design,
    private: PrivatePairs,
) -> dict[str, Any]:
    """Return what the page shows besides metrics, from released weights and public texts."""
    return {
        "utility": predict_utility(len(design), design.differences, chosen=private.label_epsilon),
        "decisive": measure_decisive(reward, design.differences, source="comparisons"),
        "examples": _examples(inputs, policy, private),
    }


def _examples(
    inputs: Inputs, policy: CandidatePolicy, private: PrivatePairs
) -> dict[str, Any] | None:
    """Return examples from texts that are public or were released before; None without such."""
    if inputs.public is not None:
        return measure_examples(policy, inputs.public, source="public")
    if isinstance(inputs.pairs, PrivatePairs):
        return measure_examples(policy, private, source="released")
    return None


def _extras(inputs: Inputs, policy: CandidatePolicy, reward: RewardModel) -> dict[str, Any]:
    """Return the metrics that need a public file or a known truth."""
    extras: dict[str, Any] = {}
    if inputs.public is not None:
        measured = measure_public(reward, inputs.public, policy.temperature)
        extras["public_evaluation"] = measured
    if inputs.truth is not None:
        extras["truth"] = measure_truth(policy, inputs.pairs, inputs.truth)
    return extras


def page(result: dict[str, Any], ledger: Ledger) -> str:
    """Return the report of a run as one HTML file."""
    summary = summarize(
        result, calibration=result["calibration"], ledger=describe_ledger_rows(ledger)
    )
    return render_report(summary)
