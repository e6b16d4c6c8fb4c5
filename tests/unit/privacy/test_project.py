"""The ledger of a project is found from anywhere inside it."""

from sordino.privacy.ledger_chain import LEDGER, nearest_ledger


def put(folder):
    (folder / LEDGER).parent.mkdir(parents=True)
    (folder / LEDGER).touch()
    return folder / LEDGER


def test_the_nearest_ledger_is_found(tmp_path):
    inside = tmp_path / "project/data/raw"
    inside.mkdir(parents=True)
    assert nearest_ledger(inside) is None
    above = put(tmp_path / "project")
    assert nearest_ledger(inside) == nearest_ledger(tmp_path / "project") == above
    assert nearest_ledger(tmp_path) is None
    nearer = put(tmp_path / "project/data")
    assert nearest_ledger(inside) == nearer


def test_it_is_found_through_links_and_dots(tmp_path, monkeypatch):
    found = put(tmp_path / "project")
    (tmp_path / "project/data").mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "project/data")
    assert nearest_ledger(tmp_path / "elsewhere") == found
    monkeypatch.chdir(tmp_path / "project/data")
    assert nearest_ledger(type(tmp_path)(".")) == found
    assert nearest_ledger(type(tmp_path)("../data")) == found


def test_a_ledger_that_is_gone_is_not_replaced_by_one_above(tmp_path):
    put(tmp_path)
    gone = tmp_path / "project" / LEDGER
    gone.parent.mkdir(parents=True)
    gone.symlink_to(tmp_path / "nowhere")
    assert nearest_ledger(tmp_path / "project") == gone
