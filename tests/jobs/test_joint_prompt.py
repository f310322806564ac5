"""A joint prompt from a file: what is read, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.run.joint_prompt import read_joint_prompt

from cluster.errors import ConfigError


@pytest.mark.parametrize("content", [b"Do this.\n{query}\n\n", b"\xef\xbb\xbfDo this.\r\n{query} \r\n", b"Do this.\n{query}"])
def test_what_an_editor_adds_is_not_in_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    assert read_joint_prompt(str(path)) == "Do this.\n{query}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory; name a text file in UTF-8"),
        (b"caf\xe9 {query}", "; name a text file in UTF-8"),
        (b"", "must have {query} once, as its last word"),
        (b"{query} {queries}", "unknown variable '{queries}'"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "prompt.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_joint_prompt(str(path))
    assert str(refused.value).startswith(f"rewrite.joint_prompt: {path}: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name a text file in UTF-8"):
        read_joint_prompt(str(tmp_path))
