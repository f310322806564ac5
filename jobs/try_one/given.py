"""What `try` is given besides a query: what a row of the log would say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cluster.errors import ConfigError, nearest
from cluster.http import encodable
from jobs.log.check import LogColumns


@dataclass(frozen=True)
class Given:
    """The context and the values of a query."""

    context: str | None = None
    """The earlier turns, oldest first; None: nothing is given."""
    values: dict[str, str] = field(default_factory=dict)
    """Column of the log -> value."""

    def check(self, columns: LogColumns, config_file: str) -> None:
        """Checks that a log of these columns has what is given.

        Raises:
            ConfigError: it has no contexts, or no such column; or a text is not UTF-8.
        """
        texts = {f"--value {name}": text for name, text in self.values.items()}
        if self.context is not None:
            texts["--context"] = self.context
            if columns.context_column is None:
                raise ConfigError(
                    "argument", f"--context: {config_file} names no log.context_column; set it, or leave --context out"
                )
        for name in self.values:
            if name not in columns.values:
                near = nearest(name, columns.values) if columns.values else "; leave it out"
                raise ConfigError("argument", f"--value {name}: no prompt or selection of {config_file} uses it{near}")
        for option, text in texts.items():
            check_utf8(option, text)


NOTHING = Given()


def check_utf8(what: str, text: str) -> None:
    """Checks that an argument was UTF-8.

    Raises:
        ConfigError: it was not.
    """
    if text != encodable(text):
        raise ConfigError("argument", f"{what}: is not UTF-8; give it in a terminal that is")


def read_values(given: Iterable[str]) -> dict[str, str]:
    """Returns name -> text of arguments NAME=TEXT.

    Raises:
        ConfigError: one has no name, or a name comes twice.
    """
    values: dict[str, str] = {}
    for one in given:
        name, sign, text = one.partition("=")
        if not name or not sign:
            raise ConfigError("argument", f"--value {one}: is not NAME=TEXT; write it as --value country=Iceland")
        if name in values:
            raise ConfigError("argument", f"--value {name}: is given twice, and a query has one value; give one")
        values[name] = text
    return values
