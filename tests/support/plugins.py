"""Plug-ins of tests: the files of a page or of a test, and packages with entry points."""

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.plugins import plugin, version_of
from cluster.settings import Settings
from tests.support.jobs.whole_runs import ROOT

PAGE = ROOT / "docs" / "python.md"


def page_file(name: str) -> str:
    """The text of a file that the page shows, by its first line."""
    blocks = re.findall(r"^```(?:python|yaml)\n(# (\S+)\n.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = (text for text, named in blocks if named == name)
    return str(found)


@contextmanager
def installed(folder: Path, name: str, files: dict[str, str], entry_points: str) -> Iterator[Path]:
    """A distribution `name` 1.0 of these files in a folder of `sys.path`, until the end; yields the folder."""
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)
    tops = sorted({Path(place).parts[0].removesuffix(".py") for place in files})
    (about / "top_level.txt").write_text("\n".join(tops))
    (about / "RECORD").write_text("".join(f"{place},,\n" for place in files))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    forget(*tops)


def forget(*tops: str) -> None:
    """Forgets packages that this process has imported."""
    for module in [one for one in sys.modules if one.partition(".")[0] in tops]:
        del sys.modules[module]
    version_of.cache_clear()
    importlib.invalidate_caches()


def found(reference: str) -> Any:
    """The class of settings that a reference, or an entry point of the group `dmqr.tests`, names."""
    return plugin(
        reference, "dmqr.tests", lambda one: isinstance(one, type) and issubclass(one, Settings), "a class of Settings"
    )


def refusal(call: Any, *arguments: Any) -> str:
    """The line of the error that a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the caller looks at the line
        call(*arguments)
    line = str(raised.value)
    assert "\n" not in line
    return line
