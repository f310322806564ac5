"""Whole jobs in this process with an engine that is a module of the current folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.plugins import forget

ENGINE = """
from pathlib import Path
from time import perf_counter
from typing import Annotated, ClassVar

from cluster.settings import NOT_IDENTITY
from rewriters.engines import Completion
from rewriters.engines.settings import EngineSettings


class Echo(EngineSettings):
    opener: ClassVar[str] = ":EchoEngine"
    model: str = "echo-1"
    calls: Annotated[str, NOT_IDENTITY] = "calls.txt"


class EchoEngine:
    kind = "echo"

    def __init__(self, settings):
        self._settings = settings

    def check(self):
        pass

    def start(self):
        return {}

    def complete(self, requests, gate=None):
        for request in requests:
            began = perf_counter()
            with Path(self._settings.calls).open("a") as file:
                file.write(request.query + "\\n")
            text = f"{request.query} by {self._settings.model}"
            seconds = perf_counter() - began
            yield request, Completion(text, "stop", self._settings.model, prompt_tokens=3, completion_tokens=2, seconds=seconds)

    def identity(self):
        return {"kind": self.kind, "model": self._settings.model}

    def close(self):
        pass
"""


@pytest.fixture
def job(bm25_job: str, tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str]) -> str:
    (tmp_path / "echo.py").write_text(ENGINE)
    values["rewrite"] = {"engine": {"kind": "echo:Echo"}, "strategies": ["rewrite"]}
    return config_file(values) and bm25_job


def called() -> Counter[str]:
    file = Path("calls.txt")
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


@pytest.mark.slow
def test_it_answers_and_its_answers_are_kept_by_its_code(job: str, tmp_path: Path) -> None:
    run = finished(prepared_work(job, ["name=first"], None))
    assert called() == Counter(QUERIES)
    assert {one["text"].rpartition(" by ")[2] for one in rows(run, "rewrites")} == {"echo-1"}
    costs = [one for one in rows(run, "costs") if one["component"] == "rewrite"]
    assert {(one["engine"], one["model"]) for one in costs} == {("echo", "echo-1")}
    assert [sum(one[name] for one in costs) for name in ("requests", "prompt_tokens", "completion_tokens")] == [6, 18, 12]
    finished(prepared_work(job, ["name=second", "rewrite.engine.calls=calls.txt"], None))
    assert called() == Counter(QUERIES)
    finished(prepared_work(job, ["name=model", "rewrite.engine.model=echo-2"], None))
    assert called() == Counter(2 * QUERIES)
    (tmp_path / "echo.py").write_text(ENGINE.replace("prompt_tokens=3", "prompt_tokens=4"))
    forget("echo")
    other = finished(prepared_work(job, ["name=first"], None))
    assert called() == Counter(3 * QUERIES)
    assert other.record["run_id"] != run.record["run_id"]


def test_a_strategy_has_an_engine_of_its_own(job: str) -> None:
    entry = {"rewrite": {"engine": {"kind": "echo:Echo", "model": "mine"}, "name": "own"}}
    run = finished(prepared_work(job, [f"rewrite.strategies={json.dumps(['rewrite', entry])}"], None))
    assert {(one["strategy"], one["model"]) for one in rows(run, "rewrites")} == {("rewrite", "echo-1"), ("own", "mine")}


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"kind": "echo:Ekho"}, "no Ekho; did you mean 'Echo'"),
        ({"kind": "echo:EchoEngine"}, "echo:EchoEngine is not a class of EngineSettings"),
        ({"kind": "echo:Echo", "modell": "x"}, "rewrite.engine.modell: unknown key; did you mean 'model'"),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused(job: str, engine: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, [f"rewrite.engine={json.dumps(engine)}"], None)
