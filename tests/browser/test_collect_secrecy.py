"""Nothing that leaves the page, or stays behind in the browser, depends on a true choice.

The same person answers three times with the coins in our hand: always "first", always "second",
always undecided, and each time coins that give the same randomized answers. Everything that can
be seen from outside must then be the same, to the byte: requests and their ticks, the document,
storage, caches, cookies, address, history and console. Leaks that are planted must be seen.
"""

import json

import numpy as np
import pytest
from scipy import stats

from sordino import RandomizedResponse

from .conftest import named

_THRESHOLD = RandomizedResponse(1.0).threshold
_DEMONSTRATION = 100  # words that the explanation draws, on made-up answers

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
async ({ count, wanted }) => {
  const press = (key) =>
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const main = document.getElementById("main");
  for (let i = 0; i < count; i += 1) {
    const left = document.querySelector(".answer .passage").textContent;
    const key = wanted === "undecided" ? "0" : left.startsWith(wanted) ? "1" : "2";
    const before = document.querySelector("h1").textContent;
    const moved = new Promise((resolve) => {
      const watch = new MutationObserver(() => {
        if (document.querySelector("h1")?.textContent === before) return;
        watch.disconnect();
        resolve();
      });
      watch.observe(main, { childList: true });
    });
    press(key);
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


def _questions(number):
    return [named(f"Question {i}?", f"First {i}", f"Second {i}") for i in range(number)]


def _opened(number):
    study = {
        "id": "0123456789abcdef",
        "title": "Which answer is better?",
        "epsilon": 1.0,
        "threshold": str(_THRESHOLD),
        "die": None,
        "asks": number,
        "choose": "fewest",
        "levels": None,
        "cap": number,
        "ties": True,
        "skips": True,
        "changes": "refused",
        "tick_seconds": 1,
        "expires": "2030-01-01T00:00:00Z",
        "caveats": [],
    }
    return {"study": study, "questions": _questions(number)}


class _Watched:
    """A page whose server is played here, so that everything it is told is always the same."""

    def __init__(self, person, url, number, words=None, mutant=None):
        self.person, self.page, self.number = person, person.page, number
        self.sent, self.bodies, self.documents = [], [], []
        person.context.clock.install(time="2026-01-01T00:00:00Z")
        person.context.clock.pause_at("2026-01-01T01:00:00Z")
        if words is not None:
            person.context.add_init_script(_COINS.replace("WORDS", json.dumps(words)))
        person.context.add_init_script(_TICKS)
        person.context.on("request", self._note)
        about = {"status": "ok", "study": _opened(number)["study"]["id"], "page": "0" * 64}
        self.page.route("**/api/health", lambda route: route.fulfill(json=about))
        self.page.route("**/api/open", lambda route: route.fulfill(json=_opened(number)))
        self.page.route("**/api/answers", self._store)
        if mutant is not None:
            name, before, after = mutant
            self.page.route(f"**/page/{name}", lambda route: _alter(route, before, after))
        self.page.goto(f"{url}/#{'T' * 43}")
        self.page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
        self.page.click("#main .primary")
        self.page.wait_for_selector(".question")

    def _note(self, request):
        if "/api/" in request.url and not request.url.endswith("/texts"):
            kept = ("authorization", "content-type")
            headers = {name: request.headers.get(name) for name in kept}
            self.sent.append((request.method, request.url, headers, request.post_data))

    def _store(self, route):
        self.bodies.append(route.request.post_data)
        ids = [answer["id"] for answer in json.loads(route.request.post_data)["answers"]]
        route.fulfill(json={"stored": ids, "refused": [], "spent": len(ids)})

    def answer(self, wanted, count):
        """Give so many answers, and let one tick pass after each fifty."""
        for start in range(0, count, 50):
            part = min(50, count - start)
            self.page.evaluate(_ANSWER, {"count": part, "wanted": wanted})
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


def _words(answers, label, generator):
    """Return words that make these answers of one label, as eight bytes in hexadecimal."""
    limit = 2**63 if label == 2 else _THRESHOLD
    made = [0] * _DEMONSTRATION
    for answer in [*answers, *answers]:  # more than a right page draws
        below = answer == 1 if label in (0, 2) else answer == 0
        low, high = (0, limit) if below else (limit, 2**64)
        made.append(int(generator.integers(low, high, dtype=np.uint64)))
    return [word.to_bytes(8, "little").hex() for word in made]


def _differences(visit, url, number, mutant=None):
    """Return what tells true choices apart, though the randomized answers are the same."""
    generator = np.random.default_rng(number)
    answers = generator.integers(0, 2, size=number).tolist()
    seen = []
    choices = ((1, "First"), (2, "undecided"), (0, "Second"))
    for label, wanted in choices[:2] if mutant else choices:
        words = _words(answers, label, generator)
        watched = _Watched(visit(), url, number, words, mutant)
        watched.answer(wanted, number)
        seen.append(watched.seen())
        _, records = seen[-1]["stores"]["answers"]
        bits = {record["question"]: record["answer"] for record in records}
        given = [bits.get(row["id"]) for row in _questions(number)]
        sent = [one["answer"] for body in watched.bodies for one in json.loads(body)["answers"]]
        if given != answers or sent != answers:
            seen[-1]["stores"]["answers"] = f"wrong for label {label}"
    first = seen[0]
    requests = -(-number // 50)
    assert mutant or len(first["sent"]) == 2 + requests
    assert mutant or first["ticks"] == list(range(1, requests + 1))
    written = [{key: json.dumps(value) for key, value in one.items()} for one in seen]
    return sorted({key for other in written for key in first if other[key] != written[0][key]})


def test_nothing_tells_true_choices_apart(site, visit):
    assert _differences(visit, site(questions=15).url, 320) == []


_DRAW = ": release(judgment, BigInt(threshold));"
_RECORD = "const record = { id: randomId(), question, revision, answer };"
_SEND = "send: (judgment) =>"
_LABEL = "const judgment = judgmentOf"
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
            '  if (judgment[0] === judgment[1]) sender.tick();\n  go("question");\n  if (outcome',
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
            "question.js",
            "[FIRST, SECOND][order[0]], right: [FIRST, SECOND][order[1]]",
            "FIRST, right: SECOND",
        ),
    ),
}


@pytest.mark.parametrize("leak", _LEAKS)
def test_planted_leaks_are_seen_where_they_are(site, visit, leak):
    where, mutant = _LEAKS[leak]
    assert set(where) <= set(_differences(visit, site(questions=15).url, 8, mutant))


@pytest.mark.deep
def test_the_flip_rate_of_thirteen_hundred_answers(site, visit):
    """Real coins. False alarms: three binomial tests at 1e-6 each, so at most 3e-6 in all.

    Power: a coin of half the flip probability passes with 3e-5, a fair one with less than 1e-9.
    """
    parts = {"First": (1, 500), "Second": (0, 500), "undecided": (2, 300)}
    watched = _Watched(visit(), site(questions=15).url, 1300)
    for wanted, (_, count) in parts.items():
        watched.answer(wanted, count)
    sent = [one for body in watched.bodies for one in json.loads(body)["answers"]]
    assert [one["question"] for one in sent] == [row["id"] for row in _questions(1300)]
    assert len({one["id"] for one in sent}) == 1300
    _, records = watched.seen()["stores"]["answers"]
    assert {r["id"]: r["answer"] for r in records} == {one["id"]: one["answer"] for one in sent}
    start, flip = 0, RandomizedResponse(1.0).flip_probability
    for label, count in parts.values():
        answers = [one["answer"] for one in sent[start : start + count]]
        start += count
        ones, chance = sum(answers), {0: flip, 1: 1 - flip, 2: 0.5}[label]
        assert stats.binomtest(ones, count, chance).pvalue > 1e-6
