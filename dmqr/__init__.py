"""Diverse multi-query rewriting from Python: the verbs of the command line as functions, for notebooks and schedulers.

    run = dmqr.run("mine.yaml", fuse__method="rrf")
    run.quality().table

A config is the path of a YAML file, a mapping of what such a file holds, or a `Config`. Overrides are keywords, in which two
underscores stand for the dot of a key. An argument that a function does not explain is explained by another. Nothing
here prints, ends the process or takes its signals: results are returned, errors raised (`DmqrError`), and events go to the
logger `dmqr`.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from cluster.errors import (
    ClusterError,
    ConfigError,
    DmqrError,
    HeldError,
    LogError,
    RetrieverError,
    RewriterError,
    Stopped,
    UnavailableError,
)
from dmqr.analysis import diff, evaluate, report, tune
from dmqr.first_config import init
from dmqr.previews import index, plan, rewrite, try_query
from dmqr.quality import JoinedQuality, MeasuredQuality
from dmqr.results import Ablation, Planned, Result, Rewrites, Run
from dmqr.upkeep import export, logs, runs, stop, store_forget, store_gc, submit
from dmqr.whole_jobs import ablate, open, run

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.log.key import look_up_key

__all__ = [
    "Ablation", "ClusterError", "Config", "ConfigError", "DmqrError", "HeldError", "JoinedQuality", "LogError",
    "MeasuredQuality", "Planned", "Result", "RetrieverError", "RewriterError", "Rewrites", "Run", "Stopped",
    "UnavailableError", "ablate", "diff", "evaluate", "export", "index", "init", "logs", "look_up_key", "open", "plan",
    "report", "rewrite", "run", "runs", "stop", "store_forget", "store_gc", "submit", "try_query", "tune",
]  # fmt: skip

logging.getLogger("dmqr").addHandler(logging.NullHandler())  # else Python prints warnings where no handler is set up


def __getattr__(name: str) -> Any:
    """Imports what `import dmqr` leaves out, since it takes long, when it is first asked for."""
    module = {"Config": "jobs.config.config", "look_up_key": "jobs.log.key"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
