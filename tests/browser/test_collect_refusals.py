"""Where the promise could not be kept the page takes no answer, and says why in words."""

import json

import pytest

from sordino import RandomizedResponse
from sordino.preferences.records import canonical

from .test_collect_answers import _heading, _person


def trouble(page):
    """Wait until the page says that it takes no answer, and return why."""
    _heading(page, "This does not work right now")
    return page.inner_text("main")


def test_an_invitation_is_for_one_device(site, visit):
    one = site(questions=15)
    link = one.link()
    first, second = visit(), visit()
    first.begin(link)
    second.page.goto(link)
    assert "another device" in trouble(second.page)
    first.page.goto("about:blank")
    first.page.goto(link)  # the same device may open its link again
    _heading(first.page, "Question 1 of 15")
    first.page.goto(f"{one.url}/#nonsense")  # a wrong link ends nothing
    trouble(first.page)
    first.page.click("text=Go on with the study")
    _heading(first.page, "Question 1 of 15")
    assert second.page.locator("text=Go on with the study").count() == 0


@pytest.mark.parametrize(
    ("address", "words"),
    [("/", "link from your invitation"), ("/#nonsense", "not known here")],
)
def test_without_an_invitation_nothing_is_asked(site, visit, address, words):
    person = visit()
    person.page.goto(site(questions=15).url + address)
    assert words in trouble(person.page)


def test_where_no_words_arrive_the_page_says_so_in_english(site, visit, page_folder):
    texts = json.loads((page_folder / "languages" / "en.json").read_text("utf-8"))["texts"]
    person = visit(locale="fr")
    person.page.route("**/api/texts", lambda route: route.abort())
    person.page.goto(site(questions=15).url)
    said = trouble(person.page).splitlines()
    assert texts["error.offline"] in said
    assert {line for line in said if line} <= set(texts.values())


def _opened_as(person, link, change):
    """Open a link of a study whose terms are changed on their way; return what the page says."""

    def answer(route):
        body = route.fetch().json()
        change(body)
        route.fulfill(json=body)

    person.page.route("**/api/open", answer)
    person.page.goto("about:blank")
    person.page.goto(link)
    return trouble(person.page)


@pytest.mark.parametrize(
    "terms",
    [
        {"threshold": str(2**60)},
        {"threshold": "0"},
        {"threshold": "1e18"},
        {"epsilon": 1.001},
        {"epsilon": None},
        {"cap": 0},
        {"cap": 10**9},
        {"epsilon": 21.0, "threshold": "1"},  # within 1e-9, and a loss of 44
        {"tick_seconds": 3_000_000},  # a timer of so long does not wait at all
    ],
    ids=repr,
)
def test_a_coin_that_is_not_the_promised_one_is_refused(site, visit, terms):
    person = visit()
    said = _opened_as(person, site(questions=15).link(), lambda body: body["study"].update(terms))
    assert "promises one kind of coin" in said
    assert person.stored("questions") == []


@pytest.mark.parametrize(
    "terms",
    [
        {"cap": 16},
        {"changes": "paid"},
        {"epsilon": 2.0, "threshold": str(RandomizedResponse(2.0).threshold)},
    ],
    ids=repr,
)
def test_terms_that_changed_since_the_first_opening_are_refused(site, visit, terms):
    link, person = site(questions=15).link(), visit()
    person.begin(link)
    said = _opened_as(person, link, lambda body: body["study"].update(terms))
    assert "not the ones this device began with" in said
    assert person.page.locator("text=Go on with the study").count() == 0


@pytest.mark.parametrize(
    "lack",
    [
        "Object.defineProperty(window, 'indexedDB', { value: undefined });",
        "IDBFactory.prototype.open = () => { throw new DOMException('no', 'SecurityError'); };",
        "IDBDatabase.prototype.transaction = () => { throw new DOMException('full'); };",
        "Object.defineProperty(Crypto.prototype, 'getRandomValues', { value: undefined });",
    ],
)
def test_without_storage_or_randomness_no_answer_is_taken(site, visit, lack):
    person = visit()
    person.context.add_init_script(lack)
    person.page.goto(site(questions=15).link())
    assert "keep anything" in trouble(person.page)


def test_on_a_way_that_others_could_change_no_answer_is_taken(site, visit):
    person = visit()
    person.context.add_init_script(
        "Object.defineProperty(window, 'isSecureContext', { value: false });"
    )
    person.page.goto(site(questions=15).link())
    assert "begins with https" in trouble(person.page)


def test_what_is_kept_is_on_the_disk_before_it_is_sent(site, visit):
    person = visit()
    person.context.add_init_script(
        """globalThis.written = [];
        const real = IDBDatabase.prototype.transaction;
        IDBDatabase.prototype.transaction = function (names, mode, options) {
          if (mode === "readwrite") written.push(options?.durability);
          return real.call(this, names, mode, options);
        };"""
    )
    person.begin(site(questions=15).link())
    person.answer()
    assert set(person.page.evaluate("written")) == {"strict"}


def test_an_answer_that_cannot_be_kept_is_not_sent(site, visit):
    one = site(questions=15)
    before, person = one.rows(), visit()
    person.begin(one.link())
    person.page.evaluate(
        """() => {
          IDBObjectStore.prototype.add = () => { throw new DOMException("full"); };
        }"""
    )
    person.page.keyboard.press("1")
    person.page.keyboard.press("Enter")
    assert "could not keep your answer" in trouble(person.page)
    assert person.stored("answers") == person.stored("queue") == []
    assert _person(one, before) == []


def test_refused_answers_are_shown_and_leave_the_queue(site, visit):
    one = site(questions=15)
    person = visit()
    person.begin(one.link())

    def refuse(route):
        (answer,) = route.request.post_data_json["answers"]
        refused = {"id": answer["id"], "code": "cap-reached", "message": "no"}
        route.fulfill(json={"stored": [], "refused": [refused], "spent": 0})

    person.page.route("**/api/answers", refuse)
    person.answer()
    person.page.wait_for_selector("#foot .warning")
    assert "used all your answers" in person.page.inner_text("#foot .warning")
    assert person.stored("queue") == []
    person.page.click("nav button >> nth=2")
    assert "Not accepted" in person.page.inner_text(".answered")


def test_a_withdrawn_invitation_ends_the_questions_and_keeps_the_queue(site, visit):
    one = site(questions=15)
    person = visit()
    person.begin(one.link())
    no = {"error": {"code": "invitation-revoked", "message": "no"}}
    person.page.route("**/api/answers", lambda route: route.fulfill(status=403, json=no))
    person.answer()
    person.page.wait_for_selector("main .lead:has-text('taken back')")
    assert len(person.stored("queue")) == 1


def test_two_studies_at_one_address_keep_apart(site, visit, tmp_path):
    """A browser that answered one study begins the next one, and its answers go to that alone."""
    first = site(questions=15, title="The first study")
    person = visit()
    person.begin(first.link())
    person.answer()
    person.settled()
    folder = tmp_path / "second"
    folder.mkdir()
    first.kill()
    second = type(first)(folder, questions=15, title="The second study", port=first.port)
    try:
        person.begin(second.link())
        assert person.page.title() == "The second study"
        person.answer()
        person.answer()
        person.settled()
        assert (len(first.rows()), len(second.rows())) == (1, 2)
    finally:
        second.kill()
        first.start()


def _doubled(questions):
    questions[1] = {**questions[0], "id": "f" * 32}


def _turned(questions):
    one = questions[0]
    questions[0] = {**one, "answers": one["answers"][::-1]}


def _twice(questions):
    questions.append(questions[0])


@pytest.mark.parametrize("change", [_doubled, _turned, _twice])
def test_a_question_has_one_name_and_one_order(site, visit, change):
    """One label under two names would get two coins."""
    person = visit()
    _opened_as(person, site(questions=15).link(), lambda body: change(body["questions"]))
    assert person.stored("questions") == []


@pytest.mark.parametrize(
    "text",
    ["ü € 😀 \u2028 \x7f", 'quotes " and \\ and /', "\x00\x01\x1f\b\f\n\r\t", "", "\ufeffx"],
)
@pytest.mark.parametrize("messages", [False, True])
def test_names_are_made_as_in_python(site, visit, text, messages):
    page = visit().page
    page.goto(site(questions=15).url)
    prompt, one, other = (
        [{"role": role, "content": content}] if messages else content
        for role, content in (("user", text), (f"r{text}", f"1{text}"), ("assistant", f"2{text}"))
    )
    swap, key = canonical(prompt, one, other)
    told = page.evaluate(
        "async (all) => (await import('/page/canonical.js')).canonical(all)",
        {"ask": "pair", "prompt": prompt, "answers": [one, other]},
    )
    assert told == {"id": key.hex()[:32], "ordered": not swap}


def test_after_the_end_no_coin_is_tossed_and_nothing_is_sent_again(site, visit):
    one = site(questions=15, changes="paid", cap=20)
    person, asked = visit(), []
    person.begin(one.link())
    person.answer()
    person.settled()

    def refuse(route):
        asked.append(route.request.post_data)
        no = {"error": {"code": "invitation-revoked", "message": "no"}}
        route.fulfill(status=403, json=no)

    page = person.page
    page.route("**/api/answers", refuse)
    person.answer()
    page.wait_for_selector(".settled")
    page.click("nav button >> nth=2")
    page.wait_for_selector(".answered")
    assert page.locator(".answered button").count() == 0
    page.wait_for_timeout(3000)
    assert len(asked) == 1
    assert len(person.stored("answers")) == 2


def test_every_coin_that_keeps_its_promise_is_taken_and_a_weaker_one_is_not(site, visit):
    page = visit().page
    page.goto(site(questions=15).url)
    check = "async (terms) => (await import('/page/terms.js')).wrongTerms(terms)"
    for epsilon in (1e-6, 0.0000013381028849799223, 1e-3, 0.9, 1.0, 19.0, 21.0, 44.0, 60.0):
        threshold = RandomizedResponse(epsilon).threshold
        terms = {"epsilon": epsilon, "cap": 1, "tick_seconds": 1}
        assert page.evaluate(check, {**terms, "threshold": str(threshold)}) is None, epsilon
        weaker = threshold - max(1, threshold >> 20)
        if weaker and epsilon < 44:
            assert page.evaluate(check, {**terms, "threshold": str(weaker)}) == "terms-wrong"
