"""``python -m sordino`` and ``sordino``: ready for signals and odd streams before all else loads.

Loading takes a second. Until it is over nothing was read, drawn or spent, so that a signal then
ends the process at once, with one line instead of a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["main"]

_ENDS = {signal.SIGINT: ("Interrupted", 130), signal.SIGTERM: ("Terminated", 143)}


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once; an exception inside a half-loaded module might be swallowed or shown."""
    del frame
    how, code = _ENDS[signal.Signals(number)]
    os.write(2, f"{how} while loading. Nothing was done.\n".encode())
    os._exit(code)


def _fill_streams() -> None:
    """Let output never fail for what it is written to: whatever is said comes after the work."""
    # A closed stream leads nowhere. It is opened before any file, since the next file would get its
    # number, and what is printed would be written into that file, be it a ledger. What a stream's
    # encoding lacks is escaped.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (a number, for as long as the process lives)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    kept = {number: signal.getsignal(number) for number in _ENDS}
    for number, handler in kept.items():
        if handler != signal.SIG_IGN:  # whoever started this may want it to go on
            signal.signal(number, _leave)
    _fill_streams()
    from sordino import cli  # noqa: PLC0415 (what it loads takes time)

    cli.preload(sys.argv[1:])
    for number, handler in kept.items():
        signal.signal(number, handler)
    try:
        cli.main()
    except KeyboardInterrupt:  # right before the command takes over, or after it ended
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
