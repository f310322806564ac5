"""YAML files: our prompts, and strategies, steps, rules and demonstrations, which are refused in one line."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cluster.errors import RewriterError, UnavailableError, nearest

Read = Callable[[str], str]  # path of a file of the user -> its text; raises OSError or UnicodeDecodeError


@cache
def prompt(name: str) -> str:
    """Returns a template of `prompts.yaml`."""
    return str(yaml.safe_load(Path(__file__).with_name("prompts.yaml").read_text(encoding="utf-8"))[name])


def read_local(path: str) -> str:
    """Returns the text of a file of this machine."""
    return Path(path).read_text(encoding="utf-8")


def read_file(code: str, where: str, path: str, read: Read, remedy: str) -> str:
    """Returns the text of a file; errors of a code name `where`, with a remedy, but for UnavailableError, which is raised."""
    try:
        return read(path)
    except UnavailableError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8"
        raise RewriterError(code, f"{where}: cannot be read: {why}; {remedy}") from error


def read_yaml(code: str, where: str, path: str, read: Read, remedy: str, fields: str | None = None) -> Any:
    """Returns the content of a file as `read_file`; raises RewriterError if it is not YAML, or not the named `fields`."""
    try:
        content = yaml.safe_load(read_file(code, where, path, read, remedy))
    except yaml.YAMLError as error:
        raise RewriterError(code, f"{where}: is not YAML: {' '.join(str(error).split())}; correct that line") from error
    if fields is not None and not isinstance(content, dict):
        raise RewriterError(code, f"{where}: should hold {fields}, found {type(content).__name__}; correct it")
    return content


def take_variables(code: str, where: str, fields: dict[str, Any]) -> dict[str, str]:
    """Takes the variables that a file declares out of its fields, and returns them with their values."""
    values = fields.pop("variables", None) or {}
    if not isinstance(values, dict):
        raise RewriterError(code, f"{where}: variables: should hold names with their values, found {values!r}")
    return {str(name): str(value) for name, value in values.items()}


@contextmanager
def checked(code: str, where: str, keys: Callable[[Sequence[Any]], Collection[str]] = lambda place: ()) -> Iterator[None]:
    """Raises the first problem that a model finds in a file, as one line; `keys` returns those that may stand at a place."""
    try:
        yield
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # the cause of a missing one
        message, remedy = first["msg"].removeprefix("Value error, "), "correct it"
        if first["type"] == "missing":
            message, remedy = "is missing", "add it"
        elif first["type"] == "extra_forbidden":
            known = keys(first["loc"][:-1])
            message = f"unknown key{nearest(str(first['loc'][-1]), known) if known else ''}"
        elif first["type"] != "value_error":
            message = f"{message[0].lower()}{message[1:]}, found {first['input']!r}"
        key = "".join(f"{part}." for part in first["loc"])[:-1]
        raise RewriterError(code, f"{where}: {key + ': ' if key else ''}{message}; {remedy}") from error
