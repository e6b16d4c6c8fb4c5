"""Every exception of the library, drawn as one tree.

    SordinoError                      1
    ├── UsageError        ValueError  2   a setting that cannot be used
    │   └── MissingExtra  ImportError 2   an optional dependency is not installed
    ├── PrivacyError                  2   the request would break a promise
    ├── ConvergenceError              2   a fit could not be certified
    ├── EngineError                   1   machines that computed a sum were lost for good
    ├── BudgetExceeded                3   the spend would pass the budget
    ├── DataError         ValueError  4   a file or an array cannot be used
    ├── AuditRefuted                  5   an audit refuted a claim
    ├── AuditInconclusive             6   an audit cannot tell
    ├── PolicyViolated                9   what was released does not keep to a policy
    ├── FileSystemError   OSError     7   cannot read, cannot write, disk full
    └── LedgerError                   8
        ├── LedgerDamaged             8   edited, cut short or unreadable
        └── LedgerMismatch            8   it belongs to another data set

The number is the exit code of the command line. Messages never contain text of the data: of
data they give line, field, shape and dtype, of settings the value.

Beside the tree stands one warning, PrivacyWarning: the promise is kept, and it is a weak one.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


class SordinoError(Exception):
    """The root: catch this to catch everything that the library raises on purpose."""

    exit_code = 1


class UsageError(SordinoError, ValueError):
    """A setting is outside what is permitted; nothing was done."""

    exit_code = 2


class MissingExtra(UsageError, ImportError):
    """An optional dependency is not installed; the message says which command installs it."""


def modules_of_extra(extra: str, need: str, *names: str) -> tuple[Any, ...]:
    """Return modules that need an extra, or say what is missing and how to install it."""
    try:
        with warnings.catch_warnings():  # those of its libraries say nothing about the user's job
            warnings.simplefilter("ignore")
            return tuple(map(import_module, names))
    except ImportError as error:
        if (error.name or "").startswith("sordino"):
            raise
    raise MissingExtra(f"{need} Install it with: pip install 'sordino[{extra}]'")


class PrivacyError(SordinoError):
    """The request would break a promise; nothing was released."""

    exit_code = 2


class ConvergenceError(SordinoError):
    """An optimizer could not certify its solution; nothing was returned."""

    exit_code = 2


class EngineError(SordinoError):
    """An engine lost the machines it computed on, or gave up; nothing was released."""


class BudgetExceeded(SordinoError):
    """The spend would pass the budget; no noise was drawn and nothing was released."""

    exit_code = 3


class DataError(SordinoError, ValueError):
    """Data cannot be used; the message names line and field and never quotes the data."""

    exit_code = 4


class AuditRefuted(SordinoError):
    """An audit refuted a privacy claim."""

    exit_code = 5


class AuditInconclusive(SordinoError):
    """An audit had too little to judge a privacy claim by; the message says what is missing."""

    exit_code = 6


class PolicyViolated(SordinoError):
    """What a project released does not keep to its policy."""

    exit_code = 9


class LedgerError(SordinoError):
    """The ledger cannot be used; nothing was released."""

    exit_code = 8


class LedgerDamaged(LedgerError):
    """The ledger was edited, cut short, or is not readable."""


class LedgerMismatch(LedgerError):
    """The ledger belongs to another data set."""


class FileSystemError(SordinoError, OSError):
    """A file could not be read or written; nothing half-written is left behind."""

    exit_code = 7


class PrivacyWarning(UserWarning):
    """A promise is kept and says little; nothing was spent when this was shown."""
