"""The sample of `dmqr demo` without its encoder, so that a job over it takes seconds."""

from __future__ import annotations

from pathlib import Path

import yaml

from jobs.verbs.sample import QUICKSTART, write_sample


def by_words_alone(folder: Path) -> None:
    """Writes the sample with a quickstart that searches by BM25 alone: what is there, `demo` leaves as it is."""
    write_sample(folder)
    values = yaml.safe_load((folder / QUICKSTART).read_text())
    del values["retrieve"]["retrievers"]["dense"]
    (folder / QUICKSTART).write_text(yaml.safe_dump(values))
