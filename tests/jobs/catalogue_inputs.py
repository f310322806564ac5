"""What goes wrong because of the command line, the config, the log, the corpus or the index."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from catalogue_typed import AFTERWARDS, JOB, QUERIES, Patch, Typed, both, file, raw, table, typed

from jobs.load import load_config
from jobs.prepare import prepare
from retrievers.local_build import build_local_index

# ---------------------------------------------------------------- the command line and the config


def without_output(_: Patch) -> None:
    Path("job.yaml").write_text(yaml.safe_dump({key: value for key, value in JOB.items() if key != "output"}))


def strategy(name: str, text: str) -> Callable[[Patch], object]:
    """A spoiler that puts a file among the strategies."""

    def write(patch: Patch) -> None:
        from rewriters import strategies

        Path("more").mkdir()
        Path("more", f"{name}.py").write_text(text)
        patch.setattr(strategies, "__path__", [*strategies.__path__, os.path.abspath("more")])

    return write


def a_strategy(name: str, label: str, prompt: str = "Ask.\\n{query}") -> str:
    fields = f"name={name!r}, label={label!r}, definition='asks', prompt='{prompt}', example='tea'"
    return f"from rewriters.strategy import Strategy\n\nSTRATEGY = Strategy({fields})\n"


def a_folder_of_a_run(patch: Patch) -> None:
    from types import SimpleNamespace

    patch.setattr("jobs.run_folder.open_run", lambda path: SimpleNamespace(record={"config_file": "/a/job.yaml"}))


def a_run(run: str = "{}", commit: str | None = None) -> Callable[[Patch], object]:
    """A spoiler that leaves a run's folder with these files."""

    def write(patch: Patch) -> None:
        file("runs/a/shards.json", '{"inputs": [], "counts": {}, "shard_size": 1, "tables": {}, "shards": []}')(patch)
        file("runs/a/run.json", run)(patch)
        if commit is not None:
            file("runs/a/commits/000000.json", commit)(patch)

    return write


CONFIG = [
    raw("--help", "rnu", "job.yaml"),
    raw("unknown argument", "run", "job.yaml", "--sett", "a=b"),
    raw("--help", "run"),
    *(
        raw("give a YAML file", verb, "none.yaml", *more)
        for verb, *more in (["run"], ["plan"], ["try", "tea"], ["index", "--corpus", "c"])
    ),
    raw("give a YAML file", "plan", "bytes.yaml", spoil=file("bytes.yaml", b"name: \xff")),
    typed(": not YAML:", spoil=file("job.yaml", "name: [unclosed\n")),
    typed(": not YAML:", spoil=file("prices.yaml", "hour: {\n")),
    typed("holds no keys", spoil=file("job.yaml", "- a\n")),
    typed("unknown key", "fuse.dept=3"),
    typed("no kind", "rewrite.engine={kind: vlm}"),
    typed("(known keys:", spoil=file("prices.yaml", "hour: 1\n")),
    typed("is missing; add it", spoil=without_output),
    typed("is missing (known", "rewrite.engine={path: a}"),
    typed("should be", "fuse.k=seven"),
    typed("should be", "log.path=5"),
    typed("is not of the form a.b=value", "fuse.k"),
    typed("put it in quotes", "fuse.k=["),
    typed("is a value, it has no keys", "name.x=1"),
    raw("is not a date", "plan", "job.yaml", "--date", "soon"),
    typed("is not available yet", "rewrite.select=adaptive"),
    typed("is not available yet", "rewrite.store=s3://b/"),
    typed("engine is missing", "rewrite.engine=null"),
    typed("must not stand there", "rewrite.strategies=[original]"),
    typed("there are:", "rewrite.strategies=[generl]"),
    typed(
        "both answer to", "rewrite.strategies=[twin, keyword]", spoil=strategy("twin", a_strategy("twin", "Keyword Rewriting"))
    ),
    typed(
        "correct its file", "rewrite.strategies=[early]", spoil=strategy("early", a_strategy("early", "Early", "{query} ask"))
    ),
    typed("correct that file", "rewrite.strategies=[broken]", spoil=strategy("broken", "def (")),
    typed("must export STRATEGY", "rewrite.strategies=[nothing]", spoil=strategy("nothing", "")),
    typed("its STRATEGY is named", "rewrite.strategies=[moved]", spoil=strategy("moved", a_strategy("here", "Here"))),
    typed("retrievers is empty", "retrieve.retrievers={}"),
    typed(
        "(BM25) and encoder (dense)",
        "retrieve.retrievers.x={kind: local, index: i, analyzer: english, encoder: {model: m}}",
    ),
    typed("routes.original is empty", "retrieve.routes={original: []}"),
    typed(": no retriever", "retrieve.routes={keyword: [bm2]}"),
    typed(": no retriever", "fuse.weights={keyword/dense: 1}"),
    typed("is not among the strategies", "fuse.weights={pseudo: 1}"),
    typed("bi_encoder needs rerank.encoder", "rerank.kind=bi_encoder"),
    typed("limits.max_cost_usd needs prices", "limits.max_cost_usd=1"),
    typed("carries a revision", "rewrite.engine={kind: vllm, model: some/model@c0ffee}"),
    raw("a run would reject such a log row", "try", "job.yaml", " "),
    raw("give one like configs/prices.yaml", "report", "a", "--prices", "none.yaml", spoil=a_folder_of_a_run),
    raw("give 0 or more", "report", "a", "--samples", "-1", spoil=a_folder_of_a_run),
    raw("no run lies there", "evaluate", "nowhere", "qrels.tsv"),
    raw("no run lies there", "report", "nowhere"),
    raw("was stopped before its log was read", "report", "runs/a", spoil=file("runs/a/run.json", "{}")),
    raw("where no run lies", "report", "runs/a", spoil=file("runs/a/latest.json", '{"run_id": "a-1", "path": "gone"}')),
    raw("is a file; give a run's folder", "evaluate", "job.yaml", "qrels.tsv"),
    *(
        raw("is damaged", "report", "runs/a", spoil=file(f"runs/a/{name}", content))
        for name in ("latest.json", "shards.json")
        for content in ("{", "null")
    ),
    raw("is damaged", "report", "runs/a", spoil=a_run(run="[]")),
    raw("is damaged", "report", "runs/a", spoil=a_run(commit="{}")),
    raw("is of another version of dmqr", "report", "runs/a", spoil=a_run(run='{"config": {"colour": "blue"}}')),
    raw("is of another version of dmqr", "evaluate", "runs/a", "qrels.tsv", spoil=a_run(run="{}")),
    raw("is a file; give the query last", "try", "job.yaml", "job.yaml"),
    raw("QUERY: is not UTF-8", "try", "job.yaml", "\udcff tea"),
]

# ---------------------------------------------------------------- the log and judgements


def half(_: Patch) -> None:
    whole = Path("log.parquet").read_bytes()
    Path("log.parquet").write_bytes(whole[: len(whole) // 2])


def a_damaged_page(_: Patch) -> None:
    columns = {"id": [str(i) for i in range(30000)], "query": [f"query {i * 7919 % 100000}" for i in range(30000)]}
    pq.write_table(pa.table(columns), "log.parquet", use_dictionary=False, compression="zstd")
    data = bytearray(Path("log.parquet").read_bytes())
    column = pq.read_metadata("log.parquet").row_group(0).column(1)
    start = column.data_page_offset + column.total_compressed_size // 2
    data[start : start + 400] = b"\xff" * 400
    Path("log.parquet").write_bytes(data)


def a_column_twice(_: Patch) -> None:
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["id", "query", "query"]), "log.parquet")


def ids_that_are_no_text(_: Patch) -> None:
    ids = pa.array([b"\xff", b"b"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": ids, "query": QUERIES[:2]}), "log.parquet")


def no_room(patch: Patch) -> None:
    import duckdb

    def connect(*_: object) -> object:
        raise duckdb.IOException("could not write: No space left on device")

    patch.setattr("jobs.dedup.connect", connect)


def counts(*values: int) -> Callable[[Patch], object]:
    numbers = pa.array(values, pa.uint64() if max(values) >= 2**63 else pa.int64())
    return table("log.parquet", id=[str(i) for i in range(len(values))], query=["tea"] * len(values), n=numbers)


NO_TEXT = pa.array([], pa.string())
COUNTED = "log.count_column=n"
JUDGED = "evaluate.qrels=qrels.tsv"
LOG = [
    typed("log.path is an empty list", "log.path=[]"),
    typed("correct log.path", "log.path=lag.parquet"),
    typed("a local file or folder", "log.path=gs://bucket/log/"),
    typed("name all in s3://", "log.path=[log.parquet, 's3://bucket/log/']"),
    typed("no Parquet file (*.parquet) in this folder", "log.path=empty", spoil=file("empty/a.csv", "a")),
    typed("it is empty (0 bytes)", spoil=file("log.parquet", "")),
    typed("is it text or compressed?", spoil=file("log.parquet", "id,query\na,why is the sky blue\n")),
    typed("truncated Parquet", spoil=half),
    typed("damaged Parquet", spoil=file("log.parquet", b"PAR1" + b"\xff" * 40 + b"PAR1")),
    typed("damaged at or after row", spoil=a_damaged_page, verb="plan"),
    typed("make it readable", "log.path=/proc/self/mem"),  # is there, and gives an I/O error even to root
    typed("name one of the columns there", "log.query_column=querry"),
    typed("stands in it more than once", spoil=a_column_twice),
    typed("convert it, or name another column", "log.query_column=n"),
    typed("wanted 0 or more", COUNTED, spoil=counts(1, -1), verb="plan"),
    typed("(log.count_column):", COUNTED, spoil=counts(1, 2**63), verb="plan"),
    typed("adds up to more than", COUNTED, spoil=counts(1, 2**63 - 1), verb="plan"),
    typed("text that is not UTF-8", spoil=ids_that_are_no_text, verb="plan"),
    typed("is not unique", spoil=table("log.parquet", id=["a", "a"], query=["tea", "milk"]), verb="plan"),
    typed("the log is empty", spoil=table("log.parquet", id=NO_TEXT, query=NO_TEXT)),
    typed("the log has no usable query", spoil=table("log.parquet", id=["a", "b"], query=[" ", None]), verb="plan"),
    typed("dedup could not group the log", spoil=no_room, verb="plan"),
    typed("give another file", JUDGED),
    typed("is not UTF-8 text", JUDGED, spoil=file("qrels.tsv", b"a\tb\xff\t1\n")),
    typed("holds no judgement", JUDGED, spoil=file("qrels.tsv", "\n")),
    typed("nor TREC's four columns", JUDGED, spoil=file("qrels.tsv", "a b\n")),
    typed("give small whole numbers", JUDGED, spoil=file("qrels.tsv", "a\tb\t5000\n")),
    typed("an earlier line gives", JUDGED, spoil=file("qrels.tsv", "a\tb\t1\na\tb\t2\n")),
]

# ---------------------------------------------------------------- the corpus and the index


def corpus(fragment: str, spoil: Callable[[Patch], object], path: str = "c") -> Typed:
    return raw(fragment, "index", "job.yaml", "--corpus", path, spoil=spoil)


def a_build_elsewhere(_: Patch) -> None:
    lock = os.open("index/.lock", os.O_RDWR | os.O_CREAT)
    AFTERWARDS.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX)


def another_corpus(_: Patch) -> None:
    pq.write_table(pa.table({"doc_id": ["x"], "text": ["tea"]}), "other.parquet")
    build_local_index("other", "other.parquet", bm25={"analyzer": "english"})


def an_unfinished_run(_: Patch) -> None:
    identity = prepare(load_config("job.yaml"), "job.yaml").identity
    identity["retrieve"]["retrievers"]["bm25"]["corpus"] = "another"
    Path("runs/job-0123456789ab").mkdir(parents=True)
    Path("runs/job-0123456789ab/run.json").write_text(json.dumps({"identity": identity}))


INDEX = "retrieve.retrievers.bm25.index"
CORPUS = [
    corpus("correct --corpus", lambda patch: None, "none.parquet"),
    corpus("holds no *.parquet file", file("c/a.csv", "a")),
    corpus("no documents in it", table("c/a.parquet", doc_id=NO_TEXT, text=NO_TEXT)),
    corpus("cannot be read as Parquet", file("c/a.parquet", "doc_id,text\n")),
    corpus("; it has:", table("c/a.parquet", id=["a"], text=["b"])),
    corpus("string or integer", table("c/a.parquet", doc_id=[1.5], text=["b"])),
    corpus(
        "differ in a column's type",
        both(table("c/a.parquet", doc_id=["a"], text=["b"], x=[1]), table("c/b.parquet", doc_id=["b"], text=["b"], x=[[1]])),
    ),
    corpus("a null doc_id", table("c/a.parquet", doc_id=["a", None], text=["b", "c"])),
    corpus("is there twice", table("c/a.parquet", doc_id=["a", "a"], text=["b", "c"])),
    typed("is not supported; use s3://", "output=gs://bucket/runs"),
    typed("names no bucket", "output=s3:///runs"),
    typed("or s3://BUCKET/FOLDER", f"{INDEX}=gs://bucket/index"),
    corpus("or s3://BUCKET/FOLDER", lambda patch: None, "gs://bucket/corpus"),
    typed("there is no index", f"{INDEX}=nowhere"),
    typed("build it again", "retrieve.retrievers.bm25.analyzer=unicode"),
    typed("build it again", spoil=file("index/index.json", "{")),
    typed("build it again", spoil=file("index/index.json", '{"format": 0}')),
    typed("build it again", "retrieve.retrievers={d: {kind: local, index: index, encoder: {model: m}}}"),
    typed("was started with another index", spoil=an_unfinished_run, verb="plan"),
    raw(
        "give each its own", "index", "job.yaml", "--corpus", "corpus.parquet",
        "--set", "retrieve.retrievers.more={kind: local, index: index, analyzer: unicode}",
    ),
    typed(
        "search indexes of different corpora", "retrieve.retrievers.more={kind: local, index: other}",
        "rerank.kind=cross_encoder", spoil=another_corpus,
    ),
    raw("there is a file of this name", "index", "job.yaml", "--corpus", "corpus.parquet", "--set", f"{INDEX}=log.parquet"),
    raw(
        "not empty and not an index", "index", "job.yaml", "--corpus", "corpus.parquet", "--set", f"{INDEX}=full",
        spoil=file("full/a.txt", "a"),
    ),
    raw("cannot be written:", "index", "job.yaml", "--corpus", "corpus.parquet", "--set", f"{INDEX}=log.parquet/index"),
    corpus("is being built by another process", a_build_elsewhere, "corpus.parquet"),
]  # fmt: skip

INPUTS = [*CONFIG, *LOG, *CORPUS]
