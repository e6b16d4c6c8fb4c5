"""The command line as a user meets it: files in a folder, exit codes, two streams."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.apart import apart

from sordino import _random, cli
from sordino.policies import gibbs
from sordino.runs.align_settings import Align

CANARY = "CANARY"
KIND_WORDS = ("kind", "clear", "useful", "warm", "rude", "vague", "wrong", "cold")
SMALL = ["--width", "16", "--layers", "1", "--heads", "2", "--context", "64"]
TINY = ["language", "tiny", "in.jsonl", *SMALL, "--vocabulary", "320", "--steps", "15"]


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
        code = cli.run(apart(words))
        said = self._capsys.readouterr()
        return Said(code, said.out, said.err)

    def value_of(self, *words):
        """Run one command in this process and this folder, for tests that share what it makes."""
        with chdir(self.path), redirect_stdout(io.StringIO()) as said:
            assert cli.run([str(word) for word in words]) == 0
        return json.loads(said.getvalue())

    def process(self, *words, **options):
        """Run one command in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "sordino", *apart(words)],
            capture_output=True, text=True, check=False, cwd=self.path, **options,
        )  # fmt: skip
        return Said(done.returncode, done.stdout, done.stderr)

    def start(self, *words):
        """Start one command in a process of its own and come back at once."""
        return subprocess.Popen(
            [sys.executable, "-m", "sordino", *apart(words)],
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


@contextmanager
def few_features():
    """Learn 32 features of texts where a command is not told how many: with 512 it takes long."""
    with pytest.MonkeyPatch.context() as patch:
        usual = property(lambda chosen: 32 if chosen.dimension is None else chosen.dimension)
        patch.setattr(Align, "text_dimension", usual)
        yield


@pytest.fixture(scope="module", autouse=True)
def _few_features():
    with few_features():
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, capsys)


@pytest.fixture
def as_nobody(folder):
    """Return a context in which files have to let this process in: root may do everything."""

    @contextmanager
    def other_user():
        if os.geteuid() == 0:
            for parent in [folder.path, *folder.path.parents[:2]]:
                parent.chmod(0o755)
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(os.getuid())

    return other_user


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


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return a folder in which judgments were aligned, prepared for draws and privatized once."""
    home = tmp_path_factory.mktemp("finished")
    made = Folder(home, None)
    made.write("in.jsonl", [pair(index) for index in range(40)])
    made.write("q.jsonl", [{"prompt": "p", "candidates": ["a", "b"]}])
    raw = ["in.jsonl", "--epsilon", "1", "--out"]
    with chdir(home), few_features():
        assert cli.run(apart(["align", *raw, "out"])) == 0
        assert cli.run(apart(["privatize", *raw, "out.jsonl"])) == 0
    return home


@pytest.fixture
def done(folder, finished):
    """Return a working folder with these runs in it."""
    shutil.copytree(finished, folder.path, dirs_exist_ok=True)
    return folder


def kind_rows(n=60, *, turn=False, asked=CANARY):
    """Raw records whose preferred answers are kind."""
    found = []
    for at in range(n):
        sides = [f"{KIND_WORDS[at % 4]} answer {at}", f"{KIND_WORDS[4 + at % 4]} answer {at}"]
        chosen, rejected = sides[::-1] if turn else sides
        found.append({"prompt": f"{asked} {at}", "chosen": chosen, "rejected": rejected})
    return found


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Return the folder of a tiny model of the command line's own making."""
    folder = tmp_path_factory.mktemp("built")
    rows = kind_rows(asked="what others ask")  # not the texts that the tests learn from
    Folder(folder, None).write("in.jsonl", rows)
    with chdir(folder):
        assert cli.run([*TINY, "--out", "tiny"]) == 0
    assert not list(folder.glob("*.db"))  # nothing is spent on texts
    return folder / "tiny"


def quick_study():
    """Sizes of a study that is quicker still."""
    from sordino.language.references.tiny import TinyModel
    from sordino.language.studies import pipeline

    quick = pipeline.QUICK
    return replace(
        quick,
        model=TinyModel(vocabulary=320, width=16, layers=1, heads=2, context=64),
        pretraining=10,
        judge=replace(quick.judge, epochs=1),
        dpo=replace(quick.dpo, epochs=1, log_every=1),
        reward=replace(quick.reward, epochs=1, log_every=1),
        central=replace(quick.central, steps=2, expected_batch=8),
        policy=replace(quick.policy, steps=1, max_new_tokens=4, batch_size=4),
        prompts=4,
        max_new_tokens=4,
    )


@pytest.fixture
def quicker(monkeypatch):
    """Make a quick study quicker still."""
    from sordino.language.studies import pipeline

    monkeypatch.setattr(pipeline, "QUICK", quick_study())


@pytest.fixture
def ready(folder, built):
    """Return a folder with raw records and a tiny model."""
    folder.write("in.jsonl", kind_rows())
    (folder / "tiny").symlink_to(built)
    return folder


@contextmanager
def same_bytes(monkeypatch, draws):
    """Replace clocks, ids and the draws of a withheld reward by what is the same every time."""
    ids = iter(range(10**6))
    with monkeypatch.context() as patch:
        patch.setattr(_random, "new_release_id", lambda: f"{next(ids):016x}")
        for name in ("now", "today"):
            patch.setattr(_random, name, lambda: "2026-01-01T00:00:00Z")
        patch.setattr(gibbs.SoftmaxMechanism, "release", draws)
        yield patch


def refused(folder, command, code, *words, lines=1):
    """See a command refused in one line (typer has more of them), and nothing touched."""
    before = folder.state()
    said = folder.run(*command)
    assert said.code == code, said.err
    assert said.out == ""
    assert lines is None or len(said.err.splitlines()) == lines, said.err
    assert "InternalError" not in said.err
    assert all(word in said.err for word in words), said.err
    assert CANARY not in said.err
    assert folder.state() == before
    return said.err
