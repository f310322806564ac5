"""The protocol of formats, and those that there are.

A format is a module of this folder with the name that `--as` gives it, whose `FORMAT` is an object as below. It reads the
look-up rows as often as it wants, and what else it needs from the run, in bounded memory, and writes files into a local folder
of its own; the export takes them from there. An option of a format is a keyword of `options` with its default in `defaults`, an
argument of the command line (`FORMAT_OPTIONS` of `jobs/cli/command_line/publish_arguments.py`), and part of what an export is
known by.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cluster.errors import ConfigError, nearest
from jobs.publish.rows import LookUpRows
from jobs.runs.folder import RunFolder

FORMATS = ("rows", "querqy", "synonyms", "chat", "preferences")
"""The names of the modules, in the order in which formats are written."""
TRAINING = ("chat", "preferences")
"""Those that a search looks nothing up in."""


class Format(Protocol):
    """One format."""

    name: str
    """As `--as` gives it."""
    defaults: Mapping[str, Any]
    """Option -> its default."""

    def write(self, run: RunFolder, rows: LookUpRows, folder: Path, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Writes files into an empty local folder; returns what was counted, by words like `rules` or `left_out_long`.

        Args:
            run: Finished, and no ablation.
            rows: Its look-up rows.
            folder: Where its files go, under the names that an export shall give them.
            options: Of this format; all of `defaults` are there.

        Raises:
            DmqrError: What the options say cannot be done with this run.
        """
        ...


def open_formats(names: Sequence[str]) -> list[Format]:
    """Returns formats by their names, in the order of `FORMATS`.

    Raises:
        ConfigError: There is no such format.
    """
    for name in names:
        if name not in FORMATS:
            raise ConfigError("argument", f"--as: no format {name!r}{nearest(name, FORMATS)}")
    return [importlib.import_module(f"jobs.publish.formats.{name}").FORMAT for name in FORMATS if name in names]


def check_held_out(options: Mapping[str, Mapping[str, Any]], buckets: int) -> None:
    """Refuses formats of training rows that would hold out every query.

    Raises:
        ConfigError: As many buckets are held out as there are.
    """
    for name, of in options.items():
        if (held := of.get("holdout", 0)) >= buckets:
            what = f"--holdout {held}: of {buckets} buckets, so {name} would hold out every query"
            raise ConfigError("argument", f"{what}; give a lower number, or more --buckets")


def options_of(formats: Sequence[Format], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns format -> its options, defaults included.

    Raises:
        ConfigError: An option is of no format that is written.
    """
    known = {option for one in formats for option in one.defaults}
    for option in given:
        if option not in known:
            flag = f"--{option.replace('_', '-')}"
            raise ConfigError("argument", f"{flag}: is of no format that --as names; leave it out, or name its format")
    return {one.name: {option: given.get(option, default) for option, default in one.defaults.items()} for one in formats}
