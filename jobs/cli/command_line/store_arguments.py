"""The arguments of the verb that looks after a store."""

from __future__ import annotations

import argparse

from jobs.cli.command_line.cluster_arguments import add
from jobs.cli.inputs import named_config

ACTIONS = {
    "stats": "show rows, bytes, last use, and what runs have saved",
    "compact": "merge files that hold one range of queries",
    "gc": "remove what no job has used for --unused",
    "forget": "remove a query (a second argument, in quotes) and all that has its words",
    "import": "take the completions of a recording (a second argument) for answers of the config's engine",
    "export": "write the completions of the queries of the config's runs as a recording (--out)",
}
_SECOND = {"forget": "QUERY", "import": "FILE"}
_OPTIONS = {  # of which action each option is
    "unused": ("gc",), "dry_run": ("gc", "forget"), "context": ("forget",), "own": ("forget",), "all": ("forget",),
    "out": ("export",), "grace": ("compact",), "prices": ("stats",),
}  # fmt: skip


def add_store(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of store."""
    words = "; ".join(f"{name}: {what}" for name, what in ACTIONS.items())
    add(one, "action", metavar="ACTION", choices=tuple(ACTIONS), help=words)
    words = "a config, for its store, or the folder of a store; then what the action is about, QUERY or FILE"
    add(one, "given", metavar="CONFIG|STORE", nargs="+", help=words)
    words = "gc: spaces (of one model, index or reranker) that no job has used for so long: 12h, 30d, 8w"
    add(one, "--unused", metavar="DURATION", help=words)
    add(one, "--dry-run", action="store_true", help="gc, forget: only say what would go")
    add(one, "--context", metavar="TEXT", help="forget: the earlier turns, of the query after them")
    add(one, "--own", action="store_true", help="forget: leave the rows of other queries that have its words")
    add(one, "--all", action="store_true", help="forget: its words go, in however many other queries they stand")
    add(one, "--out", metavar="FILE", help="export: where the recording goes")
    words = "compact: how long files stay that others replace, for jobs that read them (default: 48h)"
    add(one, "--grace", metavar="DURATION", help=words)
    add(one, "--prices", metavar="FILE", help="stats: default: prices.yaml beside the config")

    def arrange(options: argparse.Namespace) -> None:
        """Tells the store from what the action is about, in either order, and refuses what is not of the action."""
        second, given = _SECOND.get(options.action), list(options.given)
        if second and len(given) < 2:
            one.error(f"{second} is missing: {options.action} needs it")
        if len(given) > (2 if second else 1):
            one.error(f"{given[-1]!r} is one argument too many")
        if second == "QUERY" and named_config(given[1]) and not named_config(given[0]):
            given.reverse()
        options.config, options.second = given[0], given[1] if second else None
        for name, actions in _OPTIONS.items():
            if getattr(options, name) and options.action not in actions:
                one.error(f"--{name.replace('_', '-')} is of {' and '.join(actions)}, not of {options.action}; leave it out")
        if options.own and options.all:
            one.error("--own leaves what --all takes; give one")
        for action, name in (("gc", "unused"), ("export", "out")):
            if options.action == action and not getattr(options, name):
                one.error(f"--{name} is missing: {action} needs it")

    one.set_defaults(arrange=arrange)
