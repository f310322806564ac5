"""The examples of docs/schedulers/, executed: by a shell, by systemd's own check, in Airflow, in Dagster, against schemas."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.manifest_schemas import check
from tests.support.jobs.scheduled import CONFIG, NIGHT, Scheduled
from tests.support.jobs.whole_runs import ROOT

HERE = ROOT / "docs/schedulers"
ARGUMENTS = f"run {CONFIG} --date {NIGHT} --json"


@pytest.fixture
def scheduled(tmp_path: Path) -> Scheduled:
    return Scheduled(tmp_path)


def typed(command: Sequence[str], scheduled: Scheduled, **more: str) -> subprocess.CompletedProcess[str]:
    environment = scheduled.environment | more
    return subprocess.run(
        command, cwd=scheduled.place, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


# ---------------------------------------------------------------- cron


@pytest.mark.parametrize(
    ("codes", "tries", "code"),
    [([2], 1, 2), ([1, 2], 2, 2), ([1, 1, 1, 1, 1], 4, 1), ([143], 1, 143), ([1, 130], 2, 130)],
)
def test_the_script_tries_again_after_one_alone(scheduled: Scheduled, codes: list[int], tries: int, code: int) -> None:
    scheduled.first(*codes)
    done = typed([str(HERE / "night.sh"), str(CONFIG), "--label", "a"], scheduled, WAIT="0", NIGHT=NIGHT)
    assert (done.returncode, done.stdout) == (code, "")
    assert scheduled.calls == [f"run {CONFIG} --label a --date {NIGHT} --json"] * tries


@pytest.mark.slow
def test_the_line_of_the_crontab_runs_a_night(scheduled: Scheduled) -> None:
    *settings, line = (HERE / "crontab").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Z_]+=\S+", one) for one in settings)
    fields = line.split(maxsplit=5)
    assert fields[:5] == ["15", "2", "*", "*", "*"]
    assert line in (ROOT / "docs/schedulers.md").read_text()
    parts = re.split(r"(?<!\\)%", fields[5])  # cron: what follows an unescaped % is standard input
    assert len(parts) == 1
    command = (
        parts[0].replace("\\%", "%").replace("/srv/dmqr", str(scheduled.place)).replace("configs/nightly.yaml", str(CONFIG))
    )
    (scheduled.place / "docs").symlink_to(ROOT / "docs")
    scheduled.first(1)
    done = typed(["sh", "-c", command], scheduled, WAIT="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (printed,) = scheduled.place.glob("night-*.json")
    night = printed.stem.removeprefix("night-")
    assert scheduled.calls == [f"run {CONFIG} --date {night} --json"] * 2
    values = json.loads(printed.read_text())
    assert (values["counts"]["queries"], Path(values["folder"]).parent) == (176, scheduled.place / "runs")
    assert json.loads((scheduled.place / "night.log").read_text().splitlines()[-1])["event"] == "end"


# ---------------------------------------------------------------- systemd


def units() -> dict[str, dict[str, str]]:
    found = {}
    for name in ("dmqr-night.service", "dmqr-night.timer"):
        lines = [line for line in (HERE / name).read_text().splitlines() if "=" in line and not line.startswith("#")]
        found[name] = dict(line.split("=", 1) for line in lines)
    return found


def test_the_unit_starts_a_night_and_knows_what_not_to_repeat(scheduled: Scheduled) -> None:
    service = units()["dmqr-night.service"]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    program, *words = re.findall(r"'[^']*'|\S+", service["ExecStart"])
    command = words[1].strip("'").replace("$$", "$").replace("%%", "%").replace(".venv/bin/dmqr", "dmqr")
    scheduled.first(7)
    done = typed([program, words[0], command], scheduled)
    assert done.returncode == 7
    (call,) = scheduled.calls
    yesterday = subprocess.run(["date", "-u", "-d", "yesterday", "+%F"], capture_output=True, text=True, check=True)
    assert call == f"run configs/nightly.yaml --date {yesterday.stdout.strip()} --json"


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for name in units():
        text = (HERE / name).read_text().replace("User=dmqr\n", "").replace("/srv/dmqr", str(tmp_path))
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in units())],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert not [line for line in done.stderr.splitlines() if "dmqr-night" in line], done.stderr
    calendar = ["systemd-analyze", "calendar", units()["dmqr-night.timer"]["OnCalendar"]]
    assert subprocess.run(calendar, capture_output=True, timeout=60, check=False).returncode == 0


# ---------------------------------------------------------------- Argo, Kubernetes


def container(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    whole = yaml.safe_load((HERE / name).read_text())
    if whole["kind"] == "CronJob":
        return whole, whole["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    return whole, whole["spec"]["workflowSpec"]["templates"][0]["container"]


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("argo-night.yaml", {"SCHEDULED": "2026-03-01T02:15:00Z"}),
        ("kubernetes-night.yaml", {"JOB": "dmqr-night-29538855"}),  # 2026-03-01T02:15:00Z in minutes
    ],
)
def test_a_pod_submits_the_night_that_was_scheduled(scheduled: Scheduled, name: str, environment: dict[str, str]) -> None:
    whole, of = container(name)
    assert whole["spec"]["concurrencyPolicy"] == "Forbid"
    given = {one["name"]: one.get("value", "") for one in of["env"]}
    assert environment.keys() <= given.keys()
    scheduled.first(5)
    done = typed([*of["command"], *of["args"]], scheduled, **(given | environment))
    assert done.returncode == 5
    assert scheduled.calls == ["submit /etc/dmqr/nightly.yaml --json --date 2026-02-28"]


@pytest.mark.parametrize("job", ["manual", "dmqr-night-manual", "dmqr-night-1", "dmqr-night-20260301", "night-2953885x", ""])
def test_a_job_without_a_time_in_its_name_is_refused(scheduled: Scheduled, job: str) -> None:
    _, of = container("kubernetes-night.yaml")
    given = {one["name"]: one.get("value", "") for one in of["env"]} | {"JOB": job}
    done = typed([*of["command"], *of["args"]], scheduled, **given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{job}: does not end with a time in minutes since 1970; ")
    assert not (scheduled.place / "calls").exists()


def test_the_documented_name_of_a_job_is_of_the_night_that_is_meant(scheduled: Scheduled) -> None:
    (line,) = (one for one in (ROOT / "docs/schedulers.md").read_text().splitlines() if one.startswith("kubectl create job"))
    command, night = line.split("# the night of ")
    echoed = command.replace("kubectl create job --from=cronjob/dmqr-night", "echo")
    name = typed(["sh", "-c", echoed], scheduled).stdout.strip()
    _, of = container("kubernetes-night.yaml")
    given = {one["name"]: one.get("value", "") for one in of["env"]} | {"JOB": name}
    scheduled.first(5)
    assert typed([*of["command"], *of["args"]], scheduled, **given).returncode == 5
    assert scheduled.calls == [f"submit /etc/dmqr/nightly.yaml --json --date {night}"]


def test_the_cron_job_is_valid_and_gives_up_after_a_refusal() -> None:
    whole, _ = container("kubernetes-night.yaml")
    check(whole)
    refused, *_ = whole["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert (refused["action"], refused["onExitCodes"]["values"]) == ("FailJob", [2])


def test_the_workflow_gives_up_after_a_refusal() -> None:
    whole, _ = container("argo-night.yaml")
    (night,) = whole["spec"]["workflowSpec"]["templates"]
    assert whole["spec"]["workflowSpec"]["entrypoint"] == night["name"]
    assert night["retryStrategy"]["expression"] == "asInt(lastRetry.exitCode) != 2"
    schema = os.environ.get("DMQR_TEST_ARGO_SCHEMA")
    if not schema:
        pytest.skip("DMQR_TEST_ARGO_SCHEMA is not set: it names api/jsonschema/schema.json of Argo Workflows")
    import jsonschema

    definitions = json.loads(Path(schema).read_text())["definitions"]
    kind = definitions["io.argoproj.workflow.v1alpha1.CronWorkflow"]
    jsonschema.Draft7Validator(kind | {"definitions": definitions}).validate(whole)
    unknown = list(unknown_fields(whole, kind, definitions))
    assert unknown == []


def unknown_fields(value: Any, schema: dict[str, Any], definitions: dict[str, Any], at: str = "") -> Any:
    """Yields the places of fields that a schema does not know."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    if isinstance(value, dict) and "properties" in schema:
        for key, one in value.items():
            if key not in schema["properties"]:
                yield f"{at}.{key}"
            else:
                yield from unknown_fields(one, schema["properties"][key], definitions, f"{at}.{key}")
    elif isinstance(value, list) and "items" in schema:
        for one in value:
            yield from unknown_fields(one, schema["items"], definitions, f"{at}[]")


# ---------------------------------------------------------------- Airflow, Dagster


def python_of(variable: str) -> str:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} is not set: it names a Python that has the package")
    return python


AIRFLOW = """
import json
import airflow_night, pendulum
dag = airflow_night.dmqr_night()
(task,) = dag.tasks
interval = dag.timetable.infer_manual_data_interval(run_after=pendulum.datetime(2026, 1, 31, 2, 15, tz="UTC"))
print(json.dumps({"retries": task.retries, "begins": interval.start.isoformat(), "runs": dag.max_active_runs}))
from airflow.exceptions import AirflowException, AirflowFailException
def call():
    try:
        return task.python_callable("NIGHT")
    except AirflowFailException as error:
        return ["no more tries", str(error)]
    except AirflowException as error:
        return ["tried again", str(error)]
print(json.dumps([call(), call(), call()]))
""".replace("NIGHT", NIGHT)


@pytest.mark.slow
def test_airflow(scheduled: Scheduled) -> None:
    python = python_of("DMQR_TEST_AIRFLOW")
    given = {"AIRFLOW_HOME": str(scheduled.place / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": str(HERE)}
    scheduled.first(2, 1)
    done = typed([python, "-c", AIRFLOW], scheduled, **given)
    assert done.returncode == 0, done.stderr
    dag, (refused, failed, finished) = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert dag == {"retries": 3, "begins": f"{NIGHT}T02:15:00+00:00", "runs": 1}
    assert (refused[0], failed[0]) == ("no more tries", "tried again")
    assert Path(finished["folder"], "_SUCCESS.json").exists()
    assert scheduled.calls == [ARGUMENTS] * 3


DAGSTER = """
import datetime, json
import dagster as dg
import dagster_night
(schedule,) = dagster_night.defs.get_repository_def().schedule_defs
with dg.instance_for_test() as instance:
    def run():
        asset = dagster_night.rewritten_queries
        return dg.materialize([asset], partition_key="NIGHT", instance=instance, raise_on_error=False)
    results = [run(), run()]
    (made,) = results[1].asset_materializations_for_node("rewritten_queries")
    values = {key: one.value for key, one in made.metadata.items()}
    then = datetime.datetime(2026, 1, 31, 2, 15, tzinfo=datetime.timezone.utc)
    requests = schedule.evaluate_tick(dg.build_schedule_context(scheduled_execution_time=then))
    print(json.dumps({"success": [one.success for one in results], "values": values, "cron": schedule.cron_schedule,
        "partitions": [one.partition_key for one in requests.run_requests]}))
""".replace("NIGHT", NIGHT)


@pytest.mark.slow
def test_dagster(scheduled: Scheduled) -> None:
    python = python_of("DMQR_TEST_DAGSTER")
    scheduled.first(2, 1)
    text = (HERE / "dagster_night.py").read_text()
    (scheduled.place / "dagster_night.py").write_text(text.replace("delay=600", "delay=0.1"))
    done = typed([python, "-c", DAGSTER], scheduled, PYTHONPATH=str(scheduled.place))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["success"], found["cron"], found["partitions"]) == ([False, True], "15 2 * * *", [NIGHT])
    assert found["values"]["queries"] == 176
    assert Path(found["values"]["folder"], "_SUCCESS.json").exists()
    assert scheduled.calls == [ARGUMENTS] * 3  # refused: one try; failed: a second one
