"""The values of one private label: what it can be replaced by when one label changes."""

from __future__ import annotations

from typing import Final

__all__ = ["FAIR", "UNDECIDED"]

UNDECIDED: Final = 2
"""A tie, "both bad" or "skip": y = ½, as private as 1 (the first is preferred) and 0."""

FAIR: Final = 2**63
"""An undecided label is answered by 1 on the words below this one: half of all 2^64."""
