"""Every example of --help and of the notebook works as it is written."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dmqr.arguments import VERB_NAMES, documented, function_of
from tests.support.jobs.whole_runs import PATIENCE, ROOT, rows

ON_A_CLUSTER = ("submit", "logs", "stop")  # tests/jobs/submit/test_on_a_cluster.py types them

EXAMPLES = {verb: documented(function_of(verb))[2] for verb in VERB_NAMES}

HERE = [verb for verb in VERB_NAMES if verb not in ON_A_CLUSTER]

Done = dict[str, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "configs", place / "configs")
    return place


def typed(command: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(command)
    assert program == "dmqr"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "jobs", *words, *more],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    return {name: typed(EXAMPLES[name], folder) for name in HERE}


@pytest.mark.slow
@pytest.mark.parametrize("verb", HERE)
def test_the_example_works_as_written(verb: str, done: Done, folder: Path) -> None:
    assert done[verb].returncode == 0, done[verb].stderr
    assert EXAMPLES[verb].startswith(f"dmqr {verb} ")
    assert [line for line in done[verb].stdout.splitlines() if len(line) > 80 and str(folder) not in line] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_pages_show_what_the_run_prints(page: str, done: Done) -> None:
    shown = re.findall(r"^```text\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for text in shown for line in text.splitlines() if "..." not in line]
    assert len(lines) > 5
    assert [line for line in lines if line not in done["run"].stdout.splitlines()] == []


@pytest.mark.slow
def test_try_finds_what_the_run_has_found(done: Done, folder: Path) -> None:
    run = Path(done["run"].stdout.splitlines()[-1])
    trial = json.loads(typed(EXAMPLES["try"], folder, "--json").stdout)[0]
    of_run = sorted((row for row in rows(run, "results") if row["query_id"] == trial["query_id"]), key=lambda row: row["rank"])
    lists = ("strategy", "position", "retriever", "rank")
    assert [hit["doc_id"] for hit in trial["results"]] == [row["doc_id"] for row in of_run]
    for hit, row in zip(trial["results"], of_run, strict=True):
        there = [[one[key] for key in lists] for one in row["sources"]]
        assert [[one[key] for key in lists] for one in hit["sources"]] == there
        # vectors move by 1e-7 with the batch that they are computed in, so a rounded cosine by its last digit
        scores = [one["score"] for one in hit["sources"]]
        assert scores == pytest.approx([one["score"] for one in row["sources"]], abs=2e-6)
        assert hit["score"] == pytest.approx(row["score"], abs=1e-5)
    written = [row["text"] for row in rows(run, "rewrites") if row["query_id"] == trial["query_id"]]
    assert sorted(written) == sorted(rewrite["text"] for rewrite in trial["rewrites"])


def cells(text: str) -> list[list[str]]:
    """The words of each line, without the lines of boxes."""
    return [found for line in text.splitlines() if (found := re.sub("[│┌┐└┘├┤─┬┴┼]", " ", line).split())]


@pytest.mark.slow
def test_the_tables_page_shows_what_its_examples_print(done: Done, folder: Path) -> None:
    """The examples before the recipes, all of them together, in a folder with configs/ and runs/."""
    page = (ROOT / "docs/results-and-tables.md").read_text(encoding="utf-8").partition("\n## Recipes\n")[0]
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-c", "\n".join(text for kind, text in blocks if kind == "python")]
    example = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert example.returncode == 0, example.stderr
    printed = cells(example.stdout)
    shown = [line for kind, text in blocks if kind == "text" for line in cells(text) if "..." not in line]
    timed = {"retrieve", "rewrite", "fuse", "write"}
    missing = [line for line in shown if line not in printed and not (line[0] in timed and len(line) == 6)]
    assert missing == []


@pytest.mark.slow
def test_json_of_a_finished_run(done: Done, folder: Path) -> None:
    again = json.loads(typed(EXAMPLES["run"], folder, "--json").stdout)
    assert again["folder"] == done["run"].stdout.splitlines()[-1]
    assert again["counts"]["queries"] == again["log"]["queries"] == 176
    planned = json.loads(typed(EXAMPLES["plan"], folder, "--json").stdout)
    assert (planned["state"], planned["left"]["queries"]) == ("finished", 0)


@pytest.mark.slow
def test_completion_in_a_real_shell(folder: Path) -> None:
    script = typed("dmqr --print-completion bash", folder).stdout
    (folder / "completion").write_text(script)
    asked = 'source completion; COMP_WORDS=(dmqr ru); COMP_CWORD=1; _dmqr; echo "${COMPREPLY[@]}"'
    found = subprocess.run(["bash", "-c", asked], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert sorted(found.stdout.split()) == ["run", "runs"]


PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_every_function_and_class_is_on_the_page() -> None:
    import dmqr

    missing = {name for name in dmqr.__all__ if not re.search(rf"\b{name}\b", PAGE)}
    assert missing <= {"MeasuredQuality"}


NOTEBOOK = (ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8")


def test_the_notebook_holds_no_output() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK)["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.slow
def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel; its frame is that of the command line, and nothing but results is shown."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shutil.copytree(ROOT / "configs", tmp_path / "configs", ignore=shutil.ignore_patterns("__pycache__"))
    quickstart = tmp_path / "configs" / "quickstart.yaml"
    values = yaml.safe_load(quickstart.read_text())
    del values["retrieve"]["retrievers"]["dense"]  # searches by BM25 alone
    quickstart.write_text(yaml.safe_dump(values))
    (tmp_path / "docs").mkdir()
    opened = nbformat.reads(NOTEBOOK, as_version=4)
    opened.cells.append(nbformat.v4.new_code_cell("import json; print(run.folder); print(json.dumps(quality.values))"))
    client = nbclient.NotebookClient(
        opened, timeout=PATIENCE, kernel_name="python3", resources={"metadata": {"path": str(tmp_path / "docs")}}
    )
    executed = client.execute()
    *shown, (last,) = [cell.outputs for cell in executed.cells if cell.cell_type == "code"]
    assert [one for of in shown for one in of if one.output_type == "stream"] == []
    tables = [one.data["text/html"] for of in shown for one in of if "text/html" in one.get("data", {})]
    assert any("nDCG@10" in table for table in tables)
    folder, frame = last.text.splitlines()
    command = [sys.executable, "-m", "jobs", "evaluate", folder, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(frame) == json.loads(done.stdout)
