"""The configs and the sample in another folder; also without the encoder, so that a job takes seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from tests.support.jobs.whole_runs import ROOT

QUICKSTART = "configs/quickstart.yaml"


def write_sample(folder: Path) -> None:
    """Writes the configs and the sample into `configs/` of a folder."""
    shutil.copytree(ROOT / "configs", folder / "configs", ignore=shutil.ignore_patterns("__pycache__"))


def by_words_alone(folder: Path) -> None:
    """Writes the sample with a quickstart that searches by BM25 alone."""
    write_sample(folder)
    values = yaml.safe_load((folder / QUICKSTART).read_text())
    del values["retrieve"]["retrievers"]["dense"]
    (folder / QUICKSTART).write_text(yaml.safe_dump(values))
