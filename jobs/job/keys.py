"""The fingerprint of a run: the inputs that determine its results; and the name of its folder.

Every field of the config counts unless it is marked `NOT_IDENTITY`: because it sets only a location, a speed or a
duration, or because its resolved value counts instead (a model's weights, an index's content). Fields at their default
are left out, so a new option renames no run; when a default changes, the version of its algorithm is raised.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.config.config import Config
from retrievers.analyzer import ANALYZE_VERSION
from retrievers.fusion import DIVIDE_VERSION, DUPLICATES_VERSION, FUSION_VERSION, JOINING
from retrievers.join import JOINED_VERSION
from retrievers.order import ORDER_VERSION
from rewriters.reading.ladder import PARSE_VERSION
from rewriters.selection import GATE_VERSION
from rewriters.settings import identity_fields

SCHEMA_VERSION = 2  # of the tables and of run.json
# Raised when one of our algorithms gives other results for the same input and config.
VERSIONS = {"parse": PARSE_VERSION, "analyze": ANALYZE_VERSION, "fuse": FUSION_VERSION, "order": ORDER_VERSION}


def identity(
    config: Config,
    indexes: Mapping[str, Mapping[str, Any]],
    rewriting: Mapping[str, Any],
    reranker: Mapping[str, Any],
    steps: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the inputs that determine a run's results, as JSON-able values.

    Beside the config: the identities of the indexes by retriever, of the strategies with their prompts and the engine with its
    weights, of the reranker, and of the steps that LLMs do after retrieval, by key of the config.
    """
    fields = identity_fields(config)
    if not config.rewrite.planned:
        fields.pop("rewrite", None)
    if config.rerank.kind == "none":
        fields.pop("rerank", None)
    return {
        "schema_version": SCHEMA_VERSION,
        "versions": VERSIONS | _of_options(config, rewriting),
        "config": fields,
        "rewrite": dict(rewriting),
        "indexes": {name: dict(index) for name, index in indexes.items()},
        "order": list(indexes),  # the first one provides the texts, the first dense one the cosines
        "rerank": dict(reranker),
    } | dict(steps or {})


def _of_options(config: Config, rewriting: Mapping[str, Any]) -> dict[str, int]:
    """Returns the versions of algorithms that a config asks for, so that other configs keep their fingerprints."""
    together = any(retriever.together for retriever in config.retrieve.retrievers.values())
    strategies = rewriting.get("rewriter", {}).get("strategies", ())
    options = {
        "gate": (GATE_VERSION, config.rewrite.gated is not None),
        "joined": (JOINED_VERSION, together and any(one.get("as_one") == "with_original" for one in strategies)),
        "divide": (DIVIDE_VERSION, config.fuse.divide == "max" and config.fuse.method in JOINING),
        "duplicates": (DUPLICATES_VERSION, config.fuse.duplicates == "drop"),
    }
    return {name: version for name, (version, is_asked) in options.items() if is_asked}


def fingerprint(identified_by: Mapping[str, Any]) -> str:
    """Returns the first 12 hex digits of the sha256 of a run's identity."""
    canonical = json.dumps(identified_by, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def run_id(config: Config, identified_by: Mapping[str, Any]) -> str:
    """Returns the name of a run's folder, by its config and its `identity`."""
    return "-".join(part for part in (config.name, config.shown_label, fingerprint(identified_by)) if part)
