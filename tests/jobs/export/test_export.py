"""Export of a finished run: its rows, versions in a folder and on S3, checks before a version is made current."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import ir_measures
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dmqr
from cluster.errors import ConfigError
from cluster.storage import open_storage
from cluster.storage.files import FileStorage
from jobs.__main__ import main
from jobs.runs.folder import RunFolder, open_run
from tests.support.jobs import whole_runs
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.run_folders import Query, RunMaker, query_id

Row = dict[str, Any]
Night = Callable[..., Path]
HOSTILE = [
    '"quoted" => \\ SYNONYM: x', "line\nbreak\ttab", "{}[]():;@#$%^&*~`'", "日本語 の 検索", "İstanbul ΣΑΣ ß",
    "🙂 emoji \u200d joined", "nul \x00 inside", "\u2028 separators \u2029", "'; DROP TABLE rows; --", "a" * 900,
]  # fmt: skip
OPEN: dict[str, Any] = {"publish.error_rate": None, "publish.coverage": None, "publish.quality_loss": None}


def exported(run: str, to: str, **more: Any) -> dict[str, Any]:
    """The values of an export."""
    values: dict[str, Any] = dmqr.export(run, to, **more).values
    return values


LISTS = [["d1", "d2"], ["d3", "d1"], ["d2", "d4"]]


@pytest.fixture
def night(small_job: Callable[..., str]) -> Night:
    """Runs a night over these queries, or (query, earlier turns), asked so often; returns its folder."""

    def run(asked: list[Any], counts: list[int] | None = None) -> Path:
        log = {"context_column": "turns", "count_column": None if counts is None else "n"}
        strategies = ["keyword", {"general": {"weight": 0.5}}]
        path = small_job(log=log, rewrite={"strategies": strategies}, cluster={"shard_size": 2})
        pairs = [(one, None) if isinstance(one, str) else one for one in asked]
        columns = {"query": [query for query, _ in pairs], "turns": pa.array([turns for _, turns in pairs], pa.string())}
        pq.write_table(pa.table(columns | ({} if counts is None else {"n": counts})), "log.parquet")
        answers = [
            {"query": one, "completions": {"dmqr": json.dumps({"general": f"rewrite of {one}", "keyword": "bread, yeast"})}}
            for one in dict.fromkeys(columns["query"])
        ]
        Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in answers))
        return run_in_process(prepared_job(path))

    return run


def run_of(place: Path, lists: Sequence[Sequence[str]] = LISTS, asked: Sequence[int] = (3, 2, 1), **more: Any) -> RunFolder:
    """A run whose queries have these documents, by a rewrite; the original has the last of them alone."""
    queries = [
        Query(
            f"query {n}", {"general": f"text {n}"}, {},
            {("general", "bm25"): list(docs), ("original", "bm25"): list(docs)[-1:]}, times,
        )
        for n, (docs, times) in enumerate(zip(lists, asked, strict=True))
    ]  # fmt: skip
    for n, failed in enumerate(more.pop("failed", ())):
        queries[n].failed = {"keyword": failed}
    run_id = more.pop("run_id", "small-0123456789ab")
    run = RunMaker(place)(queries, **more)
    record = Path(run.storage.root, "run.json")
    record.write_text(record.read_text().replace("small-0123456789ab", run_id))
    return open_run(run.storage.root)


def rows_of(target: Path) -> list[Row]:
    """The rows of the current version, by its pointer alone."""
    pointer = json.loads((target / "current.json").read_text())
    rows: list[Row] = pq.read_table(target / pointer["file"]).to_pylist()
    return rows


def stored(folder: Path, table: str) -> list[Row]:
    return whole_runs.rows(folder, table) if (folder / table).is_dir() else []


def expected(folder: Path, hits: int = 10) -> dict[str, Row]:
    """query_id -> its row, by the run's files, row by row."""
    rows: dict[str, Row] = {
        one["query_id"]: {"query_id": one["query_id"], "query": one["normalised"], "context": one.get("context")}
        | {"rewrites": [], "hits": []}
        for one in stored(folder, "queries")
    }
    for one in sorted(stored(folder, "rewrites"), key=lambda row: (row["strategy"] != "keyword", row["position"])):
        text = {name: one[name] for name in ("strategy", "position", "text", "search_as")}
        rows[one["query_id"]]["rewrites"].append(text | {"weight": one["weight"] * one["position_weight"]})
    for one in sorted(stored(folder, "results"), key=lambda row: row["rank"]):
        if one["rank"] <= hits:
            rows[one["query_id"]]["hits"].append({"doc_id": one["doc_id"], "score": one["score"]})
    return rows


def typed(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[str]]:
    capfd.readouterr()
    code = main(list(words))
    said = capfd.readouterr()
    return code, said.out, [line for line in said.err.splitlines() if line.startswith("dmqr")]


def test_rows_of_a_night_of_hostile_queries(night: Night, tmp_path: Path) -> None:
    asked = [*HOSTILE, *HOSTILE[:3], "yeast of bread", "yeast of bread", ("lamp", "who kept the lighthouse?")]
    run = night(asked)
    for hits in (10, 1):
        to = tmp_path / str(hits)
        done = exported(run, str(to), hits=hits, promote=True, **OPEN)
        found, wanted = rows_of(to), expected(run, hits)
        assert {row["query_id"]: row for row in found} == wanted
        assert [row["context"] for row in found if row["context"]] == ["who kept the lighthouse?"]
        assert done["counts"] == {
            "rows": len(wanted), "rewrites": sum(len(row["rewrites"]) for row in found),
            "hits": sum(len(row["hits"]) for row in found), "traffic": len(asked),
            "served_traffic": len(asked),
        }  # fmt: skip


def test_weights_are_those_of_the_fusion(tmp_path: Path) -> None:
    draw = Random(3)
    texts = {name: f"text by {name}" for name in ("general", "keyword")}
    lists = {(name, retriever): ["d1", "d2"] for name in ("original", *texts) for retriever in ("bm25", "dense")}
    for n in range(12):
        weights = {name: draw.choice([0.0, 0.25, 2.0]) for name in draw.sample(["general", "keyword", "general/bm25"], 2)}
        run = RunMaker(tmp_path / str(n))([Query("a", texts, {}, lists)], fuse={"weights": weights})
        exported(run.storage.root, str(tmp_path / f"to-{n}"), promote=True, **OPEN)
        (row,) = rows_of(tmp_path / f"to-{n}")
        for one in row["rewrites"]:
            own = weights.get(one["strategy"], 1.0)
            retrievers = [weights.get(f"{one['strategy']}/{name}", own) for name in run.config.retrieve.retrievers]
            assert one["weight"] == max(retrievers), (weights, one)


@pytest.mark.parametrize("kind", ["folder", "S3"])
def test_versions(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first, second = run_of(tmp_path / "first", run_id="one"), run_of(tmp_path / "second", run_id="two")
    to = str(tmp_path / "to") if kind == "folder" else request.getfixturevalue("s3").fresh()
    storage = open_storage(to)

    def pointer() -> Row:
        found: Row = json.loads(storage.get("current.json") or b"{}")
        return {name: found.get(name) for name in ("version", "before")}

    assert exported(first.storage.root, to)["current"] is None
    assert pointer() == {"version": None, "before": None}
    done = exported(first.storage.root, to, promote=True, **OPEN)
    assert (done["existed"], done["current"], pointer()) == (True, "one", {"version": "one", "before": None})
    done = exported(second.storage.root, to, promote=True, **OPEN)
    assert (done["existed"], done["before"], pointer()) == (False, "one", {"version": "two", "before": "one"})
    assert exported(second.storage.root, to, promote=True, **OPEN)["before"] == "one"  # once more: nothing
    exported(first.storage.root, to, promote=True, **OPEN)  # back
    assert pointer() == {"version": "one", "before": "two"}
    assert {entry.key.split("/")[0] for entry in storage.list()} == {"one", "two", "current.json"}
    with storage.open(json.loads(storage.get("current.json") or b"")["file"]) as file:
        assert {row["query_id"] for row in pq.read_table(file).to_pylist()} == {query_id(n) for n in range(3)}


def test_a_run_with_errors_is_exported_and_not_promoted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, to = run_of(tmp_path, failed=[("cut off", "raw")]), tmp_path / "to"
    command = ["export", run.storage.root, "--to", str(to), "--promote"]
    line = "publish.error_rate: 33.3 % of the queries failed (1 of 3), at most 1.0 %"
    end = f"{run.record['run_id']} is exported and not promoted; look at the run, or set another bound"
    refused = (1, "", [f"dmqr export: {line}; {end} (--set publish.error_rate=VALUE) [export]"])
    assert typed(capfd, *command) == refused
    assert not (to / "current.json").exists()
    other = run_of(tmp_path / "other", run_id="other")
    assert typed(capfd, "export", other.storage.root, "--to", str(to), "--promote")[0] == 0
    before = (to / "current.json").read_bytes()
    assert typed(capfd, *command) == refused
    assert (to / "current.json").read_bytes() == before
    code, out, lines = typed(capfd, *command, "--set", "publish.error_rate=0.34", "--json")
    assert (code, lines, json.loads(out)["before"]) == (0, [], other.record["run_id"])


def test_coverage_is_of_the_traffic_with_rejected_rows(night: Night, capfd: pytest.CaptureFixture[str]) -> None:
    asked = {"lamp of a lighthouse": 2, "moon and tides": 3, "   ": 4, "spring tide": 1}
    run = night(list(asked), list(asked.values()))
    command = ["export", str(run), "--to", "to", "--promote", "--set", "publish.error_rate=null"]
    code, _, (line,) = typed(capfd, *command)
    assert code == 1
    assert "publish.coverage: 60.0 % of the log's traffic has rewrites or documents (6 of 10), at least 95.0 %" in line
    assert typed(capfd, *command, "--set", "publish.coverage=0.6")[0] == 0


def test_quality_is_compared_with_the_original_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, to, qrels = run_of(tmp_path), str(tmp_path / "to"), tmp_path / "qrels.tsv"
    command = ["export", run.storage.root, "--to", to, "--promote", "--qrels", str(qrels), "--key", "query_id"]

    def told(judged: dict[str, dict[str, int]], *more: str) -> tuple[int, list[str]]:
        lines = [f"{key}\t{doc}\t{grade}\n" for key, docs in judged.items() for doc, grade in docs.items()]
        qrels.write_text("".join(lines))
        code, _, said = typed(capfd, *command, *more)
        return code, said

    def ndcg(judged: dict[str, dict[str, int]], served: dict[str, list[str]]) -> float:
        run_file = {key: {doc: -float(place) for place, doc in enumerate(served[key])} for key in judged}
        return float(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], judged, run_file)[ir_measures.nDCG @ 10])

    served = {key: [hit["doc_id"] for hit in row["hits"]] for key, row in expected(Path(run.storage.root)).items()}
    judged = {query_id(0): {"d2": 1}, query_id(1): {"d1": 1}}  # what the original has first
    results, alone = ndcg(judged, served), ndcg(judged, {query_id(n): docs[-1:] for n, docs in enumerate(LISTS)})
    assert results < alone
    code, (line,) = told(judged)
    text = f"nDCG@10 of the results is {results:.4f} over 2 judged keys, that of the original alone {alone:.4f}, at most"
    assert code == 1
    assert f"publish.quality_loss: {text} 0.0200 more (no clear difference); " in line
    assert not Path(to, "current.json").exists()
    assert told({"f" * 32: {"d1": 1}})[0] == 1  # of another log
    assert told(judged, "--set", "publish.quality_loss=1")[0] == 0
    assert told({query_id(0): {"d1": 1}})[0] == 0


def test_judgements_of_the_config_that_are_not_here_are_not_replaced(tmp_path: Path) -> None:
    run = run_of(tmp_path, evaluate={"qrels": "gone.tsv"})
    with pytest.raises(ConfigError, match=r"gone\.tsv: is missing, so publish\.quality_loss would be measured"):
        exported(run.storage.root, str(tmp_path / "to"), promote=True)
    assert exported(run.storage.root, str(tmp_path / "to"), promote=True, publish__quality_loss=None)["current"]


def test_a_kill_between_data_record_and_pointer_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, to = run_of(tmp_path), tmp_path / "to"
    folder = to / run.record["run_id"]

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    for name in ("put_if_absent", "put"):
        with monkeypatch.context() as patch:
            patch.setattr(FileStorage, name, killed)
            with pytest.raises(KeyboardInterrupt):
                exported(run.storage.root, str(to), promote=True, **OPEN)
        assert (folder / "export.json").exists() == (name == "put")
        assert not (to / "current.json").exists()
    (folder / "notes.txt").write_text("of somebody")
    done = exported(run.storage.root, str(to), promote=True, **OPEN)
    assert (done["existed"], len(rows_of(to))) == (True, 3)
    assert {path.name for path in folder.iterdir()} == {"export.json", "notes.txt", done["file"]}


def test_two_exports_at_once_leave_the_files_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, to = run_of(tmp_path), tmp_path / "to"
    both, plain = Barrier(2), FileStorage.put_if_absent
    monkeypatch.setattr(FileStorage, "put_if_absent", lambda *given: both.wait(30) is not None and plain(*given))
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: exported(run.storage.root, str(to)), range(2)))
    assert sorted(one["existed"] for one in done) == [False, True]
    assert done[0]["file"] == done[1]["file"]
    assert {path.name for path in (to / run.record["run_id"]).iterdir()} == {"export.json", done[0]["file"]}


def test_a_version_of_other_rows_or_damaged_is_refused(tmp_path: Path) -> None:
    run, to = run_of(tmp_path / "first"), str(tmp_path / "to")
    again = run_of(tmp_path / "second", LISTS[:2], (1, 1))  # the same config, over another log
    done = exported(run.storage.root, to)
    place = re.escape(done["place"])
    with pytest.raises(ConfigError, match=rf"^{place}: there is an export that was made from other files of that run; remove"):
        exported(again.storage.root, to)
    with pytest.raises(ConfigError, match=rf"^{place}: there is an export that has 10 hits of a query; remove"):
        exported(run.storage.root, to, hits=2)
    file = Path(done["place"], done["file"])
    file.write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"has 5 bytes in place of [\d,]+; restore it, or remove"):
        exported(run.storage.root, to, promote=True, **OPEN)
    file.unlink()
    with pytest.raises(ConfigError, match=r"is gone; restore it, or remove"):
        exported(run.storage.root, to, promote=True, **OPEN)
    shutil.rmtree(done["place"])
    assert exported(again.storage.root, to)["counts"]["rows"] == 2


def test_the_folder_of_a_run_is_no_target(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    with pytest.raises(ConfigError, match=r"^--to .*: is the folder of a run; name another folder"):
        exported(run.storage.root, run.storage.root)
