"""Output of `tune`: a config that loads, with what was chosen and no more, and the page."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml

from jobs.config.config import Config
from jobs.config.load import config_of, load_config
from jobs.pages.tune import tuning_page
from jobs.tune.config_file import HEADER, tuned_values, write_tuned
from jobs.tune.search import TuningStep
from jobs.tune.tune import EQUAL, tune
from tests.support.jobs.terminals import printed
from tests.support.jobs.tuned_runs import Judged, half, judged_run, names_of, only_bm25


def written(judged: Judged, folder: Path) -> tuple[Config, str]:
    """The config that a tuning writes, its text, and the names of the files."""
    path = str(folder / "tuned.yaml")
    write_tuned(judged.run, tune(*judged), "qrels.tsv", path)
    return load_config(path), Path(path).read_text(encoding="utf-8")


def test_learnt_weights_are_all_that_changes(tmp_path: Path) -> None:
    judged = judged_run(tmp_path, only_bm25, names_of(80))
    config, text = written(judged, tmp_path)
    weights = config.fuse.retriever_weights
    assert weights["bm25"] > weights["dense"]
    assert config.model_copy(update={"fuse": judged.run.config.fuse}) == judged.run.config
    assert config.fuse.model_copy(update={"retriever_weights": {}}) == judged.run.config.fuse
    assert text.startswith(HEADER)
    assert "# retriever weights" in text
    assert "# equal weights" in text


def test_weights_that_lose_are_taken_out(tmp_path: Path) -> None:
    fuse = {"weights": {"general": 0.0, "keyword": 0.0}, "retriever_weights": {"dense": 0.1}, "depth": 20}
    config, text = written(judged_run(tmp_path, half, names_of(80), fuse=fuse), tmp_path)
    assert config.fuse.model_dump(exclude_defaults=True) == {"depth": 20}
    assert "# the config's weights" in text


def test_never_rewriting_is_a_selection(tmp_path: Path) -> None:
    def good(draw: Random, name: str, strategy: str, retriever: str) -> bool:
        return strategy == "original" and draw.random() < 0.8

    config, text = written(judged_run(tmp_path, good, names_of(60)), tmp_path)
    assert config.rewrite.select.kind == "never"
    assert "tuning beats equal weights: +" in text


def nightly(draw: Random, day: str) -> dict[str, Any]:
    """Content of a config's file, in which texts have `{date}`, a day of their own or the log's, or none."""

    def text(form: str) -> str:
        return form.format(draw.choice(["{date}", "{date}", day, "2025-12-01", "all"]))

    log = {"path": [text("logs/{}/"), text("more/{}.parquet")], "query_column": "query"}
    indexes = {name: {"kind": "local", "index": text(f"{name}/{{}}")} for name in ("bm25", "dense")}
    return {
        "name": "nightly", "output": text("runs-of-{}"), **draw.choice([{}, {"label": text("from-{}")}]),
        "log": log | draw.choice([{}, {"date": "{date}"}, {"date": day}]),
        "rewrite": {"strategies": []}, "retrieve": {"retrievers": indexes}, "evaluate": {"qrels": text("judged/{}.tsv")},
    }  # fmt: skip


def tuned(config: Config, file: dict[str, Any] | None) -> dict[str, Any]:
    settings = config.fuse.model_copy(update={"weights": {}, "retriever_weights": {}, "redundancy": "overlap"})
    return tuned_values(config, TuningStep(EQUAL, np.zeros(1), settings), file)


@pytest.mark.parametrize("seed", range(8))
def test_a_tuned_config_is_that_of_every_night(seed: int) -> None:
    """As its file is: another date fills the same places, and a day that the file has stays."""
    file = nightly(Random(seed), "2026-01-31")
    written_down = yaml.safe_dump(tuned(config_of(deepcopy(file), "file", date="2026-01-31"), file))
    for day in ("2026-01-31", "2026-02-01"):
        assert config_of(yaml.safe_load(written_down), "tuned", date=day) == config_of(deepcopy(file), "file", date=day)


def test_without_its_file_every_day_of_the_log_is_that_of_the_night() -> None:
    file = nightly(Random(1), "2026-01-31") | {"label": "trial-{date}", "output": "runs/{date}"}
    file["log"] = {"path": "logs/{date}/", "query_column": "query"}
    file["evaluate"] = {"qrels": "judged/2025-12-01.tsv"}
    config = config_of(deepcopy(file), "file", date="2026-01-31")
    found = tuned(config, None)
    assert file["log"].items() <= found["log"].items()
    assert {name: found[name] for name in ("label", "output", "evaluate")} == {
        "label": "trial-{date}", "output": "runs/{date}", "evaluate": {"qrels": "judged/2025-12-01.tsv"},
    }  # fmt: skip
    fixed = {"path": "log.parquet", "query_column": "query", "date": "2026-01-31"}
    assert tuned(Config.model_validate(config.model_dump() | {"log": fixed}), None)["log"] == fixed


def test_what_the_command_line_gave_is_of_the_night(tmp_path: Path) -> None:
    judged = judged_run(tmp_path, half, names_of(20), label="trial", output="runs/2026-01-31")
    tuning, record = tune(*judged), judged.run.record
    record["config"]["log"] |= {"path": "logs/2026-01-31/", "date": "2026-01-31"}
    values = record["config"] | {"label": "other", "log": record["config"]["log"] | {"path": "logs/{date}/", "date": "{date}"}}
    for name, output in (("own", "runs/{date}"), ("set", "runs")):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(values | {"output": output}))
    for number, (name, label) in enumerate((("own", "other"), ("set", "trial"), ("gone", "trial"))):
        known = tmp_path / f"{name}.yaml"
        path = tmp_path / f"tuned-{number}.yaml"
        write_tuned(replace(judged.run, record=record | {"config_file": str(known)}), tuning, "qrels.tsv", str(path))
        text = path.read_text()
        values = yaml.safe_load(text)
        assert (values["log"]["path"], values["output"], values.get("label")) == ("logs/{date}/", "runs/{date}", label)
        assert "# {date}: the day of the log; the run had 2026-01-31" in text
        assert ("# label: that of the run, trial; take it out if --label gave it" in text) == (label == "trial")


def test_where_no_weights_win_the_page_says_so_and_none_are_written(tmp_path: Path) -> None:
    judged = judged_run(tmp_path, half, names_of(60))
    config, text = written(judged, tmp_path)
    assert config == judged.run.config
    assert "weights" not in yaml.safe_load(text).get("fuse", {})
    lines = printed(tuning_page(tune(*judged), "tuned.yaml"), 80).splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split("  ")[0].strip() for line in lines[1:7]]
    assert names == ["original alone", "equal weights *", "redundancy none", "retriever weights", "strategy weights", ""]
    assert "nDCG@10, held out" in lines[0]
    text = " ".join(" ".join(lines).split())
    assert "tuning beats original alone: +" in text
    assert "no query's value is by a setting that it had a part in" in text
    assert "its row is too good by being chosen: chosen without each fold, it has a mean of " in text
