"""The README speaks of what is there: every key of the config, every path, every verb."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from jobs.command_line import VERBS
from jobs.config import Config
from jobs.tables import STORED

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and prefix == "":
            found += keys(field.annotation, f"{name}.")
        else:
            found.append(prefix + name)
    return found


@pytest.mark.parametrize("key", keys(Config))
def test_every_key_is_explained(key: str) -> None:
    first, _, last = key.partition(".")
    assert f"`{key}`" in README or (f"`{first}." in README and f"`.{last}`" in README)


def test_every_path_exists() -> None:
    named = re.findall(r"`((?:jobs|rewriters|retrievers|cluster|configs|tests)/[^`*<> ]*)`", README)
    assert len(named) > 15
    for path in named:
        braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
        names = [braces[1] + one + braces[3] for one in braces[2].split(",")] if braces else [path]
        for name in names:
            assert (ROOT / name).exists(), name


def test_every_verb_and_table_is_explained() -> None:
    for verb in VERBS:
        assert re.search(rf"^\| `dmqr {verb} (CONFIG|RUN)", README, re.MULTILINE), verb
    for table in STORED:
        assert f"| `{table}/` |" in README
