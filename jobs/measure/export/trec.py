"""TREC run files of a run, and of an ablation's arms."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cluster.errors import ConfigError
from cluster.storage import remote
from cluster.storage.whole_file import written
from jobs.chain.arms.arms import RUN
from jobs.measure.frame import Frame
from jobs.measure.judged_rows import ARM_LISTS, database
from jobs.runs.folder import RunFolder

_BATCH = 1 << 16  # rows
_LONGEST_TAG = 100
_SPACE = r"^$|[\s\p{Z}\x0b\x1c-\x1f\x85]"  # whatever parts columns for Python's str.split, too
_FOUND = """
CREATE TEMP TABLE found AS
SELECT arm, place, topic, doc_id, rank FROM rows_by_name($files) JOIN wanted USING (query_id)
"""
_NOTHING = "CREATE TEMP TABLE found (arm VARCHAR, place BIGINT, topic VARCHAR, doc_id VARCHAR, rank BIGINT)"
_SPACED = "SELECT name FROM (SELECT unnest([topic, doc_id]) AS name FROM found) WHERE regexp_matches(name, $space) LIMIT 1"
_LINES = """
SELECT concat_ws(' ', topic, 'Q0', doc_id, rank, 1 / rank::DOUBLE, $tag)
FROM (
    SELECT topic, doc_id, rank FROM found WHERE arm = $arm
    UNION ALL
    SELECT topic, doc_id, rank FROM found JOIN chosen ON chosen.member = found.arm AND chosen.place = found.place
    WHERE chosen.arm = $arm
)
ORDER BY topic, rank
"""


def write_run(path: str, run: RunFolder, frame: Frame) -> None:
    """Writes the results of a run as a TREC run file, a local file or an object on S3.

    Topics, scores and errors are those of `write_trec`; the tag is the run's id.
    """
    with written(path) as file:
        _write(f"--trec {path}", run, frame, {RUN: (run.record["run_id"], file)})


def write_trec(folder: str, run: RunFolder, frame: Frame) -> dict[str, str]:
    """Writes the results of each arm as a TREC run file `<arm>.run`; returns arm -> path.

    A topic is a counted judged key; of judgements by query text, the query_id. The score is 1 / rank,
    which falls strictly, so that no reader reorders ties. An arm that chooses among others by judgements has, for each key,
    the list of the arm that the comparison chose. What is not of A-Z a-z 0-9 . _ + = - in an arm's name is an underscore in
    its file's name, and a hash tells such names apart.

    Args:
        folder: a local folder, which is made, or a prefix on S3.
        run: of the ablation.
        frame: of its arms.

    Raises:
        ConfigError: a key or doc_id has white space, which parts the columns of such a file; or files cannot be read.
    """
    if not remote(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dmqr-", dir=None if remote(folder) else folder) as temporary:
        files = {arm: (tag, Path(temporary, f"{tag}.run")) for arm, tag in run_tags(frame.arms).items()}
        _write(folder, run, frame, files)
        return {arm: _placed(file, folder) for arm, (_, file) in files.items()}  # all are whole now


def run_tags(arms: Iterable[str]) -> dict[str, str]:
    """Returns arm -> its run tag and name of its file, distinct even where a file system ignores case."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for arm in arms:
        tag = re.sub(r"[^A-Za-z0-9._+=-]", "_", arm)[:_LONGEST_TAG].lstrip(".-")
        if tag != arm or tag.lower() in taken:
            tag = f"{tag or 'arm'}-{hashlib.sha256(arm.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        found[arm] = tag
        taken.add(tag.lower())
    return found


def _placed(file: Path, folder: str) -> str:
    """Moves a file into a folder, or uploads it below a prefix on S3; returns where it is then."""
    path = f"{folder.rstrip('/')}/{file.name}"
    with written(path) as temporary:
        shutil.move(file, temporary)
    return path


def _write(where: str, run: RunFolder, frame: Frame, files: Mapping[str, tuple[str, Path]]) -> None:
    """Writes the results of arms; `files`: arm -> its tag and its file."""
    places = [place for place, query_id in enumerate(frame.query_ids) if query_id is not None]
    query_ids = [frame.query_ids[place] for place in places]
    topics = query_ids if frame.key == "query" else [frame.keys[place] for place in places]
    choosing = {one["name"]: one["members"] for one in run.record.get("ablation", {}).get("arms", ()) if one.get("members")}
    wanted = {"place": places, "query_id": pa.array(query_ids, pa.string()), "topic": pa.array(topics, pa.string())}
    tables = [file for table in ARM_LISTS for file in run.tables.get(table, ())]
    with database(run) as connection:
        connection.register("wanted", pa.table(wanted))
        connection.register("chosen", _chosen(frame, choosing, places))
        connection.execute(_FOUND if tables else _NOTHING, {"files": tables} if tables else None)
        spaced = connection.execute(_SPACED, {"space": _SPACE}).fetchone()
        if spaced is not None:
            name = f"{spaced[0][:80]!r}"
            raise ConfigError("argument", f"{where}: id {name} has white space, which ends a column there; use --per-query")
        for arm, (tag, path) in files.items():
            rows = connection.execute(_LINES, {"arm": arm, "tag": tag})
            with path.open("w", encoding="utf-8", newline="\n") as file:
                while lines := rows.fetchmany(_BATCH):
                    file.writelines(f"{line}\n" for (line,) in lines)


def _chosen(frame: Frame, choosing: Mapping[str, Sequence[str]], places: Sequence[int]) -> pa.Table:
    """Returns the rows (arm, place, member): for each arm that chooses, the first member with the arm's values of that key."""
    number = {arm: place for place, arm in enumerate(frame.arms)}
    rows = []
    for arm, named in choosing.items():
        members = [member for member in named if member in number]
        if arm not in number or not members:
            continue
        values = frame.values[[number[member] for member in members]][:, :, places]
        same = (values == frame.values[number[arm]][:, places]).all(axis=1)
        rows += [
            {"arm": arm, "place": place, "member": members[member]}
            for place, member in zip(places, np.argmax(same, axis=0).tolist(), strict=True)
        ]
    return pa.Table.from_pylist(rows, pa.schema([("arm", pa.string()), ("place", pa.int64()), ("member", pa.string())]))
