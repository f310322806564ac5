"""Commands that are refused, by code: what is typed, and what was done to the job before."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import yaml

import dmqr
from cluster.errors import UnavailableError
from cluster.run.lease import Lease
from cluster.storage import open_storage
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from retrievers.models import _commit
from tests.support.errors.small_job import AFTERWARDS, JOB, Command, Patch, Spoil, failing, file, job, table, typed
from tests.support.jobs.report_runs import Query, RunMaker, query_id
from tests.support.rewriters.fake_server import FakeServer

NOT_UTF8 = pa.array([b"\xff", b"b"], pa.binary()).view(pa.string())
INDEX = "retrieve.retrievers.bm25.index"
MORE = "retrieve.retrievers.more="
HUB = ["rewrite.engine={kind: vllm, model: nobody/model}", "cluster.rewrite.gpus=0"]
OPENAI = "kind: openai, model: tiny, base_url: 'http://127.0.0.1:9/v1'"
LABELS = '{"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}'
INDEXING = ("index", "job.yaml", "--corpus")
PLAN = '{"inputs": [], "counts": {}, "shard_size": 1, "tables": {}, "shards": []}'
LATEST = '{"run_id": "a-1", "path": "gone"}'
RUN = "made/small-0123456789ab"


def without_output(_: Patch) -> None:
    Path("job.yaml").write_text(yaml.safe_dump({key: value for key, value in JOB.items() if key != "output"}))


def no_room(patch: Patch) -> None:
    import duckdb

    failing(duckdb.IOException("could not write: No space left on device"), "jobs.log.parts.bounded_duckdb")(patch)


def server(url: str = "http://{}", more: str = "", **options: Any) -> Spoil:
    """The job's engine is a server that answers like that; `url` is put in place of its address."""

    def start(patch: Patch) -> None:
        serving = AFTERWARDS.enter_context(FakeServer(**options))
        engine = {"kind": "openai", "model": "tiny", "base_url": url.format(serving.address.partition("//")[2])}
        Path("job.yaml").write_text(yaml.safe_dump(JOB | {"rewrite": {"engine": engine | yaml.safe_load(f"{{{more}}}")}}))
        patch.setenv("TEA_KEY", "wrong")

    return start


def no_hub(patch: Patch) -> None:
    from huggingface_hub import constants

    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    patch.setattr(constants, "HF_HUB_CACHE", os.path.abspath("hub"))
    patch.setenv("HF_HUB_OFFLINE", "1")


def two_labels(patch: Patch) -> None:
    file("model/config.json", LABELS)(patch)
    file("model/model.safetensors", "never read")(patch)


def another_corpus(patch: Patch) -> None:
    shutil.copytree("index", "other")
    entry = json.loads(Path("other/index.json").read_text())
    Path("other/index.json").write_text(json.dumps(entry | {"corpus": "another"}))


def a_build_elsewhere(_: Patch) -> None:
    lock = os.open("index/.lock", os.O_RDWR | os.O_CREAT)
    AFTERWARDS.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX)


def an_unfinished_run(_: Patch) -> None:
    identity = prepare(load_config("job.yaml"), "job.yaml").identity
    identity["indexes"]["bm25"]["corpus"] = "another"
    folder = Path("runs/job-0123456789ab")
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"identity": identity}))


def an_unfinished_run_of_another_commit(patch: Patch) -> None:
    hub = ["a" * 40]

    def model_info(*_: object, revision: str | None = None, **__: object) -> SimpleNamespace:
        return SimpleNamespace(sha=hub[0] if revision in (None, "main") else revision, siblings=[])

    patch.setattr("huggingface_hub.HfApi.model_info", model_info)
    _commit.cache_clear()
    AFTERWARDS.callback(_commit.cache_clear)
    before = prepare(load_config("job.yaml", HUB), "job.yaml")
    file(f"runs/{before.run_id}/run.json", json.dumps({"identity": before.identity}))(patch)
    hub[0] = "b" * 40
    _commit.cache_clear()


def another_driver(_: Patch) -> None:
    lease = Lease.acquire(open_storage(prepare(load_config("job.yaml"), "job.yaml").storage.root))
    AFTERWARDS.callback(lease.release)


def a_folder(run: str) -> Spoil:
    def write(patch: Patch) -> None:
        file("runs/a/shards.json", PLAN)(patch)
        file("runs/a/run.json", run)(patch)

    return write


def a_run(_: Patch) -> None:
    RunMaker(Path("made"))()


def a_run_without_lists(_: Patch) -> None:
    RunMaker(Path("made"))(keep_runs=False)
    Path("qrels.tsv").write_text(f"{query_id(0)}\td01\t1\n")


def half_a_run(_: Patch) -> None:
    RunMaker(Path("made"))(finished=False)


def exported(hits: int) -> Spoil:
    return lambda _: dmqr.export(RunMaker(Path("made"))().storage.root, "out", hits=hits)


def judged_otherwise(patch: Patch) -> None:
    a_run(patch)
    Path("qrels.tsv").write_text("tea\td01\t1\n")


def a_run_without_results(patch: Patch) -> None:
    a_run(patch)
    shutil.rmtree(f"{RUN}/results")


def a_spaced_id(_: Patch) -> None:
    RunMaker(Path("made"))([Query("tea", hits={("original", "bm25"): ["d 1"]})])
    Path("qrels.tsv").write_text(f"{query_id(0)}\td1\t1\n")


CONFIG = [
    typed("argument", "unknown verb 'rnu'", "rnu", "job.yaml"),
    typed("argument", "unknown argument '--sett'", "run", "job.yaml", "--sett", "a=b"),
    typed("argument", "is not a date", "plan", "job.yaml", "--date", "soon"),
    typed("argument", "cannot stand in the name of a folder", "plan", "job.yaml", "--label", "a/b"),
    typed("argument", "one QUERY is sent, in quotes; a CONFIG is a YAML file", "try", "job.yaml", "blue", "sky"),
    typed("argument", "QUERY: is not UTF-8", "try", "job.yaml", "\udcff tea"),
    typed("argument", "give 0 or more", "report", RUN, "--samples", "-1", spoil=a_run),
    typed("argument", "give 0 or more", "diff", RUN, RUN, "--samples", "-1", spoil=a_run),
    typed("argument", "give one like configs/prices.yaml", "report", RUN, "--prices", "none.yaml", spoil=a_run),
    typed("argument", "--reason unparsable: no query of", "replay", RUN, "--reason", "unparsable", spoil=a_run),
    typed("argument", "give 2 or more", "tune", RUN, "qrels.tsv", "--key", "query_id", "--folds", "1", spoil=a_spaced_id),
    typed("argument", "is not overwritten; give another name", "tune", RUN, "--out", "job.yaml", spoil=a_run),
    typed("argument", "give a name that ends in .yaml", "tune", RUN, "--out", "s3://a/b.yaml", spoil=a_run),
    typed("argument", "give a name that ends in .parquet or .csv", "evaluate", RUN, "qrels.tsv", "--per-query", "a.txt"),
    typed(
        "argument",
        "has white space, which ends a column there; use --per-query",
        "evaluate",
        RUN,
        "qrels.tsv",
        "--key",
        "query_id",
        "--trec",
        "run.txt",
        spoil=a_spaced_id,
    ),
    typed("config-file", "give a YAML file", "run", "none.yaml"),
    job("config-file", "not YAML: line", spoil=file("job.yaml", "name: [unclosed\n")),
    job("config-key", "fuse.dept: unknown key", "fuse.dept=3"),
    job("config-key", "no kind 'vlm'", "rewrite.engine={kind: vlm}"),
    job("plugin", "there is no module own", "retrieve.retrievers={own: {kind: own:Own}}"),
    job("config-missing", "output: is missing", spoil=without_output),
    job("config-value", "should be", "fuse.k=seven"),
    job("config-value", "routes.original is empty", "retrieve.routes={original: []}"),
    job("config-value", "carries a revision", "rewrite.engine={kind: vllm, model: some/model@c0ffee}"),
    job("prices", "needs prices", "limits.max_cost_usd=1"),
    job("prices", "(known keys:", spoil=file("prices.yaml", "hour: 1\n")),
    job("judgements", "give another file", "evaluate.qrels=qrels.tsv"),
    job("judgements", "TREC's four columns", "evaluate.qrels=qrels.tsv", spoil=file("qrels.tsv", "a b\n")),
    job("judgements", "give small whole numbers", "evaluate.qrels=qrels.tsv", spoil=file("qrels.tsv", "a\tb\t5000\n")),
    typed("judgements", "the judgements say 'tea'", "tune", RUN, "qrels.tsv", "--key", "query_id", spoil=judged_otherwise),
    typed("judgements", "another key", "evaluate", RUN, "qrels.tsv", "--key", "query_id", spoil=judged_otherwise),
    typed("judgements", "another key", "report", RUN, "--qrels", "qrels.tsv", "--key", "query_id", spoil=judged_otherwise),
    typed("judgements", "another key", "diff", RUN, RUN, "qrels.tsv", "--key", "query_id", spoil=judged_otherwise),
    typed("judgements", "fewer than 5 folds", "tune", RUN, "qrels.tsv", "--key", "query_id", spoil=a_spaced_id),
    typed("judgements", "give QRELS", "tune", RUN, spoil=a_run),
]
LOG = [
    job("log-missing", "lag.parquet: no such file", "log.path=lag.parquet"),
    job("test-collection", "is no folder with queries.jsonl and corpus.jsonl", "log.path=beir:nowhere"),
    job("log-empty", "no usable query", spoil=table("log.parquet", id=["a", "b"], query=[" ", None]), verb="plan"),
    job("log-unreadable", "is it text or compressed?", spoil=file("log.parquet", "id,query\na,why is the sky blue\n")),
    job("log-column", "no column 'querry'", "log.query_column=querry"),
    job("log-value", "is not UTF-8", spoil=table("log.parquet", id=NOT_UTF8, query=["tea", "milk"]), verb="plan"),
    job("log-space", "could not group the log", spoil=no_room, verb="plan"),
]
ENGINES = [
    job("strategy", "unknown strategy 'generl'", "rewrite.strategies=[generl]"),
    job("prompt", "unknown step 'anwser'; did you mean 'answer'?", "answer.prompt=anwser"),
    job("prompt", "is not YAML", "answer.prompt=./broken.yaml", spoil=file("broken.yaml", "prompt: [")),
    job("strategy", "is not YAML", "rewrite.strategies=[./broken.yaml]", spoil=file("broken.yaml", "label: [")),
    job("strategy", "at temperature 0 are all the same", "rewrite.strategies=[{rewrite: {n: 3}}]"),
    job("selection", "'decompose' is not among rewrite.strategies", "rewrite.select=classified"),
    job("selection", "correct rewrite.select.demonstrations", "rewrite.select={kind: adaptive, demonstrations: none.yaml}"),
    job("config-value", "rewrite.select.k is 9, and there are", "rewrite.select={kind: random_k, k: 9}"),
    job(
        "guard-file", "row 1: unknown strategy 'generl'; did you mean 'general'?", "rewrite.guards.overrides=o.csv",
        spoil=file("o.csv", "query,strategy,text,status\na,generl,b,approved\n"),
    ),
    job("prompt", "as its last word", "rewrite.joint_prompt=p.txt", spoil=file("p.txt", "Rewrite {query} as keywords.")),
    job("engine-setting", "base_url must be like", f"rewrite.engine={{{OPENAI}}}", "rewrite.engine.base_url=host:8000/v1"),
    job("engine-model", "no model 'tiny'", spoil=server(models=["another"])),
    job("engine-model", "neither the hub's cache", f"rewrite.engine={{{OPENAI}, tokenizer: nobody/none}}", spoil=no_hub),
    job("engine-access", "is not set or empty", f"rewrite.engine={{{OPENAI}, api_key_env: NOT_SET}}"),
    job("engine-access", "refuses the key", spoil=server(more="api_key_env: TEA_KEY", key="right")),
    job("engine-away", "start the server", f"rewrite.engine={{{OPENAI}, timeout_seconds: 5}}"),
    job("recording", "correct rewrite.engine.path", "rewrite.engine.path=none.jsonl"),
    job("recording", "line 2", spoil=file("recorded.jsonl", '{"query": "a", "completions": {}}\n{"query": \n')),
    job("package-missing", "pip install no-such-package", "rerank={model: 'package:no_such_package'}"),
]  # fmt: skip
INDEXES = [
    typed("corpus-missing", "or --corpus", *INDEXING, "none.parquet"),
    typed("corpus-missing", "or s3://BUCKET/FOLDER", *INDEXING, "gs://bucket/corpus"),
    typed("corpus-invalid", "; it has:", *INDEXING, "c", spoil=table("c/a.parquet", id=["a"], text=["b"])),
    job("index-missing", "there is no index", f"{INDEX}=nowhere"),
    job("index-damaged", "build it again", spoil=file("index/index.json", "{")),
    job("run-file", "lost.run: cannot be read", MORE + "{kind: trec, path: lost.run}", "log.id_column=id"),
    job("index-other", "was built with analyzer", "retrieve.retrievers.bm25.analyzer=unicode"),
    typed("index-shared", "give each its own", *INDEXING, "corpus.parquet",
          "--set", MORE + "{kind: local, index: index, similarity: {b: 0}}"),
    job("index-shared", "different corpora", MORE + "{kind: local, index: other}", "rerank.kind=cross_encoder",
        spoil=another_corpus),
    typed("index-place", "not empty and not an index", *INDEXING, "corpus.parquet", "--set", f"{INDEX}=full",
          spoil=file("full/a.txt", "a")),
    typed("index-busy", "is being built by another process", *INDEXING, "corpus.parquet", spoil=a_build_elsewhere),
    job("model-missing", "give a folder, package:NAME", "rerank={model: ./no/such}"),
    job("model-missing", "not in the hub's cache", "rerank={model: nobody/none}", spoil=no_hub),
    job("model-missing", "or do without a reranker: --set rerank.kind=none", "rerank={model: nobody/none}", spoil=no_hub),
    job("model-unfit", "labels, a reranker has 1", "rerank={model: ./model}", spoil=two_labels),
]  # fmt: skip
FOLDERS = [
    job("storage-address", "is not supported", "output=gs://bucket/runs"),
    job("storage-address", "or s3://BUCKET/FOLDER", f"{INDEX}=gs://bucket/index"),
    job("storage-unwritable", "cannot write to", "output=log.parquet/runs"),
    job("storage-away", "try again later", spoil=failing(UnavailableError("s3://a: host answers 503 for 120 s")), exit_code=1),
    typed("run-missing", "no run lies there", "evaluate", "nowhere", "qrels.tsv"),
    typed("run-missing", "before its log was read", "report", "runs/a", spoil=file("runs/a/run.json", "{}")),
    typed("run-missing", "where no run lies", "report", "runs/a", spoil=file("runs/a/latest.json", LATEST)),
    typed("run-missing", "is a file; give a run's folder", "evaluate", "job.yaml", "qrels.tsv"),
    typed("lists-missing", "did not keep its lists", "tune", RUN, "qrels.tsv", "--key", "query_id", spoil=a_run_without_lists),
    typed("run-damaged", "another version of dmqr", "evaluate", "runs/a", "qrels.tsv", spoil=a_folder("{}")),
    typed("run-damaged", "put back what was changed there", "report", RUN, spoil=a_run_without_results),
    typed("run-damaged", "put back what was changed there", "diff", RUN, RUN, spoil=a_run_without_results),
    job("run-changed", "was started with another index", spoil=an_unfinished_run, verb="plan"),
    job(
        "run-changed",
        f"and --set rewrite.engine.revision={'a' * 40}",
        *HUB,
        "cluster.rewrite.gpus=0",
        spoil=an_unfinished_run_of_another_commit,
    ),
    job("run-held", "another driver works on this run", spoil=another_driver),
    job("stopped-failure", "details in", spoil=failing(RuntimeError("died"), "jobs.run.run.run"), exit_code=1),
    job("stopped-failure", "then go on with", spoil=failing(OSError(errno.EROFS, "no"), "jobs.run.run.run"), exit_code=1),
    job("storage-away", "try again later", spoil=failing(UnavailableError("s3: away"), "jobs.run.run.run"), exit_code=1),
]
EXPORT = [
    typed("argument", "--to is missing", "export", RUN, spoil=a_run),
    typed("argument", "is not finished", "export", RUN, "--to", "out", spoil=half_a_run),
    typed("argument", "--qrels: is of a promotion", "export", RUN, "--to", "out", "--qrels", "q.tsv", spoil=a_run),
    typed("argument", "is no bound", "export", RUN, "--to", "out", "--promote", "--set", "fuse.k=1", spoil=a_run),
    typed(
        "export-bound",
        "is exported and not promoted",
        "export",
        RUN,
        "--to",
        "out",
        "--promote",
        spoil=exported(10),
        exit_code=1,
    ),
    typed("export-version", "an export that has 20 hits", "export", RUN, "--to", "out", spoil=exported(20)),
]

COMMANDS = [*CONFIG, *LOG, *ENGINES, *INDEXES, *FOLDERS, *EXPORT]

# ---------------------------------------------------------------- what the system refuses, and what a bug comes to


def refused(words: str, number: int) -> Command:
    return job("", words, spoil=failing(OSError(number, os.strerror(number), "runs/a")), verb="plan", exit_code=1)


SYSTEM = [
    typed("", "free space in the output's folder", "report", RUN, "--out", "/dev/full", spoil=a_run, exit_code=1),
    refused("free space in the output's folder", errno.EDQUOT),
    refused("runs/a: Permission denied; make it writable", errno.EACCES),
    refused("on a disk that can be written", errno.EROFS),
    refused("raise the limit of open files", errno.EMFILE),
    typed("", "make its folder, or correct the path", "report", RUN, "--out", "none/a.html", spoil=a_run, exit_code=1),
    typed("", "correct the path, or name another", "report", RUN, "--out", "made", spoil=a_run, exit_code=1),
    job("", "interrupted; start it again", spoil=failing(KeyboardInterrupt()), verb="plan", exit_code=130),
    job("", "interrupted; start it again", spoil=failing(SystemExit(signal.SIGTERM)), verb="plan", exit_code=143),
    job("", "report it with the trace above", spoil=failing(ZeroDivisionError("by zero")), verb="plan", exit_code=1),
]
