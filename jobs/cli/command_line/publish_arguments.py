"""The arguments of the verbs that bring a finished run to a search."""

from __future__ import annotations

import argparse
from typing import Any

from jobs.cli.command_line.cluster_arguments import add
from jobs.cli.command_line.measure_arguments import add_json, add_key, add_run

FORMAT_OPTIONS: dict[str, dict[str, Any]] = {
    "synonym_rules": {"type": int, "metavar": "N", "help": "synonyms: of so many queries, those asked most (default: 10000)"},
    "holdout": {
        "type": int,
        "metavar": "N",
        "help": "chat, preferences: queries of the first N buckets are in no row, but in a log of their own (default: 10)",
    },
    "prompt_of": {
        "metavar": "STRATEGY",
        "help": "chat, preferences: whose prompt asks for any text (default: chat each strategy's own, preferences rewrite)",
    },
    "min_gain": {
        "type": float,
        "metavar": "GAIN",
        "help": "chat: leave out answers whose lists are not so much better than the original's (default: nothing is measured)",
    },
    "margin": {
        "type": float,
        "metavar": "GAIN",
        "help": "preferences: the chosen text's lists are better by more than this (default: 0)",
    },
    "pairs": {"type": int, "metavar": "N", "help": "preferences: pairs of a query at most (default: 3)"},
    "qrels": {
        "metavar": "FILE",
        "help": "chat, preferences: judgements to measure by (default: the config's, the judge's, the reranker's scores)",
    },
    "key": {"choices": ("log_id", "query_id", "query"), "help": "what they name (default: the run's evaluate.key)"},
}
"""Option of a format -> how argparse takes it; `synonym_rules` is `--synonym-rules`. Without it the format's default counts."""


def names(words: str) -> list[str]:
    """Returns names that commas part; commas within parentheses are of a name, as in `rag_fusion(n=2,temperature=0.5)`."""
    found, depth = [""], 0
    for sign in words:
        depth = max(0, depth + (sign == "(") - (sign == ")"))
        if sign == "," and not depth:
            found.append("")
        else:
            found[-1] += sign
    return [name.strip() for name in found if name.strip()]


def _add_target(one: argparse.ArgumentParser, otherwise: str = "", **more: Any) -> None:
    words = "where versions lie: a folder, here or on S3, or elastic:NAME, an alias of Elasticsearch"
    add(one, "--to", metavar="TARGET", help=words + otherwise, **more)
    words = "of elastic:NAME: the environment variable with the server's address (default: ELASTICSEARCH_URL)"
    add(one, "--url-env", metavar="NAME", help=words)
    add(one, "--api-key-env", metavar="NAME", help="of elastic:NAME: that with an API key (default: none)")


def add_export(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of export."""
    add_run(one)
    _add_target(one, " (default: publish.to of the run's config)")
    words = "what is written, with commas: rows, querqy, synonyms, chat, preferences (default: publish.formats)"
    add(one, "--as", dest="formats", metavar="NAME,...", type=names, help=words)
    words = "how it is called: lower-case letters, digits, '.', '-', '_' (default: the run's id without the config's name)"
    add(one, "--version", metavar="NAME", help=words)
    words = "whose rewrites go in, with commas (default: publish.strategies, else all)"
    add(one, "--strategies", metavar="NAME,...", type=names, help=words)
    words = "leave out rewrites that have added fewer documents to the first hits (default: publish.min_added)"
    add(one, "--min-added", type=int, metavar="N", help=words)
    add(one, "--hits", type=int, metavar="N", help="first results of a query that go in (default: publish.hits)")
    add(one, "--buckets", type=int, metavar="N", help="number of buckets of live traffic (default: publish.buckets)")
    add(one, "--salt", metavar="TEXT", help="what the bucket of a query is hashed with (default: publish.salt)")
    words = "an earlier version of the target: what differs from it is counted, and in a folder written, too"
    add(one, "--since", metavar="NAME", help=words)
    for name, more in FORMAT_OPTIONS.items():
        add(one, f"--{name.replace('_', '-')}", **more)
    add_json(one)


def add_promote(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of promote."""
    add_run(one)
    _add_target(one, " (default: publish.to of the run's config)")
    words = "the version (default: the run's id without the config's name)"
    add(one, "--version", metavar="NAME", help=words)
    add(one, "--check", action="store_true", help="only say what the gates say, and promote nothing")
    words = "another bound, like publish.gates.coverage=0.9 or publish.gates.quality.floor=0.8; null: none"
    add(one, "--set", action="append", default=[], metavar="A.B=VALUE", help=words)
    words = "judgements, for the gate of quality (default: those of the run's config, else of its judge)"
    add(one, "--qrels", metavar="FILE", help=words)
    add_key(one)
    add_json(one)


def add_rollback(one: argparse.ArgumentParser) -> None:
    """Adds the arguments of rollback."""
    _add_target(one, required=True)
    add(one, "--check", action="store_true", help="only say what is promoted, and what would be")
    add_json(one)
