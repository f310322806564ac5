"""The verb `clicks`: judgements from the clicks of a log."""

from __future__ import annotations

import argparse
import sys

from cluster.errors import ConfigError
from jobs.cli.printing import show


def clicks(options: argparse.Namespace) -> int:
    """Writes judgements from the clicks of a config's log."""
    from jobs.clicks.clicks import click_judgements, click_page, click_values
    from jobs.clicks.export import ACTIONS, EventChoice
    from jobs.clicks.grades import Grading, check_table, parse_thresholds, write_judgements, write_table
    from jobs.config.load import load_config

    config = load_config(options.config, options.set, options.date)
    if options.pairs:
        check_table(options.pairs)
    for name, value, least in (("--max-queries", options.max_queries, 0), ("--depth", options.depth, 1)):
        if value < least:
            raise ConfigError("argument", f"{name} {value}: is less than {least}; give {least} or more")
    actions = tuple(action.strip() for action in options.actions.split(",")) if options.actions else ACTIONS
    grading = Grading(parse_thresholds(options.thresholds), options.min_impressions, options.min_clicks)
    found = click_judgements(config, EventChoice(actions, options.max_queries, options.depth), options.model, grading)
    write_judgements(options.out, found.graded)
    if options.pairs:
        write_table(options.pairs, found.graded)
    show(options, lambda: {"out": options.out} | click_values(found), lambda: click_page(found), options.out)
    if not found.graded.judged.num_rows:
        print("dmqr clicks: no pair was judged; lower --min-impressions or --min-clicks, or read more days", file=sys.stderr)
    return 0
