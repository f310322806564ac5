"""A storage in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from cluster.storage import Storage, open_storage

settings.register_profile("busy", deadline=None)  # a machine that others share is slow by fits
settings.load_profile("busy")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "store"))
