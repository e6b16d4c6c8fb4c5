"""Labels that are private before they leave the browser: a page and a service (extra ``collect``).

In the order of the data flow: a study is read and frozen (study, questions), people are invited
(answers), the page randomizes what they choose (page/randomize.js), the service stores what
arrives (service, database) and hands it on as a file (answers). Nothing here can learn: rewards,
policies and algorithms are not imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the extra; the command line reads studies without it
    from starlette.applications import Starlette


def collection_app(path: Path | str, *, admin_token: str) -> Starlette:
    """Return the page and service of a study that has begun, to be mounted into another service.

    ``Mount("/study", collection_app(...))`` is all that Starlette or FastAPI needs: the thread that
    writes begins with the first answer, and nothing is acknowledged before it is stored. To end it
    in order, enter ``app.router.lifespan_context(app)`` in the lifespan of the service around it.

    Args:
        path: The study file; ``sordino collect invite`` begins the study.
        admin_token: What the admin view asks for: 43 letters, digits, ``-`` or ``_``, such as
            ``secrets.token_urlsafe(32)`` makes.

    Raises:
        UsageError: The token is no secret.
        DataError: The study cannot be read, or has not begun.

    Guarantee:
        That of :meth:`~sordino.collection.study.Study.guarantee`, as long as every script of the
        same origin (scheme, host and port) can be trusted: such a script can look at the page. A
        host name of its own keeps other scripts out. Shown by tests/browser/test_widget.py.
    """
    from .service import app_of  # noqa: PLC0415 (the extra)

    return app_of(Path(path), admin_token=admin_token)
