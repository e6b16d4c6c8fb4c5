"""A real service and a real browser for the tests of the collection page."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for path in map(shutil.which, _NAMES) if path), None)
_PATIENCE = 60  # seconds until a service answers on a busy machine


def named(prompt, first="First", second="Second"):
    """Return a question under its own name, whose answers stand in the order of their words."""
    from sordino.preferences.records import canonical

    tries = (f"{second} {number}" for number in range(1000))
    other = next(text for text in tries if not canonical(prompt, first, text)[0])
    key = canonical(prompt, first, other)[1].hex()[:32]
    return {"id": key, "ask": "pair", "prompt": prompt, "answers": [first, other]}


class Site:
    """One study, its service as a process of its own, and its database."""

    def __init__(self, folder, *, questions=15, rows=None, port=None, **settings):
        """Write the study and start the service."""
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = port or free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        rows = rows or [
            {"prompt": f"Question {i}?", "first": f"One {i}", "second": f"Other {i}"}
            for i in range(questions)
        ]
        (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        chosen = {
            "id": os.urandom(8).hex(),
            "title": "Which answer is better?",
            "epsilon": 1.0,
            "cap": len(rows),
            "skips": True,
            "tick_seconds": 1,
            "database": "study.db",
            "questions": "questions.jsonl",
        } | settings
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in chosen.items())
        (folder / "study.toml").write_text(text)
        self.process = None
        self.admin = "A" * 43
        (folder / "admin.token").write_text(self.admin)
        (folder / "admin.token").chmod(0o600)
        self.links(1)  # the first invitation begins the study
        self.start()

    def links(self, count):
        """Return links for so many people."""
        from sordino.collection import answers, database
        from sordino.collection.study import read_study

        study = read_study(self.folder / "study.toml")
        engine = database.frozen(database.open_database(study.database_url), study, create=True)
        tokens = answers.invite(engine, study, count=count, days=30)
        engine.dispose()
        return [f"{self.url}/#{token}" for token in tokens]

    def link(self):
        """Return a link for one more person."""
        return self.links(1)[0]

    def start(self):
        """Start the service and wait until it answers."""
        command = [sys.executable, "-m", "sordino", "collect", "serve", "study.toml"]
        options = ["--port", str(self.port), "--admin-token-file", "admin.token"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options], cwd=self.folder, stdout=log, stderr=log
            )
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urlopen(f"{self.url}/api/health", timeout=5).close()  # noqa: S310 (our own)
            except OSError:
                time.sleep(0.1)
            else:
                return
        pytest.fail(f"the service did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def kill(self):
        """End the service as a crash would."""
        self.process.kill()
        self.process.wait()

    def rows(self):
        """Return all stored answers as (person, question, revision, id, answer)."""
        with closing(sqlite3.connect(self.folder / "study.db")) as base:
            query = "SELECT person, question, revision, id, answer FROM sordino_answers"
            return base.execute(query).fetchall()


@pytest.fixture(scope="module")
def browser():
    """Return a browser without a window; it ends with the module, and its event loop too."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(_NAMES)})")
    with playwright.sync_playwright() as started:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a maker of services; equal settings share one."""
    for needed in ("starlette", "uvicorn", "sqlalchemy"):
        pytest.importorskip(needed, reason="the extra 'collect' is not installed")
    made = {}

    def make(**settings):
        key = json.dumps(settings, sort_keys=True)
        if key not in made:
            made[key] = Site(tmp_path_factory.mktemp("study"), **settings)
        return made[key]

    yield make
    for one in made.values():
        one.process.terminate()
        one.process.wait()


class Visit:
    """A person on the page, who reads what is there and presses keys."""

    def __init__(self, browser, **options):
        """Open a browser profile of its own."""
        self.context = browser.new_context(**({"locale": "en-US"} | options))
        self.page = self.context.new_page()
        self.noted = []
        self.listen(self.page)

    def listen(self, page):
        """Note what the page says in the console, and what goes wrong in it."""
        page.on("console", lambda message: self.noted.append(message.text))
        page.on("pageerror", lambda error: self.noted.append(str(error)))

    def begin(self, link, page=None):
        """Open an invitation and read the explanation."""
        page = page or self.page
        page.goto(link)
        page.click("#main .primary")
        page.wait_for_selector(".question")

    def answer(self, key="1", page=None):
        """Answer the question on the page and wait for what comes next."""
        page = page or self.page
        before = page.inner_text("h1")
        page.keyboard.press(key)
        page.wait_for_selector(".pending")
        page.keyboard.press("Enter")
        page.wait_for_function("(h) => document.querySelector('h1').textContent !== h", arg=before)

    def settled(self):
        """Wait until nothing is waiting any more."""
        self.page.wait_for_function(
            "() => document.getElementById('foot').textContent.includes('Nothing is waiting')"
        )

    def stored(self, name):
        """Return everything in one of the page's own stores."""
        return self.page.evaluate(
            """async (name) => {
              const bases = (await indexedDB.databases()).map((base) => base.name);
              const study = bases.find((base) => base.startsWith("sordino-"));
              return new Promise((resolve, reject) => {
              const opening = indexedDB.open(study);
              opening.onerror = () => reject(opening.error);
              opening.onsuccess = () => {
                const base = opening.result;
                const all = base.transaction(name).objectStore(name).getAll();
                all.onsuccess = () => { base.close(); resolve(all.result); };
              };
              });
            }""",
            name,
        )


@pytest.fixture
def visit(browser):
    """Return a maker of people; their profiles are closed afterward."""
    made = []

    def make(**options):
        made.append(Visit(browser, **options))
        return made[-1]

    yield make
    for one in made:
        one.context.close()


@pytest.fixture(scope="module")
def page_files(site):
    """Return the address of a service that has the page."""
    return site(questions=15).url


@pytest.fixture(scope="module")
def page_folder():
    """Return where the files of the page lie."""
    from importlib.resources import files

    return Path(str(files("sordino.collection"))) / "page"
