"""A PostgreSQL of one's own on loopback, whose processes may be killed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Cluster", "is_installed"]

_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_USER = "postgres"  # as root it refuses to run, so there it runs as the user of its package


def is_installed() -> bool:
    """Return whether there is a PostgreSQL to start."""
    return bool(_PLACES) or shutil.which("initdb") is not None


class Cluster:
    """A server with an empty database, from entry to exit."""

    def __enter__(self) -> Self:
        """Make and start it."""
        self._folder = tempfile.mkdtemp()
        if os.getuid() == 0:
            shutil.chown(self._folder, _USER)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        self._do("initdb", "-U", "sordino", "-A", "trust")
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, and remove its folder."""
        self._do("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    @property
    def address(self) -> str:
        """Return its URL."""
        return f"postgresql://sordino@127.0.0.1:{self._port}/postgres"

    def restart_at_once(self) -> None:
        """End all of its processes with nothing written, and start it again."""
        self._do("pg_ctl", "-m", "immediate", "stop")
        self._start()

    def sessions(self) -> list[int]:
        """Return the processes that serve somebody; there is always one."""
        import psycopg

        of_others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        while True:
            with psycopg.connect(self.address) as connection:
                rows = connection.execute(f"SELECT pid FROM pg_stat_activity WHERE {of_others}")  # noqa: S608
                found = [row[0] for row in rows]
            if found:
                return found
            time.sleep(0.02)

    def wait(self) -> None:
        """Wait until it takes somebody in, which it does not while it recovers."""
        import psycopg

        time.sleep(0.05)  # it has to notice first that a session was killed
        for _ in range(600):
            try:
                psycopg.connect(self.address).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise SystemExit("PostgreSQL did not come back.")

    def _start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-h 127.0.0.1 -p {self._port} -k {self._folder}"
        self._do("pg_ctl", "-w", "-l", f"{self._folder}/log", "-o", options, "start")

    def _do(self, program: str, *arguments: str) -> None:
        """Run one of its programs on its folder."""
        path = str(_PLACES[-1] / program) if _PLACES else program
        command = [path, "-D", f"{self._folder}/data", *arguments]
        if os.getuid() == 0:
            command = ["runuser", "-u", _USER, "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")
