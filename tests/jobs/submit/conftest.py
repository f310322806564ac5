"""A job server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.jobs.fake_job_server import FakeJobServer


@pytest.fixture
def server() -> Iterator[FakeJobServer]:
    with FakeJobServer() as one:
        yield one
