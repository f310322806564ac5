"""Loading documents, given up in the middle."""

from __future__ import annotations

import time

import pytest
from proxy import Fault, Proxy

from retrievers import elastic_client
from retrievers.elastic_client import Connection
from retrievers.elastic_load import Loading, as_line


def test_giving_up_does_not_wait_for_a_server_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_client, "_FIRST_PAUSE", 60.0)
    monkeypatch.setattr(elastic_client, "_LONGEST_PAUSE", 60.0)
    with Proxy("http://127.0.0.1:9", lambda request: Fault(kind="answer", status=429)) as proxy:
        monkeypatch.setenv("PROXY_URL", proxy.url)
        loading = Loading(Connection("here", {"url_env": "PROXY_URL"}), "docs", 2)
        loading.add(as_line(f"d{number}", {"text": "sea"}) for number in range(1200))
        while proxy.seen["_bulk"] < 2:
            time.sleep(0.01)
        began = time.monotonic()
        loading.close()
        assert time.monotonic() - began < 5
