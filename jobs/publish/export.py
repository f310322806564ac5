"""What an export is, wherever it goes: a version with rows of one run, by one choice, in some formats.

An export is known by its identity: two with one identity have the same rows, so it does not matter which of them is kept. The
id of a run does not say what its log held, so the identity has the names of the run's files, which no other attempt uses; nor
do the paths of judgements and prompts say what they are, so it has their digests.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from cluster.errors import ConfigError
from cluster.run.shards import committed_tables
from jobs.publish.choice import RowChoice
from jobs.publish.formats.format import Format
from jobs.publish.rows import LOOK_UP, LookUpRows
from jobs.publish.scores import best_scores
from jobs.runs.folder import RunFolder

VERSION = r"[a-z0-9][a-z0-9._-]*"
LONGEST_VERSION = 128  # characters
RESERVED = {"current.json", "promotions"}
"""What stands beside the versions in a folder."""


@dataclass(frozen=True)
class WantedExport:
    """An export that is asked for.

    Attributes:
        run: Finished, and no ablation.
        version: Its name.
        choice: What goes into the rows.
        formats: How they are written.
        options: Format -> its options.
        since: The version that it is compared with; None: with none.
        gains: As `jobs.publish.training.measured.measured_gains` returns it.
        prompts: As `jobs.publish.training.measured.asking_prompts` returns it.
    """

    run: RunFolder
    version: str
    choice: RowChoice
    formats: Sequence[Format]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    since: str | None = None
    gains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)

    @property
    def choices(self) -> dict[str, Any]:
        """Returns what was chosen, as JSON-able values."""
        formats = {one.name: dict(self.options.get(one.name, {})) for one in self.formats}
        return {**self.choice.identity, "formats": formats, "since": self.since}

    @property
    def identity(self) -> str:
        """Returns what the export is known by: 16 hex digits of the run, its files and all that decides rows."""
        of = [self.run.record["run_id"], self.content, self.choices, self.gains, str(LOOK_UP)]
        of += [self.prompts] if self.prompts else []  # of training rows alone
        return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def content(self) -> str:
        """Returns `content_of` the run."""
        return content_of(self.run)


def content_of(run: RunFolder) -> str:
    """Returns what tells the files of a run from those of another with its id: 16 hex digits of their names and sizes.

    A run whose folder was removed, and that was run again, perhaps over another log, has the same id and other files.
    """
    found = hashlib.sha256()
    for table, files in sorted(committed_tables(run.plan, run.manifests).items()):
        found.update(f"{table}\n".encode())
        for file in files:
            found.update(f"{file.key} {file.size}\n".encode())
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class ExportRecord:
    """What `export.json`, or the index, says of an export.

    Attributes:
        version: Its name.
        run_id: The run of its rows.
        run: Where that run lay.
        identity: What it is known by.
        choices: What was chosen.
        counts: As `LookUpRows.counts`.
        left_out: Why -> rewrites that are in no row.
        formats: Format -> what it counted.
        changes: Of a delta: `new`, `changed`, `gone`, `same` (rows) and `since`.
        files: Files of a folder: `name`, `key` (below the version's folder), `size` in bytes.
        made: When, in UTC.
        best_scores: The mean of the best reranker score of each query (`jobs.publish.scores`); None: there are none.
        content: As `content_of` the run; None: the export is of an earlier version of dmqr, which did not note it.
        gains: Format of training rows -> what its gains were measured by: `by`, and of judgements their `digest`.
        prompts: Format of training rows -> digest of the prompts that ask in them.
    """

    version: str
    run_id: str
    run: str
    identity: str
    choices: Mapping[str, Any]
    counts: Mapping[str, int]
    left_out: Mapping[str, int]
    formats: Mapping[str, Mapping[str, int]]
    changes: Mapping[str, Any] | None
    files: Sequence[Mapping[str, Any]]
    made: str
    best_scores: Mapping[str, Any] | None = None
    content: str | None = None
    gains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return asdict(self)


@dataclass(frozen=True)
class DoneExport:
    """An export that is complete.

    Attributes:
        record: What was exported.
        place: Where it lies: a folder, or an index and its server.
        existed: Whether it was there before, or another made it at the same time.
    """

    record: ExportRecord
    place: str
    existed: bool

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return {"place": self.place, "existed": self.existed} | self.record.values()


def version_of(run: RunFolder, given: str | None) -> str:
    """Returns the name of a version: the given one, or the run's id without the config's name, in lower case.

    Raises:
        ConfigError: It has letters that no version has.
    """
    return checked_version(run.record["run_id"].removeprefix(f"{run.config.name}-").lower() if given is None else given)


def checked_version(version: str, argument: str = "--version") -> str:
    """Returns the name of a version, which has stood in this argument.

    Raises:
        ConfigError: It has letters that no version has.
    """
    if not re.fullmatch(VERSION, version) or len(version) > LONGEST_VERSION or version in RESERVED:
        what = f"{argument} {version[:LONGEST_VERSION]}: a version has lower-case letters, digits, '.', '-' and '_'"
        raise ConfigError(
            "argument", f"{what}, begins with a letter or digit, and is none of {', '.join(sorted(RESERVED))}; rename it"
        )
    return version


def check_same(found: ExportRecord, wanted: WantedExport, place: str) -> None:
    """Refuses a version that is there from another run or its other files, by other choices, gains or prompts, or elsewhere.

    Raises:
        ConfigError: It is not what is asked for.
    """
    if found.identity == wanted.identity and found.version == wanted.version:
        return
    another = "give another --version"
    remove = f"{another}, or remove that version, and export it again"
    if found.version != wanted.version:
        why, remedy = f"is {found.version} of another target", another  # elastic:a-b and elastic:a may have an index a-b-1 both
    elif found.run_id != wanted.run.record["run_id"]:
        why, remedy = f"is of the run {found.run_id}", another
    elif other := [f"{key} {found.choices.get(key)!r}" for key in wanted.choices if not _same(key, found, wanted)]:
        why, remedy = f"was exported with other choices ({', '.join(other)})", f"{another}, or the same choices"
    elif found.content is None:
        why = "was exported by an earlier version of dmqr, which did not note the run's files, so they may be others now"
        remedy = remove
    elif found.content != wanted.content:
        why, remedy = f"is of other files of {found.run_id}, which was run again since", remove
    elif found.gains != wanted.gains:
        why, remedy = f"has gains by {_by(found.gains)}, which are by {_by(wanted.gains)} now", remove
    elif found.prompts != wanted.prompts:
        why, remedy = "asks by prompts that are others now, or that an earlier version of dmqr did not note", remove
    else:
        why, remedy = "has the columns of another version of dmqr", remove
    raise ConfigError("publish-version", f"{place}: {why}; {remedy}")


def _same(key: str, found: ExportRecord, wanted: WantedExport) -> bool:
    """Returns whether a choice is the same, as JSON has it."""
    return json.dumps(found.choices.get(key), sort_keys=True) == json.dumps(wanted.choices[key], sort_keys=True)


def _by(gains: Mapping[str, Mapping[str, str]]) -> str:
    words = (f"{one['by']} ({one['digest']})" if "digest" in one else one["by"] for one in gains.values())
    return ", ".join(dict.fromkeys(words)) or "nothing"


def record_of(
    wanted: WantedExport,
    rows: LookUpRows,
    formats: Mapping[str, Mapping[str, int]],
    changes: Mapping[str, Any] | None,
    files: Sequence[Mapping[str, Any]],
) -> ExportRecord:
    """Returns the record of an export whose files are stored, or whose index is to be loaded."""
    return ExportRecord(
        version=wanted.version,
        run_id=wanted.run.record["run_id"],
        run=wanted.run.storage.root,
        identity=wanted.identity,
        choices=wanted.choices,
        counts=dict(rows.counts),
        left_out=dict(rows.left_out),
        formats=formats,
        changes=changes,
        files=files,
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        best_scores=best_scores(wanted.run, wanted.choice.hits),
        content=wanted.content,
        gains=wanted.gains,
        prompts=wanted.prompts,
    )
