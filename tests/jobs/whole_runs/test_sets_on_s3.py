"""An ablation over sets with run files of another system, all of it on S3, has the table of the same on a disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.storage import copies, open_storage
from jobs.__main__ import main
from jobs.runs.sets.folder import open_sets
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.drawn_sets import SIZES, write_paper, write_run_file

RUNS = ["--set", "ablate.runs={theirs: 'data/{set}.run'}"]


def table(capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capfd.readouterr()
    code = main(["ablate", *words, "--json"])
    seen = capfd.readouterr()
    assert code == 0, seen.err[-3000:]
    found: dict[str, Any] = json.loads(seen.out)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("address", ["none", "local"])
def test_sets_and_run_files_on_s3_are_those_of_a_disk(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], address: str
) -> None:
    monkeypatch.setenv(copies.FOLDER, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    paper = write_paper(tmp_path)
    for name, (queries, documents) in SIZES.items():
        write_run_file(tmp_path / "data", name, queries, documents)
    here = table(capfd, "paper.yaml", *RUNS)
    storage = open_storage(s3.fresh("paper"))
    for path in (path for path in (tmp_path / "data").rglob("*") if path.is_file()):
        storage.upload(path, str(path.relative_to(tmp_path)))
    values = paper.read_text().replace('"data/', f'"{storage.url("data/")}').replace('"index/', f'"{storage.url("index/")}')
    values = values.replace("output: runs", f"output: {storage.url('runs/')}").replace(
        "{address: none}", f"{{address: {address}, shard_size: 10}}"
    )
    Path("s3.yaml").write_text(values)
    runs = ["--set", f"ablate.runs={{theirs: '{storage.url('data/{set}.run')}'}}"]
    there = table(capfd, "s3.yaml", *runs)
    assert there["comparisons"] == here["comparisons"]
    assert [one["arm"] for one in there["comparisons"]["lists"]["arms"]].count("theirs") == 1
    folder = open_sets(there["folder"])
    assert folder is not None
    assert folder.finished
    assert there["folder"].startswith("s3://")
    assert all(folder.storage.get(name) for name in ("report.html", "table.tex", "per_query.parquet"))
    again = table(capfd, "s3.yaml", *runs)  # a finished one is shown again
    assert again == there
    sheet = storage.url("sheet.tsv")
    assert main(["evaluate", there["folder"], "--pairs", "--unjudged", sheet, "--json"]) == 0
    pairs = json.loads(capfd.readouterr().out)["comparisons"]["lists"]["pairs"]
    assert len(pairs) == 2 * 15
    assert (storage.get("sheet.tsv") or b"").startswith(b"set\tlog_id\tdoc_id\tgrade")
