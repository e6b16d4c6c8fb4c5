"""How a model is read: offline, in silence, from weights that are not pickled.

What trl is kept from while it works for us.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sordino.errors import FileSystemError, UsageError

FOREIGN = {"onnx", "openvino"}
"""Folders of weights for other libraries, which are never read."""


def existing_folder(path: str | Path, what: str, writer: str) -> Path:
    """Return a folder of this machine; nothing else is a place that a model is read from."""
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError(
            f"There is no folder {str(path)!r}. Nothing was loaded, and nothing is ever fetched: "
            f"give the folder of a {what} on this machine, as {writer} writes it."
        )
    return Path(path)


def refuse_pickles(folder: Path) -> None:
    """Refuse weights that can only be read by unpickling, which may run code."""
    for pickled in folder.rglob("*.bin"):
        beside = pickled.parent
        if not FOREIGN & set(beside.parts) and not any(beside.glob("*.safetensors")):
            raise UsageError(
                f"The weights {pickled.name} are pickled, which can run code. Nothing was loaded. "
                "Save the model again with safe_serialization=True, as *.safetensors."
            )


@contextmanager
def offline() -> Iterator[None]:
    """Refuse every request to a hub while a model is loaded, whatever its settings ask for."""
    from huggingface_hub import constants  # noqa: PLC0415

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the loader's bars and remarks from standard error."""
    from transformers.utils import logging  # noqa: PLC0415

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def safe_loading(problem: str) -> Iterator[None]:
    """Load a model in silence, or say what could not be done, and why."""
    import torch  # noqa: PLC0415

    # Weights that the files leave out get the same values every time, and the user's generator is
    # kept: they are public settings of a feature map, not randomness of a release.
    try:
        with offline(), quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    except Exception as error:  # a loader raises whatever it meets
        reason = (str(error).splitlines() or [""])[0]
        raise UsageError(f"{problem}: {type(error).__name__}: {reason}") from error


@contextmanager
def upstream() -> Iterator[None]:
    """Let trl neither ask a hub nor warn of a name that transformers has changed since."""
    with offline(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`(is_)?gradient_checkpointing", FutureWarning)
        yield
