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
from sordino.preferences.features import caveats_of_reading
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
    declare_unread: bool


def _refuse_other_judges(asked: Judging) -> None:
    """Refuse a comparison with no judge, or two.

    Raises:
        UsageError: It is one.
    """
    if (asked.judge is None) == (asked.command is None):
        raise UsageError(
            "Give one judge: --judge DIR, a reward that was not optimized, or --judge-command CMD, "
            "a program of yours. Nothing was judged."
        )


def measure_policy(asked: Judging, out: Path | None, *, force: bool, as_json: bool) -> None:
    """Compare a policy with its reference, and tell who won and what was promised."""
    _refuse_other_judges(asked)
    words = _program(asked.command)
    if out is not None:
        refuse_output(out, force=force)
    prompts = read_prompts(asked.prompts, asked.n)
    promises = {"policy": _promise(asked.policy), "reference": _promise(asked.reference)}
    caveats = _caveats_of_judge(asked, promises)
    comparison = language_module("judging.policy_comparison")
    judge, shared = _judge(asked, words, promises["policy"])
    found = comparison.compare_policies(
        asked.policy,
        asked.reference,
        prompts,
        judge,
        max_new_tokens=asked.max_new_tokens,
        seed=asked.seed,
    )
    value: dict[str, Any] = finite(
        {
            **found.to_dict(),
            "judge": "reward" if asked.judge else "command",
            "judge_shares_answers": shared,
            **{f"{name}_guarantee": _in_json(one, caveats) for name, one in promises.items()},
        }
    )
    if out is not None:
        write_json(out, value, force=force)
    sources = [found.guarantee, *(each and each.guarantee for each in promises.values())]
    simulated = any(each is not None and each.simulated for each in sources)
    rows = _rows(found, shared=shared, promises=promises) | ({"written": out.name} if out else {})
    finish("sordino language evaluate", rows, value, as_json=as_json, simulated=simulated)


def _program(command: str | None) -> list[str]:
    """Return the words of a command line.

    Raises:
        UsageError: It has none, or a quote is not closed.
    """
    try:
        words = [] if command is None else shlex.split(command)
    except ValueError:
        words = []
    if command is not None and not words:
        raise UsageError(
            "--judge-command is empty, or a quote in it is not closed. Nothing was judged. Give "
            "the program and its arguments as in a shell."
        )
    return words


def _in_json(promise: Any, caveats: tuple[str, ...]) -> dict[str, Any] | None:
    """Return a checkpoint's promise with its caveats, and those of the judge."""
    if promise is None:
        return None
    found = promise.guarantee.with_caveats(*caveats)
    return {**found.to_dict(), "caveats": list(found.caveats)}


def _caveats_of_judge(asked: Judging, promises: dict[str, Any]) -> tuple[str, ...]:
    """Return what qualifies a win rate of what hides whole records or persons.

    A judge, or a reference, that has read those texts tells of them by whom it prefers. The texts
    are not here to be compared with.

    Raises:
        PrivacyError: Records or persons are hidden, and nothing is declared.
    """
    if all(one is None or one.guarantee.unit == "label" for one in promises.values()):
        return ()
    return caveats_of_reading(known=False, read=False, declared=asked.declare_unread)


def _judge(asked: Judging, words: list[str], policy: Any) -> tuple[Any, bool]:
    """Return the judge, and whether it learned from the very answers that the policy did."""
    if asked.command is not None:
        return language_module("judging.judges").CommandJudge(words, seed=asked.seed), False
    reward = language_module("rewards.text_rewards").TextRewardModel.load(asked.judge)
    judge = language_module("judging.policy_comparison").RewardJudge(reward)
    return judge, policy is not None and bool(_known_by(policy) & _known_by(reward.promise))


def _known_by(promise: Any) -> set[str]:
    """Return every release that a promise speaks for, by its entries and by its answers."""
    return {
        name
        for source in promise.sources
        for name in (*source.release_ids, source.artifact)
        if name
    }


def _promise(folder: Path) -> Any:
    """Return what a checkpoint of ours promises, or None for one of somebody else."""
    found = language_module("training.policy_promises").folder_promises(folder)
    return found[0].with_those_of(*found[1:]) if found else None


def _rows(found: Any, *, shared: bool, promises: dict[str, Any]) -> dict[str, str]:
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
    for name, promise in promises.items():
        rows[f"{name}'s labels"] = (
            "no promise with it" if promise is None else str(promise.guarantee)
        )
    return rows
