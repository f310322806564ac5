"""Configs as they are sent: the same job with its small files; and the manifests of a job."""

import functools
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from cluster.errors import ConfigError
from cluster.kuberay.worker_groups import WorkerGroup, fixed_pools, worker_groups
from cluster.run.job_server import SubmittedJob
from cluster.run.pool_sizes import Pool, PoolRequest
from jobs.__main__ import main
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.submit import sent_config as module
from jobs.submit.ids import find_job, next_id, parsed_id
from jobs.submit.render import job_name, rendered
from jobs.submit.sent_config import sent_config
from jobs.submit.submit import package_lists
from rewriters.settings import identity_fields
from tests.support.cluster.manifest_schemas import check
from tests.support.jobs.whole_runs import ROOT

CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("*.yaml") if path.name != "prices.yaml")

BASE = "night-2026-01-31-0123456789ab"


def known(config: Config) -> dict[str, Any]:
    """Content of the fingerprint, but for where the log lies."""
    fields = identity_fields(config)
    return fields | {"log": {key: value for key, value in fields["log"].items() if key != "path"}}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_is_the_same_job_when_it_is_read_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load_config(f"configs/{name}", date="2026-01-31", label="here")
    sent = sent_config(config)
    (tmp_path / name).write_text(yaml.safe_dump(sent.values, sort_keys=False, allow_unicode=True))
    for place, file in sent.files.items():
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    there = load_config(name, date="1999-01-01")
    assert known(there) == known(config)
    assert (there.name, there.shown_label, there.cluster.address) == (config.name, "here", "auto")
    assert there.cluster == config.cluster.model_copy(update={"address": "auto"})
    assert Path(there.output).is_absolute() or there.output.startswith("s3://")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sent(values: dict[str, Any], config_file: Callable[[Any], str]) -> tuple[dict[str, Any], dict[str, Path]]:
    return sent_config(load_config(config_file(values)))[:2]


def test_files_of_arms_are_sent_too_and_each_once(
    values: dict[str, Any], config_file: Callable[[Any], str], place: Path
) -> None:
    for name in ("one", "two"):
        (place / f"{name}.yaml").write_text("x")
    values["rewrite"]["strategies"] = ["general", {"./one.yaml": {"n": 2}}]
    values["ablate"] = {
        "arms": {"b": {"rewrite.strategies": ["./two.yaml", "keyword"], "fuse.k": 9}},
        "grid": {"rewrite.strategies": [["./one.yaml"], ["general"]], "fuse.k": [1, 2]},
    }
    found, files = sent(values, config_file)
    one, two = "submitted/files/1/one.yaml", "submitted/files/2/two.yaml"
    assert files == {one: place / "one.yaml", two: place / "two.yaml"}
    assert found["rewrite"]["strategies"] == ["general", {one: {"n": 2}}]
    assert found["ablate"]["arms"] == {"b": {"rewrite.strategies": [two, "keyword"], "fuse.k": 9}}
    assert found["ablate"]["grid"] == {"rewrite.strategies": [[one], ["general"]], "fuse.k": [1, 2]}


@pytest.mark.parametrize("select", ["adaptive", "all", {"kind": "classified"}])
def test_paths_of_arms_are_told_by_the_kind_that_they_change_to(
    values: dict[str, Any], config_file: Callable[[Any], str], place: Path, select: Any
) -> None:
    (place / "rules.yaml").write_text("x")
    (place / "weights").mkdir()
    values["rewrite"]["select"] = select
    values["retrieve"]["retrievers"] = {"bm25": {"kind": "local", "index": "i"}, "far": {"kind": "elastic", "index": "docs"}}
    vllm, name = {"kind": "vllm", "model": "weights"}, "retrieve.retrievers"
    retriever = {"kind": "local", "index": "index", "encoder": {"model": "weights"}}
    arms = {
        "apart": {"rewrite.select.kind": "classified", "rewrite.select.rules": "rules.yaml"},
        "whole": {"rewrite.select": {"kind": "classified", "rules": "rules.yaml"}, "rewrite.engine": vllm},
        "other": {name: {"dense": retriever, "far": {"kind": "elastic", "index": "docs"}}},
        "new": {f"{name}.dense.kind": "local", f"{name}.dense.index": "other"},
        "to_local": {f"{name}.far.kind": "local", f"{name}.far.index": "other"},
        "to_elastic": {f"{name}.bm25.kind": "elastic", f"{name}.bm25.index": "docs"},
    }
    values["ablate"] = {"arms": arms}
    found, files = sent(values, config_file)
    rules = "submitted/files/1/rules.yaml"
    assert files == {rules: place / "rules.yaml"}
    known_there = {"rules.yaml": rules} | {name: f"{place}/{name}" for name in ("weights", "index", "other")}

    def there(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: there(one) for key, one in value.items()}
        return known_there.get(value, value)

    assert found["ablate"]["arms"] == there(arms)


def test_a_name_that_we_ship_is_no_file_of_the_current_folder(
    values: dict[str, Any], config_file: Callable[[Any], str], place: Path
) -> None:
    """As a run here, which reads a file of its own only where the name has the form of a path."""
    for name in ("english", "answer", "iterate", "three_grades", "relevance", "web_query", "joint", "mine.yaml"):
        (place / name).write_text("x")
    values["rewrite"] |= {"select": {"kind": "classified", "rules": "english"}, "joint_prompt": "joint"}
    search = {"provider": "searxng", "base_url": "http://searxng:8888"}
    written = {
        "answer": {"prompt": "answer"},
        "iterate": {"prompt": "iterate", "by": "bm25", "below": 1, "rounds": 1},
        "grade": {"prompt": "three_grades"},
        "judge": {"relevance": {"prompt": "relevance"}},
        "web": {"prompt": "web_query", "search": search, "documents": 2},
    }
    arms = {
        "apart": {"rewrite.select.rules": "english", "answer.prompt": "answer", "judge.relevance.prompt": "relevance"},
        "whole": {"answer": {"prompt": "answer"}, "rewrite.select": {"kind": "classified", "rules": "english"}},
        "own": {"rewrite.select.rules": "./english", "answer.prompt": "mine.yaml"},
    }
    config = load_config(config_file(values | written | {"ablate": {"arms": arms}}))
    found, files, _ = sent_config(config)
    assert found["rewrite"]["select"] == {"kind": "classified", "rules": "english"}
    names = ("answer", "iterate", "grade", "web")
    assert [found[name]["prompt"] for name in names] == ["answer", "iterate", "three_grades", "web_query"]
    assert found["judge"]["relevance"]["prompt"] == "relevance"
    sent_own = found["ablate"]["arms"].pop("own")
    assert found["ablate"]["arms"] == {name: arms[name] for name in ("apart", "whole")}
    assert [Path(path).name for path in sent_own.values()] == ["english", "mine.yaml"]
    assert files == {path: place / Path(path).name for path in [found["rewrite"]["joint_prompt"], *sent_own.values()]}


def test_judgements_are_sent_where_they_are_small(
    values: dict[str, Any], config_file: Callable[[Any], str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values["evaluate"] = {"qrels": "qrels.tsv", "answers": "s3://b/answers.tsv"}
    (place / "qrels.tsv").write_text("1\td01\t1\n")
    found, files = sent(values, config_file)
    assert found["evaluate"] == {"qrels": "submitted/files/1/qrels.tsv", "answers": "s3://b/answers.tsv"}
    assert list(files.values()) == [place / "qrels.tsv"]
    monkeypatch.setattr(module, "MOST_BYTES", 5)
    found, files = sent(values, config_file)
    assert (found["evaluate"]["qrels"], files) == (f"{place}/qrels.tsv", {})


def known_job(job_id: str, status: str = "FAILED", started: float = 0) -> SubmittedJob:
    return SubmittedJob(job_id, status, {}, "", None, started)


@given(some.integers(1, 30), some.sampled_from([BASE, "a-0123456789ab", "a-2-0123456789ab"]))
def test_attempts_count_up_whatever_else_the_server_knows(made: int, base: str) -> None:
    jobs = [known_job("raysubmit_x"), known_job("b-0123456789ab-2"), known_job(f"{base[:-12]}ffffffffffff")]
    ids = []
    for _ in range(made):
        ids.append(next_id(jobs, base))
        jobs.insert(0, known_job(ids[-1]))
    assert ids == [base, *(f"{base}-{n}" for n in range(2, made + 1))]
    assert [parsed_id(one) for one in ids] == [(base, number) for number in range(1, made + 1)]
    assert find_job(jobs, base).id == ids[-1]
    assert all(find_job(jobs, one).id == one for one in ids[1:])


def test_requirements(place: Path) -> None:
    (place / "some.txt").write_text("# ours\nsix==1.17.0   # small\n\nattrs[x]>=2 ; python_version > '3'\n")
    assert package_lists(["some.txt", "a @ git+https://host/a.git"], None) == {
        "pip": ["six==1.17.0", "attrs[x]>=2 ; python_version > '3'", "a @ git+https://host/a.git"]
    }
    assert package_lists(None, ["six"]) == {"uv": ["six"]}
    assert package_lists(None, None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [("-r other.txt", "names other files"), ("-e .", "names other files"), ("a @ https://u:p@h/a.whl", "a user or a password")],
)
def test_requirements_that_cannot_be_sent(place: Path, text: str, words: str) -> None:
    (place / "some.txt").write_text(text)
    with pytest.raises(ConfigError, match=words):
        package_lists(None, ["some.txt"])


NIGHTLY = str(ROOT / "configs/nightly.yaml")

Manifest = dict[str, Any]


@functools.cache
def text_of(*settings: str) -> str:
    return rendered(load_config(NIGHTLY, list(settings), "2026-01-31"), NIGHTLY)


def documents(*settings: str) -> tuple[Manifest, Manifest]:
    config_map, job = yaml.safe_load_all(text_of(*settings))
    return config_map, job


def groups(job: Manifest) -> dict[str, int]:
    return {group["groupName"]: group["maxReplicas"] for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]}


VARIANTS: dict[str, tuple[str, ...]] = {
    "as it stands": (),
    "a pool that grows": ("cluster.rerank.workers={min: 2, max: 6}",),
    "nothing said": ("cluster={}",),
    "much said": ("rewrite.engine.args={tensor_parallel_size: 2}", "cluster.rewrite={workers: 2}", "label=try-1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_is_valid(variant: str) -> None:
    for document in documents(*VARIANTS[variant]):
        check(document)
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,46}[a-z0-9])?", document["metadata"]["name"])
        assert document["metadata"]["namespace"] == "dmqr"
    assert "$" not in text_of(*VARIANTS[variant]).partition("---")[2].partition("apiVersion")[2]


def test_the_job_reads_the_config_in_its_volume(tmp_path: Path) -> None:
    words = tmp_path / "judged.tsv"
    words.write_text("q1\t0\td1\t1\n")
    config_map, job = documents(f"evaluate.qrels={words}")
    (volume,) = (
        one["configMap"]
        for one in job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"]
        if one["name"] == "config"
    )
    files = {f"/etc/dmqr/{item['path']}": config_map["data"][item["key"]] for item in volume["items"]}
    verb, place, *_ = shlex.split(job["spec"]["entrypoint"])[1:]
    (tmp_path / "there.yaml").write_text(files[place])
    there, here = load_config(str(tmp_path / "there.yaml")), load_config(NIGHTLY, date="2026-01-31")
    assert verb == "run"
    assert there.evaluate.qrels is not None
    assert files[there.evaluate.qrels] == words.read_text()
    assert files["/etc/dmqr/prices.yaml"] == (ROOT / "configs/prices.yaml").read_text()
    assert there.model_copy(update={"cluster": here.cluster, "evaluate": here.evaluate}) == here


def test_what_is_too_large_for_a_config_map_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "judged.tsv"
    large.write_text("q1\t0\td1\t1\n" * 104_000)
    with pytest.raises(ConfigError, match="a ConfigMap takes"):
        text_of(f"evaluate.qrels={large}")


def test_the_verb_prints_the_job_and_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", NIGHTLY, "--render", "--date", "2026-01-31"]) == 0
    assert capsys.readouterr().out == text_of()
    assert main(["submit", NIGHTLY, "--render", "--pip", "six"]) == 2
    assert "--pip: does not apply to --render" in capsys.readouterr().err


def test_an_ablation_has_room_for_the_engines_of_all_arms(tmp_path: Path) -> None:
    large = {"rewrite.engine": {"kind": "vllm", "model": "org/large", "args": {"tensor_parallel_size": 2}}}
    settings = ["cluster={}", "rerank={kind: none}", f"ablate.arms={json.dumps({'larger': large})}"]
    config = load_config(NIGHTLY, settings, "2026-01-31")
    _, job = yaml.safe_load_all(rendered(config, NIGHTLY, "ablate"))
    assert groups(job) == {"cpu": 2, "gpu-1": 1, "gpu-2": 1}
    assert job["spec"]["entrypoint"] == "dmqr ablate /etc/dmqr/nightly.yaml --log json"


def test_pools_become_worker_groups() -> None:
    _, job = documents("cluster.rerank.workers={min: 2, max: 6}")
    assert groups(job) == {"cpu": 1, "gpu-1": 10}
    container = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][1]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/dmqr:0.1.0-gpu"
    assert container["resources"]["limits"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}


def test_workers_that_share_a_gpu_share_a_pod() -> None:
    pools = {"rewrite": Pool(2, 1, 2), "retrieve": Pool(5, 2, 0.5), "rerank": Pool(3, 6, 0)}
    assert worker_groups(pools) == [
        WorkerGroup("cpu", 6, 0, 4),
        WorkerGroup("gpu-1", 8, 1, 3),
        WorkerGroup("gpu-2", 16, 2, 2),
    ]
    assert fixed_pools({"rerank": PoolRequest(can_use_gpu=True)}) == {"rerank": Pool(1, 4, 0)}


def test_other_jobs_have_other_names() -> None:
    assert job_name("nightly", "2026-01-31") == "nightly-2026-01-31"
    long = "search-rewrites-experiment-with-reranker-"
    parts = [("night",), ("night_ly",), ("night-ly",), ("2026",), (f"{long}a",), (f"{long}b",)]
    parts += [("night", "one", "2026-01-31"), ("night-one", "2026-01-31"), ("night", "ablate", "2026-01-31")]
    assert len({job_name(*one) for one in parts}) == len(parts)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?", job_name(*one)) for one in parts)
