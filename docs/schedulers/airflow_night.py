"""A night of dmqr as a DAG of Airflow (2.9 or newer, 3): one task, which goes on where the last try has committed."""

import json
import os
import subprocess
from datetime import datetime, timedelta

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.timetables.interval import CronDataIntervalTimetable

try:
    from airflow.sdk import dag, task
except ImportError:  # Airflow 2
    from airflow.decorators import dag, task

CONFIG = os.environ.get("DMQR_CONFIG", "/srv/dmqr/configs/nightly.yaml")
REFUSED = 2  # config, input or cluster: another try would be refused, too


@dag(
    schedule=CronDataIntervalTimetable("15 2 * * *", timezone="UTC"),  # an interval begins on the day of the log
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=10), "retry_exponential_backoff": True},
)
def dmqr_night():
    """Runs every night, when the day is over in UTC."""

    @task
    def run(day: str) -> dict:
        """Returns the run's name, folder and cost in USD."""
        process = subprocess.Popen(["dmqr", "run", CONFIG, "--date", day, "--json"], stdout=subprocess.PIPE, text=True)
        try:
            out, _ = process.communicate()
        except BaseException:  # the task is ended: what is under way is committed, the next try goes on
            process.terminate()
            process.wait()
            raise
        if process.returncode == REFUSED:
            raise AirflowFailException(f"dmqr run was refused: the last line of the log says why ({CONFIG}, {day})")
        if process.returncode:
            raise AirflowException(f"dmqr run ended with exit code {process.returncode}; the same command goes on")
        values = json.loads(out)
        return {name: values[name] for name in ("run_id", "folder", "usd")}

    run("{{ data_interval_start | ds }}")


dmqr_night()
