"""The examples of docs/python.md and the notebook, as they are written, in a folder with the configs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.jobs.whole_runs import PATIENCE, ROOT

QUICKSTART = "configs/quickstart.yaml"


def by_words_alone(folder: Path) -> None:
    """Writes the sample with a quickstart that searches by BM25 alone."""
    shutil.copytree(ROOT / "configs", folder / "configs", ignore=shutil.ignore_patterns("__pycache__"))
    values = yaml.safe_load((folder / QUICKSTART).read_text())
    del values["retrieve"]["retrievers"]["dense"]
    (folder / QUICKSTART).write_text(yaml.safe_dump(values))


PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_examples_of_the_page(tmp_path: Path) -> None:
    """In a process of its own, which prints what the examples print and nothing else."""
    by_words_alone(tmp_path)
    blocks = re.findall(r"^```python\n(?!# \S+\.py\n)(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)  # no files of plug-ins
    assert len(blocks) >= 8
    told = 'import sys; print("---", file=sys.stderr)\n'
    (tmp_path / "page.py").write_text("\n".join(told + block for block in blocks))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == "---\n" * len(blocks)
    assert re.search(r"runs/quickstart-[0-9a-f]{12} finished\n", done.stdout)
    assert "did you mean 'method'? (known: " in done.stdout
    strategies = re.findall(r"^(\w+) 1\.0 \S", done.stdout, re.MULTILINE)
    assert strategies == ["general", "keyword", "pseudo_answer", "core_content"]
    assert "\nevaluating and writing the report 1.0\n" in done.stdout  # of the run that was finished before


def test_every_function_and_class_is_on_the_page() -> None:
    import dmqr

    missing = {name for name in dmqr.__all__ if not re.search(rf"\b{name}\b", PAGE)}
    assert missing <= {"MeasuredQuality"}


def notebook() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    return found


def test_the_notebook_holds_no_output() -> None:
    cells = [cell for cell in notebook()["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.slow
def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel; its frame is that of the command line, and nothing but results is shown."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    by_words_alone(tmp_path)
    (tmp_path / "docs").mkdir()
    opened = nbformat.reads(json.dumps(notebook()), as_version=4)
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
