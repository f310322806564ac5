"""The verb replay: queries of a run that failed are done again, as a run of their own."""

from __future__ import annotations

import argparse
import shlex

from cluster.storage import open_storage
from jobs.cli.command_line.arguments import program
from jobs.cli.log_verbs import caller
from jobs.cli.printing import show


def replay(options: argparse.Namespace) -> int:
    """Does queries of a run again that have errors of some reasons, measures them and writes the report."""
    from jobs.config.load import changed_config
    from jobs.job.prepare import prepare_replay
    from jobs.runs.failed import replay_of
    from jobs.runs.folder import open_run
    from jobs.verbs.whole_run import whole_run

    parent = open_run(options.run)
    found = replay_of(parent, options.reason)
    limits = parent.config.limits.model_copy(update={"error_rate": 1.0})  # of what failed once much may fail again
    output = parent.storage.root.rpartition("/")[0]  # outputs may have been moved
    config = parent.config.model_copy(update={"output": output, "limits": limits})
    config = changed_config(config, options.set, options.run)
    prepared = prepare_replay(config, parent.record.get("config_file") or "config.yaml", found)
    done = whole_run(prepared, caller(_again(options, parent.storage.root)), "replay")
    return show(options, done.values, done.page, done.folder.storage.root)


def _again(options: argparse.Namespace, parent: str) -> str:
    """Returns the command that goes on with this replay, whatever `latest.json` names then."""
    words = [*shlex.split(program()), "replay", open_storage(parent).root]
    words += [word for reason in options.reason for word in ("--reason", reason)]
    return shlex.join(words + [word for setting in options.set for word in ("--set", setting)])
