"""A storage in a temporary folder, and one on S3, also behind a proxy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.storage import Storage, open_storage, s3_client
from cluster.storage.s3_client import take_traffic
from tests.support.cluster.s3_proxy import Proxy
from tests.support.cluster.s3_server import S3Server


@pytest.fixture
def folder_storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "store"))


@pytest.fixture
def s3_storage(s3: S3Server) -> Storage:
    return open_storage(s3.fresh("store"))


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """Every kind of storage: what a test asserts of it is the contract."""
    made: Storage = request.getfixturevalue(f"{request.param}_storage")
    return made


@pytest.fixture(scope="session")
def one_proxy(s3_there: S3Server) -> Iterator[Proxy]:
    """A proxy for all tests: a client for another takes a tenth of a second."""
    with Proxy(s3_there) as proxy:
        yield proxy


@pytest.fixture
def proxy(one_proxy: Proxy, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The environment names the proxy in place of the server; waits are short."""
    monkeypatch.setattr("cluster.outages.pause", lambda *_: 0.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", one_proxy.url)
    for known in ("_unavailable", "_answered"):
        monkeypatch.setattr(s3_client, known, set())
    one_proxy.faults = []
    one_proxy.requests.clear()
    one_proxy.did.clear()
    take_traffic()
    return one_proxy
