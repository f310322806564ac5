"""The user's joint prompt: a text file, local or on S3."""

from __future__ import annotations

import io

from cluster.errors import ConfigError, RewriterError, UnavailableError
from cluster.storage import open_file
from rewriters.joint import check_joint_prompt


def read_joint_prompt(path: str) -> str:
    """Returns the text of the file, without trailing white space.

    Raises:
        ConfigError: the file cannot be read, or is not a joint prompt.
    """
    where = f"rewrite.joint_prompt: {path}"
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as file:
            prompt = file.read().rstrip()
    except UnavailableError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ConfigError("prompt", f"{where}: cannot be read: {problem}; name a text file in UTF-8") from error
    try:
        check_joint_prompt(prompt)
    except RewriterError as error:
        raise ConfigError("prompt", f"{where}: {error}") from error
    return prompt
