"""Ids of submissions: name, label or date, and a hash of what is sent.

The fingerprint of the run, in the name of its folder, also covers models and indexes, which the job alone can look up. An id
serves a job server to tell one night from another: submitted again while it works, a job is followed; after its end it
is submitted under the id with `-2`, `-3`, where the run goes on, or is shown again if it is finished.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from cluster.errors import ConfigError
from cluster.run.job_server import COMMAND, SubmittedJob
from jobs.config.config import Config
from jobs.job.paths import absolute_path
from jobs.submit.sent_config import SentConfig
from rewriters.settings import identity_fields

Verb = Literal["run", "ablate"]
VERBS: tuple[Verb, ...] = get_args(Verb)
DRIVER_LOG = ("--log", "json")
"""Options of every submitted driver, whose events `FollowedLog` and collectors of logs read."""
_NAME, _LABEL, _OUTPUT = "dmqr_name", "dmqr_label", "dmqr_output"
_ATTEMPT = re.compile(r"(?P<base>.+-[0-9a-f]{12})(-(?P<attempt>[2-9]|[1-9]\d+))?")
_FINGERPRINT = "[0-9a-f]{12}"
_APART = {"corpus", "evaluate", "limits", "report", "notify", "publish", "store", "store_ttl", "cluster"}
"""Sections of the config that do not tell a job from another."""


def submission_id(config: Config, sent: SentConfig, verb: Verb) -> str:
    """Returns the id under which a job is submitted first, by what is sent of its config, its files and its plug-ins."""
    apart = _APART if verb == "ablate" else {*_APART, "ablate"}
    values = {key: value for key, value in sent.values.items() if key not in apart}
    known = {"verb": verb, "values": values, "files": _contents(sent, values), "identity": identity_fields(config)}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:12]
    return "-".join(part for part in (config.name, config.shown_label, digest) if part)


def _contents(sent: SentConfig, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns path -> the hash of a file that is sent; of one that is here, its size and time stand for the content."""
    contents = {}
    for path in sorted(set(_texts(values))):
        if (file := sent.files.get(path)) is not None:
            contents[path] = hashlib.sha256(file.read_bytes()).hexdigest()
        elif os.path.isabs(path) and os.path.isfile(path):
            stat = os.stat(path)
            contents[path] = f"{stat.st_size} {stat.st_mtime_ns}"
    return contents


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    for inner in [*values, *values.values()] if isinstance(values, Mapping) else values if isinstance(values, list) else ():
        yield from _texts(inner)


def metadata(config: Config, sent: SentConfig, command: str) -> dict[str, str]:
    """Returns the facts about the run in a submission, for `find_job`, and the command that submits it again."""
    return {_NAME: config.name, _LABEL: config.shown_label or "", _OUTPUT: sent.values["output"], COMMAND: command}


def attempts(jobs: Iterable[SubmittedJob], base: str) -> list[SubmittedJob]:
    """Returns the jobs that were submitted under an id, the first attempt first."""
    return sorted((job for job in jobs if parsed_id(job.id)[0] == base), key=lambda job: parsed_id(job.id))


def next_id(jobs: Iterable[SubmittedJob], base: str) -> str:
    """Returns the id of the next attempt."""
    earlier = attempts(jobs, base)
    return f"{base}-{parsed_id(earlier[-1].id)[1] + 1}" if earlier else base


def parsed_id(job_id: str) -> tuple[str, int]:
    """Returns an id without the number of its attempt, and that number, from 1."""
    match = _ATTEMPT.fullmatch(job_id)
    return (match["base"], int(match["attempt"] or 1)) if match else (job_id, 1)


def find_job(jobs: Sequence[SubmittedJob], *targets: str) -> SubmittedJob:
    """Returns the newest attempt of one of the server's jobs.

    One of `targets` names it: an id, with or without the number of an attempt; a run's folder; `<output>/<name>`.

    Raises:
        ConfigError: There is no such job, or there are several.
    """
    known, base_of = list(jobs), {job.id: parsed_id(job.id)[0] for job in jobs}
    for job in known:
        if job.id in targets and base_of[job.id] != job.id:
            return job
    named = [job for job in known if {job.id, base_of[job.id]} & {*targets}]
    jobs_of = named or [job for job in known if any(_is_of(job, target) for target in targets)]
    bases = list(dict.fromkeys(base_of[job.id] for job in jobs_of))
    if not bases:
        ids = ", ".join(job.id for job in known[-5:]) or "none"
        raise ConfigError("run-missing", f"{targets[0]}: the cluster knows no such job (its last ones: {ids}); give an id")
    if len(bases) > 1 and not named:
        raise ConfigError("argument", f"{targets[0]}: several jobs have this run's name ({', '.join(bases)}); give an id")
    return max(jobs_of, key=lambda job: (not job.ended, job.started, parsed_id(job.id)[1]))


def _is_of(job: SubmittedJob, run: str) -> bool:
    """Returns True if a job's run may be the one of this folder; of its fingerprint the submission knows nothing."""
    output, _, folder = absolute_path(run.rstrip("/")).rpartition("/")
    name, label = job.metadata.get(_NAME), job.metadata.get(_LABEL)
    if name is None or job.metadata.get(_OUTPUT, "").rstrip("/") != output:
        return False
    start = f"{name}-{label}" if label else name
    return folder in (name, start) or re.fullmatch(f"{re.escape(start)}-{_FINGERPRINT}", folder) is not None
