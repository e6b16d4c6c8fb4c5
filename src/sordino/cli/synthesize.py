"""``sordino synthesize``: public prompts and answers, judged by a released reward, for any trainer.

What is written is a data set for the Hub: it says in its card what the reward promises, and costs
nothing.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from sordino._files import refuse_existing, to_json
from sordino.auditing.runs.replay import REWARD, read_result
from sordino.certificates import Certificate, certify, digest_of, ledger_of
from sordino.errors import FileSystemError, PrivacyError
from sordino.policies.gibbs import ReleasedReward
from sordino.policies.synthesis import synthesize as label
from sordino.privacy.exports import model_card
from sordino.privacy.project import ledger_of_run
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.model import RewardModel
from sordino.runs.progress import Bar
from sordino.runs.run import made_folder, publish
from sordino.runs.settings import (
    Argument,
    LedgerOption,
    Option,
    Output,
    PrivacyOption,
    language_module,
)
from sordino.runs.tables import promise_rows

from ._app import app, command, finish
from .choose import read_questions

_FORMAT = "sordino.preferences"
_VERSION = 1
_DATA, _CARD, _SAYS = "train.jsonl", "README.md", "sordino.json"
_HOW = {
    "drawn": "`chosen` was drawn with probability σ(its score − the other's), the reward's own.",
    "likely": "`chosen` has the higher reward.",
}


@dataclass(frozen=True, kw_only=True)
class _Synthesize(Output):
    """What is labeled by which reward, and where it goes."""

    reward: Annotated[
        Path,
        Argument("Folder of an earlier align, a reward.json, or the folder of a language reward."),
    ]
    prompts: Annotated[
        Path, Argument('Public lines of {"prompt": ..., "candidates": [...]}, without judgments.')
    ]
    out: Annotated[Path, Option("Folder of the data set.", metavar="FOLDER")]
    pairs: Annotated[
        str,
        Option(
            "The answers with the highest and the lowest reward of each prompt, or every two.",
            choices=("extremes", "all"),
        ),
    ] = "extremes"
    labels: Annotated[
        str,
        Option(
            "Draw which answer is chosen, as likely as the reward says; or take the likely one.",
            choices=tuple(_HOW),
        ),
    ] = "drawn"
    declare_public: Annotated[
        bool,
        PrivacyOption(
            "Declare that no prompt and no answer in the file is from the private data: needed "
            "where the promise covers them too (--unit record)."
        ),
    ] = False
    ledger: Annotated[
        Path | None,
        LedgerOption(
            "The ledger that paid for the reward, for the certificate; by default spend.db beside "
            "it, or the project's, if it did.",
            metavar="DB",
        ),
    ] = None


@command(app, _Synthesize)
def synthesize(settings: _Synthesize) -> None:
    """Label public prompts and answers by a released reward; written as a data set of the Hub."""
    refuse_existing(settings.out, force=settings.force)
    reward = _read_reward(settings.reward)
    with Bar.shown("Reading") as bar:
        questions = list(read_questions(settings.prompts, bar, judged=False))
    prompts, candidates = [row[0] for row in questions], [row[1] for row in questions]
    names = ("pairs", "labels", "declare_public")
    terms: dict[str, Any] = {name: getattr(settings, name) for name in names}
    rows = label(reward, prompts, candidates, **terms)
    promise, certificate = reward.guarantee, _certificate(settings, reward)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    says = {
        "format": _FORMAT,
        "version": _VERSION,
        **describe_guarantee_and_caveats(promise),
        "release_ids": list(reward.release_ids),
        "artifact": reward.artifact,
        "reward": digest_of(reward.to_dict()),
        **terms,
        "files": {_DATA: hashlib.sha256(data.encode()).hexdigest()},
        "certificate": None if certificate is None else certificate.to_dict(),
    }
    with made_folder(settings.out):
        files = {_DATA: data, _CARD: _card(reward, says, certificate), _SAYS: to_json(says)}
        publish(settings.out, files, force=settings.force)
    value = {"rows": len(rows), **describe_guarantee_and_caveats(promise), "out": settings.out.name}
    table = {
        "rows": f"{len(rows):,}",
        **promise_rows(value),
        "certificate": certificate.digest if certificate else "none: no ledger at hand paid for it",
        "written": str(settings.out),
        "spent": "nothing",
    }
    finish(
        "sordino synthesize", table, value, as_json=settings.as_json, simulated=promise.simulated
    )


def _read_reward(path: Path) -> ReleasedReward:
    """Return a reward from a file, the folder of a run, or that of a language model."""
    if path.is_dir() and (path / "config.json").is_file():
        trained: ReleasedReward = language_module("rewards.text_rewards").TextRewardModel.load(path)
        return trained
    if path.is_dir() and not (path / REWARD).is_file():
        read_result(path)  # which refuses a run whose reward is withheld
    return RewardModel.load(path)


def _certificate(settings: _Synthesize, reward: ReleasedReward) -> Certificate | None:
    """Return the certificate of a reward: of the ledger that was named, or of one that paid."""
    path, home = settings.ledger, settings.reward
    if path is not None:
        return certify(reward, ledger_of(reward, path), for_study=True)
    path = ledger_of_run(home if home.is_dir() else home.parent)
    with suppress(PrivacyError, FileSystemError):  # there is none, or it is of something else
        return certify(reward, ledger_of(reward, path), for_study=True)
    return None


def _card(reward: ReleasedReward, says: dict[str, Any], certificate: Certificate | None) -> str:
    """Return the card of the data set."""
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
