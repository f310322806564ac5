"""The values of a whole ablation are those that ir_measures computes of its exported run files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.measure.export.trec import write_trec
from jobs.pages.closing import PER_QUERY, ComparedArms, compared, write_pages
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import run_in_process

QUERIES = {
    "bread": "why does bread rise",
    "again": "Why does bread  rise",  # the same query for dedup, and another topic
    "lamp": "lamp of a lighthouse",
    "tides": "moon and tides",
    "moon": "new moon and full moon",
    "yeast": "yeast",
    "none": "zzz",  # no document has it, nor do its rewrites
    "alone": "rye in a linen bag",  # has no recorded answer
    "long": "x" * 50,  # the log rejects it
}
JUDGED = {
    "bread": {"d03": 3, "d05": 1, "d04": 0},
    "again": {"d05": 2},
    "lamp": {"d01": 2, "d02": 2, "d08": 0},
    "tides": {"d06": 3, "d07": 1},
    "moon": {"d07": 1, "d06": 1},
    "yeast": {"d05": 2, "d03": 2},
    "none": {"d08": 1},
    "alone": {"d04": 1, "d08": 1},
    "long": {"d01": 1},
    "elsewhere": {"d01": 1},  # not in the log
}
MEASURES = ["nDCG@10", "R@10", "P@5", "Success@1", "RR@10", "AP", "Rprec", "Judged@5"]
ARMS = {"best": {"rewrite.select": {"kind": "oracle_k", "k": 1}}}
ABLATE = {"subsets": "all", "arms": ARMS, "grid": {"fuse.method": ["rrf", "minmax", "weighted"], "fuse.depth": [1, 30]}}


@pytest.fixture
def done(
    tmp_path: Path,
    values: dict[str, Any],
    bm25: dict[str, Any],
    config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> ComparedArms:
    """A whole ablation in this process, compared."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": list(QUERIES), "query": list(QUERIES.values())}), "log.parquet")
    lines = []
    for key, query in QUERIES.items():
        if key not in ("again", "alone"):
            texts = {"general": f"{query} sea", "keyword": query.split()[-1], "pseudo_answer": f"bread and the moon, {query}"}
            told = texts if key != "none" else dict.fromkeys(texts, "zzzz")
            lines.append(json.dumps({"query": query, "completions": {"dmqr": json.dumps(told)}}))
    Path("recorded.jsonl").write_text("\n".join(lines))
    judged = [f"{key}\t{doc}\t{grade}\n" for key, of in JUDGED.items() for doc, grade in of.items()]
    Path("qrels.tsv").write_text("".join(judged))
    values["log"] |= {"id_column": "id", "max_chars": 40}
    values["rewrite"]["strategies"] = ["general", "keyword", "pseudo_answer"]
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none"}, "ablate": ABLATE}
    values["evaluate"] = {"qrels": "qrels.tsv", "measures": MEASURES}
    path = config_file(values)
    ablation = prepare_ablation(load_config(path), path)
    prepared = ablation.prepared
    run_in_process(ablation)
    found = compared(open_run(prepared.storage.root), prepared.judgements, prepared.config.evaluate, None)
    write_pages(found, texts=False)
    return found


def test_values_are_those_of_ir_measures_on_the_exported_files(done: ComparedArms, tmp_path: Path) -> None:
    comparison = done.comparison
    assert comparison is not None
    paths = write_trec(str(tmp_path / "exported"), done.folder, comparison.frame)
    arms = [arm["name"] for arm in done.folder.record["ablation"]["arms"]]
    assert list(paths) == [arm for arm in arms if not arm.endswith("depth=1")]  # their lists end above ten documents
    counted = QUERIES.keys()
    qrels = [ir_measures.Qrel(key, doc, grade) for key in counted for doc, grade in JUDGED[key].items()]
    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    wanted = {
        (arm, one.query_id, str(one.measure)): one.value
        for arm, path in paths.items()
        for one in ir_measures.iter_calc(measures, qrels, list(ir_measures.read_trec_run(path)))
    }
    rows = pq.read_table(Path(done.folder.storage.root) / PER_QUERY).to_pylist()
    found = {(row["arm"], row["key"], row["measure"]): row["value"] for row in rows}
    assert len(found) == len(rows) == len(paths) * len(counted) * len(MEASURES)
    assert found.keys() == wanted.keys()
    assert {place: value for place, value in found.items() if value != pytest.approx(wanted[place], rel=0, abs=1e-12)} == {}
    assert {value for (_, key, _), value in found.items() if key in ("none", "long")} == {0}
    assert len({tuple(sorted(v for (a, _, _), v in found.items() if a == arm)) for arm in paths}) > 3  # arms differ
