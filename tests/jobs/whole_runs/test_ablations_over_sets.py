"""An ablation over two data sets from ten lines of YAML to one table, against trec_eval and scipy on its run files."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from scipy import stats

import dmqr
from cluster.errors import ConfigError
from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.measure.arrays import Floats
from jobs.measure.export.trec import run_tags
from jobs.measure.significance import holm
from jobs.runs.folder import find_runs
from jobs.runs.sets.folder import open_sets
from jobs.runs.status import read_status
from jobs.verbs.whole_sets import warnings_of_sets
from tests.support.jobs.drawn_sets import PAPER, write_paper
from tests.support.jobs.webhook import Webhook

ROOT = Path(__file__).parents[3]
ARMS = ["full", "original", "general", "keyword", "by rank"]
SETS = ["birds", "tools"]
TREC = {"nDCG@10": "ndcg_cut_10", "R@5": "recall_5"}


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the finished ablation; tests change nothing in it."""
    place = tmp_path_factory.mktemp("paper")
    write_paper(place)
    before = Path.cwd()
    os.chdir(place)
    try:
        assert main(["ablate", "paper.yaml"]) == 0
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def there(paper: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(paper)
    return paper


def folder_of(place: Path) -> Path:
    (found,) = place.glob("runs/paper-*")
    return found


def values_of(call: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert call() == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def measured_apart(place: Path, trec: Path) -> dict[tuple[str, str, str], Floats]:
    """Set, arm, measure -> the values of its judged queries, by trec_eval on the run files and the sets' own judgements."""
    found = {}
    for name in SETS:
        qrels: dict[str, dict[str, int]] = {}
        for line in (place / f"data/{name}/qrels.tsv").read_text().splitlines():
            key, doc, grade = line.split("\t")
            qrels.setdefault(key, {})[doc] = int(grade)
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, set(TREC.values()))
        for file in (trec / name).glob("*.run"):
            lines = [line.split() for line in file.read_text().splitlines()]
            run: dict[str, dict[str, float]] = {key: {} for key in qrels}
            for key, _, doc, rank, _, _ in lines:
                run[key][doc] = -float(rank)
            by_key = evaluator.evaluate(run)
            arm = next(one for one, tag in run_tags(ARMS).items() if tag == file.stem)
            for measure, named in TREC.items():
                found[name, arm, measure] = np.array([by_key.get(key, {}).get(named, 0.0) for key in qrels])
    return found


def test_ten_lines_make_five_arms_over_two_sets() -> None:
    assert len(PAPER.splitlines()) == 10


def test_the_table_is_that_of_trec_eval_and_the_tests_those_of_scipy(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(there)
    command = ["evaluate", str(folder), "--trec", str(tmp_path), "--no-header", "--json"]
    found = values_of(lambda: main(command), capsys)["comparisons"]["lists"]
    apart = measured_apart(there, tmp_path)
    assert {key[:2] for key in apart} == {(name, arm) for name in SETS for arm in ARMS}
    arms = {one["arm"]: one["measures"] for one in found["arms"]}
    for measure in TREC:
        welch = {}
        for arm in ARMS:
            of_sets = [apart[name, arm, measure] for name in SETS]
            moved = [apart[name, arm, measure] - apart[name, "original", measure] for name in SETS]
            one = arms[arm][measure]
            for name, values in zip(SETS, of_sets, strict=True):
                assert one["sets"][name]["mean"] == pytest.approx(values.mean(), abs=1e-9)
            assert one["mean"] == pytest.approx(np.mean([values.mean() for values in of_sets]), abs=1e-9)
            assert one["difference"] == pytest.approx(np.mean([values.mean() for values in moved]), abs=1e-9)
            signs = [int(np.sign(np.round(values.mean(), 9))) for values in moved]
            assert (one["wins"], one["ties"], one["losses"]) == tuple(map(signs.count, (1, 0, -1)))
            if arm != "original":
                test = stats.ttest_ind(moved[0], -moved[1], equal_var=False)
                welch[arm] = test.pvalue
                low, high = test.confidence_interval(0.95)
                assert (one["p"], one["low"], one["high"]) == pytest.approx((test.pvalue, low / 2, high / 2), rel=1e-6)
        corrected = dict(zip(welch, holm(np.array(list(welch.values()))).tolist(), strict=True))
        assert {arm: arms[arm][measure]["p_holm"] for arm in welch} == pytest.approx(corrected, rel=1e-6)


def test_the_latex_table_has_these_values(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(there)
    found = values_of(lambda: main(["evaluate", str(folder), "--json"]), capsys)["comparisons"]["lists"]
    text = (folder / "table.tex").read_text()
    rows = {line.partition(" & ")[0].removesuffix(r"$^{\S}$"): line for line in text.splitlines() if line.endswith(r"\\")}
    assert set(ARMS) < rows.keys()
    for one in found["arms"]:
        cells = [re.sub(r"\\(textbf|underline)|[{}]|\$.*\$", "", cell) for cell in rows[one["arm"]][:-3].split(" & ")[1:]]
        measures = [one["measures"][name] for name in ("nDCG@10", "R@5")]
        wanted = [of["sets"][name]["mean"] for name in SETS for of in measures] + [of["mean"] for of in measures]
        assert [cell.strip() for cell in cells[:6]] == [f"{value:.3f}" for value in wanted]
        better = [of["p_holm"] is not None and of["p_holm"] < 0.05 for of in measures]
        marked = [r"\uparrow" in cell or r"\downarrow" in cell for cell in rows[one["arm"]].split(" & ")[5:7]]
        assert marked == better
    assert r"\multicolumn{2}{c}{birds} & \multicolumn{2}{c}{tools} & \multicolumn{2}{c}{Mean}" in text
    assert "W/T/L" in text


@pytest.mark.slow
def test_each_set_is_an_ablation_that_stands_alone_would_be(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = open_sets(str(folder_of(there)))
    assert sets is not None
    assert sets.finished
    inner = {name: Path(place).name for name, place in sets.folders.items()}
    assert all(re.fullmatch(f"{name}-[0-9a-f]{{12}}", found) for name, found in inner.items())
    alone = [
        "ablate",
        "paper.yaml",
        "--json",
        "--set",
        "ablate.sets=[tools]",
        "--set",
        "output=elsewhere",
        "--set",
        "store=null",
    ]
    assert main(alone) == 0
    (tools,) = Path("elsewhere").glob("paper-*/tools-*")
    assert tools.name == inner["tools"]
    assert (tools / "report.html").exists()


@pytest.mark.slow
def test_the_same_command_shows_it_again_and_the_terminal_has_the_sets_as_columns(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["ablate", "paper.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(folder_of(there).resolve())
    head = next(line for line in lines if line.startswith("nDCG@10"))
    assert head.split() == ["nDCG@10", "birds", "tools", "mean", "difference", "95", "%", "interval", "p", "sets"]
    assert any("no test over sets as draws: of 2 its p is 0.5 at least; it takes 6 sets or more" in line for line in lines)
    assert {path.name for path in folder_of(there).iterdir()} >= {"report.html", "table.tex", "per_query.parquet", "run.json"}


@pytest.mark.slow
def test_means_of_lists_that_were_cut_above_a_measure_are_marked(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(folder_of(there)), "--measures", "nDCG@10,R@50"]) == 0
    shown = capsys.readouterr().out
    first, second = shown.partition("\nR@50")[::2]
    rows = {arm: line for arm in ("original", "keyword") for line in second.splitlines() if line.startswith(arm)}
    assert [len(re.findall(r"\d\.\d{4}[^ ]*\*", line)) for line in rows.values()] == [3, 3]
    assert "*" not in first
    assert "* R@50 looked at 10 of 50: every arm; what stands behind was cut off" in shown
    assert main(["report", str(folder_of(there)), "--measures", "R@50"]) == 0
    assert "looked at 10 of 50" in (folder_of(there) / "report.html").read_text()
    assert main(["report", str(folder_of(there))]) == 0


def test_the_page_has_all_sets_and_leads_to_theirs(there: Path) -> None:
    folder = folder_of(there)
    page = (folder / "report.html").read_text()
    for place in folder.glob("*/report.html"):
        assert f'href="{place.parent.name}/report.html"' in page
    assert all(f">{arm}<" in page.replace("<wbr>", "") for arm in ARMS)
    assert "Over 2 sets" in page
    assert "✓ finished" in page
    (folder / "report.html").unlink()
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text() == page


@pytest.fixture
def again(there: Path) -> Iterator[Path]:
    """The folder of all, for a start that names other recipients; what it writes there is put back."""
    folder = folder_of(there)
    before = {folder / name: (folder / name).read_bytes() for name in ("run.json", "report.html")}
    yield folder
    for path, data in before.items():
        path.write_bytes(data)


def test_an_end_that_was_not_told_is_told_by_the_next_start(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was killed after its last set, before its page was written."""
    (again / "report.html").unlink()
    with Webhook() as hook:
        monkeypatch.setenv("HOOK", hook.address)
        assert main(["ablate", "paper.yaml", "--set", "notify=[{webhook_env: HOOK}]"]) == 0
        assert [(one["event"], one["run_id"]) for one in hook.bodies] == [("end", again.name)]
    assert (again / "report.html").exists()


def test_python_has_the_warnings_of_all_sets(again: Path) -> None:
    ablation = dmqr.ablate("paper.yaml", notify=[{"command": ["no-program"]}])
    begins = ["notify: there is no program no-program; ", "fuse.redundancy: overlap in place of cosine"]
    assert [words[: len(begin)] for words, begin in zip(ablation.warnings, begins, strict=True)] == begins
    shown = html.unescape(ablation._repr_html_())
    assert all(f"warning: {words}" in shown for words in ablation.warnings)


def test_a_budget_that_each_set_has_for_itself_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_paper(tmp_path, ("cups", "pens", "rugs"))
    (tmp_path / "prices.yaml").write_text("cpu_worker_hour: 0.05\n")

    def said(verb: Callable[..., Any], sets: list[str], **limits: float) -> list[str]:
        return [one for one in verb("paper.yaml", ablate__sets=sets, **limits).warnings if "max_cost_usd" in one]

    (words,) = said(dmqr.plan, ["cups", "pens", "rugs"], limits__max_cost_usd=4.5)
    assert words.startswith("limits.max_cost_usd: $4.50 are the limit of each of the 3 sets, $13.50 that of all of them; ")
    (words,) = said(dmqr.ablate, ["cups", "pens"], limits__max_cost_usd=2)
    assert "$2.00 are the limit of each of the 2 sets, $4.00 that of all" in words
    assert said(dmqr.plan, ["cups"], limits__max_cost_usd=2) == said(dmqr.plan, ["cups", "pens"]) == []


def test_a_warning_that_is_not_of_all_sets_names_those_that_it_is_of() -> None:
    said = {"birds": ("of all", "of birds"), "tools": ("of two", "of all", "of all"), "songs": ("of two", "of all")}
    assert warnings_of_sets(said) == ("of all", "set birds: of birds", "sets tools, songs: of two")
    assert warnings_of_sets({"birds": ("of birds",)}) == ("of birds",)


@pytest.mark.slow
def test_python_has_the_same_figures(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ablation = dmqr.ablate("paper.yaml")
    assert isinstance(ablation, dmqr.SetsAblation)
    printed = values_of(lambda: main(["ablate", "paper.yaml", "--json"]), capsys)
    assert json.loads(json.dumps(ablation.values)) == printed
    opened = dmqr.open(ablation.folder)
    assert isinstance(opened, dmqr.SetsAblation)
    assert opened.values == ablation.values
    rows = opened.quality(measures=["R@5"]).table.to_pylist()
    assert {(row["set"], row["measure"]) for row in rows} == {(name, "R@5") for name in (*SETS, None)}
    of_full = {row["set"]: row["mean"] for row in rows if row["arm"] == "full"}
    arms = printed["comparisons"]["lists"]["arms"]
    assert of_full[None] == pytest.approx(next(one for one in arms if one["arm"] == "full")["measures"]["R@5"]["mean"])
    assert opened.sets["birds"].arms == ARMS
    rows = pq.read_table(folder_of(there) / "per_query.parquet").to_pylist()
    assert {row["set"] for row in rows} == set(SETS)
    assert len(rows) == opened.quality().per_query.num_rows


def test_verbs_that_list_and_look_up_find_the_sets_and_others_name_them(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(there)
    listed = values_of(lambda: main(["runs", "paper.yaml", "--json"]), capsys)["runs"]
    assert sorted(one["name"] for one in listed) == SETS
    assert all(one["run_id"].startswith(f"{folder.name}/") for one in listed)
    whole = [name for name, _ in find_runs(open_storage("runs"), "paper", whole=True)]
    assert whole == [folder.name]
    assert read_status(str(folder)).state == "finished"
    for command in (["diff", str(folder), str(folder)], ["tune", str(folder)], ["replay", str(folder), "--reason", "x"]):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "is an ablation over sets; give the folder of one of them" in line
    for command in (["evaluate", str(folder), "data/birds/qrels.tsv"], ["report", str(folder), "--samples", "3"]):
        assert main(command) == 2
        assert "over sets, which have" in capsys.readouterr().err


@pytest.mark.slow
def test_plan_says_what_each_set_lacks(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(there)
    found = values_of(lambda: main(["plan", "paper.yaml", "--json"]), capsys)
    assert found["folder"] == str(folder.resolve())
    assert list(found["sets"]) == SETS
    assert [one["queries"] for one in found["sets"].values()] == [24, 37]
    assert main(["plan", "paper.yaml"]) == 0
    assert "birds:" in capsys.readouterr().out


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_paper(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_one_set_that_fails_is_named_and_the_same_command_goes_on_with_it(
    fresh: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (fresh / "data/tools/recorded.jsonl").read_text()
    (fresh / "data/tools/recorded.jsonl").write_text("not JSON\n")
    assert main(["ablate", "paper.yaml"]) == 2  # before anything is done
    assert "dmqr ablate: set tools: " in capsys.readouterr().err
    assert not list(fresh.glob("runs/paper-*"))
    (fresh / "data/tools/recorded.jsonl").write_text(whole)

    from jobs.run import run as running

    done: list[str] = []
    real = running.run

    def breaks(job: Any, *rest: Any) -> Any:
        done.append(job.prepared.config.name)
        if job.prepared.config.name == "tools":
            raise OSError(28, "No space left on device")
        return real(job, *rest)

    monkeypatch.setattr(running, "run", breaks)
    assert main(["ablate", "paper.yaml"]) == 1
    assert "dmqr ablate: set tools: " in capsys.readouterr().err.splitlines()[-1]
    folder = folder_of(fresh)
    sets = open_sets(str(folder))
    assert sets is not None
    assert (sets.state, done) == ("stopped", SETS)
    with pytest.raises(ConfigError, match="the set tools has not begun"):
        sets.opened()
    (birds,) = folder.glob("birds-*")
    committed = {path: path.stat().st_mtime_ns for path in (birds / "commits").iterdir()}
    monkeypatch.setattr(running, "run", real)
    assert main(["ablate", "paper.yaml"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (birds / "commits").iterdir()} == committed
    again = open_sets(str(folder))
    assert again is not None
    assert again.finished


@pytest.mark.slow
def test_a_set_without_judgements_is_in_no_mean_and_says_so(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "ablate.sets.birds.qrels=data/birds/qrels.tsv", "--set", "ablate.sets.tools={}"]
    values = (fresh / "paper.yaml").read_text().replace('qrels: "data/{set}/qrels.tsv", ', "").replace("[birds, tools]", "{}")
    (fresh / "paper.yaml").write_text(values)
    found = values_of(lambda: main(["ablate", "paper.yaml", "--json", *settings]), capsys)["comparisons"]["lists"]
    assert list(found["sets"]) == ["birds"]
    assert any(note.startswith("warning: tools is not measured") for note in found["notes"])
    assert "Mean" not in (folder_of(fresh) / "table.tex").read_text().partition("tabular")[2].partition("tabular")[0]


@pytest.mark.slow
def test_index_builds_those_of_all_sets_and_takes_no_other_corpus(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "paper.yaml", "--corpus", "data/birds/corpus.jsonl"]) == 2
    assert "the config has sets (birds, tools), of which each names its own" in capsys.readouterr().err
    assert main(["index", "paper.yaml"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["index/birds", "index/tools"]
    assert main(["run", "paper.yaml"]) == 0
    (log,) = fresh.glob("runs/paper-*/logs/*.jsonl")
    assert "this is the set birds alone" in log.read_text()


@pytest.mark.slow
def test_what_the_table_shows_is_by_choice(fresh: Path) -> None:
    table = {
        "arms": {"full": "DMQR", "original": "Query alone"}, "measures": ["R@5"], "digits": 1, "percent": True,
        "caption": "Our table.", "label": "tab:ours", "marks": "none", "wins": False,
    }  # fmt: skip
    assert main(["ablate", "paper.yaml", "--set", f"ablate.table={json.dumps(table)}"]) == 0
    text = (folder_of(fresh) / "table.tex").read_text()
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [row.partition(" & ")[0] for row in rows[2:]] == ["DMQR", "Query alone"]
    assert all(len(row.split(" & ")) == 4 for row in rows[1:])
    assert all(re.search(r"\d\d\.\d", row) for row in rows[2:])
    assert r"\caption{Our table.}" in text
    assert r"\label{tab:ours}" in text
    assert "arrow" not in text
    assert "each with the same weight" in text  # below the table
    assert main(["ablate", "paper.yaml", "--set", "ablate.table.arms=[ful]"]) == 2


@pytest.mark.slow
def test_the_ten_lines_of_the_docs_are_a_table_over_folders_of_beir(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = values_of(lambda: main(["ablate", "paper.yaml", "--json"]), capsys)["comparisons"]["lists"]
    page = (ROOT / "docs" / "ablations.md").read_text().partition("## Several sets")[2]
    lines = page.partition("```yaml\n")[2].partition("```")[0].splitlines()
    assert len(lines) <= 10
    Path("beir.yaml").write_text("\n".join([*lines, "cluster: {address: none}"]))
    for name, of in zip(("scifact", "musique"), SETS, strict=True):
        folder = Path("data") / name
        (folder / "qrels").mkdir(parents=True)
        for file in ("queries", "recorded"):
            (folder / f"{file}.jsonl").write_text((Path("data") / of / f"{file}.jsonl").read_text())
        (folder / "corpus.jsonl").write_text((Path("data") / of / "corpus.jsonl").read_text().replace('"doc_id"', '"_id"'))
        (folder / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{(Path('data') / of / 'qrels.tsv').read_text()}")
    found = values_of(lambda: main(["ablate", "beir.yaml", "--json"]), capsys)["comparisons"]["lists"]
    assert list(found["sets"]) == ["scifact", "musique"]
    for one, other in zip(plain["arms"], found["arms"], strict=True):
        for measure, figures in one["measures"].items():
            of_sets = [of["mean"] for of in other["measures"][measure]["sets"].values()]
            assert of_sets == [of["mean"] for of in figures["sets"].values()]
            assert other["measures"][measure]["p"] == figures["p"]
