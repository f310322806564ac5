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

from cluster.cause import cause
from jobs.__main__ import main
from jobs.cli.command_line.arguments import VERBS, parser

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


# ---------------------------------------------------------------- index


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- plan


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


# ---------------------------------------------------------------- the command that goes on


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
