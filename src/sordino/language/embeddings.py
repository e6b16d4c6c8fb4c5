"""What an answer says, as a sentence model of your own machine sees it: a bounded feature map.

Sentence models from a folder of this machine: nothing is fetched, no foreign code is run.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sordino._files import explained, sha256_of
from sordino._validate import integer, number, one_of
from sordino.errors import UsageError, modules_of_extra
from sordino.language.models.loading import FOREIGN, existing_folder, refuse_pickles, safe_loading
from sordino.preferences.features import SIGNALS, FunctionFeatures, HashedText, flatten
from sordino.preferences.records import Text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from sordino.language.references.texts import TextsRead
    from sordino.preferences.comparisons import Comparisons
    from sordino.preferences.rankings import Rankings

_MODULES = "modules.json"
_RULES = {"Normalize", "Pooling"}  # parts that learn nothing
_NEVER_READ = {".bin", ".gguf", ".h5", ".md", ".msgpack", ".onnx", ".ot", ".tflite"}


def _sentence_model_folder(path: str | Path) -> Path:
    """Return the folder of a sentence model that can be loaded without trusting its author."""
    if not isinstance(path, str | Path):
        raise UsageError(f"path must be the path of a folder, got {type(path).__name__}.")
    folder = existing_folder(path, "sentence model", "SentenceTransformer.save")
    with explained(f"The folder {str(path)!r} cannot be read"):
        try:
            parts = json.loads((folder / _MODULES).read_bytes())
            kinds = [part["type"] for part in parts]
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            kinds = []
        if not kinds:
            raise UsageError(
                f"{str(folder)!r} holds no sentence model: {_MODULES} is missing or malformed. "
                "Give a folder that SentenceTransformer.save wrote."
            )
        ours = "sentence_transformers."
        if not all(isinstance(kind, str) and kind.startswith(ours) for kind in kinds):
            raise UsageError(
                f"The model in {str(folder)!r} brings code of its own, which is never run. "
                "Nothing was loaded. Choose a model of sentence-transformers' own parts."
            )
        refuse_pickles(folder)
        if any(folder.rglob("adapter_config.json")):  # no digest would hold what it adapts
            raise UsageError(
                f"{str(folder)!r} holds an adapter of another model. Nothing was loaded. Merge the "
                "two and save the whole model."
            )
    return folder


def model_digest(folder: Path) -> str:
    """Return a SHA-256 over the names and contents of all files that can change an embedding."""
    # Left out are hidden files, `*.md`, and weights for other libraries, which are never read, so
    # that two copies of one model agree.
    digest = hashlib.sha256()
    with explained("The sentence model cannot be read"):
        for name in sorted(_read(folder)):
            digest.update(os.fsencode(name) + b"\0" + sha256_of(folder / name).encode() + b"\n")
    return digest.hexdigest()


def _read(folder: Path) -> Iterator[str]:
    """Yield the names, below the folder, of the files that an embedding may depend on."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        foreign = bool(FOREIGN & set(name.parts)) or path.suffix.lower() in _NEVER_READ
        if path.is_file() and not hidden and not foreign:
            yield name.as_posix()


_READ = 1 << 16  # characters of a text that are read: more than any sentence model takes in


@dataclass(frozen=True)
class SentenceEmbeddings:
    """What an answer says, how near it is to the prompt, and the shape of the answer.

    A row holds, side by side and clipped as a whole to norm L:

    - with ``with_shape``, the shape of the answer: the signals of ``HashedText``, not its words;
    - w/√2 times the embedding of the answer, scaled to norm 1;
    - w/√2 times the cosine between the embeddings of prompt and answer,

    all times L, with w = ``embedding_norm``. The map is fixed by the files of the model and by
    public constants, so it is independent of the data as long as the model was not trained on
    them. A row depends on its own prompt and answer only, up to the last bits of 32-bit
    arithmetic, which may vary with the texts that share its batch, and with the machine. With
    ``batch_size=1`` nothing shares a batch, and on one machine a row is the same bit by bit; fits
    that hide whole records always read texts so, and refuse a model that has read them before.

    The model is read from its folder; nothing is ever fetched, no code that comes with a model
    is run, and pickled weights are refused. Of a text at most the first 65,536 characters, and
    of those as many tokens as the model takes, are read. A blank text has embedding 0.

    Args:
        path: The folder of a sentence model, as ``SentenceTransformer.save`` writes it.
        feature_bound: L, within 1e-100 and 1e100; each row is clipped to it on its own.
        embedding_norm: w, above 0 and at most 1: the share of L that the embedding takes.
        with_shape: Whether the shape stands beside; False leaves the embedding and the cosine.
        batch_size: Texts that are embedded at once, where texts are public.
        device: As PyTorch names it, such as ``"cpu"``; an accelerator, if there is one, where it
            is left out.
        declare_unread: Whether you declare that the model has not read the records that a fit
            hides. It is needed where that is not known, and becomes a caveat.

    Attributes:
        digest: SHA-256 over the files of the model, by which a reward knows it wherever it lies.
        name: That of its folder.

    Raises:
        MissingExtra: The extra ``language`` is not installed.
        FileSystemError: There is no such folder; the network is not asked.
        UsageError: A setting or the model cannot be used.

    Example:
        >>> features = SentenceEmbeddings("models/all-MiniLM-L6-v2")  # doctest: +SKIP
        >>> reward = sordino.fit_reward(private, features=features)  # doctest: +SKIP
    """

    path: str | Path = field(compare=False)
    _: KW_ONLY
    feature_bound: float = 1.0
    embedding_norm: float = 0.5
    with_shape: bool = True
    batch_size: int = field(default=32, compare=False)
    device: str | None = field(default=None, compare=False)
    declare_unread: bool = field(default=False, compare=False)
    digest: str = field(init=False)
    name: str = field(init=False, compare=False)
    _model: SentenceTransformer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folder, share = _sentence_model_folder(self.path), self.embedding_norm
        if not 0 < number("embedding_norm", share) <= 1:
            raise UsageError(f"embedding_norm must be above 0 and at most 1, got {share!r}.")
        settings = {
            "feature_bound": HashedText(1, feature_bound=self.feature_bound).feature_bound,
            "with_shape": one_of("with_shape", self.with_shape, (True, False)),
            "embedding_norm": float(share),
            "batch_size": integer("batch_size", self.batch_size, at_least=1),
            "name": folder.resolve().name,
            "digest": model_digest(folder),
        }
        need = "Sentence embeddings need libraries that are not installed."
        (library,) = modules_of_extra("language", need, "sentence_transformers")
        with safe_loading(
            f"The sentence model {str(folder)!r} cannot be loaded with device={self.device!r}"
        ):
            model: SentenceTransformer = library.SentenceTransformer(
                str(folder),
                device=self.device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
            settings["_model"] = model.float().eval()
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    @property
    def dimension(self) -> int:
        """Return d, the number of features."""
        return len(SIGNALS) * self.with_shape + int(self._model.get_embedding_dimension()) + 1

    def transform(
        self, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, "n d"]:
        """Return one row for each prompt and answer, of norm at most L.

        Args:
            prompts: n texts or lists of chat messages.
            answers: n texts or lists of chat messages.

        Raises:
            DataError: The lengths differ, an element is no text, or the model gave no finite
                row for it; the message gives its index.
        """
        bounded = FunctionFeatures(
            self._rows, dimension=self.dimension, feature_bound=self.feature_bound, name=self.name
        )
        return bounded.transform(prompts, answers)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values; of the model its name and digest, not its place."""
        return {
            "kind": "sentence-embeddings",
            "name": self.name,
            "digest": self.digest,
            "dimension": self.dimension,
            "feature_bound": self.feature_bound,
            "embedding_norm": self.embedding_norm,
            "with_shape": self.with_shape,
        }

    def _differences(
        self, prompts: Sequence[Text], first: Sequence[Text], second: Sequence[Text]
    ) -> Float[np.ndarray, "n d"]:
        rows = self.transform([*prompts, *prompts], [*first, *second])
        return np.asarray(rows[: len(prompts)] - rows[len(prompts) :])

    @cached_property
    def _read(self) -> TextsRead:
        """Return what the model has read, as far as it and its tokenizer say."""
        from sordino.language.references import texts  # noqa: PLC0415 (loads torch)

        # Of a part with weights, lists or rules of its own that is no transformer nobody knows what
        # it has read: it is asked as it is.
        found: list[Any] = []
        for part in self._model:
            inner = getattr(part, "auto_model", None)
            if inner is not None:
                found += [inner, part.tokenizer]
            elif type(part).__name__ not in _RULES:
                found.append(part)
        return texts.TextsRead.on(*found)

    def _has_read(self, private: Comparisons | Rankings | None) -> dict[str, bool]:
        kind = type(self._read)
        return self._read.beside(kind() if private is None else kind.of(private))

    @property
    def _alone(self) -> SentenceEmbeddings:
        from sordino.language.dp_sgd.clipping import refuse_shared_lengths  # noqa: PLC0415 (torch)

        for part in self._model:  # what remembers how long texts are tells of them
            if hasattr(part, "auto_model"):
                read = part.tokenizer.model_max_length
                refuse_shared_lengths(part.auto_model, part.tokenizer, read)
        found = copy.copy(self)
        object.__setattr__(found, "batch_size", 1)
        return found

    def _rows(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, "n d"]:
        asked, said = flatten(prompts, "prompts"), flatten(answers, "answers")
        # Nothing is read of a blank text, and no half of a character.
        cleaned = [
            "" if text.isspace() else text[:_READ].encode("utf-8", "replace").decode("utf-8")
            for text in (*asked, *said)
        ]
        different = {text: row for row, text in enumerate(dict.fromkeys(filter(None, cleaned)))}
        # One embedding of norm 1 for each different text, and behind them 0 for a blank one.
        found = np.zeros((len(different) + 1, int(self._model.get_embedding_dimension())))
        if different:
            rows = self._model.encode(
                list(different), batch_size=self.batch_size, show_progress_bar=False
            )
            norms = np.linalg.norm(rows := np.asarray(rows, np.float64), axis=1, keepdims=True)
            found[:-1] = rows / np.where(norms == 0, 1.0, norms)
        both = found[[different.get(text, -1) for text in cleaned]]
        prompt, answer = both[: len(asked)], both[len(asked) :]
        nearness = (prompt * answer).sum(axis=1, keepdims=True)
        meaning = np.hstack([answer, nearness]) * (self.embedding_norm / np.sqrt(2))
        parts = [meaning]
        if self.with_shape:  # the signals stand first, and have norm at most 1 together
            shape = HashedText(2 * len(SIGNALS), word_norm=0.0).transform(asked, said)
            parts.insert(0, shape[:, : len(SIGNALS)].toarray())
        return np.asarray(np.hstack(parts) * self.feature_bound)
