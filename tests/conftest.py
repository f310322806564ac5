"""What tests of several packages share: a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import s3_server


@pytest.fixture(scope="session")
def s3_there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.S3Server]:
    """The server, once per session; the environment does not name it yet."""
    if not s3_server.there():
        pytest.skip(s3_server.ABSENT)
    with s3_server.running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_there: s3_server.S3Server, monkeypatch: pytest.MonkeyPatch) -> s3_server.S3Server:
    """The server, and the environment names it."""
    for name, value in s3_there.environment.items():
        monkeypatch.setenv(name, value)
    return s3_there
