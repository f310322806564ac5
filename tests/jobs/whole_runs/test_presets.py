"""The tables of the paper by `configs/paper-answers.yaml`, with fake servers and the first queries of the log."""

import math
import re
import zlib
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.measure.answers import gold_answers
from jobs.measure.judge import judged_relevance
from jobs.pages.ablation import ablation_report, compared
from jobs.runs.folder import open_run
from tests.support.golden import CRITERIA, world
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import rows
from tests.support.rewriters.fake_server import Body

WORDS = ("light", "water", "hot air", "a mirror")


def test_the_tables_and_figures_of_the_paper_come_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns of Tables 2 to 4 for each arm against a computation from the run's tables, with their tests and slices."""
    monkeypatch.chdir(tmp_path)
    with world(tmp_path) as presets:
        other = presets.llm.text

        def text(body: Body) -> str:
            is_answer = "in as few words as hold the answer" in str(body["messages"][0]["content"])
            return WORDS[zlib.crc32(prompt_of(body).encode()) % len(WORDS)] if is_answer else other(body)

        monkeypatch.setattr(presets.llm, "text", text)
        queries = pq.read_table("configs/sample/log.parquet").column("query").to_pylist()
        gold = {query: WORDS[place % 2] for place, query in enumerate(queries)}
        Path("gold.tsv").write_text("".join(f"{query}\t{answer}\n" for query, answer in gold.items()))
        changes = ["evaluate.answers=gold.tsv", "evaluate.key=query", "evaluate.slices=[words]"]
        run = open_run(str(presets.run("paper-answers", changes)))
    judgements = judged_relevance(run)
    assert judgements is not None
    config = run.config.evaluate
    chosen = config.model_copy(update={"measures": judgements.measures(config.measures)})
    found = compared(run, judgements, chosen, None, gold_answers(config))
    four = ["general", "keyword", "pseudo_answer", "core_content"]
    arms = ["full", "original", *four, *(f"without {name}" for name in four), "rewrite", "hyde", "rag_fusion", "adaptive"]
    kinds = {one.frame.kind: one for one in found.comparisons.every if one.differences}
    assert list(kinds) == ["lists", "answers", "accuracy", "criteria"]
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    answers = {(one["arm"], one["query_id"]): one["text"] for one in rows(run, "answers")}
    judged = rows(run, "judgements")
    grades = {(one["query_id"], one["doc_id"]): one["grade"] for one in judged if one["doc_id"]}
    of_answers = {(one["arm"], one["query_id"], one["kind"]): one["grade"] for one in judged if one["arm"]}
    for arm in arms:
        assert all(arm in one.frame.arms for one in kinds.values()), arm
        relevant = Counter(
            one["query_id"] for one in rows(run, "results")
            if one["arm"] == arm and one["rank"] <= 5 and grades[one["query_id"], one["doc_id"]] >= 2
        )  # fmt: skip
        own = {
            ("lists", "Success(rel=2)@5"): [float(relevant[key] > 0) for key in texts],
            ("lists", "P(rel=2)@5"): [relevant[key] / 5 for key in texts],
            ("answers", "EM"): [float(answers[arm, key] == gold[query]) for key, query in texts.items()],
            ("answers", "F1"): [float(answers[arm, key] == gold[query]) for key, query in texts.items()],
            ("accuracy", "accuracy"): [of_answers[arm, key, "accuracy"] for key in texts],
        }
        own |= {("criteria", name): [of_answers[arm, key, f"criteria/{name}"] for key in texts] for name in CRITERIA}
        for (kind, name), values in own.items():
            one = kinds[kind].by_arm[arm, name]
            assert one.mean == pytest.approx(sum(values) / len(values)), (arm, name)
            assert one.difference == pytest.approx(one.mean - kinds[kind].by_arm["original", name].mean)
            assert arm == "original" or math.isnan(one.p) or 0 <= one.p <= 1
    for one in kinds.values():
        tested = [each for each in one.differences if each.arm != "original" and not math.isnan(each.p)]
        assert tested
        assert all(each.low <= each.difference <= each.high for each in tested)
    page = ablation_report(found)
    sections = {
        kind: page.partition(f'<section id="{kind}">')[2].partition("</section>")[0]
        for kind in ("arms", "answers", "accuracy", "criteria")
    }
    measures = ["nDCG@5", "P(rel=2)@5", "Success(rel=2)@5"], ["F1", "EM"], ["accuracy"], CRITERIA
    for table, names in zip(sections.values(), measures, strict=True):
        assert {*names} <= set(re.findall(r"<th[^>]*>([^<]+)", table))
        assert {*arms} <= {name.removesuffix(" §") for name in re.findall(r"<bdi>([^<]+)</bdi>", table)}
    assert all("slice" in sections[kind] for kind in ("answers", "accuracy", "criteria"))
