# ruff: noqa: INP001, T201 (a script, not a package)
"""Runs the notebooks from top to bottom and stores what they show.

python docs/notebooks/make.py               all of them
python docs/notebooks/make.py bandit_log    this one

Each runs in a process of its own, in an empty folder that is deleted afterwards. The first cell
that raises ends it, and so does the first command (``!sordino ...``) that fails.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent
LIMIT = 600  # seconds of one cell
STRICT = """
def _run(command):
    import os, subprocess
    plain = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    done = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=plain | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "88", "TERMINAL_WIDTH": "88"})
    text = done.stdout.rstrip().replace(os.getcwd() + "/", "")
    if text:
        print("\\n".join(line.rstrip() for line in text.splitlines()))
    if done.returncode:
        raise SystemError(f"{command}: exit code {done.returncode}")

get_ipython().system = _run
del _run
%config InlineBackend.figure_formats = ["svg"]
%config InlineBackend.rc = {"svg.fonttype": "none", "figure.figsize": (6.4, 3.6)}
"""


def run_notebook(path: Path) -> NotebookNode:
    """Return the notebook with the outputs of a fresh run."""
    book = nbformat.read(path, as_version=4)
    cells = book.cells
    before = nbformat.v4.new_code_cell(STRICT)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    with TemporaryDirectory() as folder, TemporaryDirectory() as sockets:
        book.cells = [before, *cells]
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/at")
        client = NotebookClient(
            book, km=kernel, timeout=LIMIT, resources={"metadata": {"path": folder}},
            record_timing=False, coalesce_streams=True,
        )  # fmt: skip
        client.execute(env=environment)
    book.cells = cells
    for count, cell in enumerate((c for c in cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return book


def main() -> None:
    """Run the named notebooks, or all."""
    for name in sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb")):
        path, began = HERE / f"{name}.ipynb", time.monotonic()
        nbformat.write(run_notebook(path), path)
        print(f"{path.name}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
