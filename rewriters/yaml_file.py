"""Reading of the YAML files that a config names: strategies, rules, demonstrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from cluster.errors import RewriterError


def read_yaml(code: str, where: str, read: Callable[[], str], remedy: str) -> Any:
    """Returns the content of a file, which errors of a code name `where`, with a remedy.

    `read` returns its text; raises OSError or UnicodeDecodeError.

    Raises:
        RewriterError: It cannot be read, or is not YAML.
    """
    try:
        return yaml.safe_load(read())
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8"
        raise RewriterError(code, f"{where}: cannot be read: {why}; {remedy}") from error
    except yaml.YAMLError as error:
        raise RewriterError(code, f"{where}: is not YAML: {' '.join(str(error).split())}; correct that line") from error
