"""A raw file in, a privatized file out, as ``sordino privatize`` makes one."""

from sordino.engines.engine import InProcess
from sordino.preferences.chunks import find_chunks
from sordino.privatization.chunks import privatize_chunks


def privatize_file(source, destination, mechanism, *, ledger, reading=None, **more):
    """Write a raw file's answers, randomized, with a manifest beside them; return the manifest."""
    chunks = find_chunks(source, **(reading or {}))
    given = {"ledger": ledger, "engine": InProcess(), "one_file": True} | more
    [manifest] = privatize_chunks(chunks, destination, mechanism, **given)
    return manifest
