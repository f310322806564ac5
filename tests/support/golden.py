"""Runs the presets of the docs in this process with fake servers, and compares their tables with frozen ones.

    python -m tests.support.golden --write [NAME ...]

A preset keeps its settings, apart from addresses, weights and its cluster, and reads the first queries of its log. The LLM
answers by a hash of what it is asked, the reranker by one of query and document, so changed prompts and texts show as well.
"""

import argparse
import hashlib
import json
import random
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.run.ablation import prepare_ablation
from retrievers.local.build import build_local_index
from tests.support.jobs import corrective_llm
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import Body, FakeServer

FROZEN = ROOT / "tests" / "golden"
QUERIES = 8
SHOWN = 3
"""Rows of a table that a frozen file shows."""
DIGITS = 5
COLUMNS: dict[str, tuple[str, ...]] = {
    "queries": ("query_id", "query", "normalised", "log_count"),
    "query_map": ("log_id", "query_id"),
    "rewrites": (
        "query_id", "strategy", "position", "text", "weight", "search_as", "model", "prompt_hash", "parsed_as",
        "selected_reason", "position_weight", "guards",
    ),
    "runs": ("query_id", "strategy", "position", "retriever", "doc_id", "rank", "score"),
    "candidates": ("query_id", "rank", "doc_id", "score"),
    "scores": ("query_id", "doc_id", "model", "score"),
    "results": ("query_id", "arm", "rank", "doc_id", "score", "fused_score", "rerank_score", "sources"),
    "rounds": ("query_id", "arm", "round", "best", "text", "new", "model", "prompt_hash", "documents"),
    "grades": ("query_id", "arm", "rank", "doc_id", "grade", "verdict", "strips", "model", "prompt_hash"),
    "corrections": ("query_id", "arm", "question", "question_model", "web_query", "web_model", "hits"),
    "web": ("query_id", "arm", "retriever", "searched", "rank", "doc_id", "url", "title", "text"),
    "answers": (
        "query_id", "arm", "text", "cut", "cited", "documents", "left_out", "cut_documents", "model", "prompt_hash",
    ),
    "judgements": ("query_id", "kind", "doc_id", "arm", "grade", "sample", "model", "prompt_hash"),
    "errors": ("query_id", "log_id", "stage", "component", "reason", "raw"),
}  # fmt: skip
"""The columns that are compared, of each table that a run has; columns of features that go are not among them."""
QUANTITIES = (
    "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "searches", "saved", "pairs", "reused"
)  # fmt: skip
DROPPED = object()
OWN: dict[str, dict[str, Any]] = {
    # The paths of the presets that are set otherwise. What goes from the project is not in them.
    "ablate": {
        "ablate.arms.best_two": DROPPED,
        "ablate.arms.light": {"fuse.weights": {"original": 0.5, "keyword/bm25": 2}}, "ablate.samples": 1,
    },
    "gated": {
        "rewrite.gate": {"by": "bm25", "below": 9.0},
        "ablate": {"arms": {"all": {"rewrite.gate": None}, "few": {"rewrite.gate.below": 6.0}}},
    },
    "iterative": {"iterate.below": 0.8, "ablate.arms.once": {"iterate.below": -1}},
    "medical": {"answer.labels": {"by": "rank"}},
    "nightly": {"retrieve.routes": {"keyword": ["bm25"]}},
    "web": {"rerank.max_length": DROPPED},
}  # fmt: skip
OPTIONS: dict[str, Any] = {
    "name": "options",
    "log": {"path": "talk.jsonl", "query_column": "query", "id_column": "id", "context_column": "turns"},
    "rewrite": {
        "engine": {"kind": "vllm", "model": "Qwen/Qwen3-8B"},
        "decoding": {"temperature": 0.3, "seed": 4},
        "strategies": ["general", "step_back", {"hyde": {"n": 2, "temperature": 0.7, "as_one": "with_original"}}],
        "select": {"kind": "random_k", "k": 2, "seed": 3},
        "calls": "separate",
        "guards": {"near_duplicates": "drop", "mask": ["mail"]},
    },
    "retrieve": {
        "depth": 20,
        "retrievers": {
            "bm25": {"kind": "local", "index": "index", "together": True},
            "dense": {"kind": "local", "index": "index", "encoder": {}},
        },
    },
    "fuse": {
        "method": "weighted", "depth": 15, "keep": 12, "weights": {"original": 2, "general/bm25": 0.5},
        "redundancy": "overlap", "duplicates": "drop",
    },
    "rerank": {"kind": "cross_encoder", "model": "BAAI/bge-reranker-v2-m3", "keep": 6},
}  # fmt: skip
"""A config beside the presets: earlier turns, sampled passages, random choice, masks, weights."""
TALK = [
    {"id": "a", "query": "how far away is the moon", "turns": ["what is the moon made of"]},
    {"id": "b", "query": "how far away is it", "turns": ["what is the sun", "is it a star"]},
    {"id": "c", "query": "why is the sky blue, ask ann.lee@example.org", "turns": []},
    {"id": "d", "query": "How far away is it", "turns": ["what is the sun", "is it a star"]},
    {"id": "e", "query": "who named the planets", "turns": None},
]
NAMES = (
    "quickstart", "paper", "crag", "iterative", "nightly", "adaptive", "classified", "medical", "book", "paper-answers",
    "rag_fusion", "cheap", "gated", "web", "trained", "ablate", "options",
)  # fmt: skip
AGAIN = ("nightly", "crag")
"""Presets that run a second time, which takes all from the store."""

CRITERIA = ("correctness", "faithfulness", "relevance", "thoroughness")
CRITERIA += ("harmlessness", "readability", "logicality", "creativity")
_LLMS = ("vllm", "openai", "anthropic")


class Llm:
    """Answers requests in words of a corpus, by a hash of what is asked."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def __call__(self, body: Body) -> str:  # noqa: PLR0911
        asked = [body.get(name) for name in ("model", "messages", "prompt", "temperature", "seed")]
        chance = random.Random(hashlib.sha256(json.dumps(asked).encode()).hexdigest())
        form = body.get("response_format") or {}
        if "prompt" in body:
            return self._of_trained(str(body["prompt"]), chance)
        system, prompt = str(body["messages"][0]["content"]), corrective_llm.prompt_of(body)
        if "Expand this search query" in prompt:
            return self._of_trained(prompt, chance)
        if "correct or incorrect" in system:
            return chance.choice(("correct", "incorrect"))
        if "creativity" in system:
            return json.dumps({name: chance.randint(0, 5) for name in CRITERIA})
        if '"overall"' in system:
            return json.dumps({"match": 0, "trust": 0, "overall": chance.randint(0, 3)})
        if "in as few words as hold the answer" in system:
            return self._text(chance, 2)
        keys = re.findall(r'"([a-z_]+)"', system) if "JSON object" in system else []
        kind = corrective_llm.kind_of(prompt)
        if {*keys} & {"question", "sentences"} or kind == "web" or (not keys and kind in ("grade", "answer")):
            return corrective_llm.said(body)
        if "json_schema" in form:
            return json.dumps({key: self._text(chance) for key in form["json_schema"]["schema"]["properties"]})
        if "Below are methods" in prompt:
            methods = re.findall(r"(?m)^- ([^:\n]+): ", prompt.partition("\n\n- Choose")[0])
            chosen = chance.sample(methods, chance.randint(0, min(2, len(methods))))
            return "\n".join([*(f"{name}: {self._text(chance)}" for name in chosen), f"reason: {self._text(chance)}"])
        lines = [self._text(chance) for _ in range(3)]
        if "JSON array" in prompt:
            return json.dumps(lines)
        return "\n".join(f"{n}. {line}" for n, line in enumerate(lines, start=1)) if "numbered" in prompt else lines[0]

    def _text(self, chance: random.Random, length: int = 5) -> str:
        return " ".join(chance.sample(self._words, length))

    def _of_trained(self, prompt: str, chance: random.Random) -> str:
        """A completion as the models of `trained` write it."""
        if "Expand this search query" in prompt:
            return f"lex: {self._text(chance)}\nvec: {self._text(chance)}\nhyde: {self._text(chance)}"
        return f" {self._text(chance)}[EOS]"


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [
        np.bincount([zlib.crc32(word.encode()) % 64 for word in text.lower().split()], minlength=64) + 0.1 for text in texts
    ]  # type: ignore[misc]


def score(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker's scores: common words, and a hash of both texts."""
    words = {*query.lower().split()}
    return [
        len(words & {*text.lower().split()}) + zlib.crc32(f"{query}|{text}".encode()) % 1000 / 500 - 3 for text in texts
    ]  # fmt: skip


@dataclass(frozen=True)
class World:
    """The servers and the index that all presets share."""

    place: Path
    llm: FakeServer
    rerankers: FakeModels
    encoder: dict[str, Any]
    web: WebServer

    def settings(self, name: str) -> dict[str, Any]:
        """A preset, to be run here."""
        values: dict[str, Any] = OPTIONS if name == "options" else yaml.safe_load((ROOT / f"configs/{name}.yaml").read_text())
        values = self._here(values)
        values["log"]["path"] = values["log"]["path"] if name == "options" else "configs/sample/log.parquet"
        values["log"].setdefault("id_column", "id")
        values["cluster"] = {"address": "none", "shard_size": 3}
        values["limits"] = {"error_rate": 1}
        values["output"] = f"runs/{name}"
        for path, value in OWN.get(name, {}).items():
            *folders, last = path.split(".")
            holder = values
            for folder in folders:
                holder = holder.setdefault(folder, {})
            if value is DROPPED:
                holder.pop(last, None)
            else:
                holder[last] = value
        return values

    def _here(self, value: Any) -> Any:
        """A part of a config whose servers, models and indexes are the world's."""
        if isinstance(value, list):
            return [self._here(one) for one in value]
        if isinstance(value, str) and value.startswith("configs/strategies/"):
            return value.replace("configs/", "")
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        if kind in _LLMS:
            return {"kind": "openai", "model": value["model"], "base_url": self.llm.address}
        if kind in ("local", "elastic"):
            kept = {key: one for key, one in value.items() if key == "together"}
            return kept | {"kind": "local", "index": "index"} | ({"encoder": self.encoder} if "encoder" in value else {})
        found = {key.replace("configs/strategies/", "strategies/"): self._here(one) for key, one in value.items()}
        if "provider" in value:
            found["base_url"] = self.web.address
        if "rerank" in value and value["rerank"].get("kind", "cross_encoder") == "cross_encoder":
            found["rerank"] |= {"kind": "server", "model": "reranker", "base_url": self.rerankers.address}
        elif "retrieve" in value and "rerank" not in value:
            found["rerank"] = {"kind": "server", "model": "reranker", "base_url": self.rerankers.address}
        return found

    def file(self, name: str) -> Path:
        """Writes the config of a preset; returns its file."""
        file = self.place / f"{name}.yaml"
        file.write_text(yaml.safe_dump(self.settings(name), sort_keys=False))
        return file

    def run(self, name: str, changes: Sequence[str] = ()) -> Path:
        """Runs a preset, or its ablation, to its end; returns the folder."""
        file = self.file(name)
        with chdir(self.place):
            config = load_config(str(file), list(changes))
            work = prepare(config, str(file)) if config.ablate.model_fields_set == set() else None
            return self.place / run_in_process(work or prepare_ablation(config, str(file)))


@contextmanager
def world(place: Path) -> Iterator[World]:
    """The servers, with an index of the sample's corpus and a short log in `place`."""
    sample = place / "configs" / "sample"
    for folder in ("sample", "steps"):
        shutil.copytree(ROOT / "configs" / folder, place / "configs" / folder)
    pq.write_table(pq.read_table(sample / "log.parquet").slice(0, QUERIES), sample / "log.parquet")
    (place / "talk.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TALK))
    corpus = pq.read_table(sample / "corpus.parquet")
    words = sorted({word for text in corpus["text"].to_pylist()[:60] for word in re.findall(r"[a-z]{4,}", text.lower())})
    pages = {
        f"https://pages.example/{number}": (str(title), str(text)[:200])
        for number, (title, text) in enumerate(
            zip(corpus["title"].to_pylist()[:80], corpus["text"].to_pylist()[:80], strict=True)
        )
    }
    with ExitStack() as stack:
        llm = stack.enter_context(FakeServer(["any"], text=Llm(words)))
        rerankers = stack.enter_context(FakeModels("vllm", "reranker", score=score))
        encoders = stack.enter_context(FakeModels("tei", "encoder", embed=embed))
        web = stack.enter_context(WebServer("searxng", pages=pages))
        encoder = {"kind": "openai", "model": "encoder", "base_url": encoders.address}
        made = World(place, llm, rerankers, encoder, web)
        shutil.copytree(ROOT / "configs" / "strategies", place / "strategies")
        for file in (place / "strategies").iterdir():
            values = yaml.safe_load(file.read_text())
            file.write_text(yaml.safe_dump(made._here(values), sort_keys=False))
            llm.aliases.add(values.get("engine", {}).get("model", "any"))
        llm.aliases |= {"Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "gpt-4o-mini", "gpt-4.1-nano", "gpt-4.1", "claude-sonnet-4-5"}
        llm.models = sorted(llm.aliases)
        build_local_index(place / "index", sample / "corpus.parquet", index_fields("english", encoder))
        yield made


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers with `DIGITS` digits behind the point."""
    if isinstance(value, float):
        return round(value, DIGITS) + 0.0
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _read(run: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table, by the files that the run's manifest of success names."""
    names = json.loads((run / "_SUCCESS.json").read_text())["tables"].get(table, [])
    return [row for name in names for row in pq.read_table(run / name).to_pylist()]


def frozen_table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """The hash of the sorted rows, their number, and the first ones."""
    lines = sorted(json.dumps([_plain(row.get(column)) for column in columns], ensure_ascii=False) for row in rows)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return {"hash": digest, "rows": len(lines), "first": [line[:300] for line in lines[:SHOWN]]}


def _costs(run: Path) -> dict[str, str]:
    """Stage and component -> the quantities that are not 0."""
    sums: dict[str, Counter[str]] = {}
    for row in _read(run, "costs"):
        quantities = {name: row[name] for name in QUANTITIES if row.get(name)}
        if quantities:
            sums.setdefault(f"{row['stage']} {row['component']}", Counter()).update(quantities)
    return {key: ", ".join(f"{name} {sums[key][name]}" for name in QUANTITIES if sums[key][name]) for key in sorted(sums)}


def golden(run: Path) -> dict[str, Any]:
    """Returns what is frozen of a run."""
    tables = {table: frozen_table(rows, columns) for table, columns in COLUMNS.items() if (rows := _read(run, table))}
    return {"fingerprint": run.name.rpartition("-")[2], "costs": _costs(run), "tables": tables}


def found(made: World, name: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Returns what is to be frozen of a preset, as JSON gives it back."""
    values = golden(made.run(name, changes))
    if name in AGAIN:
        values["again"] = golden(made.run(name, [*changes, "name=again"]))["costs"]
    return values


def frozen(name: str) -> dict[str, Any]:
    """Returns what is frozen of a preset."""
    values: dict[str, Any] = json.loads((FROZEN / f"{name}.json").read_text(encoding="utf-8"))
    return values


def main() -> None:
    """Writes the frozen values of presets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", nargs="*", metavar="NAME", required=True, help="all presets where none is named")
    with tempfile.TemporaryDirectory() as place, world(Path(place)) as made:
        FROZEN.mkdir(exist_ok=True)
        for name in parser.parse_args().write or NAMES:
            text = json.dumps(found(made, name), indent=1, ensure_ascii=False)
            (FROZEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
