"""Commands that are refused, by code: what is typed, and what was done to the job before."""

import errno
import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import yaml

import dmqr
from cluster.errors import UnavailableError
from cluster.run.lease import Lease
from cluster.storage import open_storage
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from tests.support.errors.small_job import AFTERWARDS, JOB, Command, Patch, Spoil, failing, file, job, table, typed
from tests.support.jobs.run_folders import RunMaker
from tests.support.rewriters.fake_server import FakeServer

INDEX = "retrieve.retrievers.bm25.index"
MORE = "retrieve.retrievers.more="
OPENAI = "kind: openai, model: tiny, base_url: 'http://127.0.0.1:9/v1'"
LABELS = '{"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}'
INDEXING = ("index", "job.yaml", "--corpus")
PLAN = '{"inputs": [], "counts": {}, "shard_size": 1, "tables": {}, "shards": []}'
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


def exported(hits: int) -> Spoil:
    return lambda _: dmqr.export(RunMaker(Path("made"))().storage.root, "out", hits=hits)


CONFIG = [
    typed("argument", "is not a date", "plan", "job.yaml", "--date", "soon"),
    typed("config-file", "give a YAML file", "run", "none.yaml"),
    job("config-file", "not YAML: line", spoil=file("job.yaml", "name: [unclosed\n")),
    job("config-value", "fuse.dept: unknown key", "fuse.dept=3"),
    job("plugin", "there is no module own", "retrieve.retrievers={own: {kind: own:Own}}"),
    job("config-value", "output: is missing", spoil=without_output),
    job("config-value", "should be", "fuse.k=seven"),
    job("prices", "needs prices", "limits.max_cost_usd=1"),
    job("judgements", "give another file", "evaluate.qrels=qrels.tsv"),
    job("judgements", "TREC's four columns", "evaluate.qrels=qrels.tsv", spoil=file("qrels.tsv", "a b\n")),
]
LOG = [
    job("log-files", "lag.parquet: no such file", "log.path=lag.parquet"),
    job("log-empty", "or set log.allow_empty", spoil=table("log.parquet", id=[], query=[])),
    job("test-collection", "is not a folder with queries.jsonl and corpus.jsonl", "log.path=beir:nowhere"),
    job("log-files", "no usable query", spoil=table("log.parquet", id=["a", "b"], query=[" ", None]), verb="plan"),
    job("log-files", "cannot be read as Parquet", spoil=file("log.parquet", "id,query\na,why is the sky blue\n")),
    job("log-column", "no column 'querry'", "log.query_column=querry"),
    job("disk-space", "could not group the log", spoil=no_room, verb="plan"),
]
ENGINES = [
    job("strategy", "unknown strategy 'generl'", "rewrite.strategies=[generl]"),
    job("prompt", "unknown step 'anwser'; did you mean 'answer'?", "answer.prompt=anwser"),
    job("selection", "'decompose' is not among rewrite.strategies", "rewrite.select=classified"),
    job("engine-setting", "base_url must be like", f"rewrite.engine={{{OPENAI}}}", "rewrite.engine.base_url=host:8000/v1"),
    job("model", "no model 'tiny'", spoil=server(models=["another"])),
    job("server-access", "refuses the key", spoil=server(more="api_key_env: TEA_KEY", key="right")),
    job("server-away", "start the server", f"rewrite.engine={{{OPENAI}, timeout_seconds: 5}}"),
    job("run-file", "line 2", spoil=file("recorded.jsonl", '{"query": "a", "completions": {}}\n{"query": \n')),
    job("package-missing", "pip install no-such-package", "rerank={model: 'package:no_such_package'}"),
]  # fmt: skip
INDEXES = [
    typed("corpus", "or --corpus", *INDEXING, "none.parquet"),
    job("index-missing", "there is no index", f"{INDEX}=nowhere"),
    job("index-other", "build it again", spoil=file("index/index.json", "{")),
    job("run-file", "lost.run: no such file or folder", MORE + "{kind: trec, path: lost.run}", "log.id_column=id"),
    job("index-other", "was built with analyzer", "retrieve.retrievers.bm25.analyzer=unicode"),
    typed("run-held", "is being built by another process", *INDEXING, "corpus.parquet", spoil=a_build_elsewhere),
    job("model", "or do without a reranker: --set rerank.kind=none", "rerank={model: nobody/none}", spoil=no_hub),
    job("model", "labels, a reranker has 1", "rerank={model: ./model}", spoil=two_labels),
]  # fmt: skip
FOLDERS = [
    job("storage-refused", "is not supported", "output=gs://bucket/runs"),
    job("storage-refused", "cannot write to", "output=log.parquet/runs"),
    job("storage-away", "try again later", spoil=failing(UnavailableError("s3://a: host answers 503 for 120 s")), exit_code=1),
    typed("run-missing", "there is no run", "evaluate", "nowhere", "qrels.tsv"),
    typed("run-damaged", "another version of dmqr", "evaluate", "runs/a", "qrels.tsv", spoil=a_folder("{}")),
    job("run-changed", "was started with another index", spoil=an_unfinished_run, verb="plan"),
    job("run-held", "another driver works on this run", spoil=another_driver),
    job("stopped-failure", "details in", spoil=failing(RuntimeError("died"), "jobs.run.run.run"), exit_code=1),
]
EXPORT = [
    typed("export", "is exported and not promoted", "export", RUN, "--to", "out", "--promote", spoil=exported(10), exit_code=1),
    typed("export", "an export that has 20 hits", "export", RUN, "--to", "out", spoil=exported(20)),
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
