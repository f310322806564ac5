"""Creates a night's RayJob and waits for its end: `python -m cluster.kuberay.create MANIFEST`, in a pod of a CronJob.

It needs Python's standard library only, and the right to create and get RayJobs. The RayJob's name has the date of the log, so
a night is created once: where it is there already, it is followed. Exit codes: 0 succeeded, 1 failed or refused, 3 Kubernetes
did not answer, and another pod should go on.

The log is that of the day before the time for which the pod's Job was scheduled, whenever the pod begins: one that takes a lost
pod's place after midnight follows the same RayJob.
"""

from __future__ import annotations

import datetime
import http.client
import json
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from cluster.outages import pause

FAILED, AWAY = 1, 3
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 600.0
JOB_VARIABLE = "JOB_NAME"
"""Environment variable with the name of the pod's Job."""
_SCHEDULED = re.compile(r".+-(\d+)")  # a CronJob gives its Jobs its own name and the minutes since 1970
_CLOCKS_DIFFER, _OLDEST = 60, 31 * 24 * 60  # minutes; a Job made by hand may have any name


class RayJobApi:
    """Kubernetes' API for the RayJobs of a namespace."""

    def __init__(self, address: str, namespace: str, account: Path = _ACCOUNT, patience: float = PATIENCE_SECONDS) -> None:
        """Reads nothing yet.

        Args:
            address: Of the API.
            namespace: Of the RayJobs.
            account: Folder with token and ca.crt.
            patience: Seconds for which a request is repeated while the API is away.
        """
        self._folder, self._account, self._patience = (
            f"{address}/apis/ray.io/v1/namespaces/{namespace}/rayjobs",
            account,
            patience,
        )

    def create(self, manifest: dict[str, Any]) -> bool:
        """Creates a RayJob; returns whether there was none of its name."""
        return self._request("POST", "", manifest) is not None

    def status(self, name: str) -> dict[str, Any]:
        """Returns the status of a RayJob; {} before the operator has seen it."""
        found = self._request("GET", f"/{name}", None) or {}
        return dict(found.get("status") or {})

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        """Returns the answer; None if what should be created is there.

        Raises:
            PermissionError: The request is refused.
            ConnectionError: The API was away for longer than the patience.
        """
        failures, until = 0, time.monotonic() + self._patience
        while True:
            try:
                return self._once(method, path, body)
            except urllib.error.HTTPError as error:
                if error.code == 409:
                    return None
                if error.code < 500 and error.code != 429:
                    raise PermissionError(f"Kubernetes refused ({error.code}): {_reason(error)}") from error
                problem: Exception = error
            except (OSError, http.client.HTTPException, ValueError) as error:  # the last two: an answer that breaks off
                problem = error
            failures += 1
            seconds = pause(failures, 1.0, 30.0)
            if time.monotonic() + seconds > until:
                raise ConnectionError(f"Kubernetes does not answer: {problem}") from problem
            time.sleep(seconds)

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        # The token is read each time: it is replaced every hour.
        headers = {"Authorization": f"Bearer {(self._account / 'token').read_text(encoding='utf-8').strip()}",
                   "Content-Type": "application/json"}  # fmt: skip
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._folder + path, data, headers, method=method)
        context = None
        if self._folder.startswith("https:"):
            context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=context) as answer:
            return dict(json.load(answer))


def follow(api: RayJobApi, manifest: dict[str, Any], seconds: float = 30.0) -> int:
    """Creates a RayJob, or finds it, and returns the exit code by its end.

    Args:
        api: Where.
        manifest: The RayJob.
        seconds: Between two looks.
    """
    name = manifest["metadata"]["name"]
    _say(f"{name}: created" if api.create(manifest) else f"{name}: is there already")
    seen = ""
    while True:
        status = api.status(name)
        state = status.get("jobDeploymentStatus") or "new"
        if state != seen:
            _say(f"{name}: {state}")
            seen = state
        if state == "Complete":
            return 0 if status.get("jobStatus") == "SUCCEEDED" else FAILED
        if state == "Failed":
            _say(f"{name}: {status.get('reason', 'failed')}: {status.get('message', '')}")
            return FAILED
        time.sleep(seconds)


def filled(value: Any, date: str) -> Any:
    """Returns a manifest with `{date}` replaced in every text."""
    if isinstance(value, dict):
        return {key: filled(one, date) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, date) for one in value]
    return value.replace("{date}", date) if isinstance(value, str) else value


def night(job: str, now: datetime.datetime) -> str:
    """Returns the date of the log: of the day before that for which a Job was scheduled, in UTC.

    Args:
        job: The Job's name; where it does not say the time, as of a Job made by hand, the time is now.
        now: The time.
    """
    named = _SCHEDULED.fullmatch(job)
    minutes = int(now.timestamp()) // 60 - int(named[1]) if named else 0
    age = datetime.timedelta(minutes=minutes if -_CLOCKS_DIFFER <= minutes <= _OLDEST else 0)
    return (now - age - datetime.timedelta(days=1)).date().isoformat()


def main(path: str, account: Path = _ACCOUNT, patience: float = PATIENCE_SECONDS) -> int:
    """Creates the RayJob of a file for its night, and returns the exit code by its end.

    Args:
        path: Of the manifest.
        account: Folder with token and ca.crt.
        patience: Seconds for which a request is repeated while the API is away.
    """
    date = night(os.environ.get(JOB_VARIABLE, ""), datetime.datetime.now(datetime.UTC))
    manifest = filled(json.loads(Path(path).read_text(encoding="utf-8")), date)
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        return follow(RayJobApi(address, manifest["metadata"]["namespace"], account, patience), manifest)
    except PermissionError as error:
        _say(str(error))
        return FAILED
    except ConnectionError as error:
        _say(str(error))
        return AWAY


def _reason(refusal: urllib.error.HTTPError) -> str:
    """Returns what Kubernetes says of a refusal; of an answer that breaks off, the status in words."""
    try:
        return refusal.read().decode(errors="replace")[:500]
    except (OSError, http.client.HTTPException):
        return str(refusal.reason)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
