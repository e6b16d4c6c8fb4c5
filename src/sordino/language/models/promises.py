"""What a checkpoint promises, the digest of its weights, and where a killed run goes on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from sordino import _validate
from sordino._files import read_json, sha256_of, write_json, write_text
from sordino.certificates import Certificate, certify_releases
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.preferences.pairs import PrivatePairs
from sordino.privacy.exports import model_card
from sordino.privacy.guarantee import Guarantee, merge
from sordino.privacy.ledger_chain import canonical_json, digest_of_json

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROMISE_FILE, CARD_FILE, CERTIFICATE_FILE = "sordino.json", "README.md", "certificate.json"
"""What stands beside the weights."""

MODEL_FILES = (
    *("config.json", "generation_config.json", "tokenizer*.json", "tokenizer.model", "vocab.*"),
    *("merges.txt", "added_tokens.json", "special_tokens_map.json", "chat_template.jinja"),
)
"""What belongs to a model besides its weights."""

_WEIGHTS = (
    "model.safetensors",
    "*.safetensors.index.json",
    "adapter_*.safetensors",
    "adapter_*.json",
)

PROMISED = "sordino_promise"
"""The same within the config of a model, so that it goes wherever the weights go."""

TEXTS_READ = "sordino_texts_read"
"""Beside it, and within the settings of a tokenizer: what was read without privacy."""

_FORMAT, _VERSION = "sordino.checkpoint", 1
_PROBLEM = "The checkpoint's promise cannot be used"
_LARGEST_DELTA = math.nextafter(1.0, 0.0)
Kind = Literal["reward", "policy"]
_USAGE = {
    "reward": "from sordino.language import TextRewardModel\n\n"
    'reward = TextRewardModel.load("this/folder")\n'
    'reward.score(["How do I bake rye bread?"], ["Mix flour and water, then wait."])',
    "policy": "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
    'model = AutoModelForCausalLM.from_pretrained("this/folder")\n'
    'tokenizer = AutoTokenizer.from_pretrained("this/folder")',
}


@dataclass(frozen=True, kw_only=True)
class Answers:
    """One release of randomized answers that weights were trained on, or metrics measured on."""

    guarantee: Guarantee  # what it promises
    release_ids: tuple[str, ...] = ()  # ledger entries that paid for it, or recorded its arrival
    artifact: str = ""  # SHA-256 of the released answers

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the entries that paid; answers that no ledger knows say so where one is asked."""
        return self.release_ids or (f"not-recorded:{self.artifact[:16]}",)

    def to_dict(self) -> dict[str, Any]:
        """Return the release as JSON holds it."""
        return {
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "release_ids": list(self.release_ids),
            "artifact": self.artifact,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Answers:
        """Return what :meth:`to_dict` wrote."""
        try:
            return cls(
                guarantee=Guarantee.from_dict(found["guarantee"], found["caveats"]),
                release_ids=tuple(map(str, found["release_ids"])),
                artifact=str(found["artifact"]),
            )
        except (SordinoError, KeyError, TypeError, ValueError) as error:
            raise DataError("What was promised cannot be read: it is malformed.") from error


@dataclass(frozen=True, kw_only=True)
class CheckpointPromise:
    """What the labels behind a checkpoint were promised, and which entries paid for them."""

    # Every different release of answers that went into the weights counts, and all of them may be
    # of the same people, so that their losses add up.

    kind: Kind  # `"reward"` or `"policy"`
    sources: tuple[Answers, ...]  # the releases, the one that was trained on last first
    # Public settings that a reader needs, such as `loss` and `reward_bound`.
    training: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        _validate.one_of("kind", self.kind, get_args(Kind))
        different = tuple(dict.fromkeys(self.sources))
        object.__setattr__(self, "sources", different)
        parts = [one.guarantee for one in different]
        total = merge(
            parts,
            epsilon=math.fsum(part.epsilon for part in parts),
            delta=min(math.fsum(part.delta for part in parts), _LARGEST_DELTA),
        )
        object.__setattr__(self, "guarantee", parts[0] if len(parts) == 1 else total)

    @property
    def release_ids(self) -> tuple[str, ...]:
        """Return the ledger entries that paid for all of it."""
        if len(self.sources) == 1:
            return self.sources[0].release_ids
        return tuple(dict.fromkeys(entry for one in self.sources for entry in one.ids))

    @property
    def artifact(self) -> str:
        """Return the SHA-256 of the answers that were trained on last."""
        return self.sources[0].artifact

    @classmethod
    def of(cls, pairs: PrivatePairs, /, *, kind: Kind, **training: object) -> CheckpointPromise:
        """Return what a checkpoint promises that was trained on these answers alone."""
        answers = Answers(
            guarantee=pairs.guarantee, release_ids=pairs.release_ids, artifact=pairs.artifact
        )
        return cls(kind=kind, sources=(answers,), training=training)

    def with_those_of(self, *others: CheckpointPromise) -> CheckpointPromise:
        """Return a promise that also covers what others speak for; a release counts once."""
        more = (one for other in others for one in other.sources)
        return replace(self, sources=(*self.sources, *more))

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as JSON holds it."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": self.kind,
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "sources": [one.to_dict() for one in self.sources],
            "training": dict(self.training),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> CheckpointPromise:
        """Return what :meth:`to_dict` wrote."""
        try:
            promise = cls(
                kind=found["kind"],
                sources=tuple(map(Answers.from_dict, found["sources"])),
                training=dict(found["training"]),
            )
            stated = Guarantee.from_dict(found["guarantee"], found["caveats"])
        except (SordinoError, KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(f"{_PROBLEM}: it is malformed.") from error
        if stated != promise.guarantee:
            raise DataError(f"{_PROBLEM}: {stated} is not what its releases add up to.")
        return promise

    @classmethod
    def read(cls, folder: Path) -> CheckpointPromise:
        """Return what :meth:`write` wrote."""
        path = folder / PROMISE_FILE
        return cls.from_dict(read_json(path, kind=_FORMAT, version=_VERSION, problem=_PROBLEM))

    def mark(self, model: PreTrainedModel) -> None:
        """Write the promise into a model's config, which every copy of the model keeps."""
        setattr(model.config, PROMISED, self.to_dict())

    def write(self, folder: Path, *, title: str, more: Iterable[str] = ()) -> None:
        """Write ``sordino.json`` and the model card beside the weights of a checkpoint."""
        # It says which files it speaks for: the model's, and any ``more`` that were written.
        names = {*more, *_loadable(folder)}
        for index in folder.glob("*.safetensors.index.json"):
            names |= {*json.loads(index.read_bytes())["weight_map"].values()}
        files = {
            name: sha256_of(folder / name) for name in sorted(names) if (folder / name).is_file()
        }
        write_json(folder / PROMISE_FILE, self.to_dict() | {"files": files}, force=True)
        write_text(folder / CARD_FILE, self.card(title), force=True)

    def card(self, title: str) -> str:
        """Return a model card whose YAML front carries the promise and every caveat."""
        front = {"library_name": "transformers", "training": dict(self.training)}
        usage = _USAGE[self.kind]
        return model_card(self.guarantee, title=title, kind=self.kind, usage=usage, front=front)


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder says what weights of a trainer promise."""
    try:
        return bool(json.loads((folder / PROMISE_FILE).read_bytes())["format"] == _FORMAT)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _loadable(folder: Path) -> Iterator[str]:
    """Yield the names of files that are loaded with a model, wherever they come from."""
    return (path.name for each in (*_WEIGHTS, *MODEL_FILES) for path in folder.glob(each))


def checkpoint_files(folder: Path) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """Return ``sordino.json``, which files it does not speak for, and the SHA-256 of all."""
    path = folder / PROMISE_FILE
    values = read_json(path, kind=_FORMAT, version=_VERSION, problem=_PROBLEM)
    files = values.get("files")
    if not (isinstance(files, dict) and files and all(isinstance(v, str) for v in files.values())):
        raise DataError(f"{_PROBLEM}: it does not say which files it speaks for.")
    # A name is that of a file beside the promise, wherever else it may point.
    # What was laid beside would be loaded too: an adapter changes the weights below it.
    names = {PROMISE_FILE, *_loadable(folder), *(name for name in files if Path(name).name == name)}
    found = {name: sha256_of(folder / name) for name in sorted(names) if (folder / name).is_file()}
    stated = files | {PROMISE_FILE: found[PROMISE_FILE]}
    other = [name for name in {*stated, *found} if found.get(name) != stated.get(name)]
    return values, sorted(other), found


def certify_checkpoint(folder: Path, ledger: Path) -> Certificate:
    """Return what a checkpoint promises, by digest of its files, if a ledger paid for all of it."""
    # Guarantee: As of sordino.certify, of every release behind the weights. Shown by
    # tests/language/test_checkpoint_audit.py.
    values, other, found = checkpoint_files(folder)
    promise = CheckpointPromise.from_dict(values)
    if other:
        raise DataError(
            f"{other[0]} is not the file that {PROMISE_FILE} speaks for. Nothing was certified. "
            "Save the model again, into a folder of its own."
        )
    releases: list[Answers | CheckpointPromise] = [*promise.sources, promise]
    digest = digest_of_json(found)
    return certify_releases(releases, ledger, kind=promise.kind, digest=digest, for_study=True)


_NO_PART_OF_IT = {
    *("architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"),
    *(PROMISED, TEXTS_READ),  # what the weights were trained on is no part of what they compute
}
_CHANGED_BY_USE = {"padding", "truncation"}  # set anew at every call of a tokenizer


def weights_digest(model: PreTrainedModel) -> str:
    """Return a SHA-256 over a model's config and weights, the latter as 32-bit floats."""
    # It is the same before and after a model is saved, and on every device.
    config = json.loads(model.config.to_json_string(use_diff=False))
    known = {
        name: value
        for name, value in config.items()
        if name not in _NO_PART_OF_IT and not name.startswith("_")
    }
    start = json.dumps(known, sort_keys=True).encode()
    return tensors_digest(sorted(model.state_dict().items()), start=start)


def tensors_digest(named: Iterable[tuple[str, torch.Tensor]], *, start: bytes = b"") -> str:
    """Return a SHA-256 over tensors as 32-bit floats, and over what stands before them."""
    digest = hashlib.sha256(start)
    for name, tensor in named:
        values = tensor.detach().cpu().float().contiguous()
        digest.update(f"\0{name} {tuple(values.shape)}\0".encode())
        digest.update(memoryview(values.numpy()).cast("B") if values.numel() else b"")
    return digest.hexdigest()


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a SHA-256 over what decides how a tokenizer turns dialogues into tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    known = {name: value for name, value in rules.items() if name not in _CHANGED_BY_USE}
    special = [tokenizer.chat_template, tokenizer.eos_token_id, tokenizer.pad_token_id]
    return hashlib.sha256(canonical_json([known, special]).encode()).hexdigest()


def reward_promises(functions: Iterable[object]) -> list[CheckpointPromise]:
    """Return the promises that reward functions carry, as ``promise`` or ``reward.promise``."""
    carried = [
        getattr(one, "promise", None) or getattr(getattr(one, "reward", None), "promise", None)
        for one in functions
    ]
    return [one for one in carried if isinstance(one, CheckpointPromise)]


def folder_promises(*models: object) -> list[CheckpointPromise]:
    """Return the promises that models carry: in their config, and beside their weights."""
    carried = []
    for model in models:
        place = model if isinstance(model, str | Path) else getattr(model, "name_or_path", None)
        folder = Path(place) if place else None
        marks = [getattr(getattr(model, "config", None), PROMISED, None)]
        if folder is not None and folder.is_dir():
            with suppress(OSError, ValueError, AttributeError):
                marks.append(json.loads((folder / "config.json").read_bytes()).get(PROMISED))
        carried += [CheckpointPromise.from_dict(mark) for mark in marks if mark]
        if folder is not None and (folder / PROMISE_FILE).is_file():
            carried.append(CheckpointPromise.read(folder))
    return carried


def policy_promise(
    carried: Iterable[CheckpointPromise],
    given: CheckpointPromise | None,
    training: Mapping[str, Any],
) -> CheckpointPromise | None:
    """Return what a policy promises that was trained on public prompts and these rewards."""
    # Guarantee: That of the randomized answers behind the reward: training is post-processing.
    # Shown by tests/language/test_rebel.py.
    # Different releases may be of the same people, so their losses add up; one release counts once.
    known = [*carried, *([] if given is None else [given])]
    sources = tuple(source for one in known for source in one.sources)
    if not sources:
        return None
    return CheckpointPromise(kind="policy", sources=sources, training=dict(training))


LAST_WRITTEN = "trainer_state.json"
"""The last file of a checkpoint: without it, it was not finished."""


def resumable(
    wanted: str | Path | bool | None,  # noqa: FBT001 (transformers')
    output: str | Path,
    promise: CheckpointPromise | None,
) -> tuple[str | None, CheckpointPromise | None]:
    """The folder of the checkpoint to go on from, or None to start, and what both promise."""
    # A checkpoint may speak for more than this run: for what it started from, or was measured on.
    if wanted is None or wanted is False:
        return None, promise
    folder = complete_checkpoint(wanted, output)
    if promise is None:
        return str(folder), next(iter(folder_promises(folder)), None)
    found = CheckpointPromise.read(folder)
    if found.artifact != promise.artifact:
        raise PrivacyError(
            f"The checkpoint {str(folder)!r} was trained on other answers than these, so its "
            "promise would not speak for what comes out. Nothing was trained. Resume with the "
            "answers that the run began with; they are never randomized again."
        )
    if (found.kind, dict(found.training)) != (promise.kind, dict(promise.training)):
        raise UsageError(
            f"The checkpoint {str(folder)!r} was made with other settings: {dict(found.training)} "
            f"and now {dict(promise.training)}. Nothing was trained."
        )
    return str(folder), promise.with_those_of(found)


def complete_checkpoint(wanted: str | Path | bool, output: str | Path) -> Path:  # noqa: FBT001
    """Return the folder of a checkpoint that was written to its end."""
    if isinstance(wanted, bool):
        complete = {
            int(step): folder
            for folder in Path(output).glob("checkpoint-*")
            if (step := folder.name.removeprefix("checkpoint-")).isdigit()
            and (folder / LAST_WRITTEN).is_file()
        }
        folder = complete[max(complete)] if complete else None
    else:
        folder = Path(wanted)
    if folder is None or not (folder / LAST_WRITTEN).is_file():
        raise UsageError(
            f"There is no complete checkpoint in {str(folder or output)!r} to resume from. Nothing "
            "was trained. Leave resume_from_checkpoint out to start from the beginning."
        )
    return folder
