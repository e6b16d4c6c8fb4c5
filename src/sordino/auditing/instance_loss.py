"""What one data set loses: an audit result, as confidential as the data it was computed from."""

from __future__ import annotations

from typing import NoReturn

from sordino._markup import card
from sordino._withholding import Withholding, confidential, hide
from sordino.errors import PrivacyError
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, NeighboringRelation

__all__ = ["InstanceLoss"]


def _refuse(what: str) -> NoReturn:
    raise PrivacyError(
        f"An instance loss is computed from the private data, so it is confidential, and it was "
        f"not {what}. Publish the Guarantee, which holds for every data set. Whoever holds the "
        "data can read the number with for_curator_only()."
    )


class InstanceLoss(Withholding):
    """How much one draw gives away about this very data set, for the eyes of its curator.

    The number depends on the data and is no guarantee: a neighbor of the data may lose more, and
    the number itself tells about the data. So it is not shown, written, compared or turned into
    a float, and :func:`sordino.certify` refuses it. What is shown is what it is about.

    Attributes:
        about: What the number measures.
        changes: Which neighbors of the data were searched.
        neighbors: The relation that these changes belong to.
        public: Which inputs were taken to be public; every other one is private.

    Source:
        docs/intrinsic.md, "Per-instance losses".

    Example:
        >>> InstanceLoss(0.25, about="loss of one draw", changes="every removed record", public=())
        InstanceLoss(confidential: loss of one draw, over every removed record)
    """

    __slots__ = ("about", "changes", "neighbors", "public")  # so that vars() is empty
    _held = "An instance loss"
    about: str
    changes: str
    neighbors: NeighboringRelation
    public: tuple[str, ...]

    def __init__(self, value: float, *, about: str, changes: str, public: tuple[str, ...]) -> None:
        """Keep the number and what it is about."""
        hide(self, value=float(value))
        self._keep(
            about=about,
            changes=changes,
            public=public,
            neighbors=ADD_OR_REMOVE_ONE,
        )

    def for_curator_only(self) -> float:
        """Return the number itself, which is as confidential as the data.

        It is an audit result about one data set and never a promise: do not publish it, and do
        not choose a temperature by it, because that would release it.
        """
        return float(confidential(self).value)

    def __repr__(self) -> str:
        """Return what the number is about, without the number."""
        return f"InstanceLoss(confidential: {self.about}, over {self.changes})"

    def _repr_html_(self) -> str:
        """Return the same as a card, for notebooks."""
        rows = [
            ("value", "confidential"),
            ("about", self.about),
            ("over", self.changes),
            ("relation", self.neighbors.name),
            ("public", ", ".join(self.public) or None),
        ]
        return card("InstanceLoss", rows)

    def to_dict(self) -> NoReturn:
        """Refuse to become what JSON holds.

        Raises:
            PrivacyError: Always.
        """
        _refuse("written as JSON")

    def _stay(self, *_: object) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            PrivacyError: Always.
        """
        _refuse("pickled or copied")

    __reduce__ = __reduce_ex__ = __getstate__ = __setstate__ = __copy__ = __deepcopy__ = _stay

    def __format__(self, spec: str) -> str:
        """Return the text of ``repr``; refuse the format of a number."""
        return _refuse("formatted as a number") if spec else repr(self)

    def __float__(self) -> NoReturn:
        """Refuse to become a plain number, which nothing would protect."""
        _refuse("turned into a number")

    def __int__(self) -> NoReturn:
        _refuse("turned into a number")

    def __bool__(self) -> bool:
        return bool(_refuse("compared"))

    def __eq__(self, other: object) -> NoReturn:
        """Refuse to be compared: enough comparisons spell a number."""
        _refuse("compared")

    def __lt__(self, other: object) -> NoReturn:
        _refuse("compared")

    __le__ = __gt__ = __ge__ = __lt__
    __ne__ = __eq__

    def __hash__(self) -> int:
        """Refuse to be a key: what cannot be compared is none."""
        return int(_refuse("hashed"))
