"""The content of what a field of settings names, where a name tells too little: one path may hold this now and that later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.plugins.files import hash_of_files
from cluster.settings import Names

_BY_CONTENT = (Names.FILE, Names.TEXT, Names.MODEL)


def content_of(what: Names | None, value: Any) -> Any:
    """Returns `sha256:...` of the file or folder of this machine that a field's value names, of a list each.

    Anything else is returned as it is: an address of S3, a name of a hub, a path at which nothing is.
    """
    if what in _BY_CONTENT and isinstance(value, list | tuple):
        return [content_of(what, one) for one in value]
    if what not in _BY_CONTENT or not isinstance(value, str) or not value or "://" in value:
        return value
    path = Path(value).expanduser()
    try:
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        if not all(map(Path.is_file, files)):
            return value
        return f"sha256:{hash_of_files({_place(one, path): one for one in files})}"
    except OSError:  # whoever opens it says why it cannot be read
        return value


def _place(file: Path, named: Path) -> str:
    return "" if file == named else file.relative_to(named).as_posix()
