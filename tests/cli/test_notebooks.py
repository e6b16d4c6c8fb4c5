"""Every notebook of the documents runs from top to bottom, and shows what a run of it showed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tiers import few

nbformat = pytest.importorskip("nbformat", reason="the extra 'dev' is not installed")
pytest.importorskip("nbclient", reason="the extra 'dev' is not installed")
pytest.importorskip("ipykernel", reason="the extra 'dev' is not installed")

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
EXTRAS = {"private_dpo": "trl"}
MACHINE = re.compile(r"/(home|tmp|root|work|dev|usr|opt|Users|var)/|[A-Z]:\\")


def run_notebook(book, folder):
    """Return a fresh run of a notebook, and what was said if it failed."""
    path = folder / "book.ipynb"
    nbformat.write(book, path)
    # In a process of its own: sockets of a kernel are closed late, in the middle of other tests.
    command = [sys.executable, str(FOLDER / "make.py"), str(path.with_suffix(""))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return nbformat.read(path, as_version=4), done.stderr if done.returncode else ""


def stored(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]


def shapes(book):
    """What each cell shows, without the numbers: text, a table, a picture."""
    return [
        [(output.output_type, output.get("name"), sorted(output.get("data", ())))
         for output in cell.outputs]
        for cell in code(book)
    ]  # fmt: skip


def texts(book):
    for cell in code(book):
        for output in cell.outputs:
            yield output.get("text", "")
            yield from map(str, output.get("data", {}).values())


@pytest.mark.deep
@pytest.mark.parametrize("name", BOOKS)
@pytest.mark.skipif(sys.platform == "win32", reason="commands are run by bash")
def test_a_notebook_runs_and_shows_what_is_stored(name, tmp_path):
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name], reason="the extra 'language' is not installed")
    bare = stored(name)
    for cell in code(bare):
        cell.outputs = []
    book, failure = run_notebook(bare, tmp_path)
    assert not failure
    assert shapes(book) == shapes(stored(name))


@pytest.mark.parametrize("name", BOOKS)
def test_what_is_stored_is_whole_and_says_nothing_of_a_machine(name):
    book = stored(name)
    assert [cell.execution_count for cell in code(book)] == list(range(1, len(code(book)) + 1))
    kinds = {output.output_type for cell in code(book) for output in cell.outputs}
    assert kinds <= {"stream", "execute_result", "display_data"}
    assert all(out.get("name") != "stderr" for cell in code(book) for out in cell.outputs)
    assert not [found[0] for text in texts(book) if (found := MACHINE.search(text))]
    shown = "".join(texts(book))
    assert re.search("(<|&lt;)svg", shown)  # a page in a page is escaped
    assert len(shown) < 400_000  # bytes of a page
    assert book.cells[0].source.startswith("# ")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("line", "why"), few([("!exit 3", "exit code 3"), ("1 / 0", "ZeroDivision")], first=1)
)
def test_a_cell_and_a_command_that_fail_end_a_notebook(tmp_path, line, why):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(line)])
    assert why in run_notebook(book, tmp_path)[1]
