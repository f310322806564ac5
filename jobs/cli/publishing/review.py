"""The verb review: a sheet of what is worth a look, or what is made of the filled sheet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.review.merged import SheetKey
    from jobs.runs.folder import RunFolder

_WRITES = {"--out": "out", "--rows": "rows", "--documents": "documents", "--low": "low", "--least-score": "least_score"}
_READS = {"--overrides": "overrides", "--qrels": "qrels", "--key": "key"}


def review(options: argparse.Namespace) -> int:
    """Writes a sheet, or reads one."""
    from jobs.runs.folder import open_run

    reads = options.read is not None
    for flag, name in (_WRITES if reads else _READS).items():
        if getattr(options, name) not in (None, False):
            what = "takes no part in reading a sheet (--read); leave it out" if reads else "needs --read FILE; give it, too"
            raise ConfigError("argument", f"{flag}: {what}")
    run = open_run(options.run)
    return _read(options, run) if reads else _write(options, run)


def _write(options: argparse.Namespace, run: RunFolder) -> int:
    from jobs.pages.review import review_page
    from jobs.review.review import LOW, ROWS, check_out, review_run, write_sheet
    from jobs.terminal.log_files import logged

    rows, low = (default if given is None else given for given, default in ((options.rows, ROWS), (options.low, LOW)))
    for name, value, least in (("--rows", rows, 0), ("--low", low, 1)):
        if value < least:
            raise ConfigError("argument", f"{name} {value}: is less than {least}; give {least} or more")
    out = options.out or f"{run.record['run_id']}-review.csv"
    if rows:
        check_out(out)
    with logged("review") as (progress, _):
        found = review_run(run, rows, low, options.least_score, documents=options.documents, phase=progress.phase)
    written = [out] if found.rows else []
    if found.rows:
        write_sheet(out, found)
    return show(
        options, lambda: {"out": out if written else None} | found.values(), lambda: review_page(found), *written, of=run
    )


def _read(options: argparse.Namespace, run: RunFolder) -> int:
    from jobs.pages.review import filled_page
    from jobs.review.filled import read_filled
    from jobs.review.merged import merged_judgements, merged_overrides, write_merged
    from jobs.review.portions import check_plain

    if options.overrides is None and options.qrels is None:
        raise ConfigError("argument", "--read: nothing is to be written; give --overrides FILE, --qrels FILE or both")
    if options.key is not None and options.qrels is None:
        raise ConfigError("argument", "--key: says what judgements name; give --qrels FILE, too")
    check_plain(run)
    sheet = read_filled(options.read, run)
    merged = {}
    for name, filled, given in (("status", sheet.verdicts, options.overrides), ("relevance", sheet.grades, options.qrels)):
        if filled and given is None:
            flag = "--overrides" if name == "status" else "--qrels"
            what = f"{options.read}: {filled[0].place} has a {name}, and no {flag} says where it goes"
            raise ConfigError("argument", f"{what}; give {flag} FILE, too")
    if options.overrides is not None:
        merged["overrides"] = merged_overrides(options.overrides, sheet.verdicts, run, options.read)
    if options.qrels is not None:
        key: SheetKey = options.key or ("query" if run.config.evaluate.key == "query" else "query_id")
        merged["judgements"] = merged_judgements(options.qrels, sheet.grades, run, options.read, key)
    write_merged(list(merged.values()))
    files = {what: {"path": one.path, "added": one.added, "known": one.known} for what, one in merged.items()}
    values = {"rows": sheet.rows, "empty": sheet.empty} | files
    return show(options, lambda: values, lambda: filled_page(sheet, merged))
