"""Everything a run is checked for before it costs anything, and the fingerprint that names it.

The fingerprint holds what decides what comes out: the log's path and columns, strategies with their prompts and decoding,
the engine's model, indexes by content, fusion, reranking. Not in it: name, output, limits, cluster, addresses.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster import ClusterError
from cluster.costs import Prices, load_prices
from cluster.shards import SUCCESS
from cluster.storage import Storage, check_writable, open_storage
from jobs import engine
from jobs.config import Config
from jobs.evaluate import Judgements, read_qrels
from jobs.indexes import open_documents, retriever_identity
from jobs.log import LogColumns, check_log
from jobs.log_files import LogFile, find_log_files
from jobs.part import ConfigError
from jobs.retriever_config import Elastic
from jobs.retriever_opening import opened
from retrievers.reranker import reranker_identity
from retrievers.retriever import retriever_facts
from rewriters.errors import RewriterError
from rewriters.rewriter import Rewriter

SCHEMA_VERSION = 1
_CONTENT = ("index", "uuid", "mapping", "corpus")  # of an index in Elasticsearch: what another one has otherwise


@dataclass(frozen=True)
class Prepared:
    """A job that is ready to be run."""

    config: Config
    config_file: str
    files: list[LogFile]
    columns: LogColumns
    identity: dict[str, Any]
    engine: dict[str, Any] | None  # what rewriting workers open theirs with
    indexes: dict[str, dict[str, Any]]  # retriever -> what its index is
    judgements: Judgements | None
    prices: Prices | None
    output: Storage
    run_id: str
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # retriever -> what is only noted of its index

    @property
    def storage(self) -> Storage:
        """The run's own folder."""
        return open_storage(self.output.url(self.run_id))

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The log's files as the plan keeps them."""
        return [file.version for file in self.files]


def prepare(config: Config, config_path: str) -> Prepared:
    """Check what the job reads and writes, cheapest first, and name the run.

    Raises LogError, RewriterError, RetrieverError, ClusterError or ConfigError: one line each, nothing is written.
    """
    log = config.log
    files = find_log_files(log.path)
    columns = LogColumns(log.query_column, log.id_column, log.count_column, log.max_chars)
    check_log(files, columns)
    judgements = read_qrels(config.evaluate.qrels) if config.evaluate.qrels else None
    output = open_storage(config.output)
    check_writable(output, "output")
    return _prepare(config, config_path, files, judgements, output)


def prepare_query(config: Config, config_path: str, folder: str) -> Prepared:
    """The same for one query that somebody tries: a folder in place of the output, log and judgements not looked at."""
    return _prepare(config, config_path, [], None, open_storage(folder))


def _prepare(
    config: Config, config_path: str, files: list[LogFile], judgements: Judgements | None, output: Storage
) -> Prepared:
    log = config.log
    columns = LogColumns(log.query_column, log.id_column, log.count_column, log.max_chars)
    prices = load_prices(Path(config_path).with_name("prices.yaml"))
    if prices is None and config.limits.max_cost_usd is not None:
        raise ConfigError(f"limits.max_cost_usd needs prices, and there is no prices.yaml beside {config_path}; put one there")
    indexes = _indexes(config)
    if config.rerank.kind != "none" and len({index.get("corpus") for index in indexes.values()}) > 1:
        raise ConfigError(
            f"retrieve.retrievers: {', '.join(indexes)} search indexes of different corpora, but the reranker takes its texts "
            "from one; build all from one corpus for all, or set rerank.kind: none"
        )
    name, first = next(iter(config.retrieve.retrievers.items()))
    if config.rerank.kind != "none" and isinstance(first, Elastic):  # an index that keeps no text is refused now
        open_documents(name, first.model_dump() | {"index": indexes[name]["index"]})
    facts = {name: retriever_facts(name, one.model_dump(), indexes[name]) for name, one in config.retrieve.retrievers.items()}
    opened, rewriting = _rewriting(config)
    identity = {
        "schema_version": SCHEMA_VERSION,
        "log": {"path": log.path, **asdict(columns)},
        "rewrite": rewriting,
        "retrieve": config.retrieve.model_dump(include={"depth", "keep_runs", "routes"})
        | {"retrievers": indexes, "order": list(indexes)},
        "fuse": config.fuse.model_dump(),
        "rerank": _rerank_identity(config),
    }
    run_id = _run_id(config.name, identity)
    config_file = str(Path(config_path).absolute())
    return Prepared(config, config_file, files, columns, identity, opened, indexes, judgements, prices, output, run_id, facts)


def check_not_replaced(prepared: Prepared) -> None:
    """Refuse to begin anew where an unfinished run of this very config had another index: it cannot be resumed now."""
    mine = _without_indexes(prepared.identity)
    for run_id in prepared.output.folders():
        if run_id == prepared.run_id or not re.fullmatch(rf"{re.escape(prepared.config.name)}-[0-9a-f]{{12}}", run_id):
            continue
        other = json.loads(prepared.output.get(f"{run_id}/run.json") or b"{}").get("identity")
        if other and _without_indexes(other) == mine and prepared.output.stat(f"{run_id}/{SUCCESS}") is None:
            where = f"{prepared.output.url(run_id)} was started with another index"
            anew = "remove that folder (or take another name) to start anew"
            if back := _index_settings(other["retrieve"]["retrievers"], prepared.indexes):
                raise ClusterError(f"{where}, and is not finished; {anew}, or go on with: the same command and {back}")
            raise ClusterError(f"{where}, which has been replaced since, and is not finished; put the index back, or {anew}")


def check_engine(prepared: Prepared) -> None:
    """RewriterError for an engine with which no query would be rewritten; it may ask a server."""
    if prepared.engine is not None:
        engine.check(prepared.engine, prepared.config.cluster.address == "local")


def _indexes(config: Config) -> dict[str, dict[str, Any]]:
    """Retriever -> what its index is. An alias is looked up once: retrievers that share it search one index, though it be
    moved meanwhile."""
    found: dict[str, dict[str, Any]] = {}
    known: dict[tuple[str | None, str], dict[str, Any]] = {}
    for name, retriever in config.retrieve.retrievers.items():
        place = getattr(retriever, "url_env", None), retriever.index
        found[name] = retriever_identity(name, opened(retriever, known.get(place, {}), 1))
        known.setdefault(place, found[name])
    return found


def _rewriting(config: Config) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The engine's settings for workers, and what decides which rewrites come out."""
    rewrite = config.rewrite
    if not rewrite.planned or rewrite.engine is None:
        return None, {"strategies": []}
    try:
        rewriter = Rewriter(rewrite.planned, rewrite.calls, rewrite.decoding.model_dump())
    except RewriterError as error:
        raise ConfigError(f"rewrite.strategies: {error}") from error
    settings, identity = engine.resolve(rewrite.engine)
    return settings, {"rewriter": rewriter.identity(), "engine": identity}


def _rerank_identity(config: Config) -> dict[str, Any]:
    """The weights behind the config's words, and what is kept; keys that the kind does not use are left out."""
    identity = reranker_identity(config.reranking)
    if config.rerank.kind == "none":
        return identity
    return identity | config.rerank.model_dump(include={"keep", "combine"})


def _run_id(name: str, identity: dict[str, Any]) -> str:
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=False)
    return f"{name}-{hashlib.sha256(canonical.encode()).hexdigest()[:12]}"


def _index_settings(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> str:
    """What names the indexes of then, if that is enough: in Elasticsearch they are kept while an alias moves on."""
    moved = [name for name in now if before[name] != now[name]]
    if any(now[name].get("kind") != "elastic" or before[name]["index"] == now[name]["index"] for name in moved):
        return ""
    return " ".join(f"--set retrieve.retrievers.{name}.index={before[name]['index']}" for name in moved)


def _without_indexes(identity: dict[str, Any]) -> str:
    """The identity, but for which documents lie in the indexes; of a local index all is left out."""
    searched = {
        name: {key: value for key, value in index.items() if key not in _CONTENT} if index.get("kind") == "elastic" else None
        for name, index in identity["retrieve"]["retrievers"].items()
    }
    return json.dumps(identity | {"retrieve": identity["retrieve"] | {"retrievers": searched}}, sort_keys=True)
