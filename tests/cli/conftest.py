"""The command line as a user meets it: files in a folder, exit codes, two streams."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sordino import cli

CANARY = "CANARY"


@dataclass(frozen=True)
class Said:
    """What one command answered."""

    code: int
    out: str
    err: str

    @property
    def value(self):
        """The one JSON object on standard output."""
        return json.loads(self.out)


class Folder:
    """A working folder, and commands that run inside it."""

    def __init__(self, path, capsys):
        self.path, self._capsys = path, capsys

    def __truediv__(self, name):
        return self.path / name

    def write(self, name, rows):
        """Write records as JSON Lines; strings stand as they are."""
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (self.path / name).write_text("".join(line + "\n" for line in lines))
        return name

    def run(self, *words):
        """Run one command in this process, as if from the shell."""
        self._capsys.readouterr()
        code = cli.run([str(word) for word in words])
        said = self._capsys.readouterr()
        return Said(code, said.out, said.err)

    def process(self, *words, **options):
        """Run one command in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "sordino", *map(str, words)],
            capture_output=True, text=True, check=False, cwd=self.path, **options,
        )  # fmt: skip
        return Said(done.returncode, done.stdout, done.stderr)

    def start(self, *words):
        """Start one command in a process of its own and come back at once."""
        return subprocess.Popen(
            [sys.executable, "-m", "sordino", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.path,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        )  # fmt: skip

    def state(self):
        """Name, content and time of change of every file here."""
        found = {}
        for folder, _, names in os.walk(self.path):
            found[folder] = None
            for name in names:
                path = Path(folder) / name
                content = path.read_bytes() if path.exists() and not path.is_fifo() else b""
                found[str(path)] = (path.lstat().st_mtime_ns, content)
        return found

    def names(self):
        """Every file here, hidden ones too."""
        return {str(p.relative_to(self.path)) for p in self.path.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, capsys)


def pair(index, **more):
    """One raw record with canaries in every text."""
    return {
        "prompt": f"{CANARY}-prompt {index}",
        "chosen": f"{CANARY}-chosen {index} yes, then",
        "rejected": f"{CANARY}-rejected {index} no, sorry",
        "extra": f"{CANARY}-extra {index}",
        **more,
    }


@pytest.fixture
def pairs():
    """Enough raw records for a whole run."""
    return [pair(index) for index in range(40)]
