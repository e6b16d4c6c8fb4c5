"""An uncertainty as a file of safetensors: matrices, and settings in the header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from sordino._files import atomic_writer, explained
from sordino.errors import DataError
from sordino.language.rewards.uncertainty import LastLayerUncertainty
from sordino.rewards.confidence import ConfidenceEllipsoid

__all__ = ["UNCERTAINTY_FILE", "read_uncertainty", "write_uncertainty"]

UNCERTAINTY_FILE = "uncertainty.safetensors"
"""Its name beside the weights of a reward."""

_FORMAT, _VERSION = "sordino.uncertainty", "1"
_ARRAYS = ("metric", "center", "mean")


def write_uncertainty(uncertainty: LastLayerUncertainty | None, folder: Path) -> None:
    """Write an uncertainty into a folder, or remove the one of an earlier reward.

    Raises:
        FileSystemError: It cannot be written.
    """
    path = folder / UNCERTAINTY_FILE
    if uncertainty is None:
        path.unlink(missing_ok=True)
        return
    known = uncertainty.ellipsoid
    content = save(
        {"metric": known.metric, "center": known.center, "mean": uncertainty.mean},
        metadata={
            "format": _FORMAT,
            "version": _VERSION,
            "settings": json.dumps(uncertainty.settings),
        },
    )
    with atomic_writer(path, force=True) as file:
        file.write(content)


def read_uncertainty(folder: Path) -> LastLayerUncertainty | None:
    """Return what :func:`write_uncertainty` wrote; None if there is nothing.

    Raises:
        DataError: The file is malformed, or written by a newer version.
        FileSystemError: It cannot be read.
    """
    path = folder / UNCERTAINTY_FILE
    if not path.exists():
        return None
    try:
        with explained(f"{path.name} cannot be read"), safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in _ARRAYS}
            return _parsed(file.metadata() or {}, arrays)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The uncertainty of the reward cannot be used: {path.name} is damaged, or was "
            "written by a newer sordino."
        ) from error


def _parsed(header: dict[str, str], arrays: dict[str, Any]) -> LastLayerUncertainty:
    """Return what a file holds; any of several errors if it is malformed."""
    if (header["format"], header["version"]) != (_FORMAT, _VERSION):
        raise ValueError
    settings, mean = json.loads(header["settings"]), arrays.pop("mean")
    confidence = settings.pop("confidence")
    np.linalg.cholesky(arrays["metric"])
    known = ConfidenceEllipsoid(**arrays, **settings)
    return LastLayerUncertainty(ellipsoid=known, mean=mean, confidence=confidence)
