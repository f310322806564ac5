"""Ablations drawn at random, and the servers, strategies and indexes that they name.

The language model answers by a hash of the whole request and the reranker by a hash of query and document, so that a request
that is not the arm's own, or a text of another corpus, shows in the results.
"""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from retrievers.local.build import build_local_index
from rewriters.pool import load_pool
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import Body, FakeServer

QUERIES = ["why does bread rise", "lamp of a lighthouse", "moon and tides", "yeast", "how far does light reach at sea"]
DOCUMENTS = {
    "d1": ("Lighthouses", "A keeper trimmed the wick of the lamp every four hours of the night."),
    "d2": ("Lighthouses", "The lens threw the light of a small lamp far across the sea."),
    "d3": ("Bread", "Sourdough rises slowly because wild yeast is in no hurry."),
    "d4": ("Bread", "Rye bread keeps for a week in a linen bag."),
    "d5": ("", "The yeast of beer and the yeast of bread are cousins."),
    "d6": ("Tides", "The moon pulls the sea twice a day and the harbours fill."),
    "d7": ("Tides", "Spring tides come with the new moon and with the full moon."),
    "d8": ("Copies", "Rye bread keeps for a week in a linen bag."),
    "d9": ("Copies", "Rye bread keeps for a week in a linen bag."),
}
WORDS = sorted({word.strip(".").lower() for title, text in DOCUMENTS.values() for word in f"{title} {text}".split()})
JOINT = ("general", "keyword", "pseudo_answer", "core_content")
PASSAGES = {"n": 2, "temperature": 0.7, "name": "passages"}
OWN = (
    "step_back", "query2doc", {"rag_fusion": {"n": 2}}, {"hyde": PASSAGES}, {"hyde": PASSAGES | {"as_one": "with_original"}},
    {"rag_fusion": {"n": 3, "as_one": "texts"}},
)  # fmt: skip
_FILE = """\
label: Domain
prompt: |-
  {wish}

  Query: {{query}}
"""


def chance(*parts: object) -> random.Random:
    """Random numbers that depend on these values alone."""
    text = json.dumps(parts, sort_keys=True)
    return random.Random(hashlib.sha256(text.encode()).hexdigest())


def answered(body: Body) -> str:
    """The answer to a request: words of the corpus, by a hash of the whole request."""
    drawn = chance(body)

    def words() -> str:
        return " ".join(drawn.sample(WORDS, 4))

    schema = body.get("response_format")
    if schema is not None:
        return json.dumps({name: words() for name in schema["json_schema"]["schema"]["properties"]})
    if "numbered from 1" in body["messages"][-1]["content"]:
        return "\n".join(f"{number}. {words()}" for number in range(1, 5))
    return words()


def score(query: str, texts: Sequence[str]) -> list[float]:
    return [chance(query, text).uniform(-4, 4) for text in texts]


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, *np.bincount([zlib.crc32(word.encode()) % 32 for word in text.split()], minlength=32)] for text in texts]


@dataclass(frozen=True)
class World:
    """What the drawn configs name."""

    llm: FakeServer
    rerankers: FakeModels
    encoders: FakeModels
    indexes: dict[str, str]

    @property
    def reranker(self) -> dict[str, Any]:
        """A reranker at a server."""
        return {"kind": "server", "model": self.rerankers.model, "base_url": self.rerankers.address}

    def engine(self, model: str) -> dict[str, Any]:
        """An engine at a server."""
        return {"kind": "openai", "model": model, "base_url": self.llm.address}

    def bm25(self, index: str) -> dict[str, Any]:
        return {"kind": "local", "index": self.indexes[index]}

    def dense(self, index: str) -> dict[str, Any]:
        encoder = {"kind": "openai", "model": self.encoders.model, "base_url": self.encoders.address}
        return {"kind": "local", "index": self.indexes[f"{index} dense"], "encoder": encoder}


def build_indexes(place: Path, encoders: FakeModels) -> dict[str, str]:
    """Indexes of a corpus, of the same ids with shorter texts, and of other ids."""
    whole = {doc_id: (title, text) for doc_id, (title, text) in DOCUMENTS.items()}
    corpora = {
        "whole": whole,
        "short": {doc_id: ("", " ".join(text.split()[:6])) for doc_id, (_, text) in whole.items()},
        "other": {f"x{doc_id}": (title, f"{text} It is so.") for doc_id, (title, text) in whole.items()},
    }
    made = {}
    for name, corpus in corpora.items():
        titles, texts = zip(*corpus.values(), strict=True)
        path = place / f"{name}.parquet"
        half = ["even" if zlib.crc32(text.encode()) % 2 else "odd" for text in texts]
        pq.write_table(pa.table({"doc_id": list(corpus), "title": titles, "text": texts, "half": half}), path)
        made[name], made[f"{name} dense"] = str(place / name), str(place / f"{name}_dense")
        build_local_index(Path(made[name]), path, index_fields("english"))
        encoder = {"kind": "openai", "model": encoders.model, "base_url": encoders.address}
        build_local_index(Path(made[f"{name} dense"]), path, index_fields(encoder=encoder))
    return made


def write_files(place: Path) -> None:
    """The log, and two versions of a strategy under one file name."""
    asked = [one for number, one in enumerate(QUERIES) for _ in range(1 + number % 2)]
    part = ["even" if number % 3 else "odd" for number in range(len(asked))]
    pq.write_table(pa.table({"query": asked, "part": part}), place / "log.parquet")
    for version, wish in (("v1", "Say it in the words of a sailor."), ("v2", "Say it in the words of a baker.")):
        (place / version).mkdir()
        (place / version / "domain.yaml").write_text(_FILE.format(wish=wish))


class Drawing:
    """One config with its arms, by a seed."""

    def __init__(self, seed: int, world: World) -> None:
        self._random, self._world = random.Random(seed), world
        pick = self._random
        self.values: dict[str, Any] = {
            "name": "drawn",
            "log": {"path": "log.parquet", "query_column": "query"},
            "rewrite": {
                "engine": world.engine("a"),
                "strategies": self._strategies(),
                "calls": pick.choice(["joint", "joint", "separate"]),
            },
            "retrieve": {"retrievers": self._retrievers("whole"), "depth": pick.choice([3, 5, 9])},
            "fuse": self._fuse(),
            "rerank": self._rerank(),
            "evaluate": {"measures": [pick.choice(["nDCG@5", "P@3", "R@8"])]},
            "cluster": {"address": "none", "shard_size": 3},
            "limits": {"error_rate": 1},
            "output": "runs",
        }
        self.ablate: dict[str, Any] = {
            "arms": {f"arm {number}": self._changes() for number in range(1, 1 + pick.randint(2, 4))},
            "subsets": pick.choice(["none", "none", "leave_one_out", "add_one"]),
        }
        if pick.random() < 0.3:
            self.ablate["grid"] = {"fuse.method": pick.sample(["rrf", "minmax", "weighted", "best"], 2)}
        if pick.random() < 0.2:
            self.values["rewrite"]["decoding"] = {"temperature": 0.5}
            pool = load_pool(self.values["rewrite"]["strategies"])
            # strategies that decode at a temperature of 0 of their own have no second sample: an ablation refuses it
            self.ablate["samples"] = 2 if any(one.decoding.get("temperature") != 0 for one in pool) else 1
        if pick.random() < 0.3:
            self.values["retrieve"]["filters"] = {"half": "part"}
        self._budget_pairs(random.Random(f"pairs by need, {seed}"))

    def _budget_pairs(self, pick: random.Random) -> None:
        """At times a budget of the config, which all arms can have, and an arm with one of its own."""
        if pick.random() < 0.4 and self.values["rerank"]["kind"] != "none":
            self.values["rerank"]["budget"] = pick.choice([{"pairs": 5}, {"settled": 1, "step": 1}, {"settled": 2, "pairs": 7}])
        if pick.random() < 0.5:
            combine = pick.choice(["blend", "replace"])
            budgets: list[dict[str, Any]] = [{"pairs": 4}, {"settled": 1, "step": 2}, {"settled": 3, "step": 1, "pairs": 6}]
            budgets += [{"proven": True, "step": 1}, {"proven": True, "settled": 2, "step": 1}] if combine == "blend" else []
            own = self._world.reranker | {"keep": pick.choice([1, 2, 4]), "combine": combine, "budget": pick.choice(budgets)}
            arms = self.ablate["arms"]
            arms["by need"] = pick.choice([{}, *arms.values()]) | {f"rerank.{key}": value for key, value in own.items()}

    def _strategies(self) -> list[Any]:
        """One to three strategies, some of them under one name with other arms'."""
        pick = self._random
        found: dict[str, Any] = {}
        for _ in range(pick.randint(1, 3)):
            kind = pick.random()
            if kind < 0.6:
                name = pick.choice(JOINT)
                found[name] = name
            elif kind < 0.75:
                found["domain"] = f"{pick.choice(['v1', 'v2'])}/domain.yaml"
            elif kind < 0.9:
                found["rewrite"] = pick.choice(["rewrite", {"rewrite": {"engine": self._world.engine("b")}}])
            else:
                one = pick.choice([*OWN, {pick.choice(["expand", "step_back"]): {"name": "mine"}}])
                ((name, parameters),) = one.items() if isinstance(one, dict) else ((one, {}),)
                found[parameters.get("name", name)] = one
        return list(found.values())

    def _retrievers(self, index: str) -> dict[str, Any]:
        found = {"bm25": self._world.bm25(index)}
        if self._random.random() < 0.3:
            found["dense"] = self._world.dense(index)
        if self._random.random() < 0.15:
            found["bm25"]["together"] = True
        return found

    def _fuse(self) -> dict[str, Any]:
        pick = self._random
        found: dict[str, Any] = {"keep": pick.choice([3, 6, 9]), "redundancy": pick.choice(["none", "overlap", "cosine"])}
        if pick.random() < 0.3:
            found["weights"] = pick.choice([{"original/bm25": 2}, {"original": 0}, {"original": 0.5}, {"original/bm25": 0}])
        if pick.random() < 0.2:
            found["duplicates"] = "drop"
        return found

    def _rerank(self) -> dict[str, Any]:
        if self._random.random() < 0.5:
            return {"kind": "none"}
        return self._world.reranker | {
            "keep": self._random.choice([2, 4]), "combine": self._random.choice(["blend", "replace"])
        }  # fmt: skip

    def _changes(self) -> dict[str, Any]:
        """One to three keys that an arm changes."""
        pick, found = self._random, dict[str, Any]()
        for _ in range(pick.randint(1, 3)):
            found |= pick.choice(
                [
                    lambda: {"rewrite.strategies": self._strategies()},
                    lambda: {"rewrite.strategies": self._strategies()},
                    lambda: {"rewrite.strategies": self._strategies()},
                    lambda: {"rewrite.engine.model": "b"},
                    lambda: {"rewrite.decoding.seed": pick.choice([1, 2])},
                    lambda: {"rewrite.decoding.temperature": 0.5},
                    lambda: {"rewrite.calls": pick.choice(["joint", "separate"])},
                    lambda: {"rewrite.select": {"kind": "random_k", "k": 1, "seed": pick.randint(0, 9)}},
                    lambda: {"rewrite.select": {"kind": "never"}},
                    lambda: {"rewrite.language": "German"},
                    lambda: {"rewrite.strategies": ["keyword", {"general": {"language": "English"}}]},
                    lambda: {"rewrite.guards.near_duplicates": "drop"},
                    lambda: {"retrieve.retrievers": self._retrievers(pick.choice(["short", "other"]))},
                    lambda: {"retrieve.retrievers": self._retrievers(pick.choice(["short", "other"]))},
                    lambda: {"retrieve.typos": {"rate": 0.7, "seed": pick.randint(0, 3)}},
                    lambda: {"retrieve.depth": pick.choice([2, 4, 9])},
                    lambda: {"fuse.depth": pick.choice([2, 4, 9]), "fuse.keep": pick.choice([2, 5])},
                    lambda: {"fuse.weights": pick.choice([{"original/bm25": 3}, {"original": 0}])},
                    lambda: {"fuse.duplicates": pick.choice(["drop", "keep"])},
                    lambda: {f"rerank.{key}": value for key, value in self._rerank().items()},
                ]
            )()
        return found
