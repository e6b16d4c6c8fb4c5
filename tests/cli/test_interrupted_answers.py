"""A command that was interrupted while its files appeared is given again, and pays nothing."""

import pytest

import sordino
from sordino.privatization import publication

from .many_files import texts_in, vectors_in


@pytest.mark.parametrize("kind", ["texts", "vectors"])
def test_the_same_command_lets_the_rest_appear(folder, monkeypatch, kind):
    """Its ledger has nothing left. Texts name who answered, vectors do not."""
    (texts_in if kind == "texts" else vectors_in)(folder)
    command = ["privatize", kind, "--epsilon", "1", "--out", "answers", "--json"]
    honest, seen = publication._show, []

    def show(made, final, **given):
        seen.append(made)
        if len(seen) == 2:
            raise OSError(28, "No space left on device")
        honest(made, final, **given)

    monkeypatch.setattr(publication, "_show", show)
    failed = folder.run(*command)
    assert failed.code != 0
    assert "give the same command again" in failed.out + failed.err
    unread = folder.run("fit", "answers", "--out", "reward.json")
    assert unread.code != 0
    assert "was interrupted" in unread.out + unread.err
    rows = len(sordino.Ledger.read(folder / "answers.spend.db").rows)
    said = folder.run(*command)
    assert said.code == 0, said.err
    assert (said.value["spend"], said.value["files"], said.value["epsilon"]) == (0.0, 3, 1.0)
    assert len(sordino.Ledger.read(folder / "answers.spend.db").rows) == rows
    assert len(list((folder / "answers").iterdir())) == 6
    assert folder.run("fit", "answers", "--out", "reward.json").code == 0
