"""`dmqr runs --html`: four drawn nights with planted drift, held against figures that are counted apart."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.run.shards import read_plan
from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.measure.nights.new_queries import new_queries
from jobs.measure.nights.nights import nights
from jobs.measure.nights.stability import stability
from jobs.tables import NOTES
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.nights import score
from tests.support.jobs.replayed_runs import query_of
from tests.support.jobs.report_runs import Page
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import FakeModels
from tests.support.rewriters.fake_server import FakeServer

WORDS = [
    "bread", "yeast", "moon", "tide", "lamp", "lighthouse", "keeper", "harbour", "rye", "linen", "wick",
    "lens", "mirror", "galaxy", "beer", "sea", "spring", "sourdough", "light", "bag", "oven", "flour",
    "salt", "water", "wind", "sail", "rope", "anchor", "star", "dawn", "storm", "coast", "cliff", "gull",
    "boat", "net", "fish", "shell", "sand", "reef",
]  # fmt: skip
CYRILLIC = "хлеб поднимается медленно, потому что дикие дрожжи никуда не спешат, а печь еще не горяча и соль лежит в мешке"
NIGHTS = ("2026-05-01", "2026-05-02", "2026-05-03", "2026-05-04")
DRIFTED = NIGHTS[2]
MANY, AGAIN = 140, 90  # queries of a night, and how many of the second the first has had
ENDS = (10, 20, 40, 80, 160, 320, 640)
PRICES = {"tokens": {"tiny": {"prompt": 3.0, "completion": 7.0}}}


class Made(NamedTuple):
    """Nights that are there."""

    config: Path
    folders: dict[str, Path]
    logs: dict[str, list[str]]
    page: str
    figures: dict[str, Any]

    def night(self, name: str) -> dict[str, Any]:
        return next(one for one in self.figures["nights"] if one["label"] == name)


def drawn_logs(draw: random.Random) -> dict[str, list[str]]:
    """The queries of each night with repetitions: the last night has none that the third does not have."""
    known: dict[str, None] = {}
    while len(known) < 2 * MANY:
        known[" ".join(draw.sample(WORDS, draw.randint(2, 4)))] = None
    every = list(known)
    first, second = every[:MANY], every[MANY - AGAIN : 2 * MANY - AGAIN]
    third = every[MANY : 2 * MANY]
    asked = dict(zip(NIGHTS, (first, second, third, third[::2]), strict=True))
    return {night: [query for query in queries for _ in range(draw.choice((1, 1, 2, 5)))] for night, queries in asked.items()}


class Writer:
    """The LLM: from the night that drifts on it is wordy, in part in Cyrillic, labels its lines, and at times says nothing."""

    def __init__(self) -> None:
        self.drifts = False

    def __call__(self, body: dict[str, Any]) -> str:
        query = query_of(body)
        place = sum(map(ord, query))
        if not self.drifts:
            return json.dumps({"general": f"all about {query}", "keyword": f"{query} 7" if place % 7 else "of it"})
        if place % 10 == 0:
            return ""
        wordy = CYRILLIC if place % 2 else " ".join(WORDS[place % 9 : place % 9 + 20])
        return f"General Search Rewriting: {query} {wordy}\nKeyword Rewriting: {query}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, bm25: dict[str, Any]) -> Made:
    place = tmp_path_factory.mktemp("nights")
    draw, writer = random.Random(53), Writer()
    logs = drawn_logs(draw)
    with FakeServer(text=writer) as llm, FakeModels("vllm", "reranker", score=score) as reranker:
        config = {
            "name": "shop",
            "log": {"path": str(place / "log.parquet"), "query_column": "query"},
            "rewrite": {
                "engine": {"kind": "openai", "model": "tiny", "base_url": llm.address, "attempts": 1},
                "strategies": ["general", "keyword"],
            },
            "retrieve": {"retrievers": {"bm25": bm25}},
            "rerank": {"kind": "server", "model": "reranker", "base_url": reranker.address, "keep": 3, "attempts": 2},
            "evaluate": {"qrels": str(place / "qrels.tsv"), "key": "query"},
            "limits": {"error_rate": 1}, "report": {"samples": 0, "texts": False},
            "cluster": {"address": "none", "shard_size": 40}, "output": str(place / "runs"),
        }  # fmt: skip
        path = place / "config.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        (place / "prices.yaml").write_text(yaml.safe_dump(PRICES))
        judged = sorted({query for night in NIGHTS for query in logs[night]})[::3]
        for night in NIGHTS:
            if night == NIGHTS[3]:
                judged = judged[1:]
            (place / "qrels.tsv").write_text("".join(f"{query}\td0{1 + n % 8}\t1\n" for n, query in enumerate(judged)))
            pq.write_table(pa.table({"query": draw.sample(logs[night], len(logs[night]))}), place / "log.parquet")
            writer.drifts = night >= DRIFTED
            assert main(["run", str(path), "--label", night]) == 0
    folders = {night: next((place / "runs").glob(f"shop-{night}-*")) for night in NIGHTS}
    _spoiled(folders[NIGHTS[3]])
    with pytest.MonkeyPatch.context() as patch:
        printed: list[Any] = []
        patch.setattr("jobs.cli.runs.print_json", printed.append)
        assert main(["runs", str(path), "--html", str(place / "nights.html"), "--json"]) == 0
    figures = json.loads(json.dumps(printed[0]))
    return Made(path, folders, logs, (place / "nights.html").read_text(encoding="utf-8"), figures)


def _spoiled(night: Path) -> None:
    """Puts copies of a night beside it: one of which half is committed, and such as are no nights."""

    def copy(label: str, **record: Any) -> Path:
        folder = night.with_name(night.name.replace(NIGHTS[3], label))
        shutil.copytree(night, folder)
        values = json.loads((folder / "run.json").read_text()) | {"run_id": folder.name} | record
        values["config"]["label"] = label
        values["starts"][0]["began"] = values["starts"][0]["began"].replace("20", "21", 1)
        (folder / "run.json").write_text(json.dumps(values))
        return folder

    stopped = copy("stopped", status="stopped")
    (stopped / "_SUCCESS.json").unlink()
    sorted((stopped / "commits").glob("*.json"))[-1].unlink()
    copy("replayed", replay={"of": "shop-x", "path": "x", "reasons": {"failed": 1}, "queries": 1})
    copy("compared", ablation={"arms": [{"name": "full"}, {"name": "original"}]})
    copy("older", schema_version=1)
    removed = copy("removed")
    (removed / "_SUCCESS.json").unlink()
    (removed / "removing.json").write_text("{}")
    damaged = copy("damaged")
    shutil.rmtree(damaged / "rewrites")


def shares(found: Sequence[Any]) -> dict[Any, int]:
    return dict(Counter(found))


def length_bin(text: str) -> int:
    return sum(len(text) >= end for end in ENDS)


def index(before: dict[Any, int], after: dict[Any, int]) -> float:
    """PSI by its formula, with half a text added to each bin."""
    bins = sorted(before.keys() | after.keys(), key=str)

    def smoothed(of: dict[Any, int]) -> list[float]:
        counts = [of.get(name, 0) + 0.5 for name in bins]
        return [count / math.fsum(counts) for count in counts]

    return math.fsum((p - q) * (math.log(p) - math.log(q)) for q, p in zip(smoothed(before), smoothed(after), strict=True))


def drift(made: Made, night: str, kind: str, of: str) -> dict[str, Any]:
    return next(one for one in made.night(night)["drift"] if (one["kind"], one["of"]) == (kind, of))


def test_new_queries_are_those_that_no_earlier_log_has(made: Made) -> None:
    had: set[str] = set()
    for night in NIGHTS:
        mine = Counter(made.logs[night])
        new = mine.keys() - had
        found = made.night(night)
        assert found["new"] == {"queries": len(new), "asked": sum(mine[query] for query in new)}
        assert found["new_share"] == len(new) / len(mine)
        assert found["new_traffic_share"] == found["new"]["asked"] / len(made.logs[night])
        had |= mine.keys()
    assert [made.night(night)["new"]["queries"] for night in NIGHTS] == [MANY, MANY - AGAIN, MANY - 50, 0]


def test_what_was_taken_from_the_store_failed_and_cost_is_what_the_tables_say(made: Made) -> None:
    for night, folder in made.folders.items():
        costs = [one for one in rows(folder, "costs") if one["stage"] == "rewrite"]
        found = made.night(night)
        reused, requests = (sum(one[name] or 0 for one in costs) for name in ("reused", "requests"))
        assert found["figures"]["taken"]["requests"] == reused
        assert found["taken_shares"]["requests"] == reused / (reused + requests)
        usd = sum(3 * (one["prompt_tokens"] or 0) + 7 * (one["completion_tokens"] or 0) for one in costs) / 1e6
        by_stage = found["figures"]["usd_by_stage"]
        assert by_stage["rewrite"] == pytest.approx(usd)
        assert sum(by_stage.values()) == pytest.approx(found["usd"]) == pytest.approx(usd)
        errors = [one["reason"] for one in rows(folder, "errors") if one["reason"] not in NOTES]
        assert found["figures"]["failures"] == dict(Counter(errors))
        assert found["figures"]["coverage"] == 1.0
    assert 0.9 < made.night(NIGHTS[3])["taken_shares"]["requests"] <= 1.0  # an empty answer is not kept
    assert made.night(DRIFTED)["figures"]["failures"]


@pytest.mark.parametrize("strategy", ["original", "general", "keyword"])
def test_drift_of_texts_is_the_formula_over_the_rows(made: Made, strategy: str) -> None:
    lengths, scripts = [], []
    for folder in made.folders.values():
        texts = [one["text"] for one in rows(folder, "rewrites") if one["strategy"] == strategy]
        texts = [one["query"] for one in rows(folder, "queries")] if strategy == "original" else texts
        lengths.append(shares([length_bin(text) for text in texts]))
        cyrillic = [sum("а" <= char <= "я" for char in text) > sum("a" <= char <= "z" for char in text) for text in texts]
        scripts.append(shares(["Cyrillic" if one else "Latin" for one in cyrillic]))
    for kind, counted in (("length", lengths), ("script", scripts)):
        assert drift(made, NIGHTS[0], kind, strategy)["before"] is None
        for place in range(1, 4):
            found = drift(made, NIGHTS[place], kind, strategy)
            assert [n for n in found["counts"].values() if n] == [counted[place][name] for name in sorted(counted[place])]
            assert found["before"]["psi"] == pytest.approx(index(counted[place - 1], counted[place]))
            assert found["first"]["psi"] == pytest.approx(index(counted[0], counted[place]))


def test_drift_of_rungs_guards_and_scores_is_that_of_the_tables(made: Made) -> None:
    rungs, flags, made_of, scores = [], [], [], []
    for folder in made.folders.values():
        every = rows(folder, "rewrites")
        texts = [one for one in every if one["strategy"] == "general"]
        rungs.append(shares([one["parsed_as"] for one in texts]))
        flags.append(Counter((one["strategy"], flag) for one in every for flag in one["guards"] or ()))
        made_of.append(Counter(one["strategy"] for one in every))
        scores.append([one["rerank_score"] for one in rows(folder, "results") if one["rank"] == 1])
    for place in range(1, 4):
        assert drift(made, NIGHTS[place], "rung", "general")["before"]["psi"] == pytest.approx(
            index(rungs[place - 1], rungs[place])
        )
        for (strategy, flag), count in flags[place].items():
            found = drift(made, NIGHTS[place], "guard", f"{strategy}: {flag}")["counts"]
            assert found == {"found": count, "not found": made_of[place][strategy] - count}
    ranked = sorted(scores[0])
    ends = sorted({ranked[math.ceil(n * len(ranked) / 10) - 1] for n in range(1, 10)})
    for place in range(4):
        found = drift(made, NIGHTS[place], "score", "reranker's score")["counts"]
        counted = Counter(sum(one > end + 1e-9 for end in ends) for one in scores[place])
        assert [n for n in found.values() if n] == [counted[name] for name in sorted(counted)]
    assert any(flags)


def test_the_night_that_drifts_is_marked_and_no_other_but_the_one_after(made: Made) -> None:
    marked = {
        night: {(one["kind"], one["of"]) for one in made.night(night)["drift"] if one["level"] == "shift"} for night in NIGHTS
    }
    assert {("length", "general"), ("script", "general"), ("rung", "general"), ("rung", "keyword")} <= marked[DRIFTED]
    assert not {one for one in marked[NIGHTS[1]] if one[0] != "score"}
    again = drift(made, NIGHTS[3], "length", "general")  # from the store, what the night before was answered
    assert again["before"]["psi"] < 0.25 < again["first"]["psi"]
    said = Page(made.page).sections["glance"]
    assert f"{DRIFTED}: length of texts, in characters, general: PSI" in said
    assert f"{NIGHTS[1]}: length of texts" not in said


def test_quality_is_compared_where_it_was_judged_alike(made: Made) -> None:
    found = [made.night(night) for night in NIGHTS]
    means = [one["evaluation"]["measures"]["nDCG@10"]["results"] for one in found]
    assert [one["quality_moved"] for one in found] == [None, means[1] - means[0], means[2] - means[1], None]
    assert [one["changed"] for one in found] == [[], [], [], ["judgements"]]


def test_what_is_no_night_is_named(made: Made) -> None:
    left = {one["night"]: one["why"] for one in made.figures["left_out"]}
    assert left.keys() == {"replayed", "compared", "older", "removed", "damaged"}
    assert (left["replayed"], left["compared"]) == ("a replay of shop-x", "an ablation of 2 arms")
    assert left["older"] == "of schema version 1; this version of dmqr reads 2"
    assert left["removed"] == "half removed by runs --prune"
    assert "rewrites/" in left["damaged"]
    read = Page(made.page)
    assert [row[1] for row in read.rows["left-out"][1:]] == [one["night"] for one in made.figures["left_out"]]


def test_an_unfinished_night_is_shown_and_not_compared(made: Made) -> None:
    stopped = made.night("stopped")
    folder = next(Path(made.folders[NIGHTS[3]]).parent.glob("shop-stopped-*"))
    done = {one["query_id"] for one in rows(folder, "queries")}
    assert stopped["state"] == "stopped"
    assert 0 < stopped["queries"] < MANY // 2
    assert stopped["figures"]["coverage"] < 1
    assert {(one["before"], one["first"]) for one in stopped["drift"]} == {(None, None)}
    assert stopped["evaluation"]["counted"]
    assert (stopped["quality_moved"], stopped["changed"]) == (None, [])
    assert done
    assert Page(made.page).row("nights", "stopped")[0] == "stopped"


def test_the_page_has_the_figures_and_no_text(made: Made) -> None:
    read = Page(made.page)
    for night in NIGHTS:
        one, cells = made.night(night), read.row("nights", night)
        assert cells[1:3] == [str(len(set(made.logs[night])))] * 2
        assert cells[4] == str(one["new"]["queries"])
        assert cells[8] == f"{one['evaluation']['measures']['nDCG@10']['results']:.4f}"
    for query in made.logs[NIGHTS[0]]:
        assert query not in made.page
    assert "http" not in made.page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert len({chart for chart in read.sections if chart}) == len(read.sections) - 1


def test_the_last_nights_know_those_before(made: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "last.html"
    assert main(["runs", str(made.config), "--html", str(out), "--last", "4", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [one["label"] for one in found["nights"]] == [NIGHTS[2], NIGHTS[3], "stopped"]
    assert found["earlier"] == 2
    assert [one["new"] for one in found["nights"]] == [made.night(one["label"])["new"] for one in found["nights"]]
    assert main(["runs", str(made.config), "--last", "2", "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["runs"]) == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--html", "n.html", "--query", "bread"], "--html does not go with --query; leave one of them out"),
        (["--last", "2", "--prune", "--keep", "1d"], "--last does not go with --prune; leave one of them out"),
        (["--last", "0"], "--last 0: is less than 1; give 1 or more"),
    ],
)
def test_refused(more: list[str], words: str, made: Made, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(made.config), *more]) == 2
    assert words in capfd.readouterr().err


def test_a_page_is_of_one_name(made: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output, first = tmp_path / "runs", made.folders[NIGHTS[0]]
    shutil.copytree(first, output / first.name)
    assert main(["runs", str(output), "--html", str(tmp_path / "n.html")]) == 0
    assert capfd.readouterr().out == f"{tmp_path / 'n.html'}\n"
    other = output / first.name.replace("shop", "other")
    shutil.copytree(first, other)
    record = json.loads((other / "run.json").read_text())
    record["config"]["name"] = "other"
    (other / "run.json").write_text(json.dumps(record))
    assert main(["runs", str(output), "--html", str(tmp_path / "n.html")]) == 2
    assert f"{output} has runs of 2 names, and a page is of one; give a config, or {output}/other" in capfd.readouterr().err
    assert main(["runs", str(output / "shop"), "--html", str(tmp_path / "n.html"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["name"] == "shop"


def test_a_page_of_no_night_is_refused(made: Made, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for folder in Path(made.folders[NIGHTS[0]]).parent.glob("shop-compared-*"):
        shutil.copytree(folder, tmp_path / "runs" / folder.name)
    page = tmp_path / "n.html"
    assert main(["runs", str(tmp_path / "runs"), "--html", str(page)]) == 2
    assert f"{tmp_path}/runs has no night ({folder.name}: an ablation of 2 arms); make one" in capfd.readouterr().err
    assert not page.exists()


@pytest.mark.slow
@pytest.mark.parametrize("portion", [1, 7, 100_000])
def test_parts_of_ids_together_have_every_new_query(made: Made, portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.measure.nights.new_queries.PORTION", portion * MANY // 20)
    storages = [open_storage(str(folder)) for folder in made.folders.values()]
    plans = [plan for storage in storages if (plan := read_plan(storage)) is not None]
    found = new_queries(list(zip(storages, plans, strict=True)))
    assert [one._asdict() for one in found] == [made.night(night)["new"] for night in NIGHTS]


def test_equal_shares_have_a_psi_of_nothing_and_few_texts_no_mark() -> None:
    draw = random.Random(7)
    for _ in range(50):
        before = {str(n): draw.randint(0, 9) for n in range(draw.randint(1, 8))}
        after = {str(n): draw.randint(0, 9) for n in range(draw.randint(1, 8))}
        found = stability(before, after)
        if not sum(before.values()) or not sum(after.values()):
            assert found is None
            continue
        known = [{name: count for name, count in one.items() if count} for one in (before, after)]
        assert found is not None
        assert found.psi == pytest.approx(index(*known), abs=1e-12)
        same = stability(before, {name: 10 * count for name, count in before.items()})
        assert same is not None
        assert same.level == ""
    by_chance = [stability(_drawn(draw), _drawn(draw)) for _ in range(300)]
    assert sum(one is not None and one.psi >= 0.25 for one in by_chance) > 50  # so few texts differ by chance
    assert sum(one is not None and one.level != "" for one in by_chance) <= 3


def _drawn(draw: random.Random) -> dict[str, int]:
    return dict(Counter(draw.choices("abcdefgh", k=40)))


@pytest.mark.slow
def test_on_s3_the_figures_are_the_same(made: Made, s3: S3Server) -> None:
    output = open_storage(f"{s3.fresh('out')}/runs")
    for folder in made.folders.values():
        for path in folder.rglob("*"):
            if path.is_file():
                output.put(f"{folder.name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    found = nights(output, "shop", lambda _: None).values()
    assert not found["left_out"]
    for one in found["nights"]:
        here = made.night(one["label"])
        for part in ("new", "drift", "taken_shares", "changed", "quality_moved"):
            assert one[part] == here[part]
