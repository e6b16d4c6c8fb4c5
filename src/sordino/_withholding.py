"""What a curator must not let out by accident: objects that refuse to be copied or changed."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any, Final, NoReturn

from sordino.errors import PrivacyError

_HIDDEN: Final[dict[int, SimpleNamespace]] = {}  # by id: what is withheld may refuse to be a key


def hide(held: Withholding, **values: object) -> None:
    """Keep confidential numbers beside an object instead of in it, for as long as it lives."""
    _HIDDEN[id(held)] = SimpleNamespace(**values)
    weakref.finalize(held, _HIDDEN.pop, id(held), None)


def confidential(held: Withholding) -> Any:
    """Return what :func:`hide` kept; whoever calls this is the curator."""
    return _HIDDEN[id(held)]


class Withholding:
    """A value that stays in this process: it hides itself in repr, and cannot be pickled."""

    # A subclass says in `_held` what it is, and sets its public attributes through `_keep`, once: a
    # bound that was made for some settings must not stand beside others. Confidential numbers are
    # no attributes; `hide` keeps them apart. They can be reached by whoever reads the memory of the
    # process or uses names that begin with an underscore: that is the curator. What is prevented is
    # that they leave by a public name or by what Python does to every object, in a log, a notebook,
    # a cache or a message to another process.

    _held = "This estimate"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(withheld)"

    def _keep(self, **values: object) -> None:
        """Set attributes that nobody may change afterwards."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, *_: object) -> NoReturn:
        raise PrivacyError(
            f"{self._held} cannot be changed after it was made: its promise is about the settings "
            f"it was made with. {name} was not set or deleted. Make a new one."
        )

    __delattr__ = __setattr__

    def __init_subclass__(cls) -> None:
        """Refuse heirs from elsewhere, whose methods would be handed what is withheld."""
        super().__init_subclass__()
        if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
            raise PrivacyError(
                f"{cls.__name__} cannot inherit from what is withheld: its methods would see "
                "confidential numbers. No class was made. Keep the object as it is in an attribute."
            )

    def __reduce__(self, *_: object) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise PrivacyError(
            f"{self._held} is withheld: it must not leave the process that made it, and was not "
            "pickled or copied. Keep the one object, and draw from it."
        )

    __reduce_ex__ = __getstate__ = __setstate__ = __copy__ = __deepcopy__ = __reduce__
