"""Training rows: which, with which gains, against a count by hand; asked and read as strategy files do; held out."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from math import log2
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from jobs.log.judgements import read_qrels
from jobs.measure.frame import measure
from jobs.publish.choice import RowChoice
from jobs.publish.formats import chat, preferences
from jobs.publish.rows import written_rows
from jobs.publish.training import texts as training_texts
from jobs.publish.training.prompts import written
from jobs.runs.folder import RunFolder
from rewriters.pool import load, shipped
from rewriters.reading.ladder import Parsed, parse, parse_texts
from tests.support.jobs.report_runs import Query, RunMaker, query_id, stored

STRATEGIES = ("general", "keyword", "pseudo_answer")
RETRIEVERS = ("bm25", "dense")
Row = dict[str, Any]


def drawn(draw: Random, count: int, most: int = 1) -> list[Query]:
    """Queries whose texts of `keyword` are one to `most`, with the lists of the first alone."""
    queries = []
    for number in range(count):
        docs = [f"{number}-{n:02}" for n in range(14)]
        texts = {name: draw.choice([f"{name} of {number}", f"query {number}"]) for name in STRATEGIES if draw.random() < 0.9}
        if "keyword" in texts and most > 1:
            texts["keyword"] = [f"keyword {n} of {number}" for n in range(draw.randrange(1, most + 1))]
        hits = {
            (name, retriever): draw.sample(docs, draw.randrange(1, 13))
            for name in ("original", *texts) for retriever in RETRIEVERS if draw.random() < 0.9
        }  # fmt: skip
        guards = {
            name: draw.choice([["drift"], ["override"], ["too_long", "override"]]) for name in texts if draw.random() < 0.3
        }
        queries.append(Query(f"query {number}", texts, hits=hits, asked=draw.randrange(1, 9), guards=guards))
    return queries


def made(run: RunFolder, folder: Path, module: Any, **options: Any) -> tuple[list[Row], Counter[str], list[str]]:
    """The rows that a format writes, what it counts, and the held-out query_ids."""
    rows = written_rows(run, RowChoice(), "v", folder / "look_up.parquet")
    own = folder / module.FORMAT.name
    own.mkdir()
    counts = Counter(dict(module.FORMAT.write(run, rows, own, {**module.FORMAT.defaults, **options})))
    name = module.FORMAT.name
    assert {path.name for path in own.iterdir()} == {f"{name}.jsonl", f"{name}_held_out.parquet"}
    lines = [json.loads(line) for line in (own / f"{name}.jsonl").read_text().splitlines()]
    return lines, counts, pq.read_table(own / f"{name}_held_out.parquet").column("query_id").to_pylist()


def bucket(n: int) -> int:
    return int.from_bytes(hashlib.sha256(f"\n{query_id(n)}".encode()).digest()[:8], "big") % 100


class Cuts(NamedTuple):
    """What keeps hits out of fusion: depths and floors of strategies, floors of retrievers."""

    depths: Mapping[str, int]
    floors: Mapping[str, float]

    def settings(self) -> Row:
        retrievers = {name: {"kind": "local", "index": "i", "score_floor": self.floors.get(name)} for name in RETRIEVERS}
        own = [{"name": name, "depth": self.depths.get(name), "score_floor": self.floors.get(name)} for name in STRATEGIES]
        fuse = {"method": "rrf", "depth": self.depths.get("", 30), "original_floor": self.floors.get("original")}
        return {"recorded": own, "fuse": fuse, "retrieve": {"retrievers": retrievers}}


NO_CUTS = Cuts({}, {})


def by_rank(query: Query, strategy: str, cuts: Cuts = NO_CUTS) -> list[str]:
    """The lists of a text, fused by reciprocal ranks; a hit's score is 9 on rank 1, and 1 less on each further one."""
    scores: Counter[str] = Counter()
    for retriever in RETRIEVERS:
        floor = max(cuts.floors.get(retriever, -99), cuts.floors.get(strategy, -99))
        depth = min(cuts.depths.get("", 30), cuts.depths.get(strategy, 30))
        for rank, doc_id in enumerate(query.hits.get((strategy, retriever), []), start=1):
            if rank <= depth and 10 - rank >= floor:
                scores[doc_id] += 1 / (60 + rank)
    return sorted(scores, key=lambda doc_id: (-round(scores[doc_id], 12), doc_id))


def worth(docs: list[str], values: dict[str, float], missing: float, ideal: bool) -> float:
    weights = [1 / log2(1 + rank) for rank in range(1, 11)]
    found = [values.get(doc_id, missing) for doc_id in docs[:10]] + [missing] * (10 - len(docs))
    best = sum(w * v for w, v in zip(weights, sorted(values.values(), reverse=True), strict=False))
    return sum(w * v for w, v in zip(weights, found, strict=False)) / (best if ideal else sum(weights))


def flagged(query: Query, name: str) -> bool:
    return bool(set(query.guards.get(name, [])) - {"override"})


def expected_pairs(
    queries: list[Query],
    values: dict[int, dict[str, float]],
    ideal: bool,
    holdout: int,
    margin: float,
    most: int,
    cuts: Cuts = NO_CUTS,
    as_one: str | None = None,
) -> tuple[list[tuple[str, float]], Counter[str]]:
    """query and width of each pair, and what is counted."""
    pairs: list[tuple[str, float]] = []
    counts: Counter[str] = Counter()
    for n, query in enumerate(queries):
        if bucket(n) < holdout:
            counts["held_out"] += 1
            continue
        if not query.texts:
            continue
        if not any(values.get(n, {}).values()) or not query.hits:
            counts["not_measured"] += 1
            continue
        missing = 0.0 if ideal else min(values[n].values())
        answers: dict[str, tuple[float, bool]] = {}
        for name in ("original", "general", "keyword"):
            if name != "original" and name not in query.texts:
                continue
            text = query.name if name == "original" else query.texts[name]
            if isinstance(text, list):
                if as_one == "with_original" or len(text) > 1:
                    counts["searched_as_one"] += len(text)
                    continue
                (text,) = text
            value = round(worth(by_rank(query, name, cuts), values[n], missing, ideal), 6)
            if text not in answers or value > answers[text][0]:
                answers[text] = value, not flagged(query, name)
        widths = []
        for one, other in combinations(answers.values(), 2):
            better, worse = max(one, other, key=lambda a: a[0]), min(one, other, key=lambda a: a[0])
            if round(better[0] - worse[0], 6) <= margin:
                counts["ties"] += 1
            elif better[1]:
                widths.append(round(better[0] - worse[0], 6))
        widths = sorted(widths, reverse=True)[:most]
        pairs += [(query.name, width) for width in widths]
        counts["queries" if widths else "without_pair"] += 1
    counts["rows"] = len(pairs)
    return pairs, counts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("judged", [True, False])
def test_pairs_are_those_of_a_count_by_hand(tmp_path: Path, seed: int, judged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Random(seed)
    monkeypatch.setattr(training_texts, "_PORTION", draw.choice([1, 300, 100_000]))
    queries = drawn(draw, 40)
    rerank = {} if judged else {"rerank": {"kind": "cross_encoder", "model": "m", "combine": "replace"}}
    run = RunMaker(tmp_path)(queries, STRATEGIES, shard_size=draw.choice([3, 40]), fuse={"method": "rrf"}, **rerank)
    values: dict[int, dict[str, float]] = {}
    options: Row = {"holdout": draw.choice([0, 10, 30]), "margin": draw.choice([0.0, 0.1]), "pairs": draw.choice([1, 3])}
    if judged:
        for n, _ in enumerate(queries):
            if draw.random() < 0.8:
                values[n] = {f"{n}-{one:02}": float(draw.randrange(3)) for one in draw.sample(range(14), 6)}
        lines = [f"{query_id(n)}\t{doc}\t{int(grade)}\n" for n, of in values.items() for doc, grade in of.items()]
        (tmp_path / "qrels.tsv").write_text("".join(lines))
        options |= {"qrels": str(tmp_path / "qrels.tsv"), "key": "query_id"}
    else:
        for row in stored(run, "scores"):
            values.setdefault(int(row["query_id"], 16), {})[row["doc_id"]] = row["score"]
    rows, counts, held = made(run, tmp_path, preferences, **options)
    pairs, expected = expected_pairs(queries, values, judged, options["holdout"], options["margin"], options["pairs"])
    assert +counts == +expected
    shown = [row["prompt"][0]["content"].rpartition("Query: ")[2] for row in rows]
    assert Counter(shown) == Counter(name for name, _ in pairs)
    assert held == [query_id(n) for n in range(40) if bucket(n) < options["holdout"]]
    assert all(set(row) == {"prompt", "chosen", "rejected"} for row in rows)
    for row in rows:
        n = int(row["prompt"][0]["content"].rpartition(" ")[2])
        texts = {str(text): name for name, text in queries[n].texts.items() if name != "pseudo_answer"} | {queries[n].name: ""}
        chosen, rejected = row["chosen"][0]["content"], row["rejected"][0]["content"]
        assert chosen != rejected
        assert {chosen, rejected} <= set(texts)


def graded(draw: Random, queries: list[Query], folder: Path) -> tuple[dict[int, dict[str, float]], Row]:
    """Drawn grades of most queries, and the options that name their file."""
    values = {
        n: {f"{n}-{one:02}": float(draw.randrange(3)) for one in draw.sample(range(14), 6)}
        for n, _ in enumerate(queries) if draw.random() < 0.8
    }  # fmt: skip
    lines = [f"{query_id(n)}\t{doc}\t{int(grade)}\n" for n, of in values.items() for doc, grade in of.items()]
    (folder / "qrels.tsv").write_text("".join(lines))
    return values, {"qrels": str(folder / "qrels.tsv"), "key": "query_id"}


@pytest.mark.parametrize("seed", range(4))
def test_what_no_fusion_has_is_worth_nothing(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    queries = drawn(draw, 30)
    floors = {name: draw.choice([2.5, 8.5, 9.5]) for name in ("original", *STRATEGIES, *RETRIEVERS) if draw.random() < 0.5}
    cuts = Cuts({name: draw.randrange(1, 8) for name in ("", *STRATEGIES) if draw.random() < 0.5}, floors)
    run = RunMaker(tmp_path)(queries, STRATEGIES, shard_size=9, **cuts.settings())
    values, options = graded(draw, queries, tmp_path)
    _, counts, _ = made(run, tmp_path, preferences, holdout=0, **options)
    assert +counts == +expected_pairs(queries, values, True, 0, 0.0, 3, cuts)[1]
    # the original is worth what `evaluate` says, too
    frame = measure(run, read_qrels(options["qrels"], "", "query_id"), ["nDCG@10"])
    with_texts = {query_id(n): query for n, query in enumerate(queries)}
    said = dict(zip(frame.keys, frame.values[1][0], strict=True))
    for n, of in values.items():
        if any(of.values()):
            found = worth(by_rank(with_texts[query_id(n)], "original", cuts), of, 0.0, True)
            assert found == pytest.approx(said[query_id(n)], abs=1e-6)


@pytest.mark.parametrize("how", ["texts", "with_original"])
def test_texts_that_are_searched_as_one_get_no_value_of_their_own(tmp_path: Path, how: str) -> None:
    draw = Random(3)
    queries = drawn(draw, 30, most=3)
    run = RunMaker(tmp_path)(
        queries, STRATEGIES, shard_size=9, fuse={"method": "rrf"}, recorded=[{"name": "keyword", "as_one": how}]
    )
    values, options = graded(draw, queries, tmp_path)
    rows, counts, _ = made(run, tmp_path, preferences, holdout=0, **options)
    _, expected = expected_pairs(queries, values, True, 0, 0.0, 3, as_one=how)
    assert +counts == +expected
    assert expected["searched_as_one"] > 10
    apart = {text for q in queries if len(q.texts.get("keyword", ())) > 1 for text in q.texts["keyword"]}
    assert not apart & {row[side][0]["content"] for row in rows for side in ("chosen", "rejected")}
    (tmp_path / "chat").mkdir()
    rows, counts, _ = made(run, tmp_path / "chat", chat, holdout=0, min_gain=-9.0, prompt_of="rewrite", **options)
    assert not apart & {row["messages"][1]["content"] for row in rows}
    assert counts["searched_as_one"] == sum(
        1 for q in queries if q.texts.get("keyword") and not flagged(q, "keyword")
        and (how == "with_original" or len(q.texts["keyword"]) > 1) for _ in q.texts["keyword"]
    )  # fmt: skip


WITH_ORIGINAL = "keyword(include_original=1)"


@pytest.mark.parametrize("asks", ["rewrite", WITH_ORIGINAL])
@pytest.mark.parametrize("module", [chat, preferences])
def test_a_text_with_the_original_is_an_answer_as_it_was_searched(tmp_path: Path, module: Any, asks: str) -> None:
    """To another prompt it has the original in it; where that is put before each answer, only such texts are answers."""
    draw = Random(8)
    plain, queries = drawn(draw, 30), list[Query]()
    for query in plain:
        texts: dict[str, Any] = {name: text for name, text in query.texts.items() if name != "keyword"}
        texts |= {WITH_ORIGINAL: f"{query.name} as keywords"} if "keyword" in query.texts else {}
        hits = {(name.replace("keyword", WITH_ORIGINAL), retriever): of for (name, retriever), of in query.hits.items()}
        queries.append(Query(query.name, texts, hits=hits, asked=query.asked))
    pool: Any = ("general", {"keyword": {"include_original": 1}}, "pseudo_answer")
    run = RunMaker(tmp_path)(queries, pool, shard_size=9, fuse={"method": "rrf"})
    _, options = graded(draw, queries, tmp_path)
    rows, counts, _ = made(run, tmp_path, module, holdout=0, prompt_of=asks, **options)
    if module is chat:
        answers = {row["messages"][1]["content"] for row in rows}
    else:
        answers = {row[side][0]["content"] for row in rows for side in ("chosen", "rejected")}
    with_original = {text for query in queries if (text := query.texts.get(WITH_ORIGINAL))}
    others = {text for query in queries for name, text in query.texts.items() if name == "general"}
    assert bool(answers & with_original) == (asks == "rewrite")
    assert bool(answers & others) == (asks == "rewrite")
    assert ("as keywords" in answers) == (asks == WITH_ORIGINAL and module is chat)
    assert bool(counts["searched_as_one"]) == (asks == WITH_ORIGINAL)
    assert bool(rows) == (asks == "rewrite" or module is chat)  # of one answer a query there is no pair


@pytest.mark.parametrize("least", [None, 0.0, 0.3])
def test_answers_are_those_without_a_fault_that_gain(tmp_path: Path, least: float | None) -> None:
    queries = drawn(Random(7), 40)
    run = RunMaker(tmp_path)(queries, STRATEGIES, shard_size=7, fuse={"method": "rrf"})
    grades = {n: {f"{n}-{one:02}": 1.0 for one in (0, 3, 5)} for n in range(30)}
    lines = [f"{query_id(n)}\t{doc}\t1\n" for n, of in grades.items() for doc in of]
    (tmp_path / "qrels.tsv").write_text("".join(lines))
    rows, counts, _ = made(run, tmp_path, chat, min_gain=least, qrels=str(tmp_path / "qrels.tsv"), key="query_id")
    expected: Counter[str] = Counter()
    answers = []
    for n, query in enumerate(queries):
        if bucket(n) < 10:
            expected["held_out"] += 1
            continue
        for name, text in query.texts.items():
            if flagged(query, name):
                expected["flagged"] += 1
                continue
            if least is not None:
                lists = [by_rank(query, one) for one in ("original", name)]
                if n not in grades or not query.hits:
                    expected["not_measured"] += 1
                    continue
                before, after = (worth(one, grades[n], 0.0, True) for one in lists)
                if round(after - before, 9) < least:
                    expected["low_gain"] += 1
                    continue
            answers.append((name, query.name, text))
    expected["rows"] = len(answers)
    assert +counts == +expected
    prompts = {name: load(name).prompt for name in STRATEGIES}
    asked = [(prompts[name].replace("{query}", query), text) for name, query, text in answers]
    assert Counter((row["messages"][0]["content"], row["messages"][1]["content"]) for row in rows) == Counter(asked)
    assert {tuple(one["role"] for one in row["messages"]) for row in rows} == {("user", "assistant")}


@pytest.mark.parametrize("name", shipped())
def test_an_answer_is_read_by_its_strategy_as_it_was(name: str) -> None:
    strategy, query = load(name), "how long does Rye bread keep"
    count = len(strategy.keys) or strategy.n
    texts = [f"Rye bread and its storage at home, part {number} of the matter" for number in "abcdefgh"[:count]]
    searched = [" ".join([*[query] * strategy.include_original, text]) for text in texts]
    answers = written(strategy, query, dict(enumerate(searched, start=1)))
    found: list[Any] = []
    for answer in answers:
        if strategy.output == "text":
            known = {"requested": (strategy,), "known": (strategy,), "instructions": strategy.prompt, "truncated": False}
            found.append(parse(answer, query, **known)[strategy.name])
        else:
            found += parse_texts(answer, query, strategy, strategy.prompt, False)
    assert [one.text for one in found if isinstance(one, Parsed)] == texts
    assert written(strategy, query, {2: texts[0]}) == ([texts[0]] if strategy.output == "text" else [])


def test_one_prompt_may_ask_for_all(tmp_path: Path) -> None:
    queries = drawn(Random(5), 20)
    run = RunMaker(tmp_path)(queries, STRATEGIES, shard_size=7)
    rows, counts, _ = made(run, tmp_path, chat, prompt_of="rewrite", holdout=0)
    prompt = load("rewrite").prompt
    assert all(row["messages"][0]["content"].startswith(prompt[:60]) for row in rows)
    texts = [(q.name, t) for q in queries for name, t in q.texts.items() if name != "pseudo_answer" and not flagged(q, name)]
    assert counts["rows"] == len(rows) == len(set(texts))
    assert counts["equal"] == len(texts) - len(set(texts))
    assert counts["no_prompt"] == sum("pseudo_answer" in q.texts for q in queries)


def test_rows_are_the_same_each_time(tmp_path: Path) -> None:
    run = RunMaker(tmp_path)(drawn(Random(1), 30), STRATEGIES, shard_size=4)
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    assert made(run, tmp_path / "a", chat) == made(run, tmp_path / "b", chat)


@pytest.mark.parametrize(
    ("settings", "options", "line"),
    [
        ({}, {}, "has neither judgements nor a reranker, so gains are not known; give --qrels FILE"),
        (
            {"evaluate": {"qrels": "gone.tsv"}, "rerank": {"kind": "cross_encoder", "model": "m"}},
            {},
            "evaluate.qrels gone.tsv: is not here, so that gains would be measured by something else; give --qrels FILE",
        ),
        ({"keep_runs": False}, {}, r"kept no lists \(retrieve.keep_runs\), so no list says what a rewrite is worth"),
        ({}, {"prompt_of": "rag_fusion"}, "--prompt-of rag_fusion: its answer is not one text"),
        ({}, {"prompt_of": "rewrit"}, "--prompt-of: unknown strategy 'rewrit'; did you mean 'rewrite'"),
        ({}, {"pairs": 0}, "--pairs 0: is less than 1; give 1 or more"),
        ({}, {"holdout": -1}, "--holdout -1: is less than 0"),
    ],
)
def test_what_cannot_be_measured_or_asked_is_refused(tmp_path: Path, settings: Row, options: Row, line: str) -> None:
    run = RunMaker(tmp_path)(drawn(Random(1), 4), STRATEGIES, **settings)
    with pytest.raises(ConfigError, match=line):
        made(run, tmp_path, preferences, **options)


@pytest.mark.slow
def test_the_loader_of_datasets_reads_the_columns_that_trl_documents(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rerank = {"rerank": {"kind": "cross_encoder", "model": "m"}}
    run = RunMaker(tmp_path)(drawn(Random(2), 60), STRATEGIES, shard_size=20, **rerank)
    for module, columns in ((chat, ["messages"]), (preferences, ["prompt", "chosen", "rejected"])):
        rows, _, _ = made(run, tmp_path, module)
        name = module.FORMAT.name
        path = str(tmp_path / name / f"{name}.jsonl")
        loaded = datasets.load_dataset("json", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
        assert loaded.column_names == columns
        assert loaded.to_list() == rows
        for column in columns:
            assert loaded.features[column].feature == {"role": datasets.Value("string"), "content": datasets.Value("string")}
