"""Policies that follow a private reward, and how often a judge prefers them: both spend nothing."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino._files import finite, refuse_output, write_json
from sordino.cli._console import Bar, finish
from sordino.cli._language_options import language_module, refuse_folder
from sordino.cli._run import made_folder
from sordino.cli._table import describe_promise
from sordino.errors import UsageError
from sordino.preferences.files import read_mappings
from sordino.preferences.records import Text, read_text
from sordino.reporting.result import describe_guarantee_and_caveats

__all__ = ["Judging", "improve", "measure_policy", "read_prompts"]


def read_prompts(path: Path, n: int | None = None) -> list[Text]:
    """Return the different prompts of a file, the first n of them; other fields go nowhere.

    Raises:
        DataError: A line cannot be used; place and field are named.
    """
    texts = [read_text(row, "prompt", where) for where, row in read_mappings(path)]
    unique: list[Text] = language_module("studies.preference_split").unique_prompts(texts)
    return unique[:n]


def improve(
    reward: Path,
    model: Path,
    prompts: Path,
    out: Path,
    settings: dict[str, Any],
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Improve a policy on a private reward, and tell what it promises."""
    refuse_folder(out, force=force)
    asked = read_prompts(prompts)
    pipeline = language_module("studies.pipeline")
    terms = pipeline.PolicyTerms(**settings)
    score = language_module("rewards.text_rewards").TextRewardModel.load(reward)
    with made_folder(out), Bar.shown("Improving") as bar:
        log = pipeline.improve_policy(score, model, asked, out, terms, progress=bar)
    promise = language_module("models.promises").CheckpointPromise.read(out).guarantee
    rewards = [row["reward"] for row in log if "reward" in row]
    value = {
        **describe_guarantee_and_caveats(promise),
        "spend": 0.0,
        "prompts": len(asked),
        "update": settings["update"],
        "steps": settings["steps"],
        "first_reward": rewards[0] if rewards else None,
        "reward": rewards[-1] if rewards else None,
    }
    rows = {
        "written": out.name,
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        "spent": "nothing: a private reward may be optimized for ever",
        "prompts": f"{len(asked):,}, which count as public",
    }
    if rewards:
        rows["reward"] = f"{rewards[0]:.3f} to {rewards[-1]:.3f} in {settings['steps']:,} steps"
    finish("sordino language policy", rows, value, as_json=as_json, simulated=promise.simulated)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """What is compared, on which prompts, and who judges."""

    policy: Path
    reference: Path
    prompts: Path
    judge: Path | None
    command: str | None
    n: int | None
    max_new_tokens: int
    seed: int


def measure_policy(asked: Judging, out: Path | None, *, force: bool, as_json: bool) -> None:
    """Compare a policy with its reference, and tell who won and what was promised."""
    if (asked.judge is None) == (asked.command is None):
        raise UsageError(
            "Give one judge: --judge DIR, a reward that was not optimized, or --judge-command CMD, "
            "a program of yours. Nothing was judged."
        )
    if out is not None:
        refuse_output(out, force=force)
    prompts = read_prompts(asked.prompts, asked.n)
    comparison = language_module("judging.policy_comparison")
    judge, shared = _judge(asked)
    found = comparison.compare_policies(
        asked.policy,
        asked.reference,
        prompts,
        judge,
        max_new_tokens=asked.max_new_tokens,
        seed=asked.seed,
    )
    policy = _promise(asked.policy)
    value = finite(
        {
            **found.to_dict(),
            "judge": "reward" if asked.judge else "command",
            "judge_shares_answers": shared,
            "policy": None if policy is None else describe_guarantee_and_caveats(policy.guarantee),
        }
    )
    if out is not None:
        write_json(out, value, force=force)
    simulated = any(
        promise is not None and promise.simulated
        for promise in (found.guarantee, policy and policy.guarantee)
    )
    rows = _rows(found, shared=shared, policy=policy) | ({"written": out.name} if out else {})
    finish("sordino language evaluate", rows, value, as_json=as_json, simulated=simulated)


def _judge(asked: Judging) -> tuple[Any, bool]:
    """Return the judge, and whether it learned from the very answers that the policy did."""
    if asked.command is not None:
        words = shlex.split(asked.command)
        return language_module("judging.judges").CommandJudge(words, seed=asked.seed), False
    reward = language_module("rewards.text_rewards").TextRewardModel.load(asked.judge)
    policy = _promise(asked.policy)
    judge = language_module("judging.policy_comparison").RewardJudge(reward)
    return judge, policy is not None and policy.artifact == reward.artifact


def _promise(folder: Path) -> Any:
    """Return what a checkpoint of ours promises, or None for one of somebody else."""
    if not (folder / "sordino.json").is_file():
        return None
    return language_module("models.promises").CheckpointPromise.read(folder)


def _rows(found: Any, *, shared: bool, policy: Any) -> dict[str, str]:
    """Return the closing summary."""
    matched = found.length_matched
    promise = found.guarantee
    rows = {
        "win rate": f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]",
        "length-matched": "not known" if matched is None else str(matched),
        "mean length": f"{found.mean_length:.0f} against {found.reference_length:.0f} characters",
        "compared": f"{found.n:,} answers to {found.prompts:,} prompts, {found.ties:,} ties",
        "judge's labels": "nobody said" if promise is None else str(promise),
    }
    if shared:
        rows["beware"] = "the judge learned from the same answers as the policy: it favors it"
    if policy is not None:
        rows["policy's labels"] = str(policy.guarantee)
    return rows
