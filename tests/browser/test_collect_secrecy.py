"""Nothing that leaves the page, or stays behind in the browser, depends on a true choice.

The same person answers again and again with the coins in our hand: with every label of each kind of
question, and each time with coins that give the same randomized answers. Everything that can be
seen from outside must then be the same, to the byte: requests and their ticks, the document,
storage, caches, cookies, address, history and console. Leaks that are planted must be seen.
"""

import json
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from sordino import RandomizedResponse
from sordino.mechanisms.randomized_response import NO_CHOICE, KaryRandomizedResponse

from .conftest import named

_FLIPS = RandomizedResponse(1.0).threshold
_DIE = KaryRandomizedResponse(1.0, 3)
_LEVELS = (1, 5)
_SPARE = 50  # words that no right page draws
_BEGUN = 5  # seconds of the page's own clock before the first answer

# Words of eight bytes come from a list, all other bytes from a stream that is always the same.
_COINS = """
(() => {
  const words = WORDS;
  let next = 0;
  let state = 7;
  crypto.getRandomValues = (bytes) => {
    if (bytes.length === 8) {
      bytes.set(Uint8Array.from(words[next++].match(/../g), (two) => parseInt(two, 16)));
      return bytes;
    }
    for (let i = 0; i < bytes.length; i += 1) {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      bytes[i] = state >>> 16;
    }
    return bytes;
  };
})();
"""

# After which tick a request left. The clock of the page stands still between ticks.
_TICKS = """
globalThis.ticks = [];
const realFetch = globalThis.fetch;
globalThis.fetch = (...all) => {
  if (String(all[0]).includes("/api/answers")) ticks.push(Math.floor(performance.now() / 1000));
  return realFetch(...all);
};
"""

_ANSWER = """
async (wanted) => {
  const press = (key) =>
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const main = document.getElementById("main");
  const keyed = (step) => {  // a key, or the text of the answer that is meant
    if (step.length === 1) return step;
    const cards = [...document.querySelectorAll(".answer")];
    return String(1 + cards.findIndex((card) => card.textContent.includes(step)));
  };
  for (const steps of wanted) {
    const before = document.querySelector("h1").textContent;
    const moved = new Promise((resolve) => {
      const watch = new MutationObserver(() => {
        if (document.querySelector("h1")?.textContent === before) return;
        watch.disconnect();
        resolve();
      });
      watch.observe(main, { childList: true });
    });
    for (const step of steps) press(keyed(step));
    press("Enter");
    await moved;
  }
}
"""

_DUMP = """
async () => {
  const base = await new Promise((resolve) => {
    const opening = indexedDB.open("sordino-0123456789abcdef");
    opening.onsuccess = () => resolve(opening.result);
  });
  const read = (request) => new Promise((resolve) => {
    request.onsuccess = () => resolve(request.result);
  });
  const stores = {};
  for (const name of base.objectStoreNames) {
    const store = base.transaction(name).objectStore(name);
    stores[name] = [await read(store.getAllKeys()), await read(store.getAll())];
  }
  base.close();
  const kept = {};
  for (const name of await caches.keys()) {
    const cache = await caches.open(name);
    for (const request of await cache.keys()) {
      kept[request.url] = await (await cache.match(request)).text();
    }
  }
  return {
    stores, kept, ticks, databases: (await indexedDB.databases()).map(({ name }) => name),
    local: { ...localStorage }, session: { ...sessionStorage }, cookies: document.cookie,
    address: location.href, state: history.state, steps: history.length, name: window.name,
    document: document.documentElement.outerHTML, globals: Object.keys(globalThis),
  };
}
"""


def _pairs(number):
    return [named(f"Question {i}?", f"First {i}", f"Second {i}") for i in range(number)]


def _others(number):
    """Return so many questions of each other kind, in turn."""
    from sordino.collection.study import make_question
    from sordino.preferences.records import Levels

    few = {"candidates": ["One here", "Two here", "Three here"]}
    answers = {"thumb": {"completion": "An answer"}, "rating": {"completion": "An answer"}}
    answers |= {"choice": few, "ranking": few}
    return [
        make_question({"prompt": f"{ask} {i}?", "ask": ask, **more}, "", Levels(*_LEVELS)).to_dict()
        for i in range(number)
        for ask, more in answers.items()
    ]


def _labels(question):
    """Return what may be thought of a question: a share or a place, and what is then pressed."""
    ask, answers = question["ask"], question["answers"]
    out = {"pair": ["0"], "choice": ["t", "s"], "ranking": ["t", "s"]}.get(ask, ["s"])
    if ask in {"choice", "ranking"}:
        steps = [[text] for text in answers]
        if ask == "ranking":
            steps = [[*order[:2]] for order in permutations(answers)]
        return [(answers.index(some[0]), some) for some in steps] + [
            (NO_CHOICE, [key]) for key in out
        ]
    steps = {
        "pair": [((1, 1), [answers[0]]), ((0, 1), [answers[-1]])],
        "thumb": [((1, 1), ["1"]), ((0, 1), ["2"])],
        "rating": [((j, 4), [str(1 + j)]) for j in range(5)],
    }
    return steps[ask] + [((1, 2), [key]) for key in out]


def _opened(questions):
    some = {question["ask"] for question in questions} != {"pair"}
    study = {
        "id": "0123456789abcdef",
        "title": "Which answer is better?",
        "epsilon": 1.0,
        "threshold": str(_FLIPS),
        "die": {"categories": 3, "threshold": str(_DIE.threshold)} if some else None,
        "levels": list(_LEVELS) if some else None,
        "asks": len(questions),
        "choose": "fewest",
        "cap": len(questions),
        "ties": True,
        "skips": True,
        "changes": "refused",
        "tick_seconds": 1,
        "expires": "2030-01-01T00:00:00Z",
        "caveats": [],
    }
    return {"study": study, "questions": questions}


class _Watched:
    """A page whose server is played here, so that everything it is told is always the same."""

    def __init__(self, person, url, questions, words=None, mutant=None):
        self.person, self.page = person, person.page
        self.sent, self.bodies, self.documents = [], [], []
        person.context.clock.install(time="2026-01-01T00:00:00Z")
        person.context.clock.pause_at("2026-01-01T01:00:00Z")
        if words is not None:
            person.context.add_init_script(_COINS.replace("WORDS", json.dumps(words)))
        person.context.add_init_script(_TICKS)
        person.context.on("request", self._note)
        about = {"status": "ok", "study": _opened(questions)["study"]["id"], "page": "0" * 64}
        self.page.route("**/api/health", lambda route: route.fulfill(json=about))
        self.page.route("**/api/open", lambda route: route.fulfill(json=_opened(questions)))
        self.page.route("**/api/answers", self._store)
        if mutant is not None:
            name, before, after = mutant
            self.page.route(f"**/page/{name}", lambda route: _alter(route, before, after))
        self.page.goto(f"{url}/#{'T' * 43}")
        self.page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
        self.page.click("#main .primary")
        self.page.wait_for_selector(".question")
        # Until the page had its clock a little time passed: less here, more on a busy machine.
        self.page.clock.run_for(_BEGUN * 1000 - int(self.page.evaluate("performance.now()")))

    def _note(self, request):
        if "/api/" in request.url and not request.url.endswith("/texts"):
            kept = ("authorization", "content-type")
            headers = {name: request.headers.get(name) for name in kept}
            self.sent.append((request.method, request.url, headers, request.post_data))

    def _store(self, route):
        self.bodies.append(route.request.post_data)
        ids = [answer["id"] for answer in json.loads(route.request.post_data)["answers"]]
        route.fulfill(json={"stored": ids, "refused": [], "spent": len(ids)})

    def answer(self, wanted):
        """Press these steps for one question each, and let one tick pass after each fifty."""
        for start in range(0, len(wanted), 50):
            self.page.evaluate(_ANSWER, wanted[start : start + 50])
            self.documents.append(self.page.evaluate("document.documentElement.outerHTML"))
            self.page.clock.run_for(1000)
            self.page.wait_for_selector("#foot :text('Nothing is waiting')")

    def seen(self):
        """Return everything that can be seen from outside, now and while it went on."""
        return {
            **self.page.evaluate(_DUMP),
            "sent": self.sent,
            "documents": self.documents,
            "noted": self.person.noted,
            "jar": self.person.context.cookies(),
        }


def _alter(route, before, after):
    source = route.fetch().text()
    assert source.count(before) == 1, before
    route.fulfill(body=source.replace(before, after), content_type="text/javascript")


def _words(answer, judgment, generator):
    """Return words that make this answer of a judgment."""
    low, high = 2**62, 2**63  # of words that decide nothing
    if isinstance(judgment, tuple):
        part, whole = judgment
        limit = _FLIPS + (0 if part == whole else (2**64 - 2 * _FLIPS) * part // whole)
        below = answer == (0 if part == whole else 1)
        bounds = (0, limit) if below else (limit, 2**64)
        return [int(generator.integers(*bounds, dtype=np.uint64))]
    flip, ahead, fair = (int(word) for word in generator.integers(low, high, size=3))
    again = [2**64 - 1] * int(generator.integers(2))  # of the last round: drawn anew
    if judgment == NO_CHOICE:
        return [flip, ahead, *again, fair - fair % 3 + answer]
    moved = answer != judgment
    bounds = (0, _DIE.threshold) if moved else (_DIE.threshold, 2**64)
    flip = int(generator.integers(*bounds, dtype=np.uint64))
    ahead += ((answer - judgment) % 3 - 1 - ahead) % 2 if moved else 0
    return [flip, ahead, *again, fair]


def _differences(visit, url, questions, runs, mutant=None):
    """Return what tells true choices apart, though the randomized answers are the same.

    In each run every question is answered by the label of that number, of its own labels in turn.
    """
    answers = [
        int(np.random.default_rng([9, i]).integers(2 if len(question["answers"]) < 3 else 3))
        for i, question in enumerate(questions)
    ]
    kinds = {question["ask"] for question in questions}
    demonstrations = 100 if kinds == {"pair"} else 100 + 3 * 100  # a coin, and a die of three words
    seen = []
    for run in runs:
        chosen = [_labels(question)[run % len(_labels(question))] for question in questions]
        words = [0] * demonstrations
        for i, (judgment, _) in enumerate(chosen):
            words += _words(answers[i], judgment, np.random.default_rng([i, 9]))
        fed = [word.to_bytes(8, "little").hex() for word in [*words, *[0] * _SPARE]]
        watched = _Watched(visit(), url, questions, fed, mutant)
        watched.answer([steps for _, steps in chosen])
        seen.append(watched.seen())
        watched.person.context.close()
        _, records = seen[-1]["stores"]["answers"]
        made = {record["question"]: record["answer"] for record in records}
        given = [made.get(question["id"]) for question in questions]
        sent = [one["answer"] for body in watched.bodies for one in json.loads(body)["answers"]]
        if given != answers or sent != answers:
            seen[-1]["stores"]["answers"] = f"wrong in run {run}"
    first = seen[0]
    requests = -(-len(questions) // 50)
    assert mutant or len(first["sent"]) == 2 + requests
    assert mutant or first["ticks"] == list(range(_BEGUN + 1, _BEGUN + requests + 1))
    written = [{key: json.dumps(value) for key, value in one.items()} for one in seen]
    return sorted({key for other in written for key in first if other[key] != written[0][key]})


def test_nothing_tells_true_choices_of_pairs_apart(site, visit):
    assert _differences(visit, site(questions=15).url, _pairs(220), range(3)) == []


def test_nothing_tells_true_choices_of_any_other_kind_apart(site, visit):
    """Three labels of thumbs, six of ratings, five of choices, eight of orders."""
    questions = _others(12)
    assert {one["ask"]: len(_labels(one)) for one in questions} == {
        "thumb": 3,
        "rating": 6,
        "choice": 5,
        "ranking": 8,
    }
    assert _differences(visit, site(questions=15).url, questions, range(8)) == []


_DRAW = ": release(judgment, BigInt(threshold));"
_RECORD = "const record = { id: randomId(), question, revision, answer };"
_SEND = "send: (judgment) =>"
_LABEL = "const judgment = this.#kind.judgment(this.#choice);"
_LEAKS = {  # where it must be seen, and the change to a file of the page
    "kept beside the answer": (
        ["stores"],
        ("memory.js", "answers.add(record)", "answers.add({ ...record, judgment })"),
    ),
    "in the id": (
        ["sent", "stores"],
        ("memory.js", "id: randomId()", "id: `${judgment[0]}${randomId().slice(1)}`"),
    ),
    "in the order of keys": (
        ["stores"],
        (
            "memory.js",
            _RECORD,
            f"{_RECORD.replace('const', 'let')} if (judgment[0]) record = {{ answer, ...record }};",
        ),
    ),
    "in a second draw": (
        ["sent", "stores"],
        ("memory.js", _DRAW, f"{_DRAW} if (judgment[1] === 2) release(judgment, 1n);"),
    ),
    "in the session": (
        ["session"],
        ("study.js", _SEND, f"{_SEND} void (sessionStorage.last = judgment) ??"),
    ),
    "in the address": (
        ["address"],
        ("study.js", _SEND, f"{_SEND} history.replaceState(null, '', `?${{judgment}}`) ??"),
    ),
    "in the console": (["noted"], ("study.js", _SEND, f"{_SEND} console.debug(judgment) ??")),
    "in when it is sent": (
        ["sent", "ticks"],
        (
            "study.js",
            '  go("question");\n  if (outcome',
            '  if (judgment[0]) sender.tick();\n  go("question");\n  if (outcome',
        ),
    ),
    "left for screen readers": (
        ["document", "documents"],
        ("question.js", 'announce("");\n', ""),
    ),
    "left in the document": (
        ["document", "documents"],
        ("question.js", _LABEL, f"document.body.dataset.was = this.#choice; {_LABEL}"),
    ),
    "in a global": (
        ["globals"],
        ("question.js", _LABEL, f"globalThis[`was${{this.#choice}}`] = 1; {_LABEL}"),
    ),
    "of the side of the screen": (
        ["sent", "stores"],
        (
            "kinds.js",
            "[FIRST, SECOND][this.order[choice]]",
            "[FIRST, SECOND][choice]",
        ),
    ),
}


@pytest.mark.parametrize("leak", _LEAKS)
def test_planted_leaks_are_seen_where_they_are(site, visit, leak):
    where, mutant = _LEAKS[leak]
    found = _differences(visit, site(questions=15).url, _pairs(8), (1, 2), mutant)
    assert set(where) <= set(found)


# Where the choice of one kind is written, while all others stay unseen: each place for each kind.
_PLACES = {
    "session": "sessionStorage.last = was",
    "address": "history.replaceState(null, '', `?${was}`)",
    "noted": "console.debug(was)",
    "globals": "globalThis[`was${was}`] = 1",
    "document": "document.body.dataset.was = was",
    "sent": "crypto.getRandomValues(new Uint8Array(16 + Number(was.match(/[0-9]/g).at(-1))))",
}
_KINDS = ("thumb", "rating", "choice", "ranking")


@pytest.mark.parametrize("turn", range(len(_PLACES)))
def test_planted_leaks_of_each_kind_are_seen_where_they_are(site, visit, turn):
    """Four leaks at once, each of one kind into one place, so that each sight is its own proof.

    Of an order not even the first place differs: only the rest of it, which must not leave either.
    """
    names = list(_PLACES)
    planted = {kind: names[(turn + at) % len(names)] for at, kind in enumerate(_KINDS)}
    leaks = ", ".join(f"{kind}: (was) => {{ {_PLACES[at]}; }}" for kind, at in planted.items())
    leak = f"({{ {leaks} }})[this.#question.ask](JSON.stringify([this.#choice]));"
    mutant = ("question.js", _LABEL, f"{leak} {_LABEL}")
    found = _differences(visit, site(questions=15).url, _others(2), (0, 1), mutant)
    assert set(planted.values()) <= set(found)
    assert not (set(names) - set(planted.values())) & set(found)


@pytest.mark.deep
def test_the_flip_rate_of_thirteen_hundred_answers(site, visit):
    """Real coins. False alarms: three binomial tests at 1e-6 each, so at most 3e-6 in all.

    Power: a coin of half the flip probability passes with 3e-5, a fair one with less than 1e-9.
    """
    parts = [(1, 500), (0, 500), (2, 300)]
    questions = _pairs(1300)
    watched = _Watched(visit(), site(questions=15).url, questions)
    numbers = [(1 - label) % 3 for label, count in parts for _ in range(count)]
    watched.answer([_labels(one)[at][1] for one, at in zip(questions, numbers, strict=True)])
    sent = [one for body in watched.bodies for one in json.loads(body)["answers"]]
    assert [one["question"] for one in sent] == [row["id"] for row in questions]
    assert len({one["id"] for one in sent}) == 1300
    _, records = watched.seen()["stores"]["answers"]
    assert {r["id"]: r["answer"] for r in records} == {one["id"]: one["answer"] for one in sent}
    start, flip = 0, RandomizedResponse(1.0).flip_probability
    for label, count in parts:
        answers = [one["answer"] for one in sent[start : start + count]]
        start += count
        ones, chance = sum(answers), {0: flip, 1: 1 - flip, 2: 0.5}[label]
        assert stats.binomtest(ones, count, chance).pvalue > 1e-6
