"""Ablations drawn at random over all options, and the servers, strategies and indexes that they name.

The language model answers by a hash of the whole request and the reranker by a hash of query and document, so that a request
that is not the arm's own, or a text of another corpus, shows in the results.
"""

import hashlib
import json
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError, RewriterError
from jobs.chain.arms.arms import arms_of
from jobs.config.config import Config
from retrievers.local.build import build_local_index
from rewriters.pool import load_pool
from rewriters.selection import chosen
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal

Changes = dict[str, Any]
QUERIES = {
    "why does bread rise": None, "lamp of a lighthouse": "what throws light", "moon and tides": None, "yeast": "bread or beer",
    "how far does light reach at sea": None, "write to ida@tides.example about the harbour": None,
}  # fmt: skip
"""Query -> the turn before it."""
PLANS = ["", "none", "1", "general, keyword", "", "keyword"]
"""Strategies of each query, as the log has them."""
DOCUMENTS = {
    "d1": ("Lighthouses", "A keeper trimmed the wick of the lamp every four hours of the night."),
    "d2": ("Lighthouses", "The lens threw the light of a small lamp far across the sea. It was seen for hours."),
    "d3": ("Bread", "Sourdough rises slowly because wild yeast is in no hurry."),
    "d4": ("Bread", "Rye bread keeps for a week in a linen bag."),
    "d5": ("", "The yeast of beer and the yeast of bread are cousins."),
    "d6": ("Tides", "The moon pulls the sea twice a day and the harbours fill. The lamp is lit at night."),
    "d7": ("Tides", "Spring tides come with the new moon and with the full moon."),
    "d8": ("Copies", "Rye bread keeps for a week in a linen bag."),
    "d9": ("Copies", "Rye bread keeps for a week in a linen bag."),
}
PAGES = {
    f"https://{name}.example/": (title, text)
    for name, title, text in (
        ("sea", "Light at sea", "The lamp of a lighthouse throws light far out to sea"),
        ("bread", "Yeast", "Bread can rise since yeast makes gas"),
        ("moon", "Moon", "The moon draws the sea and the tides of the harbour"),
    )
}
WORDS = sorted({word.strip(".").lower() for title, text in DOCUMENTS.values() for word in f"{title} {text}".split()})
UNREADABLE = "I cannot help with that."
JOINT = ("general", "keyword", "pseudo_answer", "core_content")
PASSAGES = {"n": 2, "temperature": 0.7, "name": "passages"}
OWN = (
    "step_back", "query2doc", {"rag_fusion": {"n": 2}}, {"hyde": PASSAGES}, {"hyde": PASSAGES | {"as_one": "with_original"}},
    {"rag_fusion": {"n": 3, "as_one": "texts"}}, {"general": {"score_floor": 0.7, "depth": 2}},
    {"rag_fusion": {"n": 3, "position_weights": [1.0, 0.5, 0.25]}},
)  # fmt: skip
_FILE = """\
label: Domain
definition: the query in the words of a trade
usage: queries of laymen
prompt: |-
  {wish}

  Query: {{query}}
"""
_TYPES = """\
rules:
  - {type: long, at_least: 1, contains: [and, of, about, how]}
otherwise: short
descriptions: {long: has many words, short: has few words}
strategies: {long: [general, keyword], short: [keyword]}
"""


def chance(*parts: object) -> random.Random:
    """Random numbers that depend on these values alone."""
    text = json.dumps(parts, sort_keys=True)
    return random.Random(hashlib.sha256(text.encode()).hexdigest())


def refused(body: Body) -> Reply | None:
    """A server's refusal of some requests, always of the same."""
    return refusal(400, "not this one") if chance("refused", body).random() < 0.02 else None


def answered(body: Body) -> str:
    """The answer to a request of any stage, by a hash of the whole request; one in twenty-five cannot be read."""
    drawn, prompt = chance(body), str(body["messages"][-1]["content"])
    if drawn.random() < 0.04:
        return UNREADABLE

    def words() -> str:
        return " ".join(drawn.sample(WORDS, 4))

    def value(name: str, schema: Mapping[str, Any]) -> Any:
        if name == "sentences":
            return drawn.choice(["1", "2", "1, 2", "none"])
        if "enum" in schema:
            return drawn.choice(schema["enum"])
        return drawn.randint(0, 3) if schema.get("type") == "integer" else words()

    schema = body.get("response_format")
    if schema is not None:
        named = schema["json_schema"]["schema"]["properties"]
        return json.dumps({name: value(name, of) for name, of in named.items()})
    if 'Reply with a line "name of the method' in prompt:
        labels = re.findall(r"(?m)^- ([^:]+): .* For ", prompt)
        taken = drawn.sample(labels, drawn.randint(0, len(labels)))
        return "\n".join([*(f"{label}: {words()}" for label in taken), f"reason: {words()}"])
    if "numbered from 1" in prompt:
        return "\n".join(f"{number}. {words()}" for number in range(1, 5))
    system = " ".join(str(one["content"]) for one in body["messages"][:-1])
    for choices in (("relevant", "ambiguous", "irrelevant"), ("correct", "incorrect"), ("long", "short")):
        if all(one in f"{system} {prompt}" for one in choices):
            return drawn.choice(choices)
    return f"{words()} [{drawn.randint(1, 2)}]" if prompt.startswith("Documents:") else words()


def score(query: str, texts: Sequence[str]) -> list[float]:
    return [chance(query, text).uniform(-4, 4) for text in texts]


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, *np.bincount([zlib.crc32(word.encode()) % 32 for word in text.split()], minlength=32)] for text in texts]


@dataclass(frozen=True)
class World:
    """Servers and indexes that the drawn configs name."""

    llm: FakeServer
    rerankers: FakeModels
    encoders: FakeModels
    web: WebServer
    indexes: dict[str, str]

    @property
    def encoder(self) -> Changes:
        """An encoder at a server."""
        return {"kind": "openai", "model": self.encoders.model, "base_url": self.encoders.address}

    @property
    def rerankings(self) -> list[Changes]:
        """Rerankers at servers."""
        served = {"kind": "server", "model": self.rerankers.model, "base_url": self.rerankers.address}
        return [served, served, {"kind": "bi_encoder", "encoder": self.encoder}]

    def engine(self, model: str) -> Changes:
        """An engine at a server."""
        return {"kind": "openai", "model": model, "base_url": self.llm.address}

    def bm25(self, index: str) -> Changes:
        return {"kind": "local", "index": self.indexes[index]}

    def dense(self, index: str) -> Changes:
        return {"kind": "local", "index": self.indexes[f"{index} dense"], "encoder": self.encoder}

    def union(self, kind: str) -> Changes:
        return {"kind": "union", "of": {"law": getattr(self, kind)("whole"), "med": getattr(self, kind)("other")}}

    def hybrid(self, index: str) -> Changes:
        return {"kind": "hybrid", "of": {"words": self.bm25(index), "vectors": self.dense(index)}, "depth": 6}


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
        pq.write_table(pa.table({"doc_id": list(corpus), "title": titles, "text": texts}), path)
        made[name], made[f"{name} dense"] = str(place / name), str(place / f"{name}_dense")
        build_local_index(Path(made[name]), path, index_fields("english"))
        encoder = {"kind": "openai", "model": encoders.model, "base_url": encoders.address}
        build_local_index(Path(made[f"{name} dense"]), path, index_fields(encoder=encoder))
    return made


def write_files(place: Path) -> None:
    """The log, rules, gold answers, and two versions of a strategy under one file name."""
    asked = [number for number in range(len(QUERIES)) for _ in range(1 + number % 2)]
    queries, before = zip(*QUERIES.items(), strict=True)
    log = {
        "query": [queries[one] for one in asked],
        "before": [before[one] for one in asked],
        "plan": [PLANS[one] for one in asked],
    }
    pq.write_table(pa.table(log), place / "log.parquet")
    (place / "types.yaml").write_text(_TYPES)
    (place / "gold.tsv").write_text("".join(f"{query}\tlight\n" for query in queries[:4]))
    for version, wish in (("v1", "Say it in the words of a sailor."), ("v2", "Say it in the words of a baker.")):
        (place / version).mkdir()
        (place / version / "domain.yaml").write_text(_FILE.format(wish=wish))


class Drawing:
    """One config with its arms, by a seed. What the checks of configs refuse is drawn anew."""

    def __init__(self, seed: int, world: World) -> None:
        self._random, self._world = random.Random(seed), world
        self.refused = 0
        self.values: Changes = self._valid(self._config, {})
        self.ablate: Changes = {}
        pick = self._random
        arms: dict[str, Changes] = {}
        for number in range(1, 1 + pick.choice([1, 2, 2, 3])):
            name = f"arm {number}"
            arms[name] = self._valid(self._changes, {"arms": arms}, name)
        self.ablate = {"arms": arms}
        if pick.random() < 0.2:
            self.ablate["subsets"] = pick.choice(["leave_one_out", "add_one"])
        if pick.random() < 0.2:
            self.ablate["grid"] = {"fuse.method": pick.sample(["rrf", "minmax", "weighted", "best"], 2)}
        if pick.random() < 0.15 and self.values["rewrite"]["select"]["kind"] != "never":
            self.values["rewrite"]["decoding"] = {"temperature": 0.5}
            pool = load_pool(self.values["rewrite"]["strategies"])
            # strategies that decode at a temperature of 0 of their own have no second sample: an ablation refuses it
            self.ablate["samples"] = 2 if any(one.decoding.get("temperature") != 0 for one in pool) else 1
        if pick.random() < 0.15 and self.values["rewrite"]["select"]["kind"] != "never":
            self.ablate["arms"]["best"] = {"rewrite.select": {"kind": "oracle_k", "k": 1}}
        if pick.random() < 0.3:
            self.ablate["sources"] = True

    def _valid(self, draw: Callable[[], Changes], ablate: dict[str, Any], name: str = "") -> Changes:
        """Draws a config, or the arm of a name, until it is one that may be."""
        while True:
            found = draw()
            values, arms = (self.values, {**ablate["arms"], name: found}) if name else (found, {})
            try:
                made = arms_of(Config.model_validate(deepcopy(values) | {"ablate": {"arms": deepcopy(arms)}}))
                for arm in made:
                    if arm.config.rewrite.select.kind == "classified":
                        chosen(["general", "keyword"], load_pool(arm.config.rewrite.strategies), "types.yaml")
            except (ConfigError, RewriterError, ValueError):
                self.refused += 1
                continue
            return found

    def _maybe(self, share: float, draw: Callable[[], Any]) -> Any:
        return draw() if self._random.random() < share else None

    def _config(self) -> Changes:
        pick, world, maybe = self._random, self._world, self._maybe
        fuse, rerank = self._fuse(), self._rerank()
        self._reranked = rerank["kind"] != "none"
        self._results = min(fuse["keep"], rerank.get("keep", 3), 3)
        rewrite: Changes = {
            "engine": world.engine("a"),
            "strategies": self._strategies(),
            "calls": pick.choice(["joint", "joint", "separate"]),
            "select": {"kind": "all"},
            "retries": pick.choice([0, 0, 0, 1, 2]),
            "guards": {
                "mask": pick.choice([[], [], [], ["mail"]]),
                "preserve": pick.choice(["count", "count", "drop", "repair"]),
            },
            "gate": maybe(0.2, self._gate),
        }
        if pick.random() < 0.2:
            rewrite |= self._selection()
        steps: Changes = {"iterate": maybe(0.25, self._iterate)} | (maybe(0.45, self._answering) or {})
        kinds = ["relevance", *(["accuracy", "criteria"] if "answer" in steps else [])]
        steps["judge"] = maybe(0.25, lambda: self._judge(kinds))
        return {
            "name": "drawn",
            "log": {"path": "log.parquet", "query_column": "query"} | (maybe(0.15, lambda: {"context_column": "before"}) or {}),
            "rewrite": rewrite,
            "retrieve": self._retrieve() | {"depth": pick.choice([3, 5, 9])},
            "fuse": fuse,
            "rerank": rerank,
            **steps,
            "evaluate": {"measures": [pick.choice(["nDCG@5", "P@3", "R@8"])], "answers": "gold.tsv", "key": "query"},
            "cluster": {"address": "none", "shard_size": pick.choice([3, 6, 6])},
            "limits": {"error_rate": 1},
            "output": "runs",
        }

    def _retrieve(self) -> Changes:
        pick = self._random
        if pick.random() < 0.15:
            return {"retrievers": self._unions()}
        found = {"retrievers": self._retrievers("whole")}
        if pick.random() < 0.15:
            found["retrievers"]["web"] = self._world.web.block()
        return found

    def _gate(self) -> Changes:
        return {"by": "bm25", "below": self._random.choice([0.8, 1.2, 2.0, 1e9])}

    def _selection(self) -> Changes:
        """A selection, with strategies that it can choose among."""
        pick = self._random
        select: Changes = pick.choice(
            [
                {"kind": "random_k", "k": 1, "seed": pick.randint(0, 9)},
                {"kind": "never"},
                {"kind": "column", "column": "plan"},
                {"kind": "adaptive", "least": pick.choice([0, 1])},
                {"kind": "classified", "rules": "types.yaml", "by": pick.choice(["rules", "llm"])},
            ]
        )
        if select["kind"] == "random_k":
            return {"select": select}
        return {"select": select, "strategies": ["general", "keyword", *pick.choice([[], ["step_back"], ["core_content"]])]}

    def _shown(self) -> Changes:
        """Draws the documents that an LLM is shown, and their form."""
        pick = self._random
        labels = [None, None, {"by": "rank"}, {"by": "score", "high": 0.5, "medium": 0.2}]
        labels += [{"by": "rerank", "high": 1, "medium": -1}] if self._reranked else []
        return {
            "documents": pick.randint(1, self._results), "document_chars": pick.choice([None, None, 30]),
            "labels": pick.choice(labels), "engine": self._world.engine(pick.choice(["a", "b"])),
        }  # fmt: skip

    def _iterate(self) -> Changes:
        pick, found = self._random, self._shown()
        by = pick.choice(["bm25", "rerank"] if self._reranked else ["bm25"])
        if pick.random() < 0.2:
            grades = {"engine": self._world.engine("b"), "prompt": pick.choice(["three_grades", "two_grades", "relevance"])}
            found["labels"] = {"by": "llm", "grades": grades}
        below = pick.choice([1.2, 2.0, 1e9]) if by == "bm25" else pick.choice([0.0, 2.0, 1e9])
        found["prompt"] = "refine" if found["labels"] else "iterate"
        return found | {"by": by, "below": below, "rounds": pick.choice([1, 1, 2, 3]), "merge": pick.choice(["best", "fuse"])}

    def _answering(self) -> Changes:
        """Answers, at times of what is graded and searched in the web."""
        pick = self._random
        found: Changes = {"answer": self._shown() | {"prompt": pick.choice(["answer", "answer", "short_answer"])}}
        found |= {"grade": self._maybe(0.6, self._grade)}
        found |= {"web": self._maybe(0.6, self._web) if found["grade"] else None}
        least = sum(one["documents"] for one in (found["grade"], found["web"]) if one)
        found["answer"]["documents"] = max(least, found["answer"]["documents"])
        return found

    def _grade(self) -> Changes:
        pick, engine = self._random, {"engine": self._world.engine("b")}
        found = {
            "prompt": pick.choice(["three_grades", "three_grades", "two_grades", "relevance"]),
            "documents": pick.randint(1, self._results),
            "question": self._maybe(0.5, lambda: engine), "strips": self._maybe(0.5, lambda: engine),
            "document_chars": pick.choice([None, None, 40]), **engine,
        }  # fmt: skip
        if self._reranked and pick.random() < 0.3:
            found |= {"by": "rerank", "relevant": 1, "ambiguous": -1, "prompt": "three_grades"}
        return found

    def _web(self) -> Changes:
        pick, world = self._random, self._world
        when = pick.choice(["any", "none"])
        return {"search": world.web.block(), "engine": world.engine("b"), "when": when, "documents": pick.choice([1, 2])}

    def _judge(self, kinds: list[str]) -> Changes:
        pick = self._random
        found = {"engine": self._world.engine("judge")}
        judged = pick.sample(kinds, pick.randint(1, len(kinds)))
        documents = {"documents": pick.randint(1, self._results)}
        return found | {kind: documents if kind == "relevance" else {} for kind in judged}

    def _strategies(self) -> list[Any]:
        """One to three strategies, some of them under one name with other arms'."""
        pick = self._random
        found: dict[str, Any] = {}
        for _ in range(pick.choice([1, 1, 2, 2, 3])):
            kind = pick.random()
            if kind < 0.6:
                name = pick.choice(JOINT)
                found[name] = name
            elif kind < 0.75:
                found["domain"] = f"{pick.choice(['v1', 'v2'])}/domain.yaml"
            elif kind < 0.85:
                found["rewrite"] = pick.choice(["rewrite", {"rewrite": {"engine": self._world.engine("b")}}])
            else:
                one = pick.choice([*OWN, {pick.choice(["expand", "step_back"]): {"name": "mine"}}])
                ((name, parameters),) = one.items() if isinstance(one, dict) else ((one, {}),)
                found[parameters.get("name", name)] = one
        return list(found.values())

    def _retrievers(self, index: str) -> Changes:
        pick, found = self._random, {"bm25": self._world.bm25(index)}
        if pick.random() < 0.3:
            found["dense"] = self._world.dense(index)
        if pick.random() < 0.15:
            found["both"] = self._world.hybrid(index)
        if pick.random() < 0.15:
            found[pick.choice(list(found))]["together"] = True
        if pick.random() < 0.15:
            found["bm25"]["score_floor"] = pick.choice([0.5, 1.0])
        return found

    def _unions(self) -> Changes:
        kinds = ["bm25", *(["dense"] if self._random.random() < 0.3 else [])]
        return {kind: self._world.union(kind) | {"merge": self._random.choice(["rrf", "score"])} for kind in kinds}

    def _fuse(self) -> Changes:
        pick = self._random
        found: Changes = {"keep": pick.choice([3, 6, 9]), "redundancy": pick.choice(["none", "overlap", "cosine"])}
        if pick.random() < 0.3:
            found["weights"] = pick.choice([{"original/bm25": 2}, {"original": 0}, {"original": 0.5}, {"original/bm25": 0}])
        if pick.random() < 0.15:
            found["retriever_weights"] = {"bm25": pick.choice([0, 0.5, 2])}
        if pick.random() < 0.2:
            found |= {"duplicates": "drop", "duplicate_chars": pick.choice([None, 10])}
        if pick.random() < 0.1:
            found["original_floor"] = pick.choice([0.5, 1.0])
        if pick.random() < 0.2:
            found |= {"method": pick.choice(["rrf", "weighted", "best"]), "divide": pick.choice(["none", "max"])}
        return found

    def _rerank(self) -> Changes:
        pick = self._random
        if pick.random() < 0.5:
            return {"kind": "none"}
        return pick.choice(self._world.rerankings) | {"keep": pick.choice([2, 4]), "combine": pick.choice(["blend", "replace"])}

    def _changes(self) -> Changes:
        """One to three keys that an arm changes."""
        pick, found = self._random, Changes()

        def step(name: str, key: str, value: Any) -> Changes:
            return {f"{name}.{key}": value} if self.values.get(name) else {}

        def selection() -> Changes:
            return {f"rewrite.{key}": value for key, value in self._selection().items()}

        is_union = self.values["retrieve"]["retrievers"]["bm25"]["kind"] == "union"
        of_steps: list[Callable[[], Changes]] = [
            lambda: {"iterate": self._maybe(0.7, self._iterate)},
            lambda: {"answer": None, "grade": None, "web": None},
            self._answering,
            self._answering,
            lambda: step("iterate", "rounds", pick.choice([1, 2, 3])),
            lambda: step("iterate", "merge", pick.choice(["best", "fuse"])),
            lambda: step("iterate", "below", pick.choice([1.0, 2.0, 1e9])),
            lambda: step("answer", "documents", pick.choice([1, 2, 3])),
            lambda: step("answer", "document_chars", pick.choice([20, 40])),
            lambda: step("grade", "against", pick.choice(["question", "query"])),
            lambda: step("grade", "documents", pick.choice([1, 2])),
            lambda: step("grade", "strips", None),
            lambda: step("web", "when", pick.choice(["any", "none"])),
            lambda: {"web": None},
        ]
        of_lists: list[Callable[[], Changes]] = [
            lambda: {"retrieve.retrievers": self._retrievers(pick.choice(["whole", "short", "other"]))},
            lambda: {"retrieve.retrievers": self._retrievers(pick.choice(["short", "other"]))},
            lambda: {"retrieve.retrievers.web": self._world.web.block(results=pick.choice([2, 10]))},
            lambda: {"retrieve.routes": {"original": ["bm25"]}},
        ]
        of_unions: list[Callable[[], Changes]] = [
            lambda: {"retrieve.retrievers": self._unions()},
            lambda: {"retrieve.retrievers": {"bm25": {"kind": "union", "of": {"law": self._world.bm25("whole")}}}},
            lambda: {"retrieve.retrievers.bm25.merge": pick.choice(["rrf", "score"])},
        ]
        for _ in range(pick.randint(1, 3)):
            found |= pick.choice(
                [
                    lambda: {"rewrite.strategies": self._strategies()},
                    lambda: {"rewrite.strategies": self._strategies()},
                    lambda: {"rewrite.strategies": self._strategies()},
                    selection,
                    selection,
                    lambda: {"rewrite.gate": self._maybe(0.7, self._gate)},
                    lambda: {"rewrite.engine.model": "b"},
                    lambda: {"rewrite.decoding.seed": pick.choice([101, 102])},  # far from the seeds of further samples
                    lambda: {"rewrite.decoding.temperature": 0.5},
                    lambda: {"rewrite.calls": pick.choice(["joint", "separate"])},
                    lambda: {"rewrite.language": "German"},
                    lambda: {"rewrite.retries": pick.choice([0, 1, 2])},
                    lambda: {"rewrite.strategies": ["keyword", {"general": {"language": "English"}}]},
                    lambda: {"rewrite.guards.near_duplicates": "drop"},
                    lambda: {"rewrite.guards.preserve": pick.choice(["drop", "repair"])},
                    lambda: {"retrieve.depth": pick.choice([2, 4, 9])},
                    lambda: {"fuse.depth": pick.choice([2, 4, 9]), "fuse.keep": pick.choice([2, 5])},
                    lambda: {"fuse.weights": pick.choice([{"original/bm25": 3}, {"original": 0}])},
                    lambda: {f"fuse.{key}": value for key, value in self._fuse().items()},
                    lambda: {f"rerank.{key}": value for key, value in self._rerank().items()},
                    lambda: {"rerank": self._rerank()},
                    *of_steps,
                    *(of_unions if is_union else of_lists),
                    *(of_unions if is_union else of_lists),
                ]
            )()
        return found
