"""A run that was killed goes on over an index that an earlier version built, as it was built; over a new one it is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ClusterError
from jobs.config.load import load_config
from jobs.index.index import index
from jobs.run.resume_check import check_indexes_unchanged
from retrievers.analyzer import open_analyzer
from retrievers.encoder import encoder_identity
from retrievers.local.index import INDEX, read_index
from retrievers.settings import EncoderSettings
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import ROOT, check_files, check_same_rows, rows
from tests.support.retrievers.tiny_encoders import make_encoder

pytestmark = pytest.mark.slow
# Version 1 of the analyzer has no words of one letter, and full width is another word there.
TEXTS = ["vitamin C of oranges", "vitamin D of fish", "ｊｒ and the sea", "jr and the moon", "rye bread", "bread of wheat"]
QUERIES = ["vitamin D", "jr", "bread", "moon and sea", "oranges", "fish of the sea"]
KILL = """
    import os, signal, sys
    from cluster.run.stage import shard_of
    from jobs.__main__ import main
    from jobs.chain.stages.order import Order
    ordered = Order.__call__
    def die(self, table):
        if shard_of(table) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return ordered(self, table)
    Order.__call__ = die
    main(["run", sys.argv[1]])
"""


class Quiet:
    def phase(self, words: str) -> None:
        return


@pytest.fixture
def path(tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A config of BM25, dense search and a bi-encoder, whose index an earlier version has built: all by its own defaults."""
    monkeypatch.chdir(tmp_path)
    model = make_encoder(tmp_path / "model", "bert", [*TEXTS, *QUERIES], "mean", dense=[16], prompts={"query": "find: "})
    pq.write_table(pa.table({"doc_id": [f"d{n}" for n in range(len(TEXTS))], "text": TEXTS}), "corpus.parquet")
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    lines = [{"query": query, "completions": {"dmqr": json.dumps({"general": f"about {query}"})}} for query in QUERIES]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dense = {"kind": "local", "index": "index", "encoder": {"model": str(model)}}
    values["rewrite"]["strategies"] = ["general"]
    values["retrieve"]["retrievers"] = {"bm25": {"kind": "local", "index": "index"}, "dense": dense}
    values |= {"rerank": {"kind": "bi_encoder"}, "cluster": {"address": "none", "shard_size": 2}}
    config = config_file(values)
    with monkeypatch.context() as patch:
        patch.setattr("retrievers.local.build.ANALYZE_VERSION", 1)
        patch.setattr("retrievers.local.build.open_analyzer", lambda name, documents: open_analyzer(name, 1))
        files = [model / name for name in ("modules.json", "config_sentence_transformers.json", "1_Pooling/config.json")]
        for file in files:  # which earlier versions did not read
            file.rename(f"{file}.away")
        build(config)
        for file in files:
            Path(f"{file}.away").rename(file)
    entry = read_index(Path("index"))
    entry["fields"]["dense"]["model"] = encoder_identity(EncoderSettings(model=str(model)))[
        "model"
    ]  # with these files beside it
    Path("index", INDEX).write_text(json.dumps(entry))
    return config


def build(config: str) -> None:
    index(load_config(config, []), ["corpus.parquet"], Quiet())  # type: ignore[arg-type]


def killed(config: str) -> Path:
    """The folder of a run that was killed while its second shard was ordered."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(KILL), config]
    assert subprocess.run(command, check=False, env=environment, capture_output=True).returncode == -signal.SIGKILL
    (folder,) = (one for one in Path("runs").iterdir() if (one / "commits").is_dir())
    assert len(list((folder / "commits").iterdir())) == 1
    return folder


def test_it_goes_on_as_the_index_was_built(path: str) -> None:
    whole = run_in_process(prepared_job(path, "output=whole"))
    folder = killed(path)
    assert run_in_process(prepared_job(path)).samefile(folder)
    check_same_rows(folder, whole)
    check_files(folder, 3)
    identity = json.loads((folder / "run.json").read_text())["identity"]["indexes"]
    assert identity["bm25"]["analyzer_version"] == 1
    assert (identity["dense"]["encoder"]["pooling"], "layers" in identity["dense"]["encoder"]) == ("cls", False)
    build(path)
    new = run_in_process(prepared_job(path, "output=new"))
    assert new.name != folder.name
    for retriever in ("bm25", "dense"):  # what the index of before decides
        old_rows, new_rows = ([row for row in rows(one, "runs") if row["retriever"] == retriever] for one in (folder, new))
        assert sorted(map(repr, old_rows)) != sorted(map(repr, new_rows)), retriever


def test_it_is_refused_over_an_index_that_was_built_anew(path: str) -> None:
    folder = killed(path)
    build(path)
    again = prepared_job(path).prepared
    assert again.run_id != folder.name
    with pytest.raises(ClusterError) as refused:
        check_indexes_unchanged(again)
    assert refused.value.code == "run-changed"
    assert "\n" not in str(refused.value)
    assert "was started with another index, which has been replaced since, and is not finished" in str(refused.value)
    with pytest.raises(ClusterError, match="was started with another index"):
        run_in_process(again)
    assert [one.name for one in Path("runs").iterdir() if (one / "commits").is_dir()] == [folder.name]
