"""Folders on the Hugging Face Hub: only what a ledger paid for in full, by files of known names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi

from sordino._files import explained, read_json, sha256_of, to_json
from sordino.certificates import Certificate, certify_releases
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.models.loading import existing_folder
from sordino.language.models.promises import (
    CARD_FILE,
    CERTIFICATE_FILE,
    MODEL_FILES,
    PROMISE_FILE,
    Answers,
    CheckpointPromise,
    folder_promises,
)
from sordino.privacy.exports import model_card
from sordino.privacy.guarantee import WEAK_PROMISE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_json
from sordino.rewards.model import REWARD_FILE, REWARD_FORMAT, REWARD_VERSION

_ROWS, _FILES_ALONE, _RESULT = "sordino.preferences", "sordino.files", "result.json"
_PROBLEM = "This folder cannot be uploaded"
# What goes along, by name: ledgers, secrets, optimizers' states, pickled settings, logs stay.
_FILES: Mapping[str, tuple[str, ...]] = {
    "preferences": (PROMISE_FILE, "train.jsonl"),
    "linear reward": (PROMISE_FILE, REWARD_FILE),
    "model": (PROMISE_FILE, "*.safetensors", "*.safetensors.index.json", *MODEL_FILES),
}


def push_to_hub(
    folder: str | Path,
    ledger: Ledger,
    *,
    repository: str,
    private: bool = True,
    client: HfApi | None = None,
) -> Certificate:
    """Upload a saved reward, policy or data set to the Hub, with its certificate and card.

    Args:
        folder: What a trainer, ``save``, ``save_pretrained``, ``sordino align`` or
            ``sordino synthesize`` wrote; of what lies there, only files of known names go.
        ledger: The ledger that paid for it; only read.
        repository: Its name on the Hub, ``"owner/name"``.
        private: Whether only its owner sees the repository, if it is made now.
        client: A client of the Hub, if not ``huggingface_hub.HfApi()``.

    Returns:
        The certificate; its digest is of the names and SHA-256 of the files.

    Raises:
        PrivacyError: The certificate is not complete: an entry is missing, was never committed or
            paid for other data; more is claimed than was paid for; randomness was simulated; or
            nobody is protected and nobody accepted that. Or the card does not state the promise.
        UsageError: The folder holds nothing that is known here.
        DataError: A file of it is damaged, or was exchanged.

    Guarantee:
        Nothing is sent unless the ledger paid for all that the folder says went into it. Shown by
        tests/language/test_hub.py.

    Example:
        >>> push_to_hub("models/reward", ledger, repository="me/reward")  # doctest: +SKIP
    """
    place = existing_folder(folder, "reward, policy or data set", "save")
    kind, releases = _releases(place)
    paths = {
        path.relative_to(place).as_posix(): path
        for pattern in _FILES[kind]
        for path in sorted(place.glob(pattern))
        if path.is_file()
    }
    digests = {name: sha256_of(path) for name, path in paths.items()}
    _refuse_others(place, digests)
    certificate = certify_releases(releases, ledger.path, kind=kind, digest=digest_of_json(digests))
    paid = certificate.guarantee
    weak = paid.weakness(None)
    if weak and (math.isinf(paid.epsilon) or WEAK_PROMISE not in paid.caveats):
        raise PrivacyError(f"{weak} Nothing was sent. Release it at a smaller epsilon and delta.")
    told = f"{certificate.anchored} `certificate.json` has the rest."
    added: dict[str, Path | bytes] = {
        **paths,
        CARD_FILE: f"{_card(place, kind, releases[-1].guarantee)}\n- {told}\n".encode(),
        CERTIFICATE_FILE: to_json(certificate.to_dict() | {"files": digests}).encode(),
    }
    operations = [CommitOperationAdd(name, what) for name, what in added.items()]
    sort = {"repo_type": "dataset" if kind == "preferences" else "model"}
    hub = HfApi() if client is None else client
    hub.create_repo(repository, private=private, exist_ok=True, **sort)
    message = f"Upload with its promise: {releases[-1].guarantee}"
    hub.create_commit(repository, operations, commit_message=message, **sort)
    return certificate


def _releases(place: Path) -> tuple[str, Sequence[Answers | CheckpointPromise]]:
    """Return what a folder holds, each release behind it, and last what all promise together."""
    said: Any = None
    if (place / PROMISE_FILE).is_file():
        with explained(f"{PROMISE_FILE} cannot be read"):
            said = json.loads((place / PROMISE_FILE).read_bytes())
    said = said if isinstance(said, dict) else {"format": _FILES_ALONE}
    if said.get("format") == _FILES_ALONE:
        if not (place / REWARD_FILE).is_file():
            raise UsageError(
                f"{place.name} holds neither {PROMISE_FILE} nor {REWARD_FILE}, so nothing says "
                "what was promised. Nothing was sent. Give the folder of a reward, a policy or a "
                "data set."
            )
        file, kind, version = place / REWARD_FILE, REWARD_FORMAT, REWARD_VERSION
        values = read_json(file, kind=kind, version=version, problem=_PROBLEM)
        return "linear reward", [Answers.from_dict(values)]
    if said.get("format") == _ROWS:
        return "preferences", [Answers.from_dict(said)]
    promise = CheckpointPromise.read(place)
    if promise.with_those_of(*folder_promises(place)).sources != promise.sources:
        raise PrivacyError(
            f"config.json in {place.name} speaks of more releases than {PROMISE_FILE}: the weights "
            "are of others. Nothing was sent. Save the model again."
        )
    return "model", [*promise.sources, promise]


def _refuse_others(place: Path, digests: Mapping[str, str]) -> None:
    """Refuse files that the folder does not speak for: others, or other bytes, or too few."""
    # A run says in its result what its reward was.
    by = next((name for name in (PROMISE_FILE, _RESULT) if (place / name).is_file()), None)
    said = json.loads((place / by).read_bytes()) if by else {}
    said = {REWARD_FILE: said.get("reward_sha256")} if by == _RESULT else said.get("files")
    known: Mapping[str, str] = said if isinstance(said, dict) else {}
    for name in sorted({*digests, *known} - {PROMISE_FILE}):
        if digests.get(name) != known.get(name):
            what = "the file that was written" if name in known else "among the files"
            raise DataError(
                f"{_PROBLEM}: {name} is not {what} that {by or PROMISE_FILE} speaks for. Nothing "
                "was sent. Save again, into a folder of its own."
            )


def _card(place: Path, kind: str, promise: Guarantee) -> str:
    """Return the card in a folder, or a new one; refuse one that does not state the promise."""
    written = model_card(promise, title=f"Private {kind}")
    if not (place / CARD_FILE).is_file():
        return written
    with explained(f"{CARD_FILE} cannot be read"):
        card = (place / CARD_FILE).read_text(encoding="utf-8")
    (front,) = (line for line in written.splitlines() if line.startswith("privacy: "))
    said = f"**Promise:** {promise}."
    if front not in card.splitlines() or said not in card:
        raise PrivacyError(
            f"{CARD_FILE} does not state what {place.name} promises. Nothing was sent. Put these "
            f"lines back, or delete the card, and one is written:\n{front}\n{said}"
        )
    return card
