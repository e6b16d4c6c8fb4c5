"""A model that stays as it is while the one that it was copied from goes on learning."""

from __future__ import annotations

import copy
from typing import Any

from sordino.language.models._trained_models import is_adapted, plain

__all__ = ["own_copy"]


def own_copy(model: Any) -> Any:
    """Return a model as transformers knows it, adapters merged, in a copy of its weights.

    What is promised of a model is settled when it is handed out. If it shared its weights with a
    trainer, every later step would show in it, and nothing would say so. Gradients stay
    behind: torch copies none of them.

    Args:
        model: As a trainer has it, out of whatever is wrapped around it.
    """
    return plain(model if is_adapted(model) else copy.deepcopy(model))
