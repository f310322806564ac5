"""Classes of code that is no part of this project: how a config names them, and what they are known by.

A config names `package.module:Class`, of a package that is installed or of a module in the current folder, or an entry point of
an installed package.
"""

import hashlib
import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from cluster.cause import one_line
from cluster.errors import ClusterError, DmqrError, nearest

OURS = ("cluster", "dmqr", "jobs", "retrievers", "rewriters")  # the packages of this project
_LOADED: set[str] = set()  # the modules with the classes that configs have named in this process
_REFERENCE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")


class PluginError(Exception):
    """Code that cannot be used; the message is `what is wrong; what to do`."""


def entry_points(group: str) -> dict[str, str]:
    """Returns the entry points of a group: name -> `module:Class`."""
    return {one.name: one.value for one in importlib.metadata.entry_points(group=group)}


def plugin(name: str, group: str, fits: Callable[[Any], bool], wanted: str) -> type:
    """Returns the class that `module:Class`, or the name of an entry point of `group`, names.

    Raises PluginError if it is not there, cannot be imported, or is nothing that `fits`: `wanted`, with an article.
    """
    reference = name if ":" in name else entry_points(group)[name]
    if (parts := _REFERENCE.fullmatch(reference)) is None:
        raise PluginError(f"{reference!r} names no class; write it as package.module:Class")
    module = imported(parts["module"])
    loaded = getattr(module, parts["name"], None)
    if loaded is None:
        known = [one for one, value in vars(module).items() if fits(value)]
        raise PluginError(f"module {parts['module']} has no {parts['name']}{nearest(parts['name'], known)}")
    if not fits(loaded):
        raise PluginError(f"{reference} is not {wanted}; name one, or derive it")
    _LOADED.add(parts["module"])
    return loaded


def imported(name: str) -> ModuleType:
    """Returns a module, also of the current folder; raises PluginError if it is not there or raises an error."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever its code raises
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            remedy = "correct the name, install it, or start dmqr in the folder that has it"
            raise PluginError(f"there is no module {name}; {remedy}") from error
        why = f"{type(error).__name__}: {one_line(error, None)}"
        raise PluginError(f"module {name} cannot be imported: {why}; correct it, or install what it needs") from error


def is_plugin(loaded: type) -> bool:
    """Returns True if a class is no part of this project."""
    return loaded.__module__.partition(".")[0] not in OURS


def identity_of(loaded: type) -> dict[str, str]:
    """Returns the identity of a plug-in's class: its name, its module, and the version of that; {}: it is no plug-in's."""
    if not is_plugin(loaded):
        return {}
    return {"class": loaded.__qualname__, "module": loaded.__module__, "code": version_of(loaded.__module__)}


@cache
def version_of(module: str) -> str:
    """Returns name and version of the distribution that has installed a module; of another module the hash of its file."""
    file = Path(str(sys.modules[module].__file__)).resolve()
    for name in importlib.metadata.packages_distributions().get(module.partition(".")[0], ()):
        distribution = importlib.metadata.distribution(name)
        places = [one for one in distribution.files or () if one.name == file.name]
        if any(Path(str(distribution.locate_file(one))).resolve() == file for one in places):
            return f"{name} {distribution.version}"
    return f"sha256:{hash_of_files([('', file)])}"


def hash_of_files(files: Iterable[tuple[str, Path]]) -> str:
    """Returns 32 hex digits for files with their places: of these and of their content."""
    whole = hashlib.sha256()
    for name, path in files:
        stat = path.stat()
        whole.update(f"{name}\0{_hash_of_file(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)}\n".encode())
    return whole.hexdigest()[:32]


@lru_cache(maxsize=4096)
def _hash_of_file(path: Path, *_state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def module_beside(loaded: type, name: str) -> ModuleType:
    """Returns the module of a name, "": that of the class; raises ClusterError if it is not there, or raises an error."""
    if not name:
        return sys.modules[loaded.__module__]
    if not is_plugin(loaded):
        return importlib.import_module(name)
    try:
        return imported(name)
    except PluginError as error:
        raise ClusterError("plugin", f"{loaded.__module__}: {error}") from error


@contextmanager
def own_errors(
    loaded: type, what: str, refusal: type[DmqrError], where: str = "", but: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Says in one line what code of a plug-in raises: `what` of the class `loaded` failed, under the key `where` of the config.

    Errors of this project, of connections and of `but` pass, and so do all where `loaded` is no plug-in's.
    """
    passing: tuple[type[BaseException], ...] = (DmqrError, ConnectionError, *but)
    try:
        yield
    except passing:
        raise
    except (Exception, SystemExit) as error:
        if not is_plugin(loaded):
            raise
        why = f"{type(error).__name__}: {one_line(error, None)}; correct it"
        raise refusal("plugin", f"{where}{': ' if where else ''}{loaded.__module__}: {what}: {why}") from error


def sent_modules() -> list[Path]:
    """Returns the files and folders that workers are sent: of the modules of plug-ins that no distribution has installed."""
    folders: dict[str, Path] = {}
    for module in sorted(_LOADED & sys.modules.keys()):
        top = sys.modules[module.partition(".")[0]]
        if version_of(module).startswith("sha256:"):
            folders[top.__name__] = Path(next(iter(top.__path__))) if hasattr(top, "__path__") else Path(str(top.__file__))
    return list(folders.values())
