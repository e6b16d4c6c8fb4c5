"""The description of the JSON routes, for programs: OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sordino._version import __version__
from sordino.collection.refusals import REFUSALS
from sordino.collection.submissions import MOST_ANSWERS

__all__ = ["description"]


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **more}


_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": "number"}
_FLAG: Final = {"type": "boolean"}
_TIME: Final = {"type": "string", "format": "date-time"}
_SECRET: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{43}$"}
_QUESTION: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_ID: Final = {
    "type": "string",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
}
_MESSAGES: Final = _list(_object(role=_TEXT, content=_TEXT))
_WORDS: Final = {"oneOf": [_TEXT, _MESSAGES]}
_REVISION: Final = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_ANSWER: Final = _object(
    id=_ID,
    question=_QUESTION,
    revision=_REVISION,
    answer={"type": "integer", "minimum": 0, "maximum": 1},
)
_STUDY: Final = _object(
    id=_TEXT,
    title=_TEXT,
    epsilon=_NUMBER,
    cap=_WHOLE,
    ties=_FLAG,
    skips=_FLAG,
    changes={"enum": ["refused", "paid"]},
    tick_seconds=_WHOLE,
    threshold={"type": "string", "pattern": "^[0-9]{1,20}$"},
    expires=_TIME,
)
_OPENED: Final = _object(
    study=_STUDY,
    questions=_list(_object(id=_QUESTION, prompt=_WORDS, first=_WORDS, second=_WORDS)),
)
_SENT: Final = _object(study=_TEXT, answers=_list(_ANSWER, minItems=1, maxItems=MOST_ANSWERS))
_STORED: Final = _object(
    stored=_list(_ID),
    refused=_list(_object(id=_ID, code=_TEXT, message=_TEXT)),
    spent=_WHOLE,
)
_STATUS: Final = _object(
    title=_TEXT,
    study=_TEXT,
    epsilon=_NUMBER,
    flip_probability=_NUMBER,
    cap=_WHOLE,
    person_epsilon=_NUMBER,
    questions=_WHOLE,
    invitations=_object(made=_WHOLE, opened=_WHOLE, revoked=_WHOLE, expired=_WHOLE),
    answers=_WHOLE,
    persons=_WHOLE,
    per_question=_list(_object(id=_QUESTION, prompt=_TEXT, answers=_WHOLE)),
    closed=_FLAG,
)
_LANGUAGES: Final = _object(
    languages=_list(
        _object(
            code=_TEXT,
            name=_TEXT,
            texts={"type": "object", "additionalProperties": _TEXT},
        )
    )
)
_HEALTH: Final = _object(status={"const": "ok"}, study=_TEXT, page=_TEXT)
_ERROR: Final = _object(error=_object(code={"enum": sorted(REFUSALS)}, message=_TEXT))
_COMMON: Final = (400, 405, 408, 429, 500, 503)


def _answered(schema: Any, kind: str = "application/json") -> dict[str, Any]:
    """Return the description of a response that is fine."""
    return {"description": "Done.", "content": {kind: {"schema": schema}}}


def _route(
    summary: str, response: dict[str, Any], refusals: Sequence[int] = (), **more: Any
) -> dict[str, Any]:
    """Return the description of one route."""
    refused = {
        "description": "Refused.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    codes = sorted({*_COMMON, *refusals})
    return {
        "summary": summary,
        "responses": {"200": response} | {str(code): refused for code in codes},
        **more,
    }


def _body(schema: Any) -> dict[str, Any]:
    """Return the description of a request's body."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _secured(name: str) -> dict[str, Any]:
    """Return what a route needs to let somebody in."""
    return {"security": [{name: []}]}


def description() -> dict[str, Any]:
    """Return the OpenAPI description of the service as a plain dict."""
    bearer = {"type": "http", "scheme": "bearer"}
    sending = (401, 403, 409, 413, 415)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sordino collection", "version": __version__},
        "paths": {
            "/api/health": {"get": _route("Whether answers can be stored", _answered(_HEALTH))},
            "/api/texts": {"get": _route("The words of the page", _answered(_LANGUAGES))},
            "/api/open": {
                "post": _route(
                    "Open an invitation on one device",
                    _answered(_OPENED),
                    sending,
                    requestBody=_body(_object(device=_SECRET)),
                    **_secured("invitation"),
                )
            },
            "/api/answers": {
                "post": _route(
                    "Store randomized answers",
                    _answered(_STORED),
                    sending,
                    requestBody=_body(_SENT),
                    **_secured("device"),
                )
            },
            "/api/admin/status": {
                "get": _route(
                    "How far the study is", _answered(_STATUS), (401,), **_secured("admin")
                )
            },
            "/api/admin/export": {
                "get": _route(
                    "The file of answers and its manifest",
                    _answered({"type": "string", "format": "binary"}, "application/zip"),
                    (401, 409),
                    **_secured("admin"),
                )
            },
        },
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                name: {**bearer, "description": f"The secret of this {name}."}
                for name in ("invitation", "device", "admin")
            },
        },
    }
