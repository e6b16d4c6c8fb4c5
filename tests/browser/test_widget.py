"""The widget in a chat: from a press to what is learned, and nothing that tells which one it was.

The chat of examples/feedback_widget.py is at one origin and its study at another of the same site.
For the test of secrecy the coins are in our hand and the service's answers are played: whatever is
pressed, with coins that give the same randomized answers, everything that the page around, the wire
and the device can see must be the same, to the byte. Leaks that are planted must be seen.
"""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from sordino import RandomizedResponse

from .test_collect_secrecy import _COINS, _TICKS

EXAMPLE = Path(__file__).parents[2] / "examples" / "feedback_widget.py"
_THRESHOLD = RandomizedResponse(1.0).threshold
_PATIENCE = 60


class Chat:
    """The example as a process of its own."""

    def __init__(self, folder, **settings):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        spec = importlib.util.spec_from_file_location("feedback_widget", EXAMPLE)
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        self.folder = folder
        self.token = example.begin(folder, port=self.port, tick=1)
        self.file = folder / "study.toml"
        lines = self.file.read_text().splitlines()
        for name, value in settings.items():
            lines = [one for one in lines if not one.startswith(f"{name} =")]
            lines.append(f"{name} = {json.dumps(value)}")
        self.file.write_text("\n".join(lines) + "\n")
        self.url = f"http://chat.demo.localhost:{self.port}/"
        self.service = f"http://study.demo.localhost:{self.port}/study"
        command = [sys.executable, EXAMPLE, "--port", str(self.port), "--folder", str(folder)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                urlopen(f"http://127.0.0.1:{self.port}/study/api/health", timeout=5).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        pytest.fail("the chat did not start")

    def run(self, *words):
        command = [sys.executable, "-m", "sordino", *words]
        said = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        return said.stdout


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """Return the example, which runs."""
    pytest.importorskip("starlette", reason="the extra 'collect' is not installed")
    one = Chat(tmp_path_factory.mktemp("chat"))
    yield one
    one.process.terminate()
    one.process.wait()


@pytest.fixture(autouse=True)
def patience(browser, monkeypatch):
    """Let a busy machine take its time."""
    fresh = browser.new_context

    def new_context(**options):
        context = fresh(**options)
        context.set_default_timeout(2000 * _PATIENCE)
        return context

    monkeypatch.setattr(browser, "new_context", new_context)


def frame_of(page, number=0):
    return page.frame_locator(f"sordino-feedback >> nth={number} >> iframe")


def asked(page, text):
    """Ask the chat something; return the frame beside the answer."""
    number = page.locator("sordino-feedback").count()
    page.fill("#text", text)
    page.click("#ask button")
    frame = frame_of(page, number)
    frame.locator(".choices button").first.wait_for()
    return frame


def press(frame, way):
    frame.locator(f"button.{way}").click()
    frame.locator("button.send").click()
    frame.locator("p:has-text('Thank you'):visible").wait_for()


def test_from_a_press_to_what_is_learned(chat, visit):
    told = []
    for way in ("up", "down", "up"):
        page = visit().page
        page.goto(chat.url)
        page.evaluate(
            "addEventListener('answered', () => (window.heard = (window.heard ?? 0) + 1))"
        )
        press(asked(page, "How do I make tea?"), way)
        press(asked(page, "How far is the moon?"), "up")
        page.wait_for_function("() => window.heard === 2")
        pair = asked(page, "Two answers about bread, please")
        pair.locator("button.first").click()
        page.keyboard.press("Escape")  # taken back: nothing is drawn
        pair.locator("button.first:visible").wait_for()
        told.append(page)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        status = json.loads(chat.run("collect", "status", "study.toml", "--json"))
        if status["answers"] == 6:
            break
        time.sleep(0.5)
    assert (status["answers"], status["persons"], status["questions"]) == (6, 3, 2)
    chat.run("collect", "export", "study.toml", "--out", "answers.jsonl")
    lines = [json.loads(line) for line in (chat.folder / "answers.jsonl").read_text().splitlines()]
    assert {line["completion"] for line in lines} == {
        "Steep it for three minutes in water that no longer boils.",
        "It is about 384,000 km away, a little more each year.",
    }
    chat.run("align", "answers.jsonl", "--out", "run")
    assert (chat.folder / "run" / "report.html").is_file()
    page = told[0]
    page.reload()
    page.fill("#text", "How do I make tea?")
    page.click("#ask button")
    frame_of(page).locator("p:has-text('Thank you'):visible").wait_for()  # no second coin


def test_a_frame_does_not_grow_under_a_press(chat, visit):
    """It was told to be as high as an empty page, and a press at that moment was lost."""
    page = visit().page
    page.add_init_script(
        "window.heights = []; addEventListener('message', ({ data }) => "
        "data.sordino === 'height' && heights.push(data.pixels))"
    )
    page.goto(chat.url)
    buttons = asked(page, "How do I make tea?").locator(".choices")
    page.wait_for_function("() => heights.length")
    bottom = buttons.evaluate("(node) => node.getBoundingClientRect().bottom")
    assert min(page.evaluate("heights")) >= bottom


def test_a_page_of_the_same_origin_is_refused_and_one_that_was_not_declared_sees_no_frame(
    tmp_path, visit
):
    one = Chat(tmp_path / "chat")
    try:
        embed = f'["http://study.demo.localhost:{one.port}"]'
        text = re.sub(r"embedded_in = .*", f"embedded_in = {embed}", one.file.read_text())
        one.file.write_text(text)
        one.process.terminate()
        one.process.wait()
        again = [sys.executable, EXAMPLE, "--port", str(one.port), "--folder", str(one.folder)]
        one.process = subprocess.Popen(again, stderr=subprocess.DEVNULL)
        page = visit().page
        for _ in range(200):
            try:
                page.goto(f"http://study.demo.localhost:{one.port}/")
                break
            except Exception:  # noqa: BLE001 (not there yet)
                time.sleep(0.2)
        page.click("#ask button")
        frame_of(page).locator("text=have the same address").wait_for()
        page.goto(one.url)
        assert page.evaluate("customElements.get('sordino-feedback') === undefined")
        add = """(url) => {
          const frame = document.createElement('iframe');
          frame.src = url;
          document.body.append(frame);
          return new Promise((resolve) => { frame.onload = () => resolve(true); });
        }"""
        page.evaluate(add, f"{one.service}/feedback#origin={one.url}")
        assert page.frames[-1].url.startswith("chrome-error:")
    finally:
        one.process.terminate()
        one.process.wait()


def test_a_mounted_page_is_kept_and_answered_under_its_path(site, visit, tmp_path):
    """An ordinary study, at /study of a service that has another page at its root."""
    del site
    rows = [{"prompt": f"Q{n}", "first": f"a{n}", "second": f"b{n}"} for n in range(3)]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    sordino = [sys.executable, "-m", "sordino", "collect"]
    for words in (
        ["init", "s.toml", "--questions", "q.jsonl", "--cap", "2"],
        ["invite", "s.toml", "--count", "1", "--url", "http://127.0.0.1/study", "--out", "links"],
    ):
        subprocess.run([*sordino, *words], cwd=tmp_path, check=True, capture_output=True)
    text = (tmp_path / "s.toml").read_text().replace("tick_seconds = 15", "tick_seconds = 1")
    assert (tmp_path / "s.toml").read_text() != text
    token = (tmp_path / "links").read_text().strip().rpartition("#")[2]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = (
        "import uvicorn\nfrom starlette.applications import Starlette\n"
        "from starlette.routing import Mount\nfrom sordino.collection import collection_app\n"
        f"app = collection_app('s.toml', admin_token={'A' * 43!r})\n"
        f"uvicorn.run(Starlette(routes=[Mount('/study', app)]), port={port}, log_level='error')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment)
    try:
        person, end = visit(), time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                person.page.goto(f"http://127.0.0.1:{port}/study/#{token}")
                break
            except Exception:  # noqa: BLE001 (not there yet)
                time.sleep(0.2)
        person.page.click("#main .primary")
        scope = person.page.evaluate("navigator.serviceWorker.ready.then(({ scope }) => scope)")
        assert scope == f"http://127.0.0.1:{port}/study/"
        for key in ("1", "2"):
            person.answer(key)
        assert person.page.url == f"http://127.0.0.1:{port}/study/"
        names = person.page.evaluate("caches.keys()")
        assert len(names) == 1
        assert names[0].startswith("sordino-page /study/ ")
        person.context.set_offline(True)
        person.page.reload()
        person.page.wait_for_selector("h1:has-text('Almost done')")
        person.context.set_offline(False)
        person.page.goto(f"http://127.0.0.1:{port}/study/admin")
        person.page.fill("#token", "A" * 43)
        person.page.click("main .primary")
        person.page.wait_for_selector(".facts")
        assert person.noted == [line for line in person.noted if "ERR_INTERNET" in line]
    finally:
        process.terminate()
        process.wait()


# ------------------------------------------------------------------------------------------------

_HEAR = """
globalThis.told = [];
addEventListener("message", ({ data, origin }) => told.push([origin, JSON.stringify(data)]));
"""

_POSE = """
async ({ prompt, answers, ask }) => {
  const feedback = document.querySelector("sordino-feedback");
  feedback.setAttribute("ask", ask);
  feedback.prompt = prompt;
  feedback.answers = answers;
}
"""

_AROUND = """
() => {
  const feedback = document.querySelector("sordino-feedback");
  return {
    told, frame: feedback.shadowRoot.innerHTML, page: document.documentElement.outerHTML,
    globals: Object.keys(globalThis), local: { ...localStorage }, steps: history.length,
    address: location.href, focused: document.activeElement?.tagName,
  };
}
"""

_INSIDE = """
async () => {
  const read = (request) => new Promise((resolve) => {
    request.onsuccess = () => resolve(request.result);
  });
  const base = await read(indexedDB.open("sordino-0123456789abcdef"));
  const stores = {};
  for (const name of base.objectStoreNames) {
    const store = base.transaction(name).objectStore(name);
    stores[name] = [await read(store.getAllKeys()), await read(store.getAll())];
  }
  base.close();
  return {
    stores, ticks, inside: Object.keys(globalThis), kept: await caches.keys(),
    session: [{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href],
  };
}
"""


def _terms():
    return {
        "id": "0123456789abcdef", "title": "T", "epsilon": 1.0, "threshold": str(_THRESHOLD),
        "die": None, "levels": None, "cap": 50, "ties": True, "skips": True, "changes": "refused",
        "tick_seconds": 1, "feedback": True, "project": None, "expires": "2030-01-01T00:00:00Z",
        "caveats": [],
    }  # fmt: skip


def _pose(number):
    """A thumb or a pair; the host names the answers of a pair in either order."""
    if number % 2 == 0:
        return {"ask": "thumb", "prompt": f"p{number}", "answers": [f"a{number}"]}
    answers = [f"a{number}", f"b{number}"]
    return {
        "ask": "pair",
        "prompt": f"p{number}",
        "answers": answers[:: 1 if number % 4 == 1 else -1],
    }


def _way(question, label):
    """What to press for a canonical label of 1 or 0, or 2 for neither."""
    from sordino.preferences.records import canonical

    if question["ask"] == "thumb":
        return {1: "up", 0: "down", 2: "skip"}[label]
    swapped = canonical(question["prompt"], *question["answers"])[0]
    return {1: "second" if swapped else "first", 0: "first" if swapped else "second", 2: "tie"}[
        label
    ]


def _words(answers, label, generator):
    limit = 2**63 if label == 2 else _THRESHOLD
    made = []
    for answer in [*answers, *answers]:
        below = answer == 1 if label in (0, 2) else answer == 0
        low, high = (0, limit) if below else (limit, 2**64)
        made.append(int(generator.integers(low, high, dtype=np.uint64)))
    return [word.to_bytes(8, "little").hex() for word in made]


def _plant(context, name, before, after):
    """Change a file of the page, as it lies here: only the browser knows names in .localhost."""
    source = (files("sordino.collection") / "page" / name).read_text("utf-8")
    assert source.count(before) == 1, before
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    changed = {"body": source.replace(before, after), "content_type": kind}
    context.route(f"**/page/{name}", lambda route: route.fulfill(**changed))


def _seen(chat, person, label, answers, words, mutant=None):  # noqa: PLR0915 (one visit)
    """Answer every question with one label; return all that can be seen, from each side."""
    page, context = person.page, person.context
    sent, bodies, steps = [], [], []
    context.clock.install(time="2026-01-01T00:00:00Z")
    context.clock.pause_at("2026-01-01T01:00:00Z")
    context.add_init_script(_COINS.replace("WORDS", json.dumps(words)))
    context.add_init_script(_TICKS)
    context.add_init_script(_HEAR)
    opened = {"study": _terms(), "questions": [], "stored": []}

    def note(request):
        if "/study/api/" in request.url and not request.url.endswith("/texts"):
            sent.append((request.method, request.url, request.post_data))

    def keep(route):
        bodies.append(json.loads(route.request.post_data))
        ids = [one["id"] for one in bodies[-1]["answers"]]
        route.fulfill(json={"stored": ids, "refused": [], "spent": 1, "completion": None})

    context.on("request", note)
    context.route("**/api/preview", lambda route: route.fulfill(json=opened))
    context.route("**/api/open", lambda route: route.fulfill(json=opened))
    context.route("**/api/answers", keep)
    if mutant is not None:
        _plant(context, *mutant)
    page.set_viewport_size({"width": 300, "height": 900})
    page.goto(chat.url)
    page.click("#ask button")
    frame_of(page).locator(".choices button").first.wait_for()
    inside = page.frames[-1]
    context.clock.run_for(1500)  # past the first tick; from here on one in each second
    documents, bits = [], []
    for number in range(len(answers)):
        question = _pose(number)
        page.evaluate(_POSE, question)
        way = _way(question, label)
        lead = "Was this" if question["ask"] == "thumb" else "Which answer"
        frame_of(page).locator(f".question-asked:has-text('{lead}'):visible").wait_for()
        page.wait_for_timeout(150)  # until its height is told, which no press decides
        heights = [page.evaluate("told.length")]
        frame_of(page).locator(f".choices button.{way}:visible").click()
        heights.append(page.evaluate("told.length"))
        documents.append(inside.evaluate("[document.body.clientHeight, document.body.offsetWidth]"))
        frame_of(page).locator(".send").click()
        page.wait_for_function(
            "(n) => told.filter(([, data]) => data.includes('answered')).length === n",
            arg=number + 1,
        ) if mutant is None else page.wait_for_timeout(150)
        heights.append(page.evaluate("told.length"))
        documents.append(inside.evaluate("document.documentElement.outerHTML"))
        before = len(bodies)
        context.clock.run_for(1000)
        for _ in range(100):
            if len(bodies) > before:
                break
            page.wait_for_timeout(30)
        steps.append(heights)
    page.wait_for_timeout(200)
    for body in bodies:
        bits += [(one["id"], one["answer"]) for one in body["questions"] and body["answers"]]
    texts = [(q["ask"], q["prompt"]) for body in bodies for q in body["questions"]]
    around, within = page.evaluate(_AROUND), inside.evaluate(_INSIDE)
    seen = {**around, **within, "sent": sent, "documents": documents, "when": steps,
            "noted": person.noted, "jar": context.cookies(), "texts": texts}  # fmt: skip
    if [bit for _, bit in bits] != answers:
        seen["stores"] = f"wrong for label {label}"
    return seen


def _differences(chat, visit, number, mutant=None):
    generator = np.random.default_rng(number)
    answers = generator.integers(0, 2, size=number).tolist()
    labels = (1, 0) if mutant else (1, 0, 2)
    seen = [
        _seen(chat, visit(), label, answers, _words(answers, label, generator), mutant)
        for label in labels
    ]
    if mutant is None:
        first = seen[0]
        assert len(first["stores"]["answers"][0]) == number
        assert first["stores"]["questions"] == [[], []]  # texts are dropped when they have arrived
        assert len(first["sent"]) == 2 + number
        told = [json.loads(data)["sordino"] for _, data in first["told"]]
        assert told.count("answered") == number
        assert set(told) == {"ready", "height", "answered"}
    written = [{key: json.dumps(value) for key, value in one.items()} for one in seen]
    return sorted({key for one in written for key in written[0] if one[key] != written[0][key]})


def test_nothing_tells_what_was_pressed(chat, visit):
    assert _differences(chat, visit, 12) == []


_TELL = '  tell("answered");\n'
_DONE = '  reveal("done"); // a second click must not answer twice\n'
_CHOSEN = "  choice = way;\n"
_LABEL = "  const [part, whole] = JUDGMENTS[choice];\n"
_ID = "id: `${judgment[0]}${randomId().slice(1)}`"
_TURN = "[whole - part, whole]"
_TEXTS = "const texts = { prompt, answers };"
_LONGER = "const texts = { prompt: part ? prompt : `${prompt} `, answers };"
_PAD = "  main.style.paddingBlockEnd = `${JUDGMENTS[way][0]}px`;\n"
_EARLY = '  if (JUDGMENTS[way][0]) tell("height", { pixels: 99 });\n'
_SAID = '  announce(say("feedback.done"));\n'
_LEAKS = {  # where it must be seen, and the change to a file of the page
    "told to the page around": (["told"], (_TELL, '  tell("answered", { part });\n')),
    "told only of what is good": (["told"], (_TELL, '  if (part) tell("answered");\n')),
    "told before it is sent": (["told"], (_CHOSEN, _CHOSEN + _EARLY)),
    "in the height of the frame": (["documents"], (_CHOSEN, _CHOSEN + _PAD)),
    "in the words that go along": (["sent"], (_TEXTS, _LONGER)),
    "in the id": (["sent", "stores"], ("id: randomId()", _ID, "memory.js")),
    "kept beside the answer": (
        ["stores"],
        ("answers.add(record)", "answers.add({ ...record, judgment })", "memory.js"),
    ),
    "left for screen readers": (["documents"], (_DONE + _SAID, _DONE)),
    "left in the document": (["documents"], (_LABEL, f"{_LABEL}  main.dataset.was = choice;\n")),
    "in when it is sent": (["ticks", "sent"], (_TELL, f"{_TELL}  if (part) sender.tick();\n")),
    "in the console": (["noted"], (_TELL, f"{_TELL}  console.debug(part);\n")),
    "of the order in which the page around names them": (
        ["stores"],
        (f"turned ? {_TURN}", f"false ? {_TURN}"),
    ),
}


@pytest.mark.parametrize("leak", _LEAKS)
def test_planted_leaks_are_seen_where_they_are(chat, visit, leak):
    where, (before, after, *file) = _LEAKS[leak]
    mutant = (*(file or ["feedback.js"]), before, after)
    found = _differences(chat, visit, 2, mutant)
    assert set(where) & set(found), found


def test_the_buttons_stand_in_an_order_that_only_chance_decides(chat, visit):
    """False alarm: all of ten orders are the same with 2^-9."""
    page = visit().page
    page.goto(chat.url)
    page.evaluate("document.querySelector('#text').value = 'Tea?'")
    orders = set()
    for number in range(10):
        frame = asked(page, f"How do I make tea, {number}?")
        orders.add(
            tuple(
                frame.locator(".choices button").evaluate_all(
                    "(all) => all.map((b) => b.className)"
                )
            )
        )
        if len(orders) == 2:
            break
    assert orders == {("up", "down"), ("down", "up")}


_ORDERS = """
(main) => {
  const row = main.querySelector(".choices");
  const orders = (left) => left.length === 0 ? [[]] : left.flatMap((one) =>
    orders(left.filter((other) => other !== one)).map((rest) => [one, ...rest]));
  return new Set(orders([...row.children]).map((order) => {
    row.append(...order);
    return main.getBoundingClientRect().height;
  })).size;
}
"""
_NARROW = """
(px) => {
  const { shadowRoot } = document.querySelector("sordino-feedback");
  shadowRoot.querySelector("iframe").style.inlineSize = `${px}px`;
}
"""


def _played(visit, plant=None, *, locale="en-US", **settings):
    """Return the page of a visitor who is told other terms; answers arrive, and are not kept."""
    page = visit(locale=locale).page
    told = {"study": _terms() | settings, "questions": [], "stored": []}

    def keep(route):
        ids = [one["id"] for one in json.loads(route.request.post_data)["answers"]]
        route.fulfill(json={"stored": ids, "refused": [], "spent": 1, "completion": None})

    page.context.route("**/api/preview", lambda route: route.fulfill(json=told))
    page.context.route("**/api/open", lambda route: route.fulfill(json=told))
    page.context.route("**/api/answers", keep)
    if plant is not None:
        _plant(page.context, *plant)
    return page


def _telling(chat, visit, locale, widths, plant=None):
    """Return at which widths the height of the frame depends on the order of its buttons."""
    page = _played(visit, plant, locale=locale)
    page.goto(chat.url)
    page.evaluate("(lang) => document.documentElement.setAttribute('lang', lang)", locale[:2])
    frame = asked(page, "Two answers about bread, please")
    assert frame.locator(".choices button").count() == 4
    found = []
    for width in widths:
        page.evaluate(_NARROW, width)
        if frame.locator("#main").evaluate(_ORDERS) > 1:
            found.append(width)
    return found


@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
def test_no_width_shows_in_which_order_the_buttons_stand(chat, visit, locale):
    """The page around chooses the width and the language, and is told how high the frame is."""
    assert _telling(chat, visit, locale, range(80, 700, 20)) == []


def test_a_row_that_breaks_is_seen(chat, visit):
    plant = ("feedback.css", ".choices { display: grid;", ".choices { display: flex;")
    assert _telling(chat, visit, "en-US", range(200, 400, 20), plant) != []


_KEPT = """(name) => new Promise((resolve) => {
  const opening = indexedDB.open(`sordino-${name}`);
  opening.onsuccess = () => {
    const names = ["answers", "queue", "questions"], reading = opening.result.transaction(names);
    const all = names.map((store) => reading.objectStore(store).count());
    reading.oncomplete = () => {
      opening.result.close();
      resolve(all.map(({ result }) => result));
    };
  };
})"""


def test_what_one_frame_answered_no_other_frame_or_tab_asks_or_keeps(chat, visit):
    page = _played(visit, tick_seconds=3600)
    page.goto(chat.url)
    frames = [asked(page, "How do I make tea?") for _ in range(2)]
    other = page.context.new_page()
    other.goto(chat.url)
    frames += [asked(other, "How do I make tea?"), asked(other, "How far is the moon?")]
    frames[1].locator("button.down").click()  # chosen, and not sent
    frames[2].locator(".how").click()
    frames[2].locator("h1").wait_for()
    press(frames[0], "up")
    frames[1].locator("p:has-text('Thank you'):visible").wait_for()
    assert not frames[1].locator("button.send:visible, .choices:visible").count()
    assert "Thank you" in frames[1].locator("#announcer").inner_text()
    frames[2].locator(".primary").click()
    frames[2].locator("p:has-text('Thank you'):visible").wait_for()
    frames[3].locator("button.up").wait_for()


@pytest.mark.parametrize("settled", [False, True])
def test_a_frame_that_comes_too_late_leaves_no_texts_and_takes_none_away(chat, visit, settled):
    blind = ("feedback.js", "const asking = () => ", "const asking = () => false && ")
    page = _played(visit, blind, tick_seconds=1 if settled else 3600)
    page.goto(chat.url)
    one, late = (asked(page, "How do I make tea?") for _ in range(2))
    press(one, "up")
    kept = [1, 0, 0] if settled else [1, 1, 1]
    name = _terms()["id"]
    end = time.monotonic() + _PATIENCE
    while page.frames[-1].evaluate(_KEPT, name) != kept and time.monotonic() < end:
        page.wait_for_timeout(100)
    press(late, "down")
    page.wait_for_timeout(200)
    assert page.frames[-1].evaluate(_KEPT, name) == kept


def test_a_choice_that_nobody_takes_any_more_is_dropped(chat, visit):
    page = _played(visit, tick_seconds=3600, cap=1)
    page.goto(chat.url)
    first, second = (asked(page, f"How do I make tea, {number}?") for number in range(2))
    second.locator("button.down").click()
    second.locator(".send:focus").wait_for()
    press(first, "up")
    second.locator("p:has-text('used all your answers')").wait_for()
    assert "chose" not in second.locator("body").inner_text()
    assert second.locator("#announcer").inner_text() == ""  # somebody reads elsewhere


_HOLD = """() => new Promise((resolve) => {
  const opening = indexedDB.open("sordino");
  opening.onsuccess = () => {
    const wallets = opening.result.transaction("settings", "readwrite").objectStore("settings");
    globalThis.held = true;
    const again = () => { if (held) wallets.get("").onsuccess = again; };
    again();
    resolve();
  };
})"""


def test_a_question_that_comes_late_takes_no_other_ones_place(chat, visit):
    """What it costs is looked up while the page around shows an answered one again."""
    page = _played(visit, tick_seconds=3600, project={"name": "one", "epsilon": 9.0})
    page.goto(chat.url)
    frame = asked(page, "How do I make tea?")
    press(frame, "up")
    page.frames[-1].evaluate(_HOLD)
    tell = "(texts) => { document.querySelector('sordino-feedback').answers = texts; }"
    said = page.evaluate("document.querySelector('sordino-feedback').answers")
    for texts in (["Another one."], said):
        page.evaluate(tell, texts)
        page.wait_for_timeout(200)
    page.frames[-1].evaluate("held = false")
    page.wait_for_timeout(300)
    assert frame.locator("p:has-text('Thank you')").is_visible()
    assert not frame.locator(".choices").is_visible()


_OLDER = """async () => {
  const [name] = await caches.keys();
  const files = await caches.open(name);
  for (const { url } of await files.keys()) {
    if (!url.endsWith(".js")) continue;
    const older = new Response("throw 1", { headers: { "Content-Type": "text/javascript" } });
    await files.put(url, older);
  }
}"""


def test_a_frame_runs_no_file_that_the_page_had_kept(chat, visit):
    """An older one would not keep the texts beside the coin, and no answer would be sent."""
    page = visit().page
    page.goto(f"{chat.service}/")
    page.evaluate("navigator.serviceWorker.ready")
    page.wait_for_function("() => navigator.serviceWorker.controller !== null")
    page.evaluate(_OLDER)
    page.goto(chat.url)
    press(asked(page, "How do I make tea?"), "up")


def test_the_public_link_itself_asks_nothing(chat, visit):
    """What waits in a frame it would send without its texts, and lose."""
    page = visit().page
    page.goto(f"{chat.service}/#{chat.token}")
    page.locator("p:has-text('on other pages')").wait_for()
    page.reload()
    page.locator("p:has-text('on other pages')").wait_for()


def test_a_frame_loads_no_reader_of_markdown(chat, visit):
    page = visit().page
    loaded = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(chat.url)
    asked(page, "How do I make tea?")
    assert any(url.endswith("/elements.js") for url in loaded)
    assert [url for url in loaded if "vendor" in url or "markdown" in url] == []


def _given(chat, visit, plant=None):
    """Return how many of three questions are answered where the project pays for two."""
    page, pressed = _played(visit, plant, project={"name": "one", "epsilon": 2.0}), 0
    page.goto(chat.url)
    for number in range(3):
        page.fill("#text", f"How do I make tea, {number}?")
        page.click("#ask button")
        frame = frame_of(page, number)
        frame.locator(".choices button.up:visible, p:has-text('budget')").first.wait_for()
        if frame.locator(".choices button.up").count():
            press(frame, "up")
            pressed += 1
    return pressed


def test_the_frame_keeps_the_budget_of_a_project_whatever_the_service_asks(chat, visit):
    assert _given(chat, visit) == 2


def test_a_frame_that_asks_no_wallet_is_seen(chat, visit):
    plant = ("feedback.js", "if (terms.project) {", "if (terms.project === 0) {")
    assert _given(chat, visit, plant) == 3


def test_no_state_of_a_question_is_higher_than_another(chat, visit):
    """At every width and in each language: the page around would see a height that changes."""
    folder = files("sordino.collection") / "page" / "languages"
    for code in sorted(path.name.removesuffix(".json") for path in folder.iterdir()):
        page = visit(locale=code).page
        page.goto(chat.url)
        page.evaluate("(lang) => document.documentElement.setAttribute('lang', lang)", code)
        frame = asked(page, "Two answers about bread, please")
        for width in range(180, 700, 40):
            page.set_viewport_size({"width": width, "height": 900})
            found = set()
            for way in ("first", "second", "tie"):
                frame.locator(f".choices button.{way}:visible").click()
                found.add(
                    frame.locator("#main").evaluate("(node) => node.getBoundingClientRect().height")
                )
                page.keyboard.press("Escape")
                frame.locator(".choices button.first:visible").wait_for()
                found.add(
                    frame.locator("#main").evaluate("(node) => node.getBoundingClientRect().height")
                )
            assert len(found) == 1, width


_SIZES = {"phone": (360, 760), "desktop": (1200, 900), "zoomed": (320, 400)}  # 200 % of 640 by 800
_FITS = """() => {
  const whole = document.documentElement;
  const cut = [...document.querySelectorAll("button, p")].filter((node) =>
    node.checkVisibility({ visibilityProperty: true }) && node.scrollWidth > node.clientWidth + 1);
  return innerWidth >= whole.scrollWidth && innerHeight >= whole.scrollHeight && cut.length === 0;
}"""
_MOVED = """(name) => new Promise((resolve) => {
  const opening = indexedDB.open(`sordino-${name}`);
  opening.onsuccess = () => {
    const storing = opening.result.transaction("settings", "readwrite");
    storing.objectStore("settings").put("moved", "moving");
    storing.oncomplete = () => { opening.result.close(); resolve(); };
  };
})"""
_KEEPS_NOTHING = "indexedDB.open = () => { throw new Error(); };"


class Looks:
    """Pictures of each state at every size, by day and by night, and what axe finds there."""

    def __init__(self, page, folder):
        reason = "axe-playwright-python is not installed"
        self.axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=reason).Axe()
        self.page, self.folder = page, folder

    def at(self, state):
        page, serious = self.page, []
        for light in ("light", "dark"):
            page.emulate_media(color_scheme=light)
            for size, (width, height) in _SIZES.items():
                page.set_viewport_size({"width": width, "height": height})
                for part in page.frames:
                    if part.parent_frame:
                        part.wait_for_function(_FITS)
                assert page.evaluate("innerWidth >= document.documentElement.scrollWidth"), state
                shot = self.folder / f"{state}, {size}, {light}.png"
                page.locator("sordino-feedback").last.screenshot(path=shot)
            found = self.axe.run(page.frames[-1]).response["violations"]
            serious += [
                (one["id"], [node["html"] for node in one["nodes"]])
                for one in found
                if one["impact"] in {"serious", "critical"}
            ]
        assert serious == [], state


@pytest.mark.parametrize(
    ("text", "first", "labels"),
    [("How do I make tea?", "up", 3), ("Two answers about bread, please", "first", 4)],
    ids=["thumb", "pair"],
)
def test_every_state_of_a_question_is_read_by_everybody_and_by_keys_only(
    chat, visit, tmp_path, text, first, labels
):
    page = _played(visit, cap=1)
    looks = Looks(page, tmp_path)
    page.goto(chat.url)
    frame = asked(page, text)
    assert frame.locator(".choices button").count() == labels
    looks.at("asked")
    page.focus("#text")
    page.keyboard.press("Shift+Tab")  # the last thing in the frame
    page.keyboard.press("Enter")
    frame.locator("h1:focus").wait_for()
    looks.at("explained")
    frame.locator(".primary").press("Enter")
    frame.locator(".how:focus").wait_for()
    for _ in range(labels):  # back to the first of the buttons
        page.keyboard.press("Shift+Tab")
    while not frame.locator(f".choices button.{first}:focus").count():
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    frame.locator(".send:focus").wait_for()
    looks.at("chosen")
    page.keyboard.press("Escape")
    frame.locator(".choices button:focus").press("Enter")
    frame.locator(".send:focus").wait_for()
    page.keyboard.press("Enter")
    frame.locator("p:has-text('Thank you'):visible").wait_for()
    looks.at("sent")


@pytest.mark.deep
def test_every_reason_why_nothing_is_asked_is_read_by_everybody(chat, visit, tmp_path):
    page = _played(visit, cap=1)
    looks = Looks(page, tmp_path)
    page.goto(chat.url)
    frame = asked(page, "How do I make tea?")
    page.evaluate("document.querySelector('sordino-feedback').answers = ['']")
    frame.locator("p:has-text('nothing here that could be judged')").wait_for()
    looks.at("no question")
    page.evaluate("document.querySelector('sordino-feedback').answers = ['Tea.']")
    press(frame, "up")
    page.evaluate("document.querySelector('sordino-feedback').answers = ['Other tea.']")
    frame.locator("p:has-text('used all your answers')").wait_for()
    looks.at("all answers used")
    page.frames[-1].evaluate(_MOVED, _terms()["id"])
    page.evaluate("document.querySelector('sordino-feedback').answers = ['No tea.']")
    frame.locator("p:has-text('has moved to another device')").wait_for()
    looks.at("moved")
    full = {"status": 403, "json": {"error": {"code": "study-full", "message": ""}}}
    for state, words in (
        ("budget spent", "budget that this device keeps"),
        ("refused", "has as many people as it takes"),
        ("offline", "Please check your connection"),
        ("keeps nothing", "does not let the page keep anything"),
    ):
        page = _played(visit, project={"name": "one", "epsilon": 0.5})
        if state == "refused":
            page.context.route("**/api/preview", lambda route: route.fulfill(**full))
        elif state == "offline":
            page.context.route("**/api/*", lambda route: route.abort())
        elif state == "keeps nothing":
            page.add_init_script(_KEEPS_NOTHING)
        page.goto(chat.url)
        page.click("#ask button")
        frame_of(page).locator(f"p:has-text('{words}')").wait_for()
        Looks(page, tmp_path).at(state)
