"""The arguments of the verbs that read a config: its file, what overrides it, the label of its run."""

from __future__ import annotations

import argparse

from jobs.cli.command_line.cluster_arguments import add


def add_config(one: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Adds a config and its overrides."""
    add(one, "config", metavar="CONFIG", nargs=nargs, help="a YAML file, e.g. configs/quickstart.yaml")
    add_overrides(one)


def add_overrides(one: argparse.ArgumentParser) -> None:
    """Adds the overrides of a config."""
    add(one, "--set", action="append", default=[], metavar="A.B=VALUE", help="override one key of the config")
    add(one, "--date", metavar="YYYY-MM-DD", help="what {date} stands for (default: yesterday, UTC)")


def add_label(one: argparse.ArgumentParser, words: str) -> None:
    """Adds the label of a run."""
    add(one, "--label", metavar="TEXT", help=words)
