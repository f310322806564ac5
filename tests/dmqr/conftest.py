"""A small job in the current folder, to be run in this process from Python."""

import shutil
from pathlib import Path

import pytest

from tests.support.errors.small_job import small_job

QRELS = "a\td1\t1\nb\td2\t2\nc\td2\t1\n"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    small_job(folder)
    (folder / "qrels.tsv").write_text(QRELS)
    shutil.copy(Path(__file__).parents[2] / "configs" / "prices.yaml", folder)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with `job.yaml` and what it names."""
    place = tmp_path / "here"
    shutil.copytree(made, place)
    monkeypatch.chdir(place)
    return place
