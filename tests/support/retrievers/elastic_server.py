"""A real Elasticsearch for tests: the one that ELASTICSEARCH_URL names, or one started from the shared folder."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from retrievers.elastic.connection import Connection
from retrievers.elastic.settings import ElasticSettings

PASSWORD = "open-Sesame-37"
STARTS = 3  # on a busy machine it may not answer in the minute that `serve` gives it


class Server:
    """A node of our own in a folder that everyone may enter: as root it runs as another user."""

    def __init__(self, serve: Path, password: str | None = None) -> None:
        self._serve, self._password = serve, password
        self._folder = Path(tempfile.mkdtemp(prefix="dmqr-elastic-", dir="/tmp"))
        self._folder.chmod(0o755)
        self.url = ""

    def start(self) -> Server:
        more = ["--password", self._password] if self._password else []
        command = [sys.executable, str(self._serve), "start", str(self._folder / "node"), *more]
        # A node of tests does not live long enough for the second compiler: 6 CPU seconds to start in place of 11.
        environment = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
        for _ in range(STARTS):
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
            if not done.returncode:
                break
            self.stop()
        if done.returncode:
            shutil.rmtree(self._folder, ignore_errors=True)
            pytest.skip(f"Elasticsearch does not start here: {done.stderr.strip().splitlines()[-1:]}")
        self.url = done.stdout.strip()
        if self._password:
            self._wait_for_keys()
        return self

    def _wait_for_keys(self) -> None:
        """A node that comes up answers 401 until it can read its list of keys."""
        end = time.monotonic() + 300
        while time.monotonic() < end:
            with contextlib.suppress(urllib.error.HTTPError):
                self.as_administrator("/_security/user/_has_privileges", {"cluster": ["monitor"]})
                return
            time.sleep(0.1)

    def stop(self) -> None:
        command = [sys.executable, str(self._serve), "stop", str(self._folder / "node"), "--kill"]
        subprocess.run(command, timeout=300, check=True)

    def as_administrator(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A POST by the user elastic, with no client of ours between."""
        basic = base64.b64encode(f"elastic:{self._password}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=300) as answer:
            result: dict[str, Any] = json.load(answer)
        return result

    def key(self, prefix: str, *more: str) -> str:
        """An API key that may read indexes whose names begin so, and what else is named, and no more."""
        rights = {"indices": [{"names": [f"{prefix}*"], "privileges": ["read", "view_index_metadata", *more]}]}
        made = self.as_administrator("/_security/api_key", {"name": "reader", "role_descriptors": {"reader": rights}})
        return str(made["encoded"])

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def found_serve() -> Path:
    """The program that starts a node; skips where there is none."""
    if not shutil.which("java"):
        pytest.skip("no Java here to start an Elasticsearch with; ELASTICSEARCH_URL names a running one")
    serve = Path(os.environ.get("DMQR_SHARED", "/nowhere")) / "elasticsearch" / "serve"
    if not serve.exists():
        pytest.skip("no Elasticsearch: set ELASTICSEARCH_URL, or DMQR_SHARED to a folder with elasticsearch/serve")
    return serve


_ANY = ElasticSettings(kind="elastic", index="any")


def remove_indexes(prefix: str) -> None:
    """Remove what tests have left on a server that is not theirs."""
    connection = Connection("tests", _ANY)
    for name in connection.request("GET", f"/{prefix}*") or {}:
        connection.request("DELETE", f"/{name}", allow=(404,))
    connection.close()


def ask(method: str, path: str, body: Any = None, **block: Any) -> Any:
    """One request to the server that the environment names."""
    connection = Connection("tests", _ANY.model_copy(update=block))
    try:
        return connection.request(method, path, body, patience=5.0, allow=(404,))
    finally:
        connection.close()
