"""Ablations, also over sets, tell once; the section reaches no worker, no fingerprint, and a cluster by names alone."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.run.pool_sizes import Pool
from jobs.__main__ import main
from jobs.chain.store.files import NO_STORE
from jobs.config.load import load_config
from jobs.job.keys import identity_fields
from jobs.submit.sent_config import as_sent, sent_config
from tests.support.jobs.in_process_runs import job_in_process, prepared_job
from tests.support.jobs.webhook import Webhook

ROOT = Path(__file__).parents[3]
NOTIFY = ["--set", "notify=[{webhook_env: HOOK}]"]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with Webhook() as server:
        monkeypatch.setenv("HOOK", server.address)
        yield server


@pytest.mark.slow
def test_an_ablation_tells_its_best_arm(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], hook: Webhook,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = job_in_process(tmp_path, values | {"notify": [{"webhook_env": "HOOK"}]}, bm25, config_file)
    (tmp_path / "qrels.tsv").write_text("yeast\td05\t1\nspring tide\td07\t1\n")
    judged = ["--set", "evaluate.qrels=qrels.tsv", "--set", "evaluate.key=query"]
    assert main(["ablate", path, *judged, "--json"]) == 0
    table = json.loads(capfd.readouterr().out)
    (told,) = hook.bodies
    assert (told["verb"], told["run_id"], told["queries"]) == ("ablate", Path(table["folder"]).name, {"done": 6, "of": 6})
    assert told["measure"]["baseline"] == "original"
    assert told["measure"]["name"] == "nDCG@10"


def test_it_is_no_part_of_a_fingerprint_and_reaches_no_worker(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    plain = prepared_job(job_in_process(tmp_path, values, bm25, config_file))
    telling = prepared_job(config_file(values | {"notify": [{"webhook_env": "HOOK"}, {"command": ["tell-somebody"]}]}))
    assert telling.prepared.run_id == plain.prepared.run_id
    assert identity_fields(telling.prepared.config) == identity_fields(plain.prepared.config)
    assert [words.split(";")[0] for words in telling.prepared.warnings if words not in plain.prepared.warnings] == [
        "notify: the environment variable HOOK (webhook_env) is not set or empty",
        "notify: there is no program tell-somebody",
    ]
    pools = {name: Pool(1, 1, 0) for name in telling.pools}
    sent = b"".join(pickle.dumps(dict(stage.settings)) for stage in telling.stages(pools, 1, NO_STORE))
    assert b"bm25" in sent
    assert b"HOOK" not in sent
    assert b"tell-somebody" not in sent


@pytest.mark.parametrize(
    ("notify", "words"),
    [
        ("{}", "notify.0: should have either webhook_env or command; name one of them"),
        ("{webhook_env: A, command: [b]}", "notify.0: should have either webhook_env or command; name one of them"),
        ("{command: [a], format: slack}", "notify.0: format: is of webhooks; a command gets the JSON; remove it"),
        ("{command: ['']}", "notify.0: command: its first word is the program, and is empty; name the program"),
        ("{webhook: A}", "notify.0.webhook: unknown key; did you mean 'webhook_env'?"),
        (
            "{webhook_env: A, timeout_seconds: 61}",
            "notify.0.timeout_seconds: input should be less than or equal to 60, found 61",
        ),
        ("{webhook_env: 'https://hooks.example/T0/s3cr3t'}", "notify.0: webhook_env: is no name of an environment variable"),
    ],
)
def test_what_is_refused(config_file: Callable[[Any], str], values: dict[str, Any], notify: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(config_file(values), [f"notify=[{notify}]"])
    assert words in str(error.value)
    assert "s3cr3t" not in str(error.value)


def test_a_submitted_job_is_sent_the_name_of_the_variable_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_HOOK", "https://hooks.example/s3cr3t")
    config = load_config(str(ROOT / "configs/quickstart.yaml"), ["notify=[{webhook_env: OPS_HOOK, events: [failure]}]"])
    sent = sent_config(config)
    assert as_sent(config, sent).notify == config.notify
    assert "OPS_HOOK" in repr(sent)
    assert "s3cr3t" not in repr(sent)


def test_a_list_of_sections_is_changed_as_other_sections_are() -> None:
    config = load_config(str(ROOT / "configs/quickstart.yaml"), ["notify=[{command: [a]}, {webhook_env: HOOK}]"])
    changed = config.changed(lambda inner: inner.model_copy(update={"timeout_seconds": 7}))
    assert [one.timeout_seconds for one in changed.notify] == [7, 7]
    assert [one.webhook_env for one in config.notify] == [None, "HOOK"]
