"""From a YAML file to a config: `--set`, dates, labels. Refused values: tests/refusals.yaml; defaults: docs/config.md."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.config.load import load_config

Write = Callable[[Any], str]
Values = dict[str, Any]

# ---------------------------------------------------------------- what is taken

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("rewrite", [{"strategies": []}, {"select": "never"}])
def test_an_engine_is_needed_only_where_something_is_rewritten(config_file: Write, values: Values, rewrite: Values) -> None:
    values["rewrite"] = rewrite
    assert load_config(config_file(values)).rewrite.planned == []


def test_the_two_nights_differ_in_their_strategies_alone() -> None:
    four, two = (yaml.safe_load(Path(CONFIGS, f"{name}.yaml").read_text()) for name in ("nightly", "nightly-two"))
    for values, strategies in ((four, 4), (two, 2)):
        del values["name"]
        assert len(values["rewrite"].pop("strategies")) == strategies
        values["rewrite"].pop("calls", None)
    assert four == two


# ---------------------------------------------------------------- the file


def test_a_merged_block_may_be_overridden(config_file: Write, values: Values) -> None:
    del values["retrieve"]
    text = yaml.safe_dump(values) + (
        "retrieve:\n  retrievers:\n    one: &one {kind: local, index: a}\n    two: {<<: *one, index: b}\n"
    )
    assert load_config(config_file(text)).retrieve.retrievers["two"].index == "b"


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.yaml: cannot be read: No such file"):
        load_config(str(tmp_path / "no.yaml"))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(str(tmp_path))
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(ConfigError, match=r"bytes\.yaml: cannot be read"):
        load_config(str(tmp_path / "bytes.yaml"))


# ---------------------------------------------------------------- --set


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("name=other", lambda c: c.name == "other"),
        ("fuse.k=7", lambda c: c.fuse.k == 7),
        ("fuse.weights={keyword: 0}", lambda c: c.fuse.weights == {"keyword": 0}),
        ("fuse.weights.keyword=0.5", lambda c: c.fuse.weights == {"keyword": 0.5}),
        ("log.path=[a, b]", lambda c: c.log.path == ["a", "b"]),
        ("log.path=a=b.parquet", lambda c: c.log.path == "a=b.parquet"),
        ("log.id_column=", lambda c: c.log.id_column is None),
        ("rerank.kind=none", lambda c: c.rerank.kind == "none"),
        ("retrieve.keep_runs=false", lambda c: c.retrieve.keep_runs is False),
        ("retrieve.retrievers.more={kind: local, index: i}", lambda c: list(c.retrieve.retrievers) == ["bm25", "more"]),
        (" fuse.k =7", lambda c: c.fuse.k == 7),
    ],
)
def test_set(config_file: Write, values: Values, setting: str, found: Callable[[Config], bool]) -> None:
    assert found(load_config(config_file(values), [setting]))


# ---------------------------------------------------------------- {date}


def test_the_date_is_filled_in_everywhere(config_file: Write, values: Values) -> None:
    values["log"]["path"] = ["a/date={date}/", "b/{date}.parquet"]
    values["output"] = "runs/{date}"
    config = load_config(config_file(values), ["rewrite.engine.path=rec-{date}.jsonl"], "2026-01-31")
    assert config.log.path == ["a/date=2026-01-31/", "b/2026-01-31.parquet"]
    assert config.output == "runs/2026-01-31"
    assert config.rewrite.engine is not None
    assert config.rewrite.engine.path == "rec-2026-01-31.jsonl"


def test_the_date_is_the_last_whole_day_unless_it_is_named(
    config_file: Write, values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Clock:
            there = cls(
                2026, 3, 1, 0, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=9))
            )  # 15:30 of the day before, UTC
            return there.astimezone(tz)

    monkeypatch.setattr(datetime, "datetime", Clock)
    values["output"] = "{date}"
    assert load_config(config_file(values)).output == "2026-02-27"


# ---------------------------------------------------------------- label


def test_the_date_of_the_log_is_the_label_unless_there_is_one(config_file: Write, values: Values) -> None:
    values["log"]["path"] = ["logs/date={date}/", "more/"]
    config = load_config(config_file(values), date="2026-01-31")
    assert (config.log.date, config.label, config.shown_label) == ("2026-01-31", None, "2026-01-31")
    config = load_config(config_file(values), date="2026-01-31", label="new-prompt")
    assert (config.log.date, config.shown_label) == ("2026-01-31", "new-prompt")
    values["label"] = "of-{date}"
    assert load_config(config_file(values), date="2026-01-31").shown_label == "of-2026-01-31"


def test_a_date_elsewhere_is_not_the_date_of_the_log(config_file: Write, values: Values) -> None:
    values["output"] = "runs/{date}"
    assert load_config(config_file(values), date="2026-01-31").shown_label is None


def test_a_log_may_say_its_own_date(config_file: Write, values: Values) -> None:
    assert load_config(config_file(values), ["log.date=2026-01-31"]).shown_label == "2026-01-31"


@pytest.mark.parametrize("label", ["a/b", "", "-a", "a b", "x" * 65])
def test_a_label_that_no_folder_can_have_is_refused(config_file: Write, values: Values, label: str) -> None:
    with pytest.raises(ConfigError, match=r"--label .* cannot be part of a folder's name; use up to 64 letters"):
        load_config(config_file(values), label=label)


@pytest.mark.parametrize("date", ["2026-02-30", "yesterday", "31.01.2026", "20260131", "2026-W05-6"])
def test_no_date(config_file: Write, values: Values, date: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(config_file(values), date=date)
    assert str(refused.value) == f"--date {date!r} is not a date; write it as 2026-01-31"


def test_lists_in_lists_without_end_are_refused(config_file: Write) -> None:
    with pytest.raises(ConfigError, match="not YAML: maximum recursion depth"):
        load_config(config_file("name: " + "[" * 3000 + "]" * 3000))


def test_a_path_that_is_right_from_the_folder_of_the_config_is_refused_with_that_folder(
    tmp_path: Path, values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there" / "log").mkdir(parents=True)
    (tmp_path / "there" / "qrels.tsv").write_text("")
    monkeypatch.chdir(tmp_path)

    def load(**changed: Any) -> Config:
        Path("there/config.yaml").write_text(yaml.safe_dump(values | changed))
        return load_config("there/config.yaml")

    beside = f"no such file or folder in {tmp_path}, the current folder, where relative paths start"
    with pytest.raises(ConfigError, match=f"^log: {beside}; the file is beside the config: write there/log, or"):
        load(log=values["log"] | {"path": ["log"]})
    with pytest.raises(ConfigError, match=f"qrels.tsv: {beside}; the file is beside the config: write there"):
        load(evaluate={"qrels": "qrels.tsv"}, log=values["log"] | {"path": "there"})
    (tmp_path / "log").mkdir()
    assert load(log=values["log"] | {"path": "log"}, output="there").log.path == "log"
