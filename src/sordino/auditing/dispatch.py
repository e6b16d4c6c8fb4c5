"""One name for five audits: of a mechanism, a released file, a run, a trainer, of weights."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, cast

from sordino.auditing.findings import Audit
from sordino.auditing.releases.leaks import audit_release
from sordino.auditing.runs.replay import RESULT, audit_run
from sordino.auditing.statistical.distinguishing import audit_mechanism
from sordino.errors import FileSystemError, UsageError, modules_of_extra
from sordino.mechanisms.base import Mechanism


def audit(subject: object, **settings: Any) -> Audit:
    """Return an attempt to refute what a mechanism, a released file, a run or a trainer promises.

    An audit has three ends: ``"refuted"``; ``"not refuted"``, with the loss that would have been
    found; and ``"cannot tell"``, with what is missing. What is not refuted is not proved. Nothing
    is written or sent anywhere, and nothing is spent unless a trainer is given canaries for a
    whole run, which its own ledger pays for.

    Args:
        subject: A mechanism, which is played on its worst neighboring inputs; the path of a file
            of randomized answers, ours or anybody's, or of a folder of such files; the folder of a
            run of ``sordino align`` or of a checkpoint; or a trainer on raw pairs, such as
            ``sordino.language.CentralRewardTrainer``.
        **settings: For a mechanism those of
            :func:`sordino.auditing.statistical.distinguishing.audit_mechanism`: ``unit``,
            ``neighbors``, ``trust``, and more. For a file those of
            :func:`sordino.auditing.releases.leaks.audit_release`: ``epsilon``, ``unit``, and
            ``raw`` (the raw file), ``manifest``, and more. For a folder ``ledger``, if it lies
            elsewhere; or, of any weights, those of :func:`sordino.auditing.canaries.audit_model`:
            ``canaries``, ``held_out``, ``reference``, and more. For a trainer those of
            :func:`sordino.auditing.training.audit_training`.

    Raises:
        UsageError: A setting is missing, unknown, or out of range.
        DataError: A file cannot be used.
        FileSystemError: There is no such file or folder, or it cannot be read.

    Example:
        >>> from sordino import REPLACE_ONE, RandomizedResponse
        >>> found = audit(RandomizedResponse(1.0), unit="label", neighbors=REPLACE_ONE,
        ...               trust="central", trials=1000, simulate_seed=0)
        >>> found.verdict
        'not refuted'
    """
    kind = _kind(subject, settings)
    try:
        inspect.signature(kind).bind(subject, **settings)
    except TypeError as error:
        permitted = ", ".join(list(inspect.signature(kind).parameters)[1:])
        raise UsageError(
            f"An audit of this kind cannot be made: {error}. Nothing was audited. It takes "
            f"{permitted}."
        ) from None
    return kind(subject, **settings)


def _kind(subject: object, settings: Collection[str]) -> Callable[..., Audit]:
    """Return what audits such a subject; a folder is of a run, of released files, or of weights."""
    if isinstance(subject, (str, Path)):
        path = Path(subject)
        if "canaries" in settings:
            need = "An audit of weights needs libraries that are not installed."
            (home,) = modules_of_extra("language", need, "sordino.auditing.canaries")
            return cast("Callable[..., Audit]", home.audit_model)
        if path.is_dir() and not ("epsilon" in settings and not (path / RESULT).exists()):
            return audit_run
        if path.exists():
            return audit_release
        raise FileSystemError(
            f"There is no file or folder {path.name}. To audit a mechanism give the mechanism "
            "itself, not its name."
        )
    if isinstance(subject, Mechanism):
        return audit_mechanism
    # What trains on raw pairs is known without loading what such trainers need.
    home = sys.modules.get("sordino.language.dp_sgd.training")
    if home is not None and isinstance(subject, home.CentralTraining):
        from sordino.auditing.training import audit_training  # noqa: PLC0415 (needs the extra)

        return audit_training
    raise UsageError(
        "An audit is of a mechanism, of the path of a released file, of the folder of a run, or "
        f"of a trainer on raw pairs; got {type(subject).__name__}."
    )
