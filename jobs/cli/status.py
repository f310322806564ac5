"""The verb status: how far a run is, by storage alone; and what a job server says of its job."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.inputs import named_config
from jobs.cli.job_verbs import found_job, is_config, with_config
from jobs.cli.log_verbs import load
from jobs.cli.printing import print_json, print_page, width

if TYPE_CHECKING:
    from cluster.run.job_server import SubmittedJob
    from jobs.runs.status import Status


def status(options: argparse.Namespace) -> int:
    """Shows how far a run is; returns 0, whatever its state."""
    from jobs.pages.status import status_page
    from jobs.runs.status import status_values

    _check_chosen(options)
    job = found_job(_without_date(options))[1] if options.address else None
    try:
        found = _of_storage(options)
    except ConfigError as error:
        if job is None or error.code != "run-missing":
            raise
        found = None  # it is submitted, and has not begun
    if options.json:
        print_json(({} if found is None else status_values(found)) | ({} if job is None else {"job": _values(job)}))
        return 0
    if job is not None:
        print(f"job {job.id}: {job.status.lower()}" + (f", exit code {job.code}" if job.ended else ""))
    if found is not None:
        print(found.folder)
        print_page(status_page(found, width()))
    return 0


def _of_storage(options: argparse.Namespace) -> Status:
    from cluster.storage import open_storage
    from jobs.runs.status import read_status

    if not is_config(_without_date(options)):
        return read_status(options.run, options.label or options.date)
    config = load(with_config(options))
    return read_status(open_storage(config.output).url(config.name), config.shown_label)


def _check_chosen(options: argparse.Namespace) -> None:
    """Refuses two words for one run: of a name, a label and a date stand in the same place."""
    if options.label and options.date and not named_config(options.run):
        raise ConfigError("argument", f"--label {options.label}, --date {options.date}: a run has one of both; give one")


def _without_date(options: argparse.Namespace) -> argparse.Namespace:
    """Returns the options without the date that chooses among the runs of a name, which is no change of a config."""
    return options if named_config(options.run) else argparse.Namespace(**vars(options) | {"date": None})


def _values(job: SubmittedJob) -> dict[str, object]:
    return {"id": job.id, "status": job.status, "code": job.code if job.ended else None}
