"""Sentence models from a folder of this machine: nothing is fetched, no foreign code is run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sordino._files import explained, sha256_of
from sordino.errors import FileSystemError, MissingExtra, UsageError
from sordino.language.models._loading import FOREIGN, offline, quiet, refuse_pickles, seeded

__all__ = ["load_sentence_model", "model_digest", "readers_of", "sentence_model_folder"]

_MODULES = "modules.json"
_RULES = {"Normalize", "Pooling"}  # parts that learn nothing
_NEVER_READ = {".bin", ".gguf", ".h5", ".md", ".msgpack", ".onnx", ".ot", ".tflite"}


def sentence_model_folder(path: str | Path) -> Path:
    """Return the folder of a sentence model that can be loaded without trusting its author.

    Args:
        path: A folder that ``SentenceTransformer.save`` wrote. A name on a hub is refused at
            once; nothing is ever fetched.

    Raises:
        FileSystemError: There is no such folder, or it cannot be read.
        UsageError: It holds no sentence model, one that brings code of its own, one whose
            weights are pickled, or one that needs files of another model.
    """
    if not isinstance(path, str | Path):
        raise UsageError(f"path must be the path of a folder, got {type(path).__name__}.")
    folder = Path(path)
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError(
            f"There is no folder {str(path)!r}. Nothing was loaded, and nothing is ever fetched: "
            "give the folder of a sentence model on this machine, as SentenceTransformer.save "
            "writes it."
        )
    with explained(f"The folder {str(path)!r} cannot be read"):
        _refuse_other_code(folder)
        refuse_pickles(folder)
        _refuse_adapters(folder)
    return folder


def model_digest(folder: Path) -> str:
    """Return a SHA-256 over the names and contents of all files that can change an embedding.

    Left out are hidden files, ``*.md``, and weights for other libraries, which are never read,
    so that two copies of one model agree.

    Args:
        folder: The folder of a sentence model.

    Raises:
        FileSystemError: A file cannot be read.
    """
    digest = hashlib.sha256()
    with explained("The sentence model cannot be read"):
        for name in sorted(_read(folder)):
            digest.update(os.fsencode(name) + b"\0" + sha256_of(folder / name).encode() + b"\n")
    return digest.hexdigest()


def load_sentence_model(folder: Path, device: str | None) -> Any:
    """Return the model, ready to be used and not to be trained, in 32-bit floats.

    Args:
        folder: What :func:`sentence_model_folder` returned.
        device: As PyTorch names it; an accelerator, if there is one, where it is None.

    Raises:
        MissingExtra: The extra ``language`` is not installed.
        UsageError: The model or the device cannot be used.
    """
    library = _sentence_transformers()
    try:
        with offline(), quiet(), seeded():
            model = library.SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        return model.float().eval()
    except Exception as error:  # a loader raises whatever it meets
        reason = (str(error).splitlines() or [""])[0]
        raise UsageError(
            f"The sentence model {str(folder)!r} cannot be loaded with device={device!r}: "
            f"{type(error).__name__}: {reason}"
        ) from error


def readers_of(model: Any) -> list[Any]:
    """Return the parts of a sentence model that may have learned from texts.

    Of a part with weights, lists or rules of its own that is no transformer nobody knows what it
    has read: it is returned as it is.

    Args:
        model: What :func:`load_sentence_model` returned.
    """
    found: list[Any] = []
    for part in model:
        inner = getattr(part, "auto_model", None)
        if inner is not None:
            found += [inner, part.tokenizer]
        elif type(part).__name__ not in _RULES:
            found.append(part)
    return found


def _sentence_transformers() -> Any:
    """Return the library; say what is missing where it is not installed."""
    try:
        import sentence_transformers  # noqa: PLC0415 (heavy: whoever does not use it must not wait)
    except ImportError as error:
        raise MissingExtra(
            "Sentence embeddings need libraries that are not installed. Make sure you have "
            "installed everything with: pip install 'sordino[language]'"
        ) from error
    return sentence_transformers


def _refuse_other_code(folder: Path) -> None:
    """Refuse a model whose parts are not those of sentence-transformers itself."""
    try:
        parts = json.loads((folder / _MODULES).read_bytes())
        kinds = [part["type"] for part in parts]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        kinds = []
    if not kinds:
        raise UsageError(
            f"{str(folder)!r} holds no sentence model: {_MODULES} is missing or malformed. Give a "
            "folder that SentenceTransformer.save wrote."
        )
    if not all(
        isinstance(kind, str) and kind.startswith("sentence_transformers.") for kind in kinds
    ):
        raise UsageError(
            f"The model in {str(folder)!r} brings code of its own, which is never run. Nothing was "
            "loaded. Choose a model of sentence-transformers' own parts."
        )


def _refuse_adapters(folder: Path) -> None:
    """Refuse an adapter: what it is an adapter of lies elsewhere, and no digest would hold it."""
    if any(folder.rglob("adapter_config.json")):
        raise UsageError(
            f"{str(folder)!r} holds an adapter of another model. Nothing was loaded. Merge the two "
            "and save the whole model."
        )


def _read(folder: Path) -> Iterator[str]:
    """Yield the names, below the folder, of the files that an embedding may depend on."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        foreign = bool(FOREIGN & set(name.parts)) or path.suffix.lower() in _NEVER_READ
        if path.is_file() and not hidden and not foreign:
            yield name.as_posix()
