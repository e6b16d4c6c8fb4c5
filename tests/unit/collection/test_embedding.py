"""Who may show the widget, and who may load it: nobody who was not declared."""

import secrets

import pytest

from sordino.collection.answers import handle_of, reissue
from sordino.collection.refusals import POLICY
from sordino.errors import UsageError

CHAT = "https://chat.example.org"
pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def ancestors(response):
    policy = response.headers["content-security-policy"]
    return next(part for part in policy.split("; ") if part.startswith("frame-ancestors"))


@pytest.mark.parametrize("embed", [[], [CHAT, "http://localhost:8000"]])
def test_only_the_frame_may_be_shown_and_only_by_declared_pages(talk, embed):
    client = talk(embedded_in=embed).client
    wanted = " ".join(embed) or "'none'"
    framed = client.get("/feedback")
    assert framed.status_code == 200
    assert ancestors(framed) == f"frame-ancestors {wanted}"
    assert framed.headers["content-security-policy"].replace(wanted, "'none'") == POLICY
    for path in ("/", "/admin", "/widget.js", "/page/feedback.js", "/api/health", "/x/feedback"):
        assert ancestors(client.get(path)) == "frame-ancestors 'none'"


def test_only_declared_pages_load_the_widget_and_nothing_else_is_shared(talk):
    client = talk(embedded_in=[CHAT]).client
    for origin, allowed in ((CHAT, CHAT), ("https://other.example.org", None), ("null", None)):
        told = client.get("/widget.js", headers={"Origin": origin}).headers
        assert told.get("access-control-allow-origin") == allowed
        assert told["vary"] == "Origin"
        for path in ("/feedback", "/api/health", "/page/feedback.js", "/"):
            found = client.get(path, headers={"Origin": origin}).headers
            assert "access-control-allow-origin" not in found
            assert "access-control-allow-credentials" not in told


def test_one_address_joins_only_so_fast(talk):
    talk = talk(open=True, questions=2)
    codes = []
    for _ in range(40):
        body = {"device": secrets.token_urlsafe(32)}
        codes.append(talk.post("/api/open", talk.tokens[0], body).status_code)
    assert codes == sorted(codes)
    assert 30 <= codes.count(200) < 40
    assert set(codes) == {200, 429}


def test_no_new_link_is_made_of_one_for_anybody(talk):
    """It would be for one device, and leave those who joined by the old one."""
    talk = talk(open=True, questions=2)
    device, _ = talk.open()
    with pytest.raises(UsageError, match="for anybody"):
        reissue(talk.engine, talk.study, handle_of(talk.study, talk.tokens[0]), days=1)
    assert talk.open(device=device)[0] == device
