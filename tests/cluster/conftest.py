"""A storage in a temporary folder, and one on S3."""

from pathlib import Path

import pytest

from cluster.storage import Storage, open_storage
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
