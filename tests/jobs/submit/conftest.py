"""A job server for each test."""

from collections.abc import Iterator

import pytest

from tests.support.jobs.fake_job_server import FakeJobServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobServer]:
    """A server that is followed closely, and sent jobs without our packages: to pack their 500 files takes half a second."""
    monkeypatch.setattr("jobs.job.paths.own_folders", list)
    monkeypatch.setattr("jobs.submit.follow.POLL_SECONDS", 0.01)
    with FakeJobServer() as one:
        yield one
