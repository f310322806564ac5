"""Diverse multi-query rewriting from Python: the verbs of the command line as functions, for notebooks and schedulers.

    run = dmqr.run("mine.yaml", fuse__method="rrf")
    run.quality().table

A config is the path of a YAML file, a mapping of what such a file holds, or a `Config`. Overrides are keywords, in which two
underscores stand for the dot of a key, or a mapping of keys: `{"fuse.method": "rrf"}`. Nothing here prints, ends the process
or takes its signals: results are returned, errors raised (`DmqrError`), and events go to the logger `dmqr`.
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
from dmqr.calls import ablate, evaluate, index, open, plan, rewrite, run
from dmqr.export import export

if TYPE_CHECKING:
    from dmqr.quality import JoinedQuality, MeasuredQuality
    from dmqr.results import Ablation, Run
    from dmqr.rows import Planned, Rewrites
    from jobs.config.config import Config
    from jobs.log.key import look_up_key

__all__ = [
    "Ablation",
    "ClusterError",
    "Config",
    "ConfigError",
    "DmqrError",
    "HeldError",
    "JoinedQuality",
    "LogError",
    "MeasuredQuality",
    "Planned",
    "RetrieverError",
    "RewriterError",
    "Rewrites",
    "Run",
    "Stopped",
    "UnavailableError",
    "ablate",
    "evaluate",
    "export",
    "index",
    "look_up_key",
    "open",
    "plan",
    "rewrite",
    "run",
]

logging.getLogger("dmqr").addHandler(logging.NullHandler())  # else Python prints warnings where no handler is set up

_LATER = {"Ablation": "dmqr.results", "Config": "jobs.config.config", "Planned": "dmqr.rows", "MeasuredQuality": "dmqr.quality"}
_LATER |= {
    "JoinedQuality": "dmqr.quality",
    "Rewrites": "dmqr.rows",
    "Run": "dmqr.results",
}
_LATER |= {"look_up_key": "jobs.log.key"}


def __getattr__(name: str) -> Any:
    """Returns what stands in a module that is imported when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
