"""The command line: verbs, exit codes, and one line on standard error instead of a trace."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import rewriters
from cluster.cause import cause
from jobs.__main__ import main
from jobs.cli.command_line.arguments import VERBS, parser, program

ROOT = Path(__file__).parents[3]


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that `main` says when it refuses."""
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code
    printed = capfd.readouterr()
    assert code == 2
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["rnu", "config.yaml"],
            f"dmqr: unknown verb 'rnu'; did you mean 'run'? (known: {', '.join(VERBS)})",
        ),
        (["indx"], "dmqr: unknown verb 'indx'; did you mean 'index'?"),
        (
            ["zzz"],
            f"dmqr: unknown verb 'zzz' (known: {', '.join(VERBS)})",
        ),
        (["run"], "dmqr run: CONFIG is missing: a YAML file, e.g. configs/quickstart.yaml; see dmqr run --help"),
        (["run", "a.yaml", "b.yaml"], "dmqr run: 'b.yaml' is one argument too many; see dmqr run --help"),
        (["report"], "dmqr report: RUN is missing: a run's folder, or <output>/<name> for its newest finished run"),
        (["index", "--corpus", "a.parquet"], "dmqr index: CONFIG is missing: a YAML file"),
        (["help", "rnu"], "dmqr: unknown verb 'rnu'; did you mean 'run'?"),
        (["run", "config.yaml", "--sett", "a=b"], "dmqr run: unknown argument '--sett'; did you mean '--set'? (known: "),
        (["plan", "config.yaml", "--js"], "dmqr plan: unknown argument '--js'; did you mean '--json'?"),
        (["try", "query alone"], "dmqr try: CONFIG is missing: a YAML file, e.g. configs/quickstart.yaml"),
        (["try", "a.yaml", "two", "words"], "dmqr try: 'two', 'words': one QUERY is sent, in quotes; a CONFIG is a YAML file"),
        (["--print-completion", "bsh"], "dmqr: unknown shell 'bsh'; did you mean 'bash'?"),
    ],
)
def test_refused_with_exit_code_2_and_one_line(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(arguments, capfd).startswith(words.format(here=tmp_path))


@pytest.mark.parametrize("verb", ["run", "plan", "index", "try"])
def test_settings_and_date_reach_every_verb(
    verb: str, values: dict[str, Any], config_file: Callable[[Any], str], capfd: pytest.CaptureFixture[str]
) -> None:
    more = {"index": ["--corpus", "c.parquet"], "try": ["a query"]}.get(verb, [])
    line = refused([verb, config_file(values), *more, "--set", "fuse.dept=3"], capfd)
    assert "fuse.dept: unknown key; did you mean 'depth'?" in line
    assert "--date 'soon' is not a date" in refused([verb, config_file(values), "--date", "soon", *more], capfd)


@pytest.mark.parametrize(
    ("words", "configs", "query"),
    [
        ("a.yaml q", ["a.yaml"], "q"),
        ("a.yaml --set b=c d.yaml q", ["a.yaml", "d.yaml"], "q"),
        ("a.yaml d.yaml --json q --set b=c", ["a.yaml", "d.yaml"], "q"),
        ("q a.yaml", ["a.yaml"], "q"),
        ("a.yaml", ["a.yaml"], None),
        ("a.yaml there d.yml", ["a.yaml", "there", "d.yml"], None),
        ("a.yaml -- -q", ["a.yaml"], "-q"),
        ("a.yaml folder", ["a.yaml"], "folder"),
        ("a.yaml 'what is b.yaml'", ["a.yaml"], "what is b.yaml"),
        (f"a.yaml {'q' * 300}", ["a.yaml"], "q" * 300),
    ],
)
def test_options_stand_anywhere_and_the_query_is_told_from_the_configs(
    words: str, configs: list[str], query: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("name: there")
    Path("folder").mkdir()
    options = parser().parse_args(["try", *shlex.split(words)])
    assert (options.config, options.query) == (configs, query)


@pytest.mark.parametrize(
    "words", ["c.yaml --corpus a b", "--corpus a b c.yaml", "--corpus a c.yaml --corpus b", "--corpus a b --json c.yaml"]
)
def test_the_config_may_stand_behind_the_corpus(words: str) -> None:
    options = parser().parse_args(["index", *words.split()])
    assert (options.config, options.corpus) == ("c.yaml", ["a", "b"])


@pytest.mark.parametrize("arguments", [[], ["help"], ["help", "try"]])
def test_help_without_dashes(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    printed = capfd.readouterr()
    assert printed.out.startswith("usage: dmqr try" if arguments[1:] else "usage: dmqr")
    assert printed.err == ""


@pytest.mark.parametrize("arguments", [["--print-completion", "bash"], ["--help"]])
def test_a_reader_that_goes_away_early_is_no_fault(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        command = [sys.executable, "-m", "jobs", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=400, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_breaks_elsewhere_is_a_failure(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(_: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("jobs.cli.verbs.plan", broken)
    assert main(["plan", "job.yaml"]) == 1
    assert capfd.readouterr().err.startswith("dmqr plan: Broken pipe; what stood at the other end")


def test_help_names_the_verbs(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    printed = capfd.readouterr().out
    assert [verb for verb in VERBS if verb not in printed] == []


def test_help_imports_no_library_that_takes_long() -> None:
    slow = ["ray", "torch", "transformers", "FlagEmbedding", "pyarrow", "numpy", "duckdb", "pydantic", "yaml", "boto3", "rich"]
    code = (
        "import sys\nfrom jobs.__main__ import main\n"
        "try:\n    main(['run', '--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {slow} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_refusal_of_the_real_command_shows_no_trace(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobs", "run", str(tmp_path / "none.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    said = f"dmqr run: {tmp_path}/none.yaml: cannot be read: No such file or directory; "
    assert done.stderr == f"{said}give a YAML file like configs/quickstart.yaml [config-file]\n"


# ---------------------------------------------------------------- index


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_index_builds_what_the_config_names_and_then_has_nothing_to_do(
    here: Path, values: dict[str, Any], config_file: Callable[[Any], str], corpus: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values["retrieve"]["retrievers"]["more"] = {"kind": "local", "index": "other", "analyzer": "unicode"}
    command = ["index", config_file(values), "--corpus", str(corpus)]
    assert main(command) == 0
    assert capfd.readouterr().out.splitlines() == [
        "index: 8 documents, built; analyzer english: 100 % of 8 documents look English", "other: 8 documents, built",
    ]  # fmt: skip
    assert main(command) == 0
    assert "exists already" in capfd.readouterr().out


# ---------------------------------------------------------------- plan


def test_plan_says_what_a_run_would_do_and_writes_nothing(
    here: Path, values: dict[str, Any], config_file: Callable[[Any], str], corpus: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"query": ["sea", " Sea", "bread", "", None]}), "log.parquet")
    (here / "recorded.jsonl").write_text('{"query": "sea", "completions": {"dmqr": "{}"}}\n')
    values |= {"rerank": {"kind": "none"}, "cluster": {"shard_size": 1}}
    config = config_file(values)
    main(["index", config, "--corpus", str(corpus)])
    capfd.readouterr()
    assert main(["plan", config]) == 0
    out = capfd.readouterr().out
    said = {line.split("  ")[0].strip(): line for line in out.splitlines()}
    assert "5 rows in 1 file, 2 rejected" in said["log"]
    assert "2 distinct in 2 shards" in said["queries"]
    assert "0 of 2 shards committed: nothing done yet" in said["state"]
    assert said["requests"].split() == ["requests", "1", "a", "query"]
    assert " searches 2 lists that are not kept 2 " in " ".join(out.split())  # the recording has no rewrite of either
    assert said["workers"].endswith(f"{os.cpu_count()} cores here")
    assert "not in money: there is no prices.yaml beside" in said["cost"]
    assert [path for path in (here / "runs").rglob("*") if path.is_file()] == []
    assert main(["plan", config, "--set", "rewrite.select=never"]) == 0
    said = {line.split("  ")[0].strip(): line for line in capfd.readouterr().out.splitlines()}
    assert said["requests"].endswith("none: the original alone")


@pytest.mark.slow
def test_a_prompt_that_no_request_sends_is_warned_of(
    here: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ours = yaml.safe_load((Path(rewriters.__file__).parent / "strategies" / "keyword.yaml").read_text())
    (here / "keyword.yaml").write_text(yaml.safe_dump(ours | {"prompt": "Only keywords, please: {query}"}))
    values["rewrite"]["strategies"] = ["general", "./keyword.yaml", "pseudo_answer", "core_content"]
    pq.write_table(pa.table({"query": ["sea"]}), "log.parquet")
    answers = dict.fromkeys(("dmqr", "general", "keyword", "pseudo_answer", "core_content"), "{}")
    (here / "recorded.jsonl").write_text(json.dumps({"query": "sea", "completions": answers}) + "\n")
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    config = config_file(values | {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none"}})

    def warnings(*words: str) -> list[str]:
        assert main([*words]) == 0
        events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
        return [one["message"] for one in events if one["event"] == "warning"]

    for words in (["plan", config], ["try", config, "sea"], ["run", config]):
        (said,) = warnings(*words)
        assert said.startswith("strategy 'keyword': its prompt is not sent, since one request asks for several strategies: ")
        assert said.endswith("set rewrite.calls: separate, or joint: false in its file")
    assert warnings("plan", config, "--set", "rewrite.calls=separate") == []
    (folder,) = (here / "runs").glob("small-*")
    assert main(["report", str(folder)]) == 0
    assert f"dmqr report: cost: not in money: there is no prices.yaml beside {config} (--prices FILE)" in capfd.readouterr().err


# ---------------------------------------------------------------- run


def test_a_run_is_done_even_if_its_report_cannot_be_written(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")
    values["rewrite"] = {"strategies": []}
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none"}}
    config = config_file(values)
    monkeypatch.setattr("jobs.pages.report.report", lambda *_, **__: 1 / 0)
    assert main(["run", config]) == 0
    printed = capfd.readouterr()
    folder = Path(printed.out.splitlines()[-1])
    (warning,) = [line for line in map(json.loads, printed.err.splitlines()) if line["event"] == "warning"]
    assert "the report was not written: division by zero" in warning["message"]
    assert warning["message"].partition("try again with: ")[2].endswith(f" report {folder}")
    assert "ZeroDivisionError" in warning["trace"]
    assert (folder / "_SUCCESS.json").exists()
    (log,) = (folder / "logs").glob("*.jsonl")
    assert log.read_text() == printed.err
    assert main(["runs", str(folder)]) == 0
    assert "finished" in capfd.readouterr().out
    monkeypatch.undo()
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").exists()
    # What was reported before the end is not what the finished run names.
    (folder / "report.html").write_text("of a moment before the end")
    (folder / "_SUCCESS.json").unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["run", config]) == 0
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_a_run_is_done_even_if_its_evaluation_fails(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """DuckDB runs out of memory after _SUCCESS: the closing table, the report and the folder come, and a line says it."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")
    Path("qrels.tsv").write_text("sea\td1\t1\n")
    values["rewrite"] = {"strategies": []}
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none"}, "evaluate": {"qrels": "qrels.tsv", "key": "query"}}
    config = config_file(values)
    monkeypatch.setattr("jobs.measure.judged_rows.MEMORY", "1MB")
    assert main(["run", config]) == 0
    printed = capfd.readouterr()
    folder = Path(printed.out.splitlines()[-1])
    (warning,) = [line["message"] for line in map(json.loads, printed.err.splitlines()) if line["event"] == "warning"]
    assert warning.startswith("the run is finished, its evaluation failed: ")
    assert "needs more memory than its 1MB" in warning
    assert warning.partition("try again with: ")[2].endswith(f" report {folder}")
    assert "its evaluation failed" in printed.out
    assert "report.html" in "".join(printed.out.split())  # a long path is wrapped
    assert (folder / "_SUCCESS.json").exists()
    assert (folder / "report.html").exists()
    assert main(["run", config, "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["evaluation"] is None
    assert "its evaluation failed" in shown["notes"][0]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(folder)]) == 0
    assert (folder / "evaluation.json").exists()


# ---------------------------------------------------------------- the command that goes on


def test_the_program_is_named_as_it_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bin/dmqr", "bin/python"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin/python"))
    for called, typed in (
        (tmp_path / "bin/dmqr", f"{tmp_path}/bin/dmqr"),
        ("jobs/__main__.py", f"{tmp_path}/bin/python -m jobs"),
    ):
        monkeypatch.setattr("sys.argv", [str(called)])
        assert program() == typed
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert program() == "python -m jobs"
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin/dmqr")])
    assert program() == "dmqr"


def test_an_interpreter_without_our_packages_says_so_in_one_line(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    bare = [sys.executable, "-S", "-m", "jobs", "run", "config.yaml"]  # as `python` of a node whose environment is not active
    done = subprocess.run(bare, cwd=root, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"dmqr: {sys.executable}: has no package ")
    assert line.endswith("or submit with --pip [package-missing]")


def test_what_a_worker_was_refused_is_said_before_what_lies_beneath_it() -> None:
    raised = (
        "\x1b[36mray::MapWorker()\x1b[39m\n"
        "httpx.ConnectError: [Errno -2] Name or service not known\n\nThe above exception was the direct cause of ...:\n\n"
        "  File 'engine.py', line 1, in _load\n"
        "cluster.errors.RewriterError: engine 'vllm': a/b cannot be loaded: OSError: no connection; correct rewrite.engine\n"
    )
    assert cause(RuntimeError(raised)) == "engine 'vllm': a/b cannot be loaded: OSError: no connection; correct rewrite.engine"
    assert cause(RuntimeError("ray.exceptions.RayTaskError: a\nZeroDivisionError: by zero")) == "ZeroDivisionError: by zero"
