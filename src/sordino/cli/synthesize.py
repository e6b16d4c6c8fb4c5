"""``sordino synthesize``: public prompts and answers, judged by a released reward, for any trainer.

What is written is a data set for the Hub: it says in its card what the reward promises, and costs
nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sordino._files import refuse_existing, to_json
from sordino.auditing.runs.replay import REWARD, read_result
from sordino.certificates import Certificate, certify, ledger_of
from sordino.errors import FileSystemError, PrivacyError, UsageError
from sordino.policies.gibbs import ReleasedReward
from sordino.policies.synthesis import different_answers
from sordino.policies.synthesis import synthesize as label
from sordino.preferences.records import messages_of
from sordino.privacy.exports import model_card
from sordino.privacy.ledger_chain import digest_of_json, ledger_of_run
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.model import RewardModel
from sordino.runs.progress import Bar
from sordino.runs.run import made_folder, publish
from sordino.runs.settings import (
    Argument,
    Option,
    Output,
    PrivacyOption,
    RunLedger,
    language_module,
)
from sordino.runs.tables import promise_rows

from . import app, command, finish
from .choose import read_questions

_FORMAT = "sordino.preferences"
_VERSION = 1
_DATA, _CARD, _SAYS = "train.jsonl", "README.md", "sordino.json"
_PROMPTS = 1024  # that are labeled at once
_ROLES = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
_HOW = {
    "drawn": "`chosen` was drawn with probability σ(its score − the other's), the reward's own.",
    "likely": "`chosen` has the higher reward.",
}


@dataclass(frozen=True, kw_only=True)
class _Synthesize(Output):
    reward: Path = Argument(
        "Folder of an earlier align, a reward.json, or the folder of a language reward."
    )
    prompts: Path = Argument(
        'Public lines of {"prompt": ..., "candidates": [...]}, without judgments.'
    )
    out: Path = Option("Folder of the data set.", required=True, metavar="FOLDER")
    pairs: str = Option(
        "The answers with the highest and the lowest reward of each prompt, or every two.",
        "extremes",
        choices=("extremes", "all"),
    )
    labels: str = Option(
        "Draw which answer is chosen, as likely as the reward says; or take the likely one.",
        "drawn",
        choices=tuple(_HOW),
    )
    declare_public: bool = PrivacyOption(
        "Declare that no prompt and no answer in the file is from the private data: needed "
        "where the promise covers them too (--unit record).",
        False,
    )
    ledger: RunLedger = None


@command(app, _Synthesize)
def synthesize(settings: _Synthesize) -> None:
    """Label public prompts and answers by a released reward; written as a data set of the Hub."""
    refuse_existing(settings.out, force=settings.force)
    path = settings.reward
    if path.is_dir() and (path / "config.json").is_file():  # of a language model
        reward: ReleasedReward = language_module("rewards.text_rewards").TextRewardModel.load(path)
    else:
        if path.is_dir() and not (path / REWARD).is_file():
            read_result(path)  # which refuses a run whose reward is withheld
        reward = RewardModel.load(path)
    names = ("pairs", "labels", "declare_public")
    terms: dict[str, Any] = {name: getattr(settings, name) for name in names}
    promise, certificate = reward.guarantee, None
    digest, count = hashlib.sha256(), 0
    home = settings.ledger or ledger_of_run(path if path.is_dir() else path.parent)
    # where none was named there may be none that paid, or one of something else
    perhaps = () if settings.ledger else (PrivacyError, FileSystemError)
    with suppress(*perhaps):
        certificate = certify(reward, ledger_of(reward, home), for_study=True)

    def lines() -> Iterator[bytes]:
        nonlocal count
        for row in _labeled(settings.prompts, reward, terms):
            line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
            digest.update(line)
            count += 1
            yield line

    def says() -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": _VERSION,
            **describe_guarantee_and_caveats(promise),
            "release_ids": list(reward.release_ids),
            "artifact": reward.artifact,
            "reward": digest_of_json(reward.to_dict()),
            **terms,
            "files": {_DATA: digest.hexdigest()},
            "certificate": None if certificate is None else certificate.to_dict(),
        }

    with made_folder(settings.out):
        files: dict[str, Callable[[], Iterable[bytes]]] = {
            _DATA: lines,
            _CARD: lambda: [_card(reward, says(), certificate).encode()],
            _SAYS: lambda: [to_json(says()).encode()],
        }
        publish(settings.out, files, force=settings.force)
    value = {"rows": count, **describe_guarantee_and_caveats(promise), "out": settings.out.name}
    table = {
        "rows": f"{count:,}",
        **promise_rows(value),
        "certificate": certificate.digest if certificate else "none: no ledger at hand paid for it",
        "written": str(settings.out),
        "spent": "nothing",
    }
    finish(
        "sordino synthesize", table, value, as_json=settings.as_json, simulated=promise.simulated
    )


def _labeled(path: Path, reward: ReleasedReward, terms: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if path.is_fifo():
        raise UsageError(f"{path.name} is a pipe, and it is read twice. Nothing was made.")
    chats = False  # if one text is made of messages, all are written so, as trl takes them
    with Bar.shown("Reading") as bar:
        for at, (prompt, options) in enumerate(read_questions(path, bar, judged=False)):
            different_answers(at, prompt, options)
            chats |= not all(isinstance(text, str) for text in (prompt, *options))
    with Bar.shown("Labeling") as bar:
        questions = read_questions(path, bar, judged=False)
        while some := list(islice(questions, _PROMPTS)):
            for row in label(reward, [one for one, _ in some], [all_ for _, all_ in some], **terms):
                for name, role in _ROLES.items() if chats else ():
                    row[name] = messages_of(row[name], role)
                yield row


def _card(reward: ReleasedReward, says: dict[str, Any], certificate: Certificate | None) -> str:
    told = [
        "Prompts and answers are public; what is private are the judgments behind the reward.",
        _HOW[says["labels"]],
        f"SHA-256 of `{_DATA}`: {says['files'][_DATA]}. SHA-256 of the reward: {says['reward']}.",
    ]
    if says["declare_public"]:
        told.append("That none of the texts is from the private data is what the maker declared.")
    none = "Certificate: none. Hold `release_ids` in sordino.json against the ledger."
    told.append(certificate.anchored if certificate else none)
    where = {"config_name": "default", "data_files": [{"split": "train", "path": _DATA}]}
    usage = (
        "from datasets import load_dataset\n\n"
        'rows = load_dataset("this/folder", split="train")  # for DPOTrainer, RewardTrainer, ...'
    )
    return model_card(
        reward.guarantee,
        title="Preferences of a private reward",
        said=told,
        usage=usage,
        front={"configs": [where]},
    )
