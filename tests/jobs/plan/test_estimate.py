"""The plan before and the bill after, for what can change from one night to the next."""

import io
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, Stopped
from cluster.prices import load_prices
from cluster.storage import open_storage
from jobs.plan.plan import plan
from jobs.plan.table import over_budget, plan_table
from jobs.run.job import Job
from jobs.runs.folder import open_run
from jobs.store.forget import forget
from jobs.terminal.formats import money
from jobs.terminal.live_display import LiveDisplay
from retrievers.local.build import build_local_index
from tests.support.jobs.in_process_runs import full_disk, prepared_work, run_in_process
from tests.support.jobs.nights import Nights
from tests.support.params import rest_slow
from tests.support.retrievers.blocks import index_fields
from tests.support.rewriters.fake_server import FakeServer

QUERIES = [
    "why does bread rise", "lamp of a lighthouse", "moon and tides", "spring tide", "yeast of beer", "faint galaxies", "rye",
    "linen bag", "harbours fill", "keeper of the lamp", "light far across the sea", "wild yeast",
]  # fmt: skip
NEW = ["harbours at night", "a mirror", "tides at the full moon"]
ASKED = {"requests": "rewrite", "rounds": "iterate", "grades": "grade", "answers": "answer", "judgements": "judge"}
PRICES = """
tokens:
  tiny: {prompt: 2.0, completion: 8.0}
  other: {prompt: 1.0, completion: 4.0}
searches: {bm25: 3.0, dense: 5.0}
"""


def answer(body: dict[str, Any]) -> str:
    words = body["messages"][-1]["content"].split()
    return json.dumps({"general": f"about {words[-1]} {words[-2]}", "keyword": " ".join(words[-3:])})


@pytest.fixture
def llm() -> Iterator[FakeServer]:
    with FakeServer(["tiny", "other"], text=answer) as server:
        yield server


@pytest.fixture
def night(nights: Nights, served_dense: dict[str, Any]) -> Callable[..., Job]:
    """Jobs of one config, and ablations of it, by label and settings."""
    log(QUERIES)
    Path("prices.yaml").write_text(PRICES)
    both = ["rewrite.strategies=[general, keyword]", f"retrieve.retrievers.dense={json.dumps(served_dense)}"]
    both += ["retrieve.depth=4", "cluster.shard_size=4"]
    return lambda label, *settings, ablate=None: prepared_work(nights.path, [*both, f"label={label}", *settings], ablate)


def log(queries: Sequence[str]) -> None:
    asked = [query for place, query in enumerate(queries) for _ in range(1 + place % 3)]
    pq.write_table(pa.table({"query": asked}), "log.parquet")


def planned(job: Job, ablation: Job | None = None, sample: int = 0) -> dict[str, Any]:
    return plan(job.prepared, LiveDisplay(io.StringIO()), ablation, sample)


def stored(place: Path = Path()) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in place.rglob("*") if path.is_file()}


def bill(folder: Path) -> dict[str, float]:
    """Sums what a finished run has paid for, by kind, and its price in tokens and searches."""
    run, sums = open_run(str(folder)), Counter[str]()
    for stage, parts in run.spent.items():
        for one in parts.values():
            sums.update({f"{stage} {name}": value for name, value in one.items() if name in ("requests", "searches", "pairs")})
    prices = load_prices(Path("prices.yaml"))
    assert prices is not None
    found = {name: sums[f"{stage} requests"] for name, stage in ASKED.items()}
    found |= {"searches": sums["retrieve searches"] + sums["gate searches"], "pairs": sums["rerank pairs"]}
    return found | {"usd": prices.usd(run.spent)}


def amount(missing: dict[str, Any], kind: str) -> tuple[float, float, float]:
    of = missing["usd"] if kind == "usd" else missing["kinds"][kind]["number"]
    return of["low"], of["expected"], of["high"]


KINDS = ("requests", "searches", "pairs", "usd")


def check_bounds(missing: dict[str, Any], paid: dict[str, float]) -> None:
    for kind in KINDS:
        low, _, high = amount(missing, kind)
        assert low - 1e-6 <= paid[kind] <= high + 1e-6, (kind, paid, missing)


CHANGES: dict[str, tuple[list[str], set[str]]] = {  # settings, and what is known exactly
    "nothing": ([], set(KINDS)),
    "new queries": ([], {"requests"}),
    "prompt": (["rewrite.language=Dutch"], {"requests"}),
    "decoding": (["rewrite.decoding.temperature=0.5"], {"requests"}),
    "model": (["rewrite.engine.model=other"], {"requests"}),
    "index": (
        ["retrieve.retrievers.bm25.index=more", "retrieve.retrievers.dense.index=more-dense"], {"requests", "searches"},
    ),
    "local index": (["retrieve.retrievers.bm25.index=plain", "retrieve.retrievers.bm25.analyzer=unicode"], set(KINDS)),
    "strategy": (["rewrite.strategies=[hyde]"], {"requests"}),
    "steps of a first night": (  # nothing is known of their prompts: settings and documents say how long they may be
        ["store=other", "grade={documents: 2}", "answer={documents: 2}", "judge={relevance: {documents: 2}}"], {"requests"},
    ),
    "no store": (["store=null"], {"requests"}),
    "reranker": (["rerank.max_length=200"], set(KINDS)),
}  # fmt: skip


def build_more(corpus: Path, served_dense: dict[str, Any]) -> None:
    """Indexes with one more document, and one of the same with another analyzer."""
    table = pq.read_table(corpus)
    text = "A lamp of the harbours shines at spring tide, and yeast makes bread rise."
    more = {name: [""] for name in table.column_names} | {"doc_id": ["d09"], "text": [text]}
    pq.write_table(pa.concat_tables([table, pa.table(more, schema=table.schema)]), "more.parquet")
    build_local_index(Path("plain"), corpus, index_fields("unicode"))
    build_local_index(Path("more"), Path("more.parquet"), index_fields("english"))
    build_local_index(Path("more-dense"), Path("more.parquet"), index_fields(encoder=served_dense["encoder"]))


@pytest.mark.parametrize("change", rest_slow(CHANGES, list(CHANGES)[:1]))
def test_the_plan_before_is_the_bill_after(
    night: Callable[..., Job], llm: FakeServer, corpus: Path, served_dense: dict[str, Any], change: str
) -> None:
    settings, exact = CHANGES[change]
    build_more(corpus, served_dense)
    first = bill(run_in_process(night("one")))
    assert first["requests"] == len(QUERIES)
    if change == "new queries":
        log([*QUERIES, *NEW])
    job = night("two", *settings)
    before, asked = stored(), len(llm.bodies)
    missing = planned(job)["missing"]
    assert (stored(), len(llm.bodies)) == (before, asked)  # nothing is written, and nothing is asked
    paid = bill(run_in_process(job))
    check_bounds(missing, paid)
    for kind in exact:
        assert amount(missing, kind) == pytest.approx((paid[kind],) * 3, abs=1e-6), (kind, paid, missing)
    assert missing["unpriced"] == []
    if change == "no store":
        assert paid["requests"] == len(QUERIES)
        assert amount(missing, "searches")[0] >= 2 * len(QUERIES)  # those of the originals are known
    if change == "nothing":
        assert (paid["requests"], paid["pairs"]) == (0, 0)
        assert missing["kinds"]["requests"]["reused"] == len(QUERIES)
    if change == "new queries":
        assert paid["requests"] == len(NEW)


@pytest.mark.slow
def test_the_work_of_a_reranker_is_priced_by_the_last_run(night: Callable[..., Job]) -> None:
    """By its seconds for a pair, within a factor of two; the bill of that run says them apart."""
    Path("prices.yaml").write_text(f"{PRICES}cpu_worker_hour: 3600\n")  # a USD for a second
    (spent,) = [
        of for name, of in open_run(str(run_in_process(night("one")))).spent["rerank"].items() if "start_up" not in name
    ]
    pairs = planned(night("two", "rerank.max_length=200"))["missing"]["kinds"]["pairs"]
    each = spent["seconds"] / spent["pairs"]
    assert pairs["number"]["expected"] == spent["pairs"] + spent.get("reused", 0) > 0
    usd = each * pairs["number"]["expected"]
    assert pairs["usd"] == pytest.approx({"low": usd / 2, "expected": usd, "high": 2 * usd}, abs=1e-5)


def test_without_a_store_few_queries_are_looked_at(night: Callable[..., Job]) -> None:
    """All is missing of each of them; 100,000 took minutes."""
    log([f"lamp {number}" for number in range(4_500)])
    missing = planned(night("one", "store=null", "cluster.shard_size=500"))["missing"]
    assert 1_900 < missing["looked"] <= 2_000 < missing["queries"] == 4_500
    assert missing["kinds"]["requests"]["number"]["expected"] == 4_500


def test_what_a_stopped_run_has_done_is_not_missing(night: Callable[..., Job]) -> None:
    """Nor what it was answered for a shard that was not committed."""
    with full_disk():
        run_in_process(night("one"))
    job = night("one")
    seen = planned(job)
    folder = run_in_process(job)
    paid = Counter[str]()
    for row in pq.read_table(folder / "costs").to_pylist():
        if row["start"] == 2:
            paid.update({name: row[name] or 0 for name in ("searches", "pairs")})
            paid["requests"] += row["requests"] if row["stage"] == "rewrite" else 0
    assert seen["state"] == "begun"
    assert 0 < paid["requests"] == seen["missing"]["kinds"]["requests"]["number"]["expected"] < len(QUERIES)
    assert seen["missing"]["queries"] == seen["left"]["queries"] < len(QUERIES)
    for kind, name in (("searches", "searches"), ("pairs", "pairs")):
        low, _, high = amount(seen["missing"], kind)
        assert low <= paid[name] <= high
    assert planned(job)["missing"] is None  # it is finished


@pytest.mark.slow
def test_what_a_stopped_run_has_spent_counts_towards_its_limit(night: Callable[..., Job]) -> None:
    """Also for answers of a shard that was not committed: the next start has them, at their price."""
    with full_disk():
        run_in_process(night("one", "limits.max_cost_usd=1"))
    seen = planned(night("one", "limits.max_cost_usd=1"))
    spent, (low, _, high) = seen["spent_usd"], amount(seen["missing"], "usd")
    committed = bill(Path(seen["folder"]))["usd"]
    assert spent > committed > 0
    assert over_budget(seen) is None
    short = f"limits.max_cost_usd={spent + low / 2}"
    assert low < spent  # so that what is missing alone would be within this limit
    warning = over_budget(planned(night("one", short)))
    assert warning is not None
    assert warning.startswith(f"the run will stop before its end: {money(spent)} are spent, about ")
    with pytest.raises(Stopped, match=r"are spent, limits\.max_cost_usd is"):
        run_in_process(night("one", short))
    again = planned(night("one", f"limits.max_cost_usd={spent + 2 * high}"))
    assert over_budget(again) is None
    whole = bill(run_in_process(night("one", f"limits.max_cost_usd={spent + 2 * high}")))["usd"]
    assert spent + low - 1e-9 <= whole <= spent + high + 1e-9


@pytest.mark.slow
def test_an_ablation_whose_run_is_finished_is_planned_with_its_own_limit(night: Callable[..., Job]) -> None:
    """Its budget, and what is not looked up, are those of its arms, which the run has none of."""
    limited = "limits.max_cost_usd=1e-6"
    run_in_process(night("one"))
    arms = {"round": {"iterate": {"by": "bm25", "below": 0.5, "documents": 2}}}
    job = night("one", limited, ablate={"arms": arms})
    seen = planned(night("one", limited), job)
    names, cells = (list(map(str, column.cells)) for column in plan_table(seen).columns)
    rows = dict(zip(names, cells, strict=True))
    assert (seen["state"], names.count("missing"), names.count("warning")) == ("finished", 1, 1)
    assert rows["missing"] == "of the 12 queries that are left"
    assert amount(seen["ablation"]["missing"], "rounds")[2] == len(QUERIES)
    usd = money(amount(seen["ablation"]["missing"], "usd")[1])
    assert rows["warning"].startswith(f"the ablation will stop before its end: about {usd} (")
    assert rows["warning"].endswith(f" are expected, limits.max_cost_usd is {money(1e-6)}")
    assert seen["ablation"]["spent_usd"] == 0 < seen["spent_usd"]
    assert over_budget(seen) is None
    with pytest.raises(Stopped, match=r"are spent, limits\.max_cost_usd is"):
        run_in_process(job)
    again = planned(night("one", limited), job)["ablation"]
    assert again["spent_usd"] == pytest.approx(bill(Path(again["folder"]))["usd"])
    assert 0 < again["left"]["queries"] < len(QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [100, 3])  # all five, or some of them
def test_of_a_large_log_some_shards_are_looked_at(
    night: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    run_in_process(night("one"))
    log([*QUERIES, *NEW])
    whole = planned(night("two"))["missing"]
    monkeypatch.setattr("jobs.plan.survey.LOOKED", 8)
    monkeypatch.setattr("jobs.plan.survey.SHARDS", shards)
    some = planned(night("two"))["missing"]
    assert some["looked"] < some["queries"] == whole["queries"] == 15
    of_some, of_whole = (one["kinds"]["requests"] for one in (some, whole))
    assert of_some["reused"] + of_some["number"]["expected"] == pytest.approx(15, abs=0.5)
    assert (of_some["about"], of_whole["about"], of_whole["reused"]) == (True, False, 12)
    low, _, high = amount(some, "requests")
    assert low < high
    assert low <= len(NEW) <= high


@pytest.mark.slow
def test_lists_are_followed_for_some_queries(night: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    run_in_process(night("one"))
    of_whole = planned(night("two", "rerank.max_length=200"))
    monkeypatch.setattr("jobs.plan.survey.FOLLOWED", 6)
    of_some = planned(night("two", "rerank.max_length=200"))
    whole, some = of_whole["missing"], of_some["missing"]
    (pairs, _, same), (low, _, high) = amount(whole, "pairs"), amount(some, "pairs")
    assert pairs == same
    assert low < pairs < high
    for kind, reused in (("requests", 12), ("searches", whole["kinds"]["searches"]["reused"]), ("pairs", 0)):
        assert some["kinds"][kind]["reused"] == pytest.approx(reused, rel=0.3)
        assert (some["kinds"][kind]["about"], whole["kinds"][kind]["about"]) == (kind != "requests", False)
    rows = list(map(str, plan_table(of_some).columns[1].cells))
    assert any(f", about {some['kinds']['searches']['reused']} from the store" in words for words in rows)
    assert amount(some, "searches")[0] < amount(whole, "searches")[0] < amount(some, "searches")[2]


MANY = [f"{one} {other}" for one in ("lamp", "tides", "yeast", "mirror", "harbours") for other in QUERIES[:8]]


@pytest.mark.slow
def test_a_sample_is_paid_for_and_kept(night: Callable[..., Job], llm: FakeServer) -> None:
    first = run_in_process(night("one"))
    log([*QUERIES, *MANY])
    before, asked = planned(night("two"))["missing"], len(llm.bodies)
    seen = planned(night("two"), sample=16)
    missing = seen["missing"]
    assert len(llm.bodies) - asked == missing["sample"]["queries"] == 16
    assert missing["kinds"]["requests"]["number"] == dict.fromkeys(("low", "expected", "high"), len(MANY) - 16)
    assert missing["sample"]["usd"] > 0
    assert json.loads(Path("runs/small/latest.json").read_text())["path"] == str(first)
    job = night("two")
    assert not list(job.prepared.storage.list())  # the run itself has not begun
    for kind in ("searches", "pairs"):
        (low, _, high), (least, _, most) = amount(missing, kind), amount(before, kind)
        assert high - low < most - least
    names, cells = (list(map(str, column.cells)) for column in plan_table(seen).columns)
    assert dict(zip(names, cells, strict=True))["  sample"].startswith("16 queries were paid for, $0.")
    asked = len(llm.bodies)
    paid = bill(run_in_process(job))
    assert len(llm.bodies) - asked == paid["requests"] == len(MANY) - 16
    check_bounds(missing, paid)


@pytest.mark.slow
def test_a_sample_has_the_contexts_and_values_of_its_queries(night: Callable[..., Job], llm: FakeServer) -> None:
    """They are part of what a query, and a prompt, is. Where nothing is missing no sample is paid for."""
    settings = ["log.context_column=turns", "rewrite.select={kind: column, column: who}", "rewrite.calls=separate"]
    turns, who = ["about cats", None, "about dogs", " "], ["general", "keyword", None, "none"]
    table = {"query": QUERIES, "turns": (turns * 3), "who": (who * 3)}
    pq.write_table(pa.table(table), "log.parquet")
    missing = planned(night("one", *settings), sample=100)["missing"]
    assert missing["kinds"]["requests"]["number"]["high"] == 0
    asked = len(llm.bodies)
    run_in_process(night("one", *settings))
    assert "sample" not in planned(night("two", *settings), sample=5)["missing"]
    assert len(llm.bodies) == asked > 0


def test_without_a_store_a_sample_is_refused(night: Callable[..., Job]) -> None:
    with pytest.raises(ConfigError, match=r"^--sample 5: there is no store \(store: null\)"):
        planned(night("one", "store=null"), sample=5)


@pytest.mark.slow
def test_judgements_against_gold_answers_are_known(night: Callable[..., Job], llm: FakeServer) -> None:
    """Of a job that is not begun, and of a sample whose log has no ids."""

    def text(body: dict[str, Any]) -> str:
        return "correct" if "correct or incorrect" in str(body["messages"][0]["content"]) else answer(body)

    llm.text = text
    pq.write_table(pa.table({"id": [f"row {place}" for place in range(len(QUERIES))], "query": QUERIES}), "log.parquet")
    Path("gold.tsv").write_text("".join(f"row {place}\tgold of {query}\n" for place, query in enumerate(QUERIES)))
    judge = ["answer={documents: 2}", "judge={accuracy: {}}", "evaluate.answers=gold.tsv"]
    settings = ["log.id_column=id", "rerank={kind: none}", *judge]
    sampled = planned(night("one", *settings), sample=5)["missing"]["kinds"]["judgements"]
    judged = [body for body in llm.bodies if "correct or incorrect" in str(body["messages"][0]["content"])]
    assert len({str(body["messages"][1]).partition("gold of ")[2] for body in judged}) == 5
    assert sampled["reused"] == 5
    paid = bill(run_in_process(night("one", *settings)))
    assert paid["judgements"] == len(QUERIES) - 5
    again = planned(night("two", *settings))["missing"]["kinds"]["judgements"]
    assert (again["number"]["high"], again["reused"]) == (0, len(QUERIES))


def sample_logs() -> list[Path]:
    return list(Path("runs/small-sample").glob("log-*.parquet"))


@pytest.mark.slow
def test_the_log_of_a_sample_goes_when_it_is_finished(night: Callable[..., Job], llm: FakeServer) -> None:
    """Queries in clear would lie there, where `store forget` names no run; one that was stopped goes on with its log."""
    with pytest.raises(Stopped):
        planned(night("one", "limits.max_cost_usd=0.000001"), sample=3)
    (stopped,) = sample_logs()
    query = pq.read_table(stopped).column("query")[0].as_py()
    told = forget(open_storage("runs/store"), query, open_storage("runs"), dry_run=True)
    assert str(stopped.absolute()) in (told.runs or [])
    paid = planned(night("one"), sample=3)["missing"]["sample"]
    assert paid["queries"] == 3
    assert sample_logs() == []
    told = forget(open_storage("runs/store"), query, open_storage("runs"))
    assert paid["folder"] in (told.runs or [])
    asked = len(llm.bodies)
    assert planned(night("one"), sample=20)["missing"]["sample"]["queries"] == 10  # it is missing again
    assert len(llm.bodies) > asked
    assert sample_logs() == []


@pytest.mark.slow
def test_what_is_too_old_or_forgotten_is_missing(night: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    run_in_process(night("one"))
    forget(open_storage("runs/store"), QUERIES[0], None, others="none")
    log([*QUERIES, *NEW])
    now = time.time
    assert amount(planned(night("two"))["missing"], "requests") == (len(NEW) + 1,) * 3
    monkeypatch.setattr("jobs.chain.store.files.time.time", lambda: now() + 7200)
    missing = planned(night("two", "store_ttl=1h"))["missing"]
    assert amount(missing, "requests") == (len(NEW) + len(QUERIES),) * 3
    check_bounds(missing, bill(run_in_process(night("two", "store_ttl=1h"))))
