"""The service inside another one: at a path of its own, with nothing to start."""

import re

import pytest

pytest.importorskip("starlette")
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from sordino.collection import collection_app
from sordino.collection.answers import invite
from sordino.collection.database import frozen, open_database
from sordino.errors import DataError, UsageError

ADMIN = "A" * 43


@pytest.fixture
def mounted(make_study, tmp_path):
    """Return a client of a service that has a study at /study, and an invitation."""
    study = make_study()
    engine = frozen(open_database(study.database_url), study, create=True)
    (token,) = invite(engine, study, count=1, days=1)
    engine.dispose()
    app = collection_app(tmp_path / "study.toml", admin_token=ADMIN)
    around = Starlette(
        routes=[Route("/", lambda _: PlainTextResponse("chat")), Mount("/study", app)]
    )
    return TestClient(around), token, study  # not entered: nobody runs a lifespan


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_a_mounted_study_takes_answers_though_nobody_started_it(mounted, answer, caplog):
    client, token, study = mounted
    caplog.set_level("INFO", logger="sordino.collection")
    device = {"device": "d" * 43}
    opened = client.post("/study/api/open", headers=bearer(token), json=device)
    asked = opened.json()["questions"][0]["id"]
    body = {"study": study.id, "answers": [answer(asked)]}
    stored = client.post("/study/api/answers", headers=bearer("d" * 43), json=body)
    assert (stored.status_code, stored.json()["spent"]) == (200, 1)
    assert stored.headers["cache-control"] == "no-store"
    told = client.get("/study/api/admin/status", headers=bearer(ADMIN)).json()
    assert told["answers"] == 1
    assert client.get("/").text == "chat"
    routes = [record.fields["route"] for record in caplog.records]
    assert routes == ["/api/open", "/api/answers", "/api/admin/status"]


def test_every_address_of_the_page_is_relative(mounted):
    client, *_ = mounted
    for page in ("/study/", "/study/admin", "/study/worker.js", "/study/page/service.js"):
        found = client.get(page)
        assert found.status_code == 200
        assert not re.findall(r"""["'`]/(?:page|api|worker|admin)""", found.text), page


def test_a_token_that_is_no_secret_and_a_study_that_has_not_begun_are_refused(make_study, tmp_path):
    make_study()
    with pytest.raises(UsageError, match="43 letters"):
        collection_app(tmp_path / "study.toml", admin_token=ADMIN[1:])
    with pytest.raises(DataError, match="not begun"):
        collection_app(str(tmp_path / "study.toml"), admin_token=ADMIN)
