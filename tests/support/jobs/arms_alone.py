"""Runs of the arms of an ablation by themselves, and in words how the rows of the ablation differ from theirs."""

import copy
import functools
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from cluster.storage.s3_duckdb import kept_duckdb
from jobs.chain.arms.arms import Arm
from jobs.chain.arms.requests import SAMPLES_APART
from jobs.config.config import Config
from jobs.job.measure_checks import deepest_rank
from jobs.job.prepare import prepare
from jobs.job.rewrite import read_rewriting
from jobs.run.job import Job
from rewriters.calls import joint_strategies
from rewriters.settings import SelectAdaptive, SelectAll
from tests.support.jobs.drawn_ablations import PAGES, UNREADABLE, World, answered, build_indexes, embed, refused, score
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer

FAR = 1e-5  # vectors of one text differ in the seventh decimal between batches
STEPS = ("rounds", "grades", "corrections", "answers")  # tables whose rows have an arm
Row = dict[str, Any]
Rows = list[tuple[Any, ...]]


@contextmanager
def world_in(place: Path) -> Iterator[World]:
    """The servers and indexes of drawn configs."""
    read, patch = functools.cache(yaml.safe_load), pytest.MonkeyPatch()
    patch.setattr(
        "rewriters.files.yaml.safe_load", lambda text: copy.deepcopy(read(text))
    )  # a tenth of the time of these tests
    with (
        kept_duckdb(),
        FakeServer(["a", "b", "judge"], text=answered, answer=refused) as llm,
        FakeModels("vllm", "reranker", score=score) as rerankers,
        FakeModels("tei", "encoder", embed=embed) as encoders,
        WebServer("searxng", pages=PAGES) as web,
    ):
        yield World(llm, rerankers, encoders, web, build_indexes(place, encoders))
    patch.undo()


def stored(folder: Path, table: str) -> list[Row]:
    """The rows of a table, of which some jobs have none."""
    return rows(folder, table) if (folder / table).is_dir() else []


def results(folder: Path, arm: str) -> dict[str, Rows]:
    """query_id -> the ranks of an arm."""
    found = defaultdict(list)
    for row in stored(folder, "results"):
        if row["arm"] == arm:
            found[row["query_id"]].append((row["rank"], row["doc_id"], row["score"], row["rerank_score"]))
    return {query: sorted(of) for query, of in found.items()}


def difference(found: dict[str, Rows], wanted: dict[str, Rows], keep: int) -> str:
    """In words, the first query whose ranks differ; empty: none does."""
    if found.keys() != wanted.keys():
        return f"{len(found)} queries have results, not {len(wanted)}"
    for query, of in wanted.items():
        own, due = found[query][:keep], of[:keep]
        if [one[:2] for one in own] != [one[:2] for one in due]:
            return f"{query}: {[one[1] for one in own]}, not {[one[1] for one in due]}"
        for one, other in zip(own, due, strict=True):
            if one[2:] != pytest.approx(other[2:], abs=FAR):
                return f"{query}: scores {one[2:]}, not {other[2:]}"
    return ""


def split(found: list[Row]) -> tuple[list[str], list[list[float]]]:
    """Rows in order, their numbers with a point apart from all else."""
    parts = [
        ({k: v for k, v in row.items() if not isinstance(v, float)}, [v for v in row.values() if isinstance(v, float)])
        for row in found
    ]
    texts = sorted((json.dumps(row, sort_keys=True), numbers) for row, numbers in parts)
    return [text for text, _ in texts], [numbers for _, numbers in texts]


def row_difference(found: list[Row], wanted: list[Row]) -> str:
    """In words, how rows differ, in any order; empty: they do not."""
    (own, own_numbers), (due, due_numbers) = split(found), split(wanted)
    if own != due:
        more, missing = [one for one in own if one not in due], [one for one in due if one not in own]
        return f"{len(own)} rows, not {len(due)}; too many: {more[:2]}; missing: {missing[:2]}"
    near = all(one == pytest.approx(other, abs=FAR) for one, other in zip(own_numbers, due_numbers, strict=True))
    return "" if near else "numbers differ"


def of_arm(folder: Path, table: str, arm: str, is_cut: bool = False) -> list[Row]:
    """The rows of an arm; `is_cut`: without what rounds have added to results of which fewer are written."""
    found = [row | {"arm": ""} for row in stored(folder, table) if row["arm"] == arm]
    return [row | {"new": 0} for row in found] if is_cut and table == "rounds" else found


def texts_of(folder: Path, arm: str | None, strategies: list[str]) -> list[Row]:
    """The rewrites of some strategies; of an arm, in an ablation."""
    named = ("query_id", "strategy", "position", "text", "weight", "search_as", "position_weight", "parsed_as")
    found = [row for row in stored(folder, "rewrites") if row.get("arm") == arm and row["strategy"] in strategies]
    return [{name: row[name] for name in named} for row in found]


def joint_names(config: Config) -> list[str]:
    rewriting = read_rewriting(config)
    return [one.name for one in joint_strategies(rewriting.pool)] if rewriting.calls == "joint" else []


def reads_a_part(config: Config, arm: Config) -> bool:
    """Returns True if an arm reads a part of the config's own joint answer, by the rule in docs/ablations.md."""
    apart = {"strategies", "select", "gate", "store"}
    alike = [one.rewrite.model_dump(exclude=apart) for one in (config, arm)]
    if alike[0] != alike[1] or not arm.rewrite.planned or isinstance(arm.rewrite.select, SelectAdaptive):
        return False
    own, whole = joint_names(arm), joint_names(config)
    return bool(own) and set(own) < set(whole)


def recorded(folder: Path, whole: Path, path: Path) -> None:
    """Writes a recording of a run's answers, whose joint ones are another run's."""
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for of, is_joint in ((folder, False), (whole, True)):
        names = {row["query_id"]: row["query"] for row in rows(of, "queries")}
        for file in (of / "completions").rglob("*.parquet"):
            for row in pq.read_table(file).to_pylist():
                if (row["request"] == "dmqr") == is_joint and row["text"] is not None:
                    texts[names[row["query_id"]]][row["request"].partition("(")[0]] = row["text"]
    path.write_text("".join(json.dumps({"query": query, "completions": of}) + "\n" for query, of in texts.items()))


class Alone:
    """Runs of arms by themselves, each once."""

    def __init__(self, world: World) -> None:
        self._world, self._folders, self.bodies = world, dict[str, Path](), dict[str, set[str]]()

    def folder(self, config: Config) -> Path:
        """The folder of a run of a config, and what it sent in `bodies`."""
        key = config.model_dump_json(exclude={"output", "ablate"})
        if key not in self._folders:
            before = len(self._world.llm.bodies)
            job = prepare(config.model_copy(update={"output": f"alone/{len(self._folders)}"}), "config.yaml")
            self._folders[key] = run_in_process(job)
            self.bodies[key] = {json.dumps(one, sort_keys=True) for one in self._world.llm.bodies[before:]}
        return self._folders[key]

    @property
    def folders(self) -> list[Path]:
        """The folders of all runs so far."""
        return list(self._folders.values())

    def sent(self, config: Config) -> set[str]:
        """Returns what a run of a config sends."""
        self.folder(config)
        return self.bodies[config.model_dump_json(exclude={"output", "ablate"})]


def sampled(arm: Arm) -> Config:
    """The config of an arm, whose seed is that of its sample."""
    if not arm.sample:
        return arm.config
    decoding = arm.config.rewrite.decoding
    decoding = decoding.model_copy(update={"seed": decoding.seed + arm.sample * SAMPLES_APART})
    return arm.config.model_copy(update={"rewrite": arm.config.rewrite.model_copy(update={"decoding": decoding})})


def wrong_arms(
    ablation: Job, folder: Path, config: Config, alone: Alone, arms: list[Arm], sent: set[str] | None = None
) -> list[str]:
    """In words, the arms whose rows are not those of a run; adds what these runs have sent to `sent`.

    Of an arm that reads a part of the config's joint answer, the run is one over a recording of that answer.
    """
    found = []
    for arm in arms:
        own = sampled(arm)
        keep = own.rerank.keep if own.rerank.kind != "none" else own.fuse.keep
        keep = min(keep, config.ablate.keep or deepest_rank(config.evaluate.measures))
        if arm.sample == 0 and reads_a_part(config, own):
            path = Path(f"part-{len(list(Path().glob('part-*')))}.jsonl")
            recorded(alone.folder(own), alone.folder(for_every_query(config)), path)
            wanted = alone.folder(answered_by(own, str(path)))
        else:
            wanted = alone.folder(own)
            if sent is not None:
                sent |= alone.sent(own)
        assert (wanted / "_SUCCESS.json").exists()
        words = {"results": difference(results(folder, arm.name), results(wanted, "run"), keep)}
        for table in STEPS:
            words[table] = row_difference(
                of_arm(folder, table, arm.name, keep < own.results), of_arm(wanted, table, "run", keep < own.results)
            )
        planned, texts_under = own.rewrite.planned, ablation.compiled.rewrites_of(arm.name)
        words["rewrites"] = row_difference(texts_of(folder, texts_under, planned), texts_of(wanted, None, planned))
        words |= {table: missing_rows(folder, wanted, table) for table in ("web", "judgements")}
        words["judgements"] += row_difference(of_arm(folder, "judgements", arm.name), of_arm(wanted, "judgements", "run"))
        found += [f"{arm.name} {dict(arm.changes)}: {table}: {of}" for table, of in words.items() if of]
    return found


def missing_rows(folder: Path, wanted: Path, table: str) -> str:
    """In words, rows of a run that an ablation should have, whatever the arm; empty: none is missing."""
    due, own = ([row | {"arm": ""} for row in stored(of, table)] for of in (wanted, folder))
    known = {json.dumps(row, sort_keys=True) for row in own}
    missing = [row for row in due if json.dumps(row, sort_keys=True) not in known]
    return f"{len(missing)} rows of the run are not there: {missing[:1]}" if missing else ""


def for_every_query(config: Config) -> Config:
    """The config with all strategies for every query, whose joint request is that of the config; and without later steps."""
    rewrite = config.rewrite.model_copy(update={"select": SelectAll(kind="all"), "gate": None})
    steps: dict[str, Any] = dict.fromkeys(("iterate", "grade", "web", "answer", "judge"))
    return config.model_copy(update={"rewrite": rewrite, **steps})


def answered_by(config: Config, recording: str) -> Config:
    """The config with a recording in place of all engines that rewrite."""
    values = config.model_dump()
    values["rewrite"]["engine"] = {"kind": "recorded", "path": recording}
    for one in values["rewrite"]["strategies"]:
        for parameters in one.values() if isinstance(one, dict) else ():
            parameters.pop("engine", None)
    values["rewrite"]["strategies"] = [
        next(iter(one)) if isinstance(one, dict) and not next(iter(one.values())) else one
        for one in values["rewrite"]["strategies"]
    ]
    return Config.model_validate(values)


def asked(world: World) -> list[str]:
    """The requests to all servers so far, but probes, and those that the LLM does not answer well: they are sent again."""
    of_llm = [one for one in world.llm.bodies if refused(one) is None and answered(one) != UNREADABLE]
    servers: dict[str, list[Any]] = {
        "llm": of_llm,
        "reranker": world.rerankers.asked,
        "encoder": world.encoders.asked,
        "web": world.web.texts,
    }
    return [
        f"{name} {number}: {one}" for name, of in servers.items() for number, one in enumerate(of) if "a probe" not in str(one)
    ]


def asked_again(ablation: Job, world: World, first: Path, arms: list[Arm]) -> tuple[Path, list[str]]:
    """Runs an ablation for the second time from the same store: its folder, and in words what is not as it was."""
    known = set(asked(world))
    folder, found = run_in_process(ablation), []
    if more := [one for one in asked(world) if one not in known]:
        found.append(f"again: {len(more)} requests were sent once more, such as {more[0][:300]}")
    for arm in arms:
        was, now = results(first, arm.name), results(folder, arm.name)
        words = {"results": difference(now, was, min(map(len, was.values()), default=0))}
        for table in STEPS:
            words[table] = row_difference(of_arm(folder, table, arm.name, True), of_arm(first, table, arm.name, True))
        found += [f"again: {arm.name}: {table}: {of}" for table, of in words.items() if of]
    return folder, found


def failed_stages(folders: list[Path]) -> list[str]:
    """In words, the exceptions of stages, for which their fallbacks stand in."""
    errors = [(folder, row) for folder in folders for row in stored(folder, "errors") if row["reason"] == "failed"]
    return [f"{folder.parent.name}: {row['stage']} failed: {row['message']}" for folder, row in errors]
