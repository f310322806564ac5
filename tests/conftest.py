"""Fixtures of several packages: the shared data, a real Elasticsearch, a real S3 server."""

import gc
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.support.cluster import s3_server
from tests.support.jobs.whole_runs import ROOT
from tests.support.plugins import forget
from tests.support.retrievers.elastic_server import PASSWORD, Server, found_serve, remove_indexes

# Ray nices its workers by 15: beside two other busy processes, as tests at the same time are, they all but stand still
# (a run's first commit after 60 s on idle cores, not after 450 s beside three; 175 s without).
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ["RAY_AUTH_MODE"] = "disabled"  # a Ray of the tests' own asks for no token
os.environ.pop("COLUMNS", None)  # of a worker of pytest-xdist, which has no terminal
import ray  # noqa: F401  # adds a folder to sys.path once; a test that restores sys.path must not be the first to import it

# Threads of matrix products that wait for each other beside other tests would spin on the cores that those want.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
# What a test writes need not outlast a loss of power: a small run waits for the disk 23 times. Processes of their own do.
os.fsync = lambda fd: None
# A machine that others share is slow by fits. Each run draws anew: few examples of a commit, many before a release (.ci/full).
_BUSY: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=30, **_BUSY)
settings.register_profile("thorough", max_examples=200, **_BUSY)
settings.load_profile("quick")
_ELASTIC = re.compile(r"elastic_(?!bulk)|test_retriever_contract|test_index_changes")
_WEIGHTS = re.compile(
    r"test_(encoder|reranker)|test_(models|passages|hybrid)\.py"
    r"|test_(prepare|indexes|local_build|rounds|vllm_chat|token_count)\.py"
)
_TOGETHER = {"elastic": _ELASTIC, "weights": _WEIGHTS}
"""Files whose tests run in one process, which starts Elasticsearch, or imports PyTorch and what opens weights, once: half a
minute each beside others."""
_LONGEST = re.compile(r"test_nightly\.py")
_LONG = re.compile(r"test_(ablations|differential|runners|strategy_identity|submit|bad_storage|errors|architecture)\.py")
_SERVERS = {"elasticsearch", "secured_server"}
"""Fixtures that start one."""
_PREFIX = f"dmqr-test-{uuid.uuid4().hex[:8]}"


class Together(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay in one process, and so do those of `_TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return next((name for name, files in _TOGETHER.items() if files.search(file)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take longest first, so that nothing waits for them alone."""
    items.sort(
        key=lambda item: (
            _LONGEST.search(item.nodeid) is None,
            _ELASTIC.search(item.nodeid) is None,
            _WEIGHTS.search(item.nodeid) is None,
            item.get_closest_marker("slow") is None,
            _LONG.search(item.nodeid) is None,
        )
    )


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """Plug-ins that a test has imported from its current folder are forgotten at its end."""
    before = list(sys.path)
    yield
    if added := {*sys.path} - {*before, str(ROOT)}:
        sys.path[:] = before
        files = {name: str(getattr(module, "__file__", "")) for name, module in sys.modules.items()}
        forget(*(name.partition(".")[0] for name, file in files.items() if any(file.startswith(folder) for folder in added)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps what is imported and collected to the end: the garbage collector need not look through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that starts an Elasticsearch beside that of the others fails."""
    if _SERVERS.intersection(getattr(item, "fixturenames", ())) and not _ELASTIC.search(item.nodeid):
        pytest.fail("needs Elasticsearch: add its file to _ELASTIC in tests/conftest.py")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with data and models that are too large to keep here."""
    folder = os.environ.get("DMQR_SHARED")
    if not folder:
        pytest.skip("DMQR_SHARED is not set: it names the folder with data/, recorded/ and models/")
    return Path(folder)


@pytest.fixture(scope="session")
def elasticsearch() -> Iterator[str]:
    """The address of a server without security; the environment has it in ELASTICSEARCH_URL."""
    given = os.environ.get("ELASTICSEARCH_URL")
    server = None if given else Server(found_serve()).start()
    if server:
        os.environ["ELASTICSEARCH_URL"] = server.url
    yield given or (server.url if server else "")
    if server:
        server.remove()
        os.environ.pop("ELASTICSEARCH_URL", None)
    else:
        remove_indexes(_PREFIX)


@pytest.fixture(scope="session")
def secured_server() -> Iterator[Server]:
    """A server of the tests' own that wants a key: user elastic, `PASSWORD`."""
    server = Server(found_serve(), PASSWORD).start()
    yield server
    server.remove()


@pytest.fixture
def secured(secured_server: Server) -> str:
    """Its address."""
    return secured_server.url


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """Names for indexes, never the same."""
    return lambda: f"{_PREFIX}-{uuid.uuid4().hex[:12]}"


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


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed requests to servers are sent again almost at once."""
    monkeypatch.setattr("cluster.outages.FIRST_PAUSE", 0.02)
    monkeypatch.setattr("cluster.outages.LONGEST_PAUSE", 0.1)


@pytest.fixture(autouse=True)
def _two_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has requests that a server answers badly fail soon."""
    monkeypatch.setattr("cluster.http.ATTEMPTS", 2)
