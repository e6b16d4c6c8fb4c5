"""The collection page in another browser: the same coins, the same journey, nothing that tells."""

import json
from importlib.resources import files

import numpy as np
import pytest

from .bidi import Person, started
from .test_collect_secrecy import _ANSWER, _COINS, _DUMP, _labels, _opened, _others, _pairs, _words
from .test_kinds import _KEYS, _OUTCOMES, _ROWS, _SAID, _STUDY
from .test_randomize import _RUN, VECTORS, _expected
from .test_widget import _NARROW, _ORDERS, Chat, _terms

pytestmark = pytest.mark.deep

_ENTER = "\ue007"
_STORED = """async (name) => {
  const study = (await indexedDB.databases()).find((base) => /sordino-[0-9a-f]/.test(base.name));
  const done = (request) => new Promise((resolve) => {
    request.onsuccess = () => resolve(request.result);
  });
  const base = await done(indexedDB.open(study.name));
  const all = await done(base.transaction(name).objectStore(name).getAll());
  base.close();
  return all;
}"""


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    """Return a Firefox; it ends with the module."""
    with started(tmp_path_factory.mktemp("firefox")) as one:
        yield one


@pytest.fixture
def person(firefox):
    """Return somebody with a new profile."""
    one = Person(firefox)
    yield one
    one.close()


def test_firefox_gives_the_vectors(person, page_files):
    person.go(f"{page_files}/")
    assert person.run(_RUN, [f"{page_files}/page/randomize.js", VECTORS]) == _expected()


def test_each_kind_from_an_invitation_to_stored_answers(person, site):
    one = site(**_STUDY)
    before = one.rows()
    person.go(one.link())
    person.text("#main .primary")
    person.run("() => document.querySelector('#main .primary').focus()")
    person.press(_ENTER)
    kinds = []
    for _ in _ROWS:
        kinds.append(person.text(".question .prompt").partition(": ")[2].partition("?")[0])
        for key in _KEYS[kinds[-1]]:
            person.press(key)
        assert _SAID[kinds[-1]] in person.text(".pending")
        title = person.text("h1")
        person.press(_ENTER)
        person.wait("(was) => document.querySelector('h1').innerText !== was", title)
    person.wait("() => document.querySelector('h1').innerText === 'Thank you'")
    assert sorted(kinds) == sorted(_KEYS)
    rows = {row[3]: (row[1], row[4]) for row in one.rows() if row not in before}
    memoized = person.run(_STORED, "answers")
    assert rows == {record["id"]: (record["question"], record["answer"]) for record in memoized}
    sent = [json.loads(body) for url, _, body in person.sent if url.endswith("/answers")]
    told = [answer for body in sent for answer in body["answers"]]
    assert {answer["id"]: (answer["question"], answer["answer"]) for answer in told} == rows
    assert {frozenset(answer) for answer in told} == {
        frozenset({"id", "question", "revision", "answer"})
    }
    asks = {question["id"]: question["ask"] for question in person.run(_STORED, "questions")}
    assert all(answer < _OUTCOMES[asks[question]] for question, answer in rows.values())
    assert len(rows) == len(_ROWS)
    assert [address for address in person.asked if not address.startswith(one.url)] == []
    assert person.noted == []


# Ticks come when the test says so: a timer that waits long is held until then.
_HELD = """
globalThis.ticks = [];
globalThis.held = [];
const later = globalThis.setTimeout;
globalThis.setTimeout = (work, wait, ...more) =>
  (wait > 200 ? void held.push(work) : later(work, wait, ...more));
"""
_TICK = "() => held.splice(0).forEach((work) => work())"
_QUIET = "() => document.getElementById('foot').textContent.includes('Nothing is waiting')"
_HTML = "() => document.documentElement.outerHTML"


def _seen(firefox, url, questions, run, mutant=None):
    """Answer each question by its label of this number; return all that can be seen from outside.

    The coins are fed so that the randomized answers are the same for every label.
    """
    fed, steps = [0] * 400, []  # made-up answers of the explanation: 100 of a coin, 300 of a die
    answers = [at % 2 if len(one["answers"]) < 3 else at % 3 for at, one in enumerate(questions)]
    for at, question in enumerate(questions):
        judgment, pressed = _labels(question)[run % len(_labels(question))]
        fed += _words(answers[at], judgment, np.random.default_rng([at, 9]))
        steps.append(pressed)
    words = [word.to_bytes(8, "little").hex() for word in [*fed, *[0] * 20]]

    def stored(body):
        ids = [answer["id"] for answer in json.loads(body)["answers"]]
        return {"stored": ids, "refused": [], "spent": len(ids)}

    def reply(value):
        return lambda body: ("application/json", json.dumps(value(body)))

    played = {
        "/api/health": reply(lambda _: {"status": "ok", "study": "0123456789abcdef"}),
        "/api/open": reply(lambda _: _opened(questions)),
        "/api/answers": reply(stored),
    }
    if mutant is not None:
        name, before, after = mutant
        source = (files("sordino.collection") / "page" / name).read_text("utf-8")
        assert source.count(before) == 1, before
        played[f"/page/{name}"] = lambda _: ("text/javascript", source.replace(before, after))
    coins = _COINS.replace("WORDS", json.dumps(words))
    person = Person(firefox, coins, _HELD, played=played)
    person.go(f"{url}/#{'T' * 43}")
    person.run("() => navigator.serviceWorker.ready.then(() => true)")
    person.text("#main .primary")
    person.run("() => document.querySelector('#main .primary').click()")
    person.text(".question")
    person.run(_ANSWER, steps)
    documents = [person.run(_HTML)]
    person.run(_TICK)
    person.wait(_QUIET)
    documents.append(person.run(_HTML))
    found = person.run(_DUMP)
    assert _right(found, person, answers, questions) or mutant, run
    person.close()
    around = {"sent": person.sent, "asked": sorted(person.asked), "noted": person.noted}
    return found | around | {"documents": documents}


def _right(found, person, answers, questions):
    """Tell whether the randomized answers, and only they, were kept and sent."""
    expected = {one["id"]: answer for one, answer in zip(questions, answers, strict=True)}
    sent = [json.loads(body)["answers"] for url, _, body in person.sent if "answers" in url]
    kept = found["stores"]["answers"][1]
    return all(
        {one["question"]: one["answer"] for one in some} == expected
        for some in (kept, [one for body in sent for one in body])
    )


def _differences(firefox, site, runs, mutant=None):
    url, questions = site(questions=15).url, [*_pairs(2), *_others(8)]
    first, *others = (
        {
            key: json.dumps(value)
            for key, value in _seen(firefox, url, questions, run, mutant).items()
        }
        for run in runs
    )
    return sorted({key for other in others for key in first if other[key] != first[key]})


def test_nothing_tells_true_choices_of_any_kind_apart(firefox, site):
    """Eight labels of orders, and of every other kind all that it has."""
    assert _differences(firefox, site, range(8)) == []


_LEAKS = {  # where it must be seen, and the change to a file of the page
    "stores": ("memory.js", "answers.add(record)", "answers.add({ ...record, judgment })"),
    "sent": ("memory.js", "id: randomId()", "id: `${[judgment].flat()[0]}${randomId().slice(2)}`"),
    "noted": ("study.js", "send: (judgment) =>", "send: (judgment) => console.debug(judgment) ??"),
}


@pytest.mark.parametrize("where", _LEAKS)
def test_planted_leaks_are_seen_in_firefox_too(firefox, site, where):
    assert where in _differences(firefox, site, (0, 1), _LEAKS[where])


_ASK = """() => {
  document.querySelector("#text").value = "Two answers about bread, please";
  document.querySelector("#ask button").click();
}"""
_HEIGHTS = f"""async (width) => {{
  while (innerWidth !== width) await new Promise((later) => setTimeout(later, 10));
  return ({_ORDERS.strip()})(document.getElementById("main"));
}}"""


def _widths_that_tell(firefox, folder, mutant=None):
    """Return at which widths the height of the widget depends on the order of its buttons."""
    chat = Chat(folder / "chat")
    told = json.dumps({"study": _terms(), "questions": [], "stored": []})
    played = {"/study/api/preview": lambda _: ("application/json", told)}
    if mutant is not None:
        name, before, after = mutant
        source = (files("sordino.collection") / "page" / name).read_text("utf-8")
        assert source.count(before) == 1, before
        played[f"/study/page/{name}"] = lambda _: ("text/css", source.replace(before, after))
    person = Person(firefox, played=played)
    try:
        person.go(chat.url)
        person.run(_ASK)
        person.wait("() => document.querySelector('sordino-feedback') !== null")
        around, inside = person.tab, []
        while not inside:
            tree = person.call("browsingContext.getTree", root=around)
            inside = [one["context"] for one in tree["contexts"][0]["children"]]
        person.tab = inside[0]
        person.wait("() => document.querySelectorAll('.choices button').length === 4")
        found = []
        for width in range(80, 800, 40):
            person.tab = around
            person.run(_NARROW.strip(), width)
            person.tab = inside[0]
            if person.run(_HEIGHTS, width) > 1:
                found.append(width)
        person.tab = around
        return found
    finally:
        person.close()
        chat.process.terminate()
        chat.process.wait()


def test_no_width_of_the_widget_shows_in_which_order_its_buttons_stand(firefox, tmp_path):
    assert _widths_that_tell(firefox, tmp_path) == []


def test_a_row_that_breaks_is_seen_in_firefox_too(firefox, tmp_path):
    plant = ("feedback.css", "{ display: grid; grid-auto-flow", "{ display: flex; grid-auto-flow")
    assert _widths_that_tell(firefox, tmp_path, plant) != []
