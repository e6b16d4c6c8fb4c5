"""Where the promise could not be kept the page takes no answer, and says why in words."""

import pytest

from sordino import RandomizedResponse

from .test_collect_answers import _heading, _person


def test_an_invitation_is_for_one_device(site, visit):
    one = site(questions=15)
    link = one.link()
    first, second = visit(), visit()
    first.begin(link)
    second.page.goto(link)
    _heading(second.page, "This does not work right now")
    assert "another device" in second.page.inner_text("main")
    first.page.goto("about:blank")
    first.page.goto(link)  # the same device may open its link again
    _heading(first.page, "Question 1 of 15")
    first.page.goto(f"{one.url}/#nonsense")  # a wrong link ends nothing
    _heading(first.page, "This does not work right now")
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
    _heading(person.page, "This does not work right now")
    assert words in person.page.inner_text("main")


def _altered(change):
    def answer(route):
        body = route.fetch().json()
        change(body["study"])
        route.fulfill(json=body)

    return answer


@pytest.mark.parametrize(
    "change",
    [
        lambda study: study.update(threshold=str(2**60)),
        lambda study: study.update(threshold="0"),
        lambda study: study.update(threshold="1e18"),
        lambda study: study.update(epsilon=1.001),
        lambda study: study.update(epsilon=None),
        lambda study: study.update(cap=0),
    ],
)
def test_a_coin_that_is_not_the_promised_one_is_refused(site, visit, change):
    one = site(questions=15)
    person = visit()
    person.page.route("**/api/open", _altered(change))
    person.page.goto(one.link())
    _heading(person.page, "This does not work right now")
    assert "promises one kind of coin" in person.page.inner_text("main")
    assert person.stored("questions") == []


@pytest.mark.parametrize(
    "change",
    [
        lambda study: study.update(cap=16),
        lambda study: study.update(changes="paid"),
        lambda study: study.update(epsilon=2.0, threshold=str(RandomizedResponse(2.0).threshold)),
    ],
)
def test_terms_that_changed_since_the_first_opening_are_refused(site, visit, change):
    one = site(questions=15)
    link, person = one.link(), visit()
    person.begin(link)
    person.page.route("**/api/open", _altered(change))
    person.page.goto("about:blank")
    person.page.goto(link)
    _heading(person.page, "This does not work right now")
    assert "not the ones this device began with" in person.page.inner_text("main")
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
    _heading(person.page, "This does not work right now")
    assert "keep anything" in person.page.inner_text("main")


def test_on_a_way_that_others_could_change_no_answer_is_taken(site, visit):
    person = visit()
    person.context.add_init_script(
        "Object.defineProperty(window, 'isSecureContext', { value: false });"
    )
    person.page.goto(site(questions=15).link())
    _heading(person.page, "This does not work right now")
    assert "begins with https" in person.page.inner_text("main")


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
    _heading(person.page, "This does not work right now")
    assert "could not keep your answer" in person.page.inner_text("main")
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
