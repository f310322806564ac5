"""The arguments of the verb that looks after a store."""

from __future__ import annotations

import argparse

from jobs.cli.command_line.cluster_arguments import add
from jobs.cli.inputs import named_config

ACTIONS = {
    "gc": "merge files that hold one range of queries, remove rows older than store_ttl and what no job has used for --unused",
    "forget": "remove a query (a second argument, in quotes) and all that has its words",
}
_OPTIONS = {"unused": "gc", "context": "forget", "own": "forget", "all": "forget"}  # of which action each option is


def add_store(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of store."""
    words = "; ".join(f"{name}: {what}" for name, what in ACTIONS.items())
    add(one, "action", metavar="ACTION", choices=tuple(ACTIONS), help=words)
    words = "a config, for its store, or the folder of a store; then the QUERY to forget"
    add(one, "given", metavar="CONFIG|STORE", nargs="+", help=words)
    words = "gc: spaces (of one model, index or reranker) that no job has used for so long: 12h, 30d, 8w"
    add(one, "--unused", metavar="DURATION", help=words)
    add(one, "--dry-run", action="store_true", help="only say what would go")
    add(one, "--context", metavar="TEXT", help="forget: the earlier turns, of the query after them")
    add(one, "--own", action="store_true", help="forget: leave the rows of other queries that have its words")
    add(one, "--all", action="store_true", help="forget: its words go, in however many other queries they stand")

    def arrange(options: argparse.Namespace) -> None:
        """Tells the store from what the action is about, in either order, and refuses what is not of the action."""
        given, most = list(options.given), 2 if options.action == "forget" else 1
        if len(given) < most:
            one.error("QUERY is missing: forget needs it")
        if len(given) > most:
            one.error(f"{given[-1]!r} is one argument too many")
        if most == 2 and named_config(given[1]) and not named_config(given[0]):
            given.reverse()
        options.config, options.query = given[0], given[-1]
        for name, action in _OPTIONS.items():
            if getattr(options, name) and options.action != action:
                one.error(f"--{name} is of {action}, not of {options.action}; leave it out")
        if options.own and options.all:
            one.error("--own leaves what --all takes; give one")
        if options.action == "gc" and not options.unused:
            one.error("--unused is missing: gc needs it")

    one.set_defaults(arrange=arrange)
