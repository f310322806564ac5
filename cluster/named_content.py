"""Identity of settings: the fields that decide results, and the content of the files that they name.

A name tells too little: one path may hold this now and that later.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cluster.plugins import hash_of_files, identity_of
from cluster.settings import Names, field_names

_BY_CONTENT = (Names.FILE, Names.TEXT, Names.MODEL)


def deciding_fields(part: BaseModel, weights: Callable[[str], Any] | None = None) -> Iterator[tuple[str, Any, bool]]:
    """Yields name and value of a section's fields that are not marked `NOT_IDENTITY`, and whether it is the default.

    Files that a plug-in names count by content; of this project's sections their content counts elsewhere. With `weights`,
    which returns the identity of weights of a hub or of a package, those count here.
    """
    plugin, names = bool(identity_of(type(part))), field_names(type(part))
    for name, field in type(part).model_fields.items():
        extra, what, value = field.json_schema_extra, names.get(name), getattr(part, name)
        noted = extra if isinstance(extra, dict) else {}
        of_ours = weights is not None and what is Names.MODEL and not plugin
        if not (noted.get("identity", True) or of_ours):
            continue
        known = content_of(what, value) if plugin or of_ours else value
        if weights is not None and what is Names.MODEL and known == value:
            known = weights(value) if isinstance(value, str) else value
        is_default = not field.is_required() and known == field.get_default(call_default_factory=True)
        yield name, known, is_default


def content_of(what: Names | None, value: Any) -> Any:
    """Returns `sha256:...` of the file or folder of this machine that a value names, of a list each; else the value."""
    if what in _BY_CONTENT and isinstance(value, list | tuple):
        return [content_of(what, one) for one in value]
    if what not in _BY_CONTENT or not isinstance(value, str) or not value or "://" in value:
        return value
    path = Path(value).expanduser()
    try:
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        if not all(map(Path.is_file, files)):
            return value
        named = [("" if file == path else file.relative_to(path).as_posix(), file) for file in files]
        return f"sha256:{hash_of_files(named)}"
    except OSError:  # whoever opens it says why it cannot be read
        return value
