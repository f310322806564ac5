"""The end of a verb that is refused or fails: one plain line, the last on standard error, and an exit code."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from contextlib import suppress

from cluster.errors import ConfigError, DmqrError


def say(verb: str, words: object, code: int) -> int:
    """Writes the line, with the code of an error that has one; returns the exit code."""
    known = f" [{words.code}]" if isinstance(words, DmqrError) else ""
    print(f"{f'dmqr {verb}'.rstrip()}: {words}{known}", file=sys.stderr)
    return code


def with_command(line: str, options: argparse.Namespace) -> str:
    """Returns a message in which `dmqr VERB CONFIG` has become the command of this config, with the flags that it needs."""
    config = getattr(options, "config", None)
    if not isinstance(config, str) or not os.path.isfile(config):
        return line

    def command(found: re.Match[str]) -> str:
        words = [found[1], config, *(word for one in options.set for word in ("--set", one))]
        words += ["--date", options.date] if options.date else []
        given = getattr(options, "corpus", []) or ([] if _names_corpus(options) else ["PATH"])
        return f"dmqr {shlex.join([*words, '--corpus', *given] if given and found[1] == 'index' else words)}"

    return re.sub(r"dmqr (\w+) CONFIG\b(?: --corpus PATH)?", command, line)


def _names_corpus(options: argparse.Namespace) -> bool:
    """Returns whether `dmqr index` needs no corpus beside the config, or this config is refused itself."""
    from jobs.cli.log_verbs import load
    from jobs.index.corpora import configured_corpora

    with suppress(DmqrError):
        return bool(configured_corpora([load(options)]))
    return True


def other_python(error: ModuleNotFoundError) -> ConfigError:
    """Returns the refusal of an interpreter that lacks a package, which is hardly the one that was meant."""
    return ConfigError(
        "package-missing",
        f"{sys.executable}: has no package {(error.name or str(error)).partition('.')[0]}; run the Python that this project is "
        "installed in; for a submitted job activate its environment before `ray start` on every node, or submit with --pip",
    )
