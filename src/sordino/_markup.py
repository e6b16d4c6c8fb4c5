"""Small pieces of HTML for notebooks: escaped, and readable on light and dark pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_FRAME = (
    "display:inline-block;max-width:100%;box-sizing:border-box;border:1px solid "
    "rgba(128,128,128,.5);border-radius:8px;padding:10px 14px;line-height:1.5;text-align:left"
)
_BADGE = (
    "display:inline-block;background:#a8201a;color:#ffffff;font-weight:700;padding:1px 8px;"
    "border-radius:4px;margin-bottom:4px"
)
_TABLE = "border-collapse:collapse;margin:4px 0 0;border:0;font-size:inherit"
_ROW = "background:transparent;border:0"
_CELL = "text-align:left;vertical-align:top;border:0"
_NAME = f"{_CELL};padding:1px 14px 1px 0;font-weight:400;opacity:.8;white-space:nowrap"
_VALUE = f"{_CELL};padding:1px 0;white-space:normal;overflow-wrap:anywhere"


def harmless(text: str) -> str:
    """Return text whose control characters and marks of direction show as �."""
    # Such characters can make a line read otherwise than it was written, and lone surrogates cannot
    # be written to a file at all. Line breaks and tabs stay.
    return _HIDDEN.sub("\ufffd", text)


def _text(value: object) -> str:
    """Return a value as HTML text in which nothing is markup and nothing is an address."""
    return html.escape(harmless(str(value))).replace("://", ":&#47;&#47;")


def card(title: str, rows: Iterable[tuple[str, object]], *, simulated: bool = False) -> str:
    """Return a small framed table; colors are the page's own, so it fits light and dark."""
    badge = f'<div style="{_BADGE}">SIMULATED, not private</div>' if simulated else ""
    cells = "".join(
        f'<tr style="{_ROW}"><th scope="row" style="{_NAME}">{_text(name)}</th>'
        f'<td style="{_VALUE}">{_text(value)}</td></tr>'
        for name, value in rows
        if value is not None
    )
    table = f'<table style="{_TABLE}"><tbody>{cells}</tbody></table>'
    return f'<div style="{_FRAME}">{badge}<div><strong>{_text(title)}</strong></div>{table}</div>'
