"""Drawn ablations over sets: each set's figures are those of its own ablation, which is written and run by itself."""

from __future__ import annotations

import copy
import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from scipy import stats

from jobs.__main__ import main
from tests.support.jobs.drawn_sets import write_data_set, write_run_file
from tests.support.rewriters.fake_server import Body, FakeServer

SIZES = {"birds": (14, 60), "tools": (19, 70), "words": (11, 50)}
Values = dict[str, Any]


def answered(body: Body) -> str:
    """Rewrites by a hash of the request, so that another seed or prompt has others: words of the query, and of its set."""
    drawn = random.Random(zlib.crc32(json.dumps(body, sort_keys=True).encode()))
    query = body["messages"][-1]["content"].split()[-3:]
    name = query[0].rstrip("0123456789")
    texts = {key: " ".join([*drawn.sample(query, 2), f"{name}{drawn.randrange(60)}"]) for key in ("general", "keyword")}
    return json.dumps(texts)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["m"], text=answered) as one:
        yield one


def write_sets(place: Path) -> None:
    """Data sets whose documents and log rows are of a shop each, and the lists of another system."""
    for name, (queries, documents) in SIZES.items():
        write_data_set(place, name, queries, documents)
        for file in ("corpus", "queries"):
            path = place / name / f"{file}.jsonl"
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows:
                row["shop"] = "ab"[zlib.crc32(row["text"].encode()) % 2]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        write_run_file(place, name, queries, documents)


def drawn_config(drawn: random.Random, address: str) -> tuple[Values, list[str]]:
    """A config over sets, and their names."""
    names = drawn.sample(list(SIZES), drawn.choice([1, 2, 3]))
    seeds = drawn.choice([1, 1, 2])
    engine: Values = {"kind": "recorded", "path": "data/{set}/recorded.jsonl"}
    if seeds > 1:
        engine = {"kind": "openai", "base_url": address, "model": "m"}
    possible = {"by rank": {"fuse.method": "rrf"}, "shallow": {"retrieve.depth": 4}, "again": {}, "deep": {"fuse.depth": 3}}
    arms = {name: possible[name] for name in drawn.sample(list(possible), drawn.choice([1, 2, 3]))}
    leave_out = drawn.choice([[], [], ["keyword"], ["gen*", "keyword"], ["*"]])
    ablate: Values = {"arms": arms, "leave_out": leave_out, "subsets": drawn.choice(["none", "leave_one_out", "add_one"])}
    filtered = drawn.random() < 0.3
    if not filtered and drawn.random() < 0.6:
        ablate["runs"] = {"theirs": "data/{set}.run"}
    if drawn.random() < 0.5:
        ablate["grid"] = {"fuse.k": [10, 60], "fuse.method": ["rrf", "minmax"]}
    if seeds > 1:
        ablate["seeds"] = drawn.choice([2, {"full": 2}]) if "*" not in leave_out else 2
    there = [*arms, *(["theirs"] if "runs" in ablate else []), *([] if "*" in leave_out else ["original", "full"])]
    evaluate: Values = {
        "measures": drawn.choice([["nDCG@10", "R@5"], ["P@3"], ["RR@10", "nDCG@5"]]),
        "baseline": drawn.choice(there),
    }
    if drawn.random() < 0.4:
        evaluate["baselines"] = {drawn.choice(there): drawn.choice(there)}
    evaluate["pairs"] = drawn.random() < 0.4
    of_set: Values = {
        "log": {"path": "data/{set}/queries.jsonl", "query_column": "text", "id_column": "_id"},
        "corpus": {"path": "data/{set}/corpus.jsonl"}, "qrels": "data/{set}/qrels.tsv", "index": "index/{set}",
        "rewrite.engine": engine,
    }  # fmt: skip
    values: Values = {
        "name": "drawn", "output": "runs", "rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": 5},
        "rewrite": {"strategies": ["general", "keyword"], "decoding": {"temperature": 1.0 if seeds > 1 else 0.0}},
        "retrieve": {"retrievers": {"bm25": {"kind": "local"}}}, "evaluate": evaluate, "ablate": ablate,
        "limits": {"error_rate": 1},
    }  # fmt: skip
    if filtered:
        values["retrieve"]["filters"] = {"shop": "shop"}
    if drawn.random() < 0.5:  # what is alike, with the name in it, stands beside the sets
        values |= {key: of_set.pop(key) for key in ("log", "corpus")}
        values["rewrite"]["engine"] = of_set.pop("rewrite.engine")
    ablate["sets"] = {name: {key: filled(one, name) for key, one in of_set.items()} for name in names}
    return values, names


def filled(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace("{set}", name))


def alone(values: Values, name: str) -> Values:
    """The config of one set, by what each key means, without `ablate.sets`."""
    own = copy.deepcopy(values)
    said = own["ablate"].pop("sets")[name]
    own = dict(filled(own, name)) | {"name": name, "output": "alone", "store": None}
    for key in ("log", "corpus"):
        own[key] = said.get(key, own.get(key))
    own["rewrite"]["engine"] = said.get("rewrite.engine", own["rewrite"].get("engine"))
    own["retrieve"]["retrievers"]["bm25"]["index"] = said["index"]
    own["evaluate"]["qrels"] = said["qrels"]
    return own


def done(values: Values, file: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Values | str]:
    Path(file).write_text(yaml.safe_dump(values, sort_keys=False))
    capsys.readouterr()
    code = main(["ablate", file, "--json"])
    seen = capsys.readouterr()
    return code, json.loads(seen.out) if code == 0 else seen.err.splitlines()[-1]


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_set_is_as_its_own_ablation(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: FakeServer
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sets(tmp_path / "data")
    values, names = drawn_config(random.Random(seed), server.address)
    code, over = done(values, "sets.yaml", capsys)
    each = {name: done(alone(values, name), f"{name}.yaml", capsys) for name in names}
    if code:
        assert any(other == code and str(said).partition(": ")[2] in str(over) for other, said in each.values()), (over, each)
        return
    assert isinstance(over, dict)
    found = over["comparisons"]["lists"]
    assert list(found["sets"]) == names
    arms: dict[str, dict[str, Any]] = {}
    for name, (other, said) in each.items():
        assert other == 0, said
        assert isinstance(said, dict)
        assert Path(over["sets"][name]["folder"]).name == said["run_id"]
        own = said["comparison"]
        arms[name] = {one["arm"]: one for one in own["arms"]}
        assert [one["arm"] for one in found["arms"]] == list(arms[name])
        assert found["baselines"] == own["baselines"]
        for one in found["arms"]:
            for measure, figures in one["measures"].items():
                wanted = arms[name][one["arm"]]["measures"][measure]
                same = figures["sets"][name].keys() & wanted.keys()
                assert len(same) > 15
                assert {key: figures["sets"][name][key] for key in same} == {key: wanted[key] for key in same}, one["arm"]
    rows = pq.read_table(f"{over['folder']}/per_query.parquet").to_pylist()
    for one in found["arms"]:
        for measure, figures in one["measures"].items():
            of = [arms[name][one["arm"]]["measures"][measure] for name in names]
            assert figures["mean"] == pytest.approx(np.mean([other["mean"] for other in of]))
            assert figures["difference"] == pytest.approx(np.mean([other["difference"] for other in of]), abs=1e-12)
            if not values["ablate"].get("seeds") and figures["p"] is not None and one["arm"] != figures["baseline"]:
                p = stratified_p(moved_by(rows, names, one["arm"], figures["baseline"], measure))
                assert figures["p"] == pytest.approx(p, abs=1e-9)
    check_pairs(found, values["evaluate"]["pairs"])


def moved_by(rows: list[Values], names: list[str], arm: str, base: str, measure: str) -> list[np.ndarray]:
    """The differences of the queries of each set."""
    of = {(row["set"], row["arm"], row["key"]): row["value"] for row in rows if row["measure"] == measure}
    return [np.array([of[key] - of[key[0], base, key[2]] for key in of if key[:2] == (name, arm)]) for name in names]


def stratified_p(moved: list[np.ndarray]) -> float:
    """Two-sided p of the mean over sets of mean differences; the sets are strata of independent queries."""
    variances = np.array([one.var(ddof=1) / len(one) for one in moved])
    if not variances.any():
        return 1.0
    freedom = variances.sum() ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(variances, moved, strict=True))
    return float(2 * stats.t.sf(abs(sum(one.mean() for one in moved)) / np.sqrt(variances.sum()), freedom))


def check_pairs(found: Values, asked: bool) -> None:
    """Pairs are there where they are asked for, and the comparison with a baseline is one of them."""
    pairs = {(one["arm"], one["other"], one["measure"]): one for one in found["pairs"]}
    assert bool(pairs) <= asked
    for one in found["arms"]:
        for measure, figures in one["measures"].items():
            ends = one["arm"], figures["baseline"]
            pair = pairs.get((*ends, measure)) or pairs.get((*ends[::-1], measure))
            if pair is not None and figures["p_holm"] is not None:
                assert (pair["p"], pair["p_holm"]) == pytest.approx((figures["p"], figures["p_holm"]))
