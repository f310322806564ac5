"""Runs with trained rewriters: the files of configs/strategies/ behind a server, whole, with answers in their forms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.runs.folder import open_run
from tests.support.jobs.whole_runs import rows
from tests.support.rewriters.fake_server import Body, FakeServer

FOLDER = Path(__file__).resolve().parents[3] / "configs" / "strategies"
QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides"]
ANSWERED = QUERIES[2]  # by a model that was asked for a query
SERVED = {"tiny": "prompted", "t5": "rrr", "llama": "rq_rag", "qwen": "qmd", "qwen-r": "deep_retrieval"}
Values = dict[str, Any]


def said(body: Body) -> str:
    """What each model answers in its own form."""
    text = str(body["prompt"] if "prompt" in body else body["messages"][0]["content"])
    query = next(one for one in QUERIES if one in text)
    if body["model"] == "t5":
        assert text == f"rewrite a better search query: {query}"
        return f"what {query} is; {query} explained"
    if body["model"] == "llama":
        assert text.startswith(f"<|user|>\n{query}</s>\n<|assistant|>\n")
        if text.endswith("<|assistant|>\n"):
            return "[A_Response]It is so." if query == ANSWERED else f"[S_Decomposed_Query] part of {query}"
        return f"refined {query}[EOS]"
    if body["model"] == "qwen":
        return f"hyde: It is known of {query}.\nlex: {query} words\nvec: tell me of {query}"
    if body["model"] == "qwen-r":
        return f"<think>Hm.</think>\n<answer>\n{json.dumps({'query': f'({query}) OR again'})}\n</answer>"
    return f"plain {query}"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(list(SERVED), text=said) as running:
        yield running


@pytest.fixture
def job(tmp_path: Path, values: Values, bm25: Values, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Values:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")

    def engine(model: str) -> Values:
        return {"engine": {"kind": "openai", "model": model, "base_url": server.address}}

    file = {name: str(FOLDER / f"{name}.yaml") for name in SERVED.values() if name != "prompted"}
    values["rewrite"] = engine("tiny") | {
        "strategies": [
            "rewrite",
            {file["rrr"]: engine("t5") | {"name": "rrr"}},
            {file["rq_rag"]: engine("llama") | {"name": "rq_rag"}},
            {file["rq_rag"]: engine("llama") | {"name": "chooses", "action": ""}},
            {file["qmd"]: engine("qwen") | {"name": "qmd"}},
            {file["qmd"]: engine("qwen") | {"name": "qmd_passage", "passage": True}},
            {file["deep_retrieval"]: engine("qwen-r") | {"name": "deep_retrieval"}},
        ]
    }
    values["retrieve"] |= {"retrievers": {"bm25": bm25}}
    return values | {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 2}}


WANTED = {
    "rewrite": ["plain {}"],
    "rrr": ["what {} is", "{} explained"],
    "rq_rag": ["refined {}"],
    "chooses": ["part of {}"],
    "qmd": ["{} words", "tell me of {}"],
    "qmd_passage": ["It is known of {}."],
    "deep_retrieval": ["({}) OR again"],
}


def texts(folder: Path) -> set[tuple[str, int, str]]:
    return {(row["strategy"], row["position"], row["text"]) for row in rows(folder, "rewrites")}


def wanted(*names: str) -> set[tuple[str, int, str]]:
    return {
        (name, position, text.format(query))
        for name in names or WANTED
        for position, text in enumerate(WANTED[name], 1)
        for query in QUERIES
        if (name, query) != ("chooses", ANSWERED)
    }


@pytest.mark.slow
def test_a_run_asks_each_model_in_its_form_and_reads_what_it_answers(
    job: Values, server: FakeServer, config_file: Callable[[Any], str], capfd: pytest.CaptureFixture[str]
) -> None:
    path = config_file(job)
    assert main(["run", path]) == 0
    assert "marked" in capfd.readouterr().out
    folder = Path(open_run("runs/small").storage.root)
    assert texts(folder) == wanted()
    assert {row["parsed_as"] for row in rows(folder, "rewrites") if row["strategy"] in ("rq_rag", "chooses", "qmd")} == {
        "marked"
    }
    (failed,) = [row for row in rows(folder, "errors") if row["stage"] == "rewrite"]
    assert (failed["component"], failed["reason"], failed["raw"]) == ("chooses", "unparsable", "[A_Response]It is so.")
    asked = Counter((body["model"], path) for body, path in zip(server.bodies, server.paths, strict=True))
    by_text, by_message = "/v1/completions", "/v1/chat/completions"
    assert asked == {("tiny", by_message): 3, ("t5", by_text): 3, ("llama", by_text): 6, ("qwen", by_message): 6,
                     ("qwen-r", by_message): 3}  # fmt: skip
    for body in server.bodies:
        assert body.get("skip_special_tokens") == (False if body["model"] in ("llama", "qwen", "qwen-r") else None)
        assert body.get("stop") == (["[EOS]"] if body["model"] == "llama" else None)
    costs = {row["component"]: row["model"] for row in rows(folder, "costs") if row["stage"] == "rewrite" and row["requests"]}
    of_qwen = {"qmd": "qwen", "qmd_passage": "qwen", "deep_retrieval": "qwen-r"}
    assert costs == {"rewrite": "tiny", "rrr": "t5", "rq_rag": "llama", "chooses": "llama"} | of_qwen
    searched = {(row["strategy"], row["position"]) for row in rows(folder, "runs")}
    assert {("rrr", 2), ("qmd", 2), ("qmd_passage", 1), ("original", 1)} <= searched
    sent = len(server.bodies)
    assert main(["run", path, "--set", "fuse.method=rrf"]) == 0  # another run, the same completions
    assert main(["ablate", path]) == 0  # each strategy alone, by the same
    assert len(server.bodies) == sent


@pytest.mark.slow
def test_the_same_prompt_as_a_message_is_another_request(
    job: Values, server: FakeServer, config_file: Callable[[Any], str]
) -> None:
    """What a model goes on with is not what it answers: neither takes the other's completion from the store."""
    good = "label: Mine\nprompt: 'rewrite a better search query: {query}'\noutput: lines\nseparator: ;\nn: 4\n"
    Path("mine.yaml").write_text(good)
    engine = {"engine": {"kind": "openai", "model": "t5", "base_url": server.address}}
    job["rewrite"]["strategies"] = [{"./mine.yaml": engine}]
    for form, paths in (("message", ["/v1/chat/completions"]), ("text", ["/v1/completions"]), ("message", [])):
        Path("mine.yaml").write_text(good + f"prompt_as: {form}\n")
        server.paths.clear()
        assert main(["run", config_file(job), "--label", f"{form}{len(paths)}"]) == 0
        assert server.paths == paths * 3


def test_only_engines_that_are_asked_are_checked_and_opened(
    job: Values, server: FakeServer, config_file: Callable[[Any], str]
) -> None:
    job["rewrite"]["engine"] = {"kind": "openai", "model": "gone", "base_url": "http://127.0.0.1:9/v1"}
    job["rewrite"]["strategies"] = job["rewrite"]["strategies"][1:2]
    assert main(["run", config_file(job)]) == 0
    assert texts(Path(open_run("runs/small").storage.root)) == wanted("rrr")
    job["rewrite"]["strategies"].append("rewrite")
    assert main(["run", config_file(job)]) == 2


@pytest.mark.slow
def test_each_model_s_tokens_are_planned_and_priced(
    job: Values, config_file: Callable[[Any], str], capfd: pytest.CaptureFixture[str]
) -> None:
    job["rewrite"]["strategies"] = job["rewrite"]["strategies"][:3]
    path = config_file(job)

    def planned(prices: str) -> Values:
        Path("prices.yaml").write_text(prices)
        assert main(["plan", path, "--json"]) == 0
        return dict(json.loads(capfd.readouterr().out))

    every = planned("tokens: {tiny: {completion: 1000}, t5: {completion: 1000}, llama: {completion: 1000}}")
    assert every["expected"]["completion_tokens"] == 3 * (512 + 100 + 100)
    assert every["expected"]["usd"] == pytest.approx(3 * 712 / 1000)
    assert planned("tokens: {t5: {completion: 1000}}")["expected"]["usd"] == pytest.approx(0.3)
    assert every["engines"] == {"rewrite": ["tiny", "llama", "t5"]}
    warnings = prepare(load_config(path), path).warnings
    assert [name for name in SERVED if any(f"no price for the model '{name}'" in one for one in warnings)] == ["tiny", "llama"]


def test_a_model_that_takes_messages_alone_is_refused_for_a_text(job: Values, config_file: Callable[[Any], str]) -> None:
    claude = {"kind": "anthropic", "model": "claude-a", "api_key_file": "key"}
    Path("key").write_text("k")
    job["rewrite"]["strategies"] = [{str(FOLDER / "rrr.yaml"): {"engine": claude}}]
    path = config_file(job)
    with pytest.raises(ConfigError, match=r"prompt_as: text\), and the engine 'anthropic' takes messages alone") as refused:
        prepare(load_config(path), path)
    assert "\n" not in str(refused.value)


def test_a_text_without_a_place_for_earlier_turns_is_told(job: Values, config_file: Callable[[Any], str]) -> None:
    pq.write_table(pa.table({"query": QUERIES, "turns": ["a", "b", "c"]}), "log.parquet")
    job["log"]["context_column"] = "turns"
    path = config_file(job)
    told = [one for one in prepare(load_config(path), path).warnings if "does not see the earlier turns" in one]
    assert [one.partition(":")[0] for one in told] == ["strategy 'rrr'", "strategy 'rq_rag'", "strategy 'chooses'"]
