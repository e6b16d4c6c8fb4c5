"""Folders on the Hugging Face Hub: only what a ledger paid for in full, by files of known names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from huggingface_hub import CommitOperationAdd, HfApi

from sordino._files import explained, read_json, sha256_of, to_json
from sordino.certificates import Certificate, certify_paid, digest_of, ledger_of
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.models.loading import existing_folder
from sordino.language.models.promises import (
    CARD_FILE,
    PROMISE_FILE,
    Answers,
    CheckpointPromise,
    folder_promises,
)
from sordino.privacy.exports import model_card
from sordino.privacy.guarantee import WEAK_PROMISE
from sordino.privacy.ledger import Ledger
from sordino.rewards.model import REWARD_FILE, REWARD_FORMAT, REWARD_VERSION

_ROWS, _PROBLEM = "sordino.preferences", "This folder cannot be uploaded"
# What goes along, by name: ledgers, secrets, optimizers' states, pickled settings, logs stay.
_FILES: Mapping[str, tuple[str, ...]] = {
    "dataset": (PROMISE_FILE, "data/*.jsonl"),
    "linear": (REWARD_FILE,),
    "model": (
        *(PROMISE_FILE, "config.json", "generation_config.json", "*.safetensors"),
        *("*.safetensors.index.json", "tokenizer*.json", "tokenizer.model", "vocab.*"),
        *("merges.txt", "added_tokens.json", "special_tokens_map.json", "chat_template.jinja"),
    ),
}


class _Client(Protocol):
    """What is asked of a client of the Hub: ``huggingface_hub.HfApi``."""

    def create_repo(self, repo_id: str, **settings: Any) -> object: ...
    def create_commit(self, repo_id: str, operations: Any, **settings: Any) -> object: ...


def push_to_hub(
    folder: str | Path,
    ledger: Ledger,
    *,
    repository: str,
    private: bool = True,
    client: _Client | None = None,
) -> Certificate:
    """Upload a saved reward, policy or data set to the Hub, with its certificate and card.

    Nothing else here ever sends anything. What goes is known by name: weights, config, tokenizer,
    promise, card; or ``reward.json``; or the rows that ``sordino synthesize`` wrote. A ledger, a
    checkpoint's optimizer and logs stay, wherever they lie.

    Args:
        folder: What a trainer, ``save``, ``save_pretrained``, ``sordino align`` or
            ``sordino synthesize`` wrote.
        ledger: The ledger that paid for it; only read.
        repository: Its name on the Hub, ``"owner/name"``.
        private: Whether only its owner sees the repository, if it is made now.
        client: A client of the Hub; ``huggingface_hub.HfApi()`` if left out.

    Returns:
        The certificate, whose digest is that of the files' names and SHA-256.

    Raises:
        PrivacyError: The certificate is not complete: an entry is missing, was never committed or
            paid for other data; more is claimed than was paid for; randomness was simulated; or
            nobody is protected and nobody accepted that. Or the card does not state the promise.
        UsageError: The folder holds nothing that is known here.
        DataError: A file of it is damaged, or was exchanged.

    Guarantee:
        Nothing is sent unless the ledger paid for all that went into the folder. Shown by
        tests/language/test_hub.py.

    Example:
        >>> push_to_hub("models/reward", ledger, repository="me/reward")  # doctest: +SKIP
    """
    place = existing_folder(folder, "reward, policy or data set", "save")
    kind, name, parts, promise = _promises(place)
    paths = {
        path.relative_to(place).as_posix(): path
        for pattern in _FILES[kind]
        for path in sorted(place.glob(pattern))
        if path.is_file()
    }
    digests = {each: sha256_of(path) for each, path in paths.items()}
    for each in (*parts, promise):  # each release, and what they are said to promise together
        view = ledger_of(each, ledger.path)
        certificate = certify_paid(each, view, kind=name, digest=digest_of(digests))
    paid = certificate.guarantee
    weak = paid.weakness(None)
    if weak and (math.isinf(paid.epsilon) or WEAK_PROMISE not in paid.caveats):
        raise PrivacyError(f"{weak} Nothing was sent. Release it at a smaller epsilon and delta.")
    card = _card(place, name, promise, certificate)
    whole: dict[str, Any] = {
        **paths,
        CARD_FILE: card.encode(),
        "certificate.json": to_json(certificate.to_dict() | {"files": digests}).encode(),
    }
    operations = [CommitOperationAdd(each, what) for each, what in whole.items()]
    sort = {"repo_type": "dataset" if kind == "dataset" else "model"}
    hub = HfApi() if client is None else client
    hub.create_repo(repository, private=private, exist_ok=True, **sort)
    message = f"Upload with its promise: {promise.guarantee}"
    hub.create_commit(repository, operations, commit_message=message, **sort)
    return certificate


def _promises(
    place: Path,
) -> tuple[str, str, tuple[Answers, ...], Answers | CheckpointPromise]:
    """Return what a folder holds, each release behind it, and what it says of all together."""
    said: Any = None
    if (place / PROMISE_FILE).is_file():
        with explained(f"{PROMISE_FILE} cannot be read"):
            said = json.loads((place / PROMISE_FILE).read_bytes())
    if isinstance(said, dict) and said.get("format") == _ROWS:
        for name, digest in said["files"].items():
            if sha256_of(place / name) != digest:
                raise DataError(f"{_PROBLEM}: {name} is not the file that was written.")
        return "dataset", "preferences", (), Answers.from_dict(said)
    if said is not None:
        promise = CheckpointPromise.read(place)
        if promise.with_those_of(*folder_promises(place)).sources != promise.sources:
            raise PrivacyError(
                f"config.json in {place.name} speaks of more releases than {PROMISE_FILE}: the "
                "weights are of others. Nothing was sent. Save the model again."
            )
        return "model", promise.kind, promise.sources, promise
    if not (place / REWARD_FILE).is_file():
        raise UsageError(
            f"{place.name} holds neither {PROMISE_FILE} nor {REWARD_FILE}, so nothing says what "
            "was promised. Nothing was sent. Give the folder of a reward, a policy or a data set."
        )
    values = read_json(
        place / REWARD_FILE, kind=REWARD_FORMAT, version=REWARD_VERSION, problem=_PROBLEM
    )
    return "linear", "reward", (), Answers.from_dict(values)


def _card(
    place: Path,
    name: str,
    promise: Answers | CheckpointPromise,
    certificate: Certificate,
) -> str:
    """Return the card in a folder, or a new one; refuse one that does not state the promise."""
    head = certificate.ledger_head
    told = (
        f"Certificate: {', '.join(certificate.release_ids)} on the ledger of {certificate.data!r} "
        f"paid; its head was {head.digest} after {head.rows} rows. `certificate.json` has the rest."
    )
    written = model_card(promise.guarantee, title=f"A private {name}", kind=name, said=[told])
    path = place / CARD_FILE
    if not path.is_file():
        return written
    with explained(f"{CARD_FILE} cannot be read"):
        card = path.read_text(encoding="utf-8")
    (front,) = (line for line in written.splitlines() if line.startswith("privacy: "))
    if front not in card.splitlines() or f"**Promise:** {promise.guarantee}." not in card:
        raise PrivacyError(
            f"{CARD_FILE} does not state what {place.name} promises. Nothing was sent. Put these "
            f"lines back, or delete the card, and one is written:\n{front}\n"
            f"**Promise:** {promise.guarantee}."
        )
    return f"{card.rstrip()}\n\n- {told}\n"
