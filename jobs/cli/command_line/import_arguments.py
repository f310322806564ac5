"""The arguments of the verb that imports published data sets."""

from __future__ import annotations

import argparse

from jobs.cli.command_line.cluster_arguments import add
from jobs.cli.command_line.measure_arguments import add_json

SETS = ("ambignq", "freshqa", "hotpotqa", "musique")


def add_import(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of import."""
    add(one, "data_set", metavar="SET", choices=SETS, help=f"whose format the file has: {', '.join(SETS)}")
    add(one, "file", metavar="FILE", help="the file as it is published, here or on S3; .gz and .zst, too")
    words = "where log, corpus, answers, judgements and config go; overwrites nothing (default: a folder named as the set)"
    add(one, "--to", metavar="FOLDER", help=words)
    words = "what is searched for a set without passages (ambignq, freshqa), as of index (default: the web)"
    add(one, "--corpus", default=[], nargs="+", action="extend", metavar="PATH", help=words)
    add_json(one)
