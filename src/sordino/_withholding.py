"""What a curator must not let out by accident: objects that refuse to be copied or changed."""

from __future__ import annotations

from typing import NoReturn

from sordino.errors import PrivacyError

__all__ = ["Withholding"]


class Withholding:
    """A value that stays in this process: it hides itself in repr, and cannot be pickled.

    A subclass says in ``_held`` what it is, and sets its attributes through :meth:`_keep`, once:
    a bound that was made for some settings must not stand beside others. Its confidential
    numbers can be reached by whoever reads the memory of the process; what is prevented is that
    they leave it by accident, in a log, a notebook, a cache or a message to another process.
    """

    _held = "This estimate"

    def __repr__(self) -> str:
        """Return the name of the class alone."""
        return f"{type(self).__name__}(withheld)"

    def _keep(self, **values: object) -> None:
        """Set attributes that nobody may change afterwards."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse to be changed.

        Raises:
            PrivacyError: Always.
        """
        raise PrivacyError(
            f"{self._held} cannot be changed after it was made: its promise is about the settings "
            f"it was made with. {name} was not set. Make a new one."
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            PrivacyError: Always.
        """
        raise PrivacyError(
            f"{self._held} is withheld: it must not leave the process that made it, and was not "
            "pickled or copied. Keep the one object, and draw from it."
        )
