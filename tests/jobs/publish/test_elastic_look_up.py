"""Every query of a night, as it stands in the log, is found in Elasticsearch by the look-up function of each language."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import dmqr
from jobs.runs.folder import open_run
from jobs.verbs.inputs import GroundTruth
from jobs.verbs.publishing import ExportArguments, PromoteArguments, exported, promoted
from rewriters.normalise import normalise
from tests.support.jobs.look_up_rows import HOSTILE
from tests.support.look_up.runtimes import LANGUAGES, Asked, runtime

TURNS = "who kept the lighthouse?"
NIGHT: list[Any] = [
    *HOSTILE,
    "  Moon AND tides",
    "Straße nach Süden",
    "ΟΔΟΣ",
    "ﬁne ½",
    "e\u0301te\u0301",
    ("lamp", TURNS),
    "lamp",
]
OPEN = {"gates": {"error_rate": None, "coverage": None, "changed_first": None}}


@pytest.fixture
def alias(elasticsearch: str, new_name: Callable[[], str], night: Callable[..., Path]) -> str:
    """The night's rows behind an alias."""
    name, run = new_name(), open_run(str(night("languages", NIGHT)))
    exported(run, ExportArguments({"to": f"elastic:{name}"}, "one"))
    promoted(run, PromoteArguments({"to": f"elastic:{name}"} | OPEN, "one"), GroundTruth(lambda _: None, "--qrels"))
    return name


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", *LANGUAGES])
def test_every_query_is_found(elasticsearch: str, alias: str, tmp_path: Path, language: str) -> None:
    asked = [Asked(one) if isinstance(one, str) else Asked(*one) for one in NIGHT]
    if language == "python":
        keys = [dmqr.look_up_key(one.query, one.context) for one in asked]
    else:
        keys = [key for key, _ in runtime(language, tmp_path).keys(asked)]
    for one, key in zip(asked, keys, strict=True):
        with urllib.request.urlopen(f"{elasticsearch}/{quote(alias)}/_doc/{key}", timeout=60) as answer:
            row = json.load(answer)["_source"]
        assert (row["query"], row.get("context")) == (normalise(one.query), one.context)
        assert row["version"] == "one"
