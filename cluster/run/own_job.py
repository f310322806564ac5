"""Reads the own job of a driver that a job server has started: Ray puts it into the environment of the entrypoint."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = "dmqr_command"  # key of a submitted job's metadata: the command that submits it again
_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # so named by ray/_private/runtime_env/constants.py


def submission() -> dict[str, Any] | None:
    """Returns `runtime_env` and `metadata` of the submitted job that this process drives; None: it was started by hand."""
    try:
        values = json.loads(os.environ.get(_VARIABLE, ""))
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def submitting_command() -> str | None:
    """Returns the command that submits this job again; None: no `dmqr submit` has submitted it."""
    return ((submission() or {}).get("metadata") or {}).get(COMMAND)


def working_folder_has(modules: Sequence[str]) -> bool:
    """Returns True if the `working_dir` of this job's submission has these packages (folders, as this process imports them)."""
    shipped = bool(((submission() or {}).get("runtime_env") or {}).get("working_dir"))
    return shipped and {Path(module).resolve().parent for module in modules} == {Path.cwd().resolve()}
