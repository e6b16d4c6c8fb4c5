"""A preview shows everything and keeps nothing; a device keeps one budget that nobody raises."""

import hashlib
import json
import socket
import subprocess
import sys

import pytest

from .test_collect_answers import _heading
from .test_collect_refusals import trouble

_KEPT = """async () => ({
  bases: await indexedDB.databases(), caches: await caches.keys(),
  workers: (await navigator.serviceWorker.getRegistrations()).length,
  local: Object.keys(localStorage), session: Object.keys(sessionStorage),
  cookies: document.cookie, address: location.pathname + location.search + location.hash,
})"""
_NOTHING = {
    "bases": [], "caches": [], "workers": 0, "local": [], "session": [], "cookies": "",
    "address": "/?preview",
}  # fmt: skip


def rehearse(person, address, number):
    """Go through a whole study; return what was asked of the service meanwhile."""
    asked = []
    person.context.on("request", lambda request: asked.append(request.url))
    person.begin(address)
    assert "Preview: nothing is kept or sent" in person.page.inner_text("#bar")
    for _ in range(number):
        person.answer()
    _heading(person.page, "Thank you")
    person.page.wait_for_timeout(1200)  # a tick
    assert person.page.evaluate(_KEPT) == _NOTHING
    return {address.partition("/api/")[2] for address in asked if "/api/" in address}


@pytest.mark.parametrize("who", ["invitation", "admin"])
def test_a_preview_binds_keeps_and_sends_nothing(site, visit, who):
    one = site(questions=6, project="Kitchen", project_epsilon=6.0)
    link, person = one.link(), visit()
    token = link.partition("#")[2] if who == "invitation" else one.admin
    files = [one.folder / f"study.db{end}" for end in ("", "-wal")]
    before = [hashlib.sha256(file.read_bytes()).digest() for file in files]
    asked = rehearse(person, f"{one.url}/?preview#{token}", 6)
    assert asked <= {"texts", "health", "preview"}
    assert [hashlib.sha256(file.read_bytes()).digest() for file in files] == before
    other = visit()
    other.begin(link)
    _heading(other.page, "Question 1 of 6")
    other.page.goto(f"{one.url}/?preview#nonsense")
    assert "not known here" in trouble(other.page)


def test_a_study_without_a_database_can_be_looked_at(site, visit, tmp_path):
    from sordino.collection.study import new_study

    rows = [{"prompt": f"p {n}", "first": "a", "second": "b"} for n in range(3)]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    file, lines = tmp_path / "s.toml", tmp_path / "q.jsonl"
    new_study(file, title="T", questions=lines, epsilon=1.0, cap=3)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sordino", "collect", "preview", "s.toml", "--json"]
    process = subprocess.Popen(
        [*command, "--port", str(port)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        assert told["page"] == f"http://127.0.0.1:{port}/?preview"
        asked = rehearse(visit(), f"http://127.0.0.1:{port}/", 3)
        assert asked <= {"texts", "health", "preview"}
    finally:
        process.terminate()
        process.communicate()
    assert {path.name for path in tmp_path.iterdir()} == {"s.toml", "q.jsonl"}


def budget(person):
    """Return the words of the view "Your budget"."""
    person.page.click("nav button >> nth=3")
    _heading(person.page, "Your budget")
    return person.page.inner_text("main")


def test_the_device_refuses_what_its_budget_does_not_cover(site, visit, tmp_path):
    """A later study of the project asks for more, and says that the budget is larger."""
    first = site(questions=6, title="The first", project="Kitchen", project_epsilon=6.0)
    person = visit()
    person.begin(first.link())
    for _ in range(4):
        person.answer()
    person.settled()
    assert "ε = 4 of at most 6" in budget(person)
    folder = tmp_path / "second"
    folder.mkdir()
    first.kill()
    more = {"title": "The second", "project": "Kitchen", "project_epsilon": 100.0}
    second = type(first)(folder, questions=6, port=first.port, **more)
    try:
        person.begin(second.link())
        person.answer()
        person.answer()
        person.page.wait_for_selector("text=no more answers")
        assert "ε = 6 of at most 6" in (words := budget(person))
        assert "The first" in words
        assert "The second" in words
        person.page.reload()
        person.page.wait_for_selector("text=no more answers")
        person.settled()
        assert len(second.rows()) == 2
    finally:
        second.kill()
        first.start()


def _terms(change):
    def answer(route):
        body = route.fetch().json()
        change(body["study"])
        route.fulfill(json=body)

    return answer


_LIES = {
    "a larger budget": lambda study: study["project"].update(epsilon=100.0),
    "another name": lambda study: study["project"].update(name="Other"),
    "no project": lambda study: study.update(project=None),
}


@pytest.mark.parametrize("lie", _LIES)
def test_a_study_does_not_change_its_budget_on_the_way(site, visit, lie):
    one = site(questions=6, project="Kitchen", project_epsilon=6.0)
    link, person = one.link(), visit()
    person.begin(link)
    person.page.route("**/api/open", _terms(_LIES[lie]))
    person.page.goto("about:blank")
    person.page.goto(link)
    assert "not the ones this device began with" in trouble(person.page)


_SPEND = """async ({ budget, crash }) => {
  const { openWallet, release } = await import("/page/wallet.js");
  const { openMemory } = await import("/page/memory.js");
  const memory = await openMemory("x" + Math.random());
  const project = { name: "P", epsilon: budget };
  const coin = { epsilon: 0.1, threshold: String(1n << 62n), die: null };
  const terms = { id: "s", title: "T", cap: 9, project, ...coin };
  const wallet = await openWallet();
  await wallet.open(terms, 0);
  const told = [];
  const asked = { ask: "pair", revision: 1, judgment: [1, 1] };
  const toss = (place) => release(memory, wallet, { question: `q${place}`, ...asked }, terms);
  if (crash) memory.release = () => Promise.reject(new Error("crash"));
  for (let place = 0; place < 4; place += 1) told.push(await toss(place).catch(() => "crash"));
  await wallet.open({ ...terms, id: "t", project: { name: "P", epsilon: 5 } }, 0);
  const more = await wallet.reserve({ ...terms, id: "t" });
  const kept = (await wallet.projects()).find(({ name }) => name === "P");
  const { spent, budget: left } = kept ?? { spent: null };
  return { told, more, spent, budget: left, tossed: (await memory.progress()).given.length };
}"""

_WALLET_MUTANTS = {
    "a coin before the budget": (
        "if (!(await wallet.reserve(terms)))",
        "const early = await memory.release(asked, terms); if (!(await wallet.reserve(terms)))",
    ),
    "a budget that a later study raises": ("kept.budget < told ?", "kept.budget > told ?"),
    "a budget that is not looked at": ("total(kept) + one <= kept.budget", "true"),
    "a price that is not written": ("kept.studies.get(id).spent += one", "one"),
    "a reservation in the memory of a page": (
        "#base === null) return void",
        "#base !== 0) return void",
    ),
}


def spent(site, visit, mutant=None, *, crash=False):
    """Toss four coins of 0.1 against a budget of 0.3; return what happened, after a reload too."""
    person = visit(service_workers="block")
    if mutant:

        def change(route):
            source = route.fetch().text()
            assert source.count(mutant[0]) == 1, mutant
            route.fulfill(body=source.replace(*mutant), content_type="text/javascript")

        person.page.route("**/page/wallet.js", change)
    person.page.goto(site(questions=15).url)
    found = person.page.evaluate(_SPEND, {"budget": 0.3, "crash": crash})
    person.page.reload()
    kept = """async () => (await (await import("/page/wallet.js")).openWallet()).projects()"""
    (project,) = person.page.evaluate(kept) or [{"spent": 0}]
    return found | {"kept": project["spent"]}


_RIGHT = {"more": False, "spent": 0.3, "budget": 0.3, "kept": 0.3}


def test_a_wallet_reserves_first_counts_in_decimals_and_is_never_raised(site, visit):
    found = spent(site, visit)
    assert found == _RIGHT | {"told": ["released"] * 3 + ["wallet-empty"], "tossed": 3}
    crashed = spent(site, visit, crash=True)  # too much, never too little
    assert crashed == _RIGHT | {"told": ["crash"] * 3 + ["wallet-empty"], "tossed": 0}


@pytest.mark.parametrize("name", _WALLET_MUTANTS)
def test_planted_bugs_of_the_wallet_are_seen(site, visit, name):
    found = spent(site, visit, _WALLET_MUTANTS[name])
    assert found != _RIGHT | {"told": ["released"] * 3 + ["wallet-empty"], "tossed": 3}


def test_whoever_is_done_gets_a_code_and_a_way_back_however_often_words_are_lost(site, visit):
    one = site(questions=2, completion_code="C1", return_url="https://panel.example/done")
    person, lost = visit(), []

    def lose_once(route):
        if lost:
            route.continue_()
        else:
            lost.append(route.fetch())
            route.abort()

    person.begin(one.link())
    person.answer()
    person.settled()
    assert person.page.locator("main .spelled").count() == 0
    person.page.route("**/api/answers", lose_once)
    person.answer()
    assert person.page.inner_text("main .spelled") == "C1"
    assert lost
    assert person.page.get_attribute("main a.button", "href") == "https://panel.example/done"
    person.page.reload()
    assert person.page.inner_text("main .spelled") == "C1"
