"""A small shop from one evening to the morning after the next: what a night made is looked up, clicked, learnt from, made anew.

The shop's customers say rucksack where its catalogue says backpack. An LLM that is told so rewrites what they have asked for.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dmqr
from jobs.__main__ import main
from tests.support.jobs.replayed_runs import query_of
from tests.support.jobs.ubi_exports import Row, event, search, write_lines
from tests.support.jobs.whole_runs import rows as stored
from tests.support.retrievers.elastic_server import ask
from tests.support.rewriters.fake_server import FakeServer

CALLED = {
    "rucksack": "backpack", "trainers": "sneakers", "jumper": "sweater", "torch": "flashlight", "tap": "faucet",
    "pram": "stroller", "spanner": "wrench", "quilt": "duvet", "sofa": "couch", "hob": "cooktop",
}  # fmt: skip
COLOURS = ("red", "green", "blue", "grey", "white")
PRODUCTS = {f"{colour}-{name}": f"{colour} {name}" for name in CALLED.values() for colour in COLOURS}
EVENING, MORNING = "2026-06-01", "2026-06-02"  # of the logs
ASKED, REPEATED, NEW = 30, 20, 12  # queries of the evening; of them those of the next day; that day's own
FORMS: Sequence[Callable[[str], str]] = (
    str,
    str.upper,
    lambda text: f"  {text.replace(' ', '   ')} ",
    lambda text: "".join(chr(ord(char) + 0xFEE0) if char.isalpha() else char for char in text),  # full width
)
"""Ways of typing a query that are one key."""


def answer(body: dict[str, Any]) -> str:
    """What the LLM says: its keywords are those of the catalogue, its general rewrite is of another product."""
    colour, said = unicodedata.normalize("NFKC", query_of(body)).casefold().split()
    names = list(CALLED.values())
    other = names[(names.index(CALLED[said]) + 1) % len(names)]
    return json.dumps({"general": f"{colour} {other}", "keyword": f"{colour} {CALLED[said]}"})


class Shop:
    """Its catalogue, its logs, and what is typed in it."""

    def __init__(self, place: Path, llm: FakeServer, capfd: pytest.CaptureFixture[str]) -> None:
        self.place, self.llm, self._capfd, self.draw = place, llm, capfd, random.Random(11)
        every = [f"{colour} {said}" for said in CALLED for colour in COLOURS]
        self.draw.shuffle(every)
        self.asked, self.new = every[:ASKED], every[ASKED : ASKED + NEW]
        self.repeated = self.asked[:REPEATED]
        titles = list(PRODUCTS.values())
        texts = [f"A {title} for every day." for title in titles]
        pq.write_table(pa.table({"doc_id": list(PRODUCTS), "title": titles, "text": texts}), place / "catalogue.parquet")
        config = {
            "name": "shop",
            "log": {"path": str(place / "logs" / "{date}"), "format": "ubi"},
            "corpus": {"path": str(place / "catalogue.parquet")},
            "rewrite": {
                "engine": {"kind": "openai", "model": "tiny", "base_url": llm.address, "attempts": 1},
                "strategies": ["general", "keyword"],
            },
            "retrieve": {"depth": 10, "retrievers": {"bm25": {"kind": "local", "index": str(place / "index")}}},
            "rerank": {"kind": "none", "keep": 10},
            "evaluate": {"key": "query_id"},
            "report": {"samples": 0},
            "cluster": {"address": "none", "shard_size": 15},
            "output": str(place / "runs"),
        }  # fmt: skip
        self.config = place / "shop.yaml"
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))

    def typed(self, *words: str) -> list[str]:
        """The lines that a verb prints."""
        self._capfd.readouterr()
        assert main(list(words)) == 0, self._capfd.readouterr().err
        return self._capfd.readouterr().out.splitlines()

    def refused(self, *words: str) -> str:
        """What a verb says that ends with exit code 1."""
        self._capfd.readouterr()
        assert main(list(words)) == 1
        return self._capfd.readouterr().err

    def said(self, *words: str) -> Any:
        """What it prints with `--json`."""
        return json.loads("\n".join(self.typed(*words, "--json")))

    def log(self, date: str, times: dict[str, int], forms: Sequence[Callable[[str], str]] = (str,)) -> list[str]:
        """Writes a day's searches and clicks; returns the searches as they were typed."""
        texts = [self.draw.choice(forms)(query) for query, count in times.items() for _ in range(count)]
        meant = [query for query, count in times.items() for _ in range(count)]
        order = self.draw.sample(range(len(texts)), len(texts))
        searches: list[Row] = []
        events: list[Row] = []
        for number, place in enumerate(order):
            bought = wanted(meant[place]).replace(" ", "-")
            hits = self.draw.sample([one for one in PRODUCTS if one != bought], 4)
            hits.insert(self.draw.randrange(5), bought)
            searches.append(search(f"{date}-{number}", texts[place], hits, client=f"c{number % 50}", second=number % 60))
            if self.draw.random() < 0.8:
                events.append(event(f"{date}-{number}", bought, hits.index(bought) + 1))
            if self.draw.random() < 0.05:
                events.append(event(f"{date}-{number}", hits[0], 1))
        write_lines(self.place / "logs" / date / "ubi_queries.ndjson", searches)
        write_lines(self.place / "logs" / date / "ubi_events.ndjson", events)
        return [texts[place] for place in order]

    def night(self, config: Path, date: str) -> tuple[str, int]:
        """Runs a night; returns its folder and how many requests it has paid for."""
        before = len(self.llm.bodies)
        return self.typed("run", str(config), "--date", date)[-1], len(self.llm.bodies) - before


@pytest.fixture
def shop(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    with FakeServer(text=answer) as llm:
        yield Shop(tmp_path, llm, capfd)


def looked_up(alias: str, texts: Sequence[str]) -> dict[str, Any]:
    """What a search of the morning finds: key -> row, of the texts that have one."""
    rows = {}
    for key in sorted({dmqr.look_up_key(text) for text in texts}):
        if (found := ask("GET", f"/{alias}/_doc/{key}")) and found.get("found"):
            rows[key] = found["_source"]
    return rows


def hit_share(rows: dict[str, Any], texts: Sequence[str]) -> float:
    return sum(dmqr.look_up_key(text) in rows for text in texts) / len(texts)


def keyword_of(row: dict[str, Any]) -> str:
    """The text of a row's rewrite by the strategy keyword."""
    return next(str(one["text"]) for one in row["rewrites"] if one["strategy"] == "keyword")


def grades_of(path: Path) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, doc_id, grade = line.split("\t")
        grades.setdefault(key, {})[doc_id] = int(grade)
    return grades


def wanted(query: str) -> str:
    """What the catalogue calls what a query is about."""
    colour, said = query.split()
    return f"{colour} {CALLED[said]}"


def version_of(run: str) -> str:
    return Path(run).name.removeprefix("shop-")


def served(folder: str) -> str:
    return str(json.loads((Path(folder) / "current.json").read_text())["version"])


def served_by(alias: str) -> str:
    (index,) = ask("GET", f"/{alias}")
    return str(index).removeprefix(f"{alias}-")


def first_of(run: str, query: str) -> str:
    """The first document of a query in a run."""
    key = dmqr.look_up_key(query)
    return next(str(one["doc_id"]) for one in stored(Path(run), "results") if (one["query_id"], one["rank"]) == (key, 1))


def test_from_an_evening_to_the_second_morning(shop: Shop, elasticsearch: str, new_name: Callable[[], str]) -> None:
    alias = new_name()
    target, folder = f"elastic:{alias}", str(shop.place / "served")
    shop.typed("index", str(shop.config))

    # the evening's log, the night, and what it is published as
    shop.log(EVENING, {query: shop.draw.randint(1, 6) for query in shop.asked})
    first, paid = shop.night(shop.config, EVENING)
    assert paid == ASKED
    for to in (target, folder):
        exported = shop.said("export", first, "--to", to)
        assert (exported["version"], exported["counts"]["rows"]) == (version_of(first), ASKED)
        shop.typed("promote", first, "--to", to)
    assert served(folder) == served_by(alias) == version_of(first)

    # the next day's searches are looked up as they come, in whatever form they were typed
    counts = dict.fromkeys(shop.repeated, 12) | {query: shop.draw.randint(2, 4) for query in shop.new}
    morning = shop.log(MORNING, counts, FORMS)
    assert len(set(morning)) > 2 * len(counts)
    rows = looked_up(alias, morning)
    assert rows.keys() == {dmqr.look_up_key(query) for query in shop.repeated}
    planted = sum(counts[query] for query in shop.repeated) / sum(counts.values())
    assert hit_share(rows, morning) == planted
    for query in shop.repeated:
        assert keyword_of(rows[dmqr.look_up_key(query)]) == wanted(query)

    # what was clicked that day, and what is learnt from it: the misleading strategy counts for less
    shop.typed("clicks", str(shop.config), "--date", MORNING, "--out", "clicks.tsv", "--min-impressions", "5")
    grades = grades_of(shop.place / "clicks.tsv")
    for query in shop.repeated:
        of = grades[dmqr.look_up_key(query)]
        assert max(of, key=lambda doc_id: of[doc_id]) == wanted(query).replace(" ", "-")
    shop.typed("tune", first, "clicks.tsv", "--key", "query_id", "--out", "tuned.yaml")
    assert 0 <= yaml.safe_load((shop.place / "tuned.yaml").read_text())["fuse"]["weights"]["general"] < 1

    # the second night pays for what is new alone, and is better
    second, paid = shop.night(Path("tuned.yaml"), MORNING)
    assert paid == NEW
    judged = ["clicks.tsv", "--key", "query_id"]
    before, after = (shop.said("evaluate", run, *judged)["measures"]["nDCG@10"]["results"] for run in (first, second))
    assert before < 0.95 < after

    # a delta; more than the bound gets another first document, which somebody allows
    for to in (target, folder):
        changes = shop.said("export", second, "--to", to, "--since", version_of(first))["changes"]
        assert (changes["new"], changes["gone"], changes["changed"] + changes["same"]) == (NEW, ASKED - REPEATED, REPEATED)
        told = [*("--to", to, "--qrels"), *judged]
        said = shop.refused("promote", second, *told)
        moved = sum(counts[query] for query in shop.repeated if first_of(first, query) != first_of(second, query))
        share = moved / sum(counts[query] for query in shop.repeated)
        assert share > 0.3
        assert f"publish.gates.changed_first: {100 * share:.1f} %" in said
        shop.typed("promote", second, *told, "--set", "publish.gates.changed_first=1")
    assert served(folder) == served_by(alias) == version_of(second)
    assert hit_share(looked_up(alias, morning), morning) == 1.0

    # back to the first night
    for to in (target, folder):
        shop.typed("rollback", "--to", to)
    assert served(folder) == served_by(alias) == version_of(first)
    assert looked_up(alias, morning) == rows

    # both nights side by side
    found = shop.said("runs", str(shop.config), "--html", "nights.html")["nights"]
    assert [one["new_share"] for one in found] == [1.0, NEW / (REPEATED + NEW)]
    assert found[1]["taken_shares"]["requests"] == REPEATED / (REPEATED + NEW)
    assert [one["changed"] for one in found] == [[], ["settings"]]
