"""Commands of tests that are about one run: each has a ledger of its own beside its output."""

from pathlib import Path

_FOLDERS = {"align", "bandit"}  # into which the ledger goes, as one hands a run on
_LANGUAGE = {"reward", "dpo", "table"}


def stem(out):
    """Return the name of an output without what says which kind of file it is."""
    return out.name.removesuffix(".gz").removesuffix(".jsonl")


def apart(words):
    """Return a command as it is, or with a ledger if it spends and names none."""
    words = [str(word) for word in words]
    if "--ledger" in words or "--out" not in words[:-1] or "--help" in words:
        return words
    out = Path(words[len(words) - words[::-1].index("--out")])  # the last one holds
    if words[0] in _FOLDERS:
        return [*words, "--ledger", str(out / "spend.db")]
    if words[0] == "privatize" or (words[0] == "language" and words[1] in _LANGUAGE):
        return [*words, "--ledger", str(out.parent / f"{stem(out)}.spend.db")]
    return words
