"""The verbs promote and rollback."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from jobs.cli.inputs import ground_truth
from jobs.cli.printing import print_json, show
from jobs.cli.refusal import say

if TYPE_CHECKING:
    from jobs.publish.promote import PromotedVersion

_SECTION, _BOUNDS = "publish.", "publish.gates"


def promote(options: argparse.Namespace) -> int:
    """Promotes a version of a run, if the gates hold; says a line for each that does not."""
    from jobs.pages.publishing.versions import promotion_page
    from jobs.publish.gates.gate import GateError, gate_line
    from jobs.runs.folder import open_run
    from jobs.verbs.publishing import PromoteArguments, promoted

    settings = _given_settings(options.set) | ({} if options.to is None else {"to": options.to})
    given = PromoteArguments(settings, options.version, (options.url_env, options.api_key_env), options.check)
    try:
        done = promoted(open_run(options.run), given, ground_truth(options, "--qrels"))
    except GateError as error:
        if options.json:
            print_json({"done": False, "gates": [one.values() for one in error.failed]})
        for one in error.failed:
            say(options.verb, GateError("publish-gate", gate_line(one, "nothing is promoted"), [one]), 1)
        return 1
    show(options, done.values, lambda: promotion_page(done), done.place)
    for one in done.failed:
        say(options.verb, GateError("publish-gate", gate_line(one, "it would not be promoted"), [one]), 1)
    return 1 if done.failed else 0


def rollback(options: argparse.Namespace) -> int:
    """Promotes the version before the promoted one."""
    from jobs.pages.publishing.versions import promotion_page
    from jobs.verbs.publishing import rolled_back

    done: PromotedVersion = rolled_back(options.to, (options.url_env, options.api_key_env), check=options.check)
    return show(options, done.values, lambda: promotion_page(done), done.place)


def _given_settings(words: list[str]) -> dict[str, Any]:
    """Returns key of `publish` -> value, of bounds like `publish.gates.coverage=0.9`.

    Raises:
        ConfigError: One is no bound.
    """
    from jobs.config.load import given_setting

    found: dict[str, Any] = {}
    for word in words:
        name, value = given_setting(word)
        if not f"{name}.".startswith(f"{_BOUNDS}."):
            raise ConfigError("argument", f"--set {word}: is no bound; give one like publish.gates.coverage=0.9")
        found[name.removeprefix(_SECTION)] = value
    return found
