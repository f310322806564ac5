"""The maker of runs."""

from pathlib import Path

import pytest

from tests.support.jobs.run_folders import Make, RunMaker


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return RunMaker(tmp_path)
