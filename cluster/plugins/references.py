"""How a config names the class of a plug-in: by an entry point, `module:Class`, or `file.py:Class`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cluster.cause import one_line
from cluster.errors import nearest
from cluster.plugins.code import OURS, Code, PluginError, file_code, package_code
from cluster.plugins.modules import installed_packages, load, package_folders

_FILE = re.compile(r"(?P<path>[^:\s][^:]*\.py):(?P<name>[A-Za-z_]\w*)")
_MODULE = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


def named_file(reference: str) -> tuple[str, str] | None:
    """Returns path and name of a reference `file.py:Class`; None: it is none."""
    found = _FILE.fullmatch(reference)
    return None if found is None else (found["path"], found["name"])


def is_reference(name: str) -> bool:
    """Returns whether a name is meant as `module:Class` or `file.py:Class`, well formed or not."""
    return ":" in name


def with_absolute_files(value: Any, folder: Path, key: str = "") -> Any:
    """Returns values of a config in which the path of each `file.py:Class` is that of a file in or below a folder.

    These stand where code is named, at keys `kind`, also of an arm's dotted keys; other texts stay as they are. `key` is that
    of the values.
    """
    last = key.rpartition(".")[2]
    if isinstance(value, str):
        return _in_folder(value, folder) if last == "kind" else value
    if isinstance(value, dict):
        return {name: with_absolute_files(one, folder, str(name)) for name, one in value.items()}
    return [with_absolute_files(one, folder, key) for one in value] if isinstance(value, list) else value


def _in_folder(reference: Any, folder: Path) -> Any:
    found = named_file(reference) if isinstance(reference, str) else None
    return reference if found is None else f"{(folder / Path(found[0]).expanduser()).resolve()}:{found[1]}"


def entry_points(group: str) -> dict[str, list[importlib.metadata.EntryPoint]]:
    """Returns the entry points of a group by name."""
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for one in importlib.metadata.entry_points(group=group):
        if one not in found.setdefault(one.name, []):
            found[one.name].append(one)
    return found


def reference_code(reference: str, group: str) -> tuple[Code, str]:
    """Returns the code that a reference, or the name of an entry point, leads to, and the name of the class in it.

    Raises:
        PluginError: There is no such code.
    """
    if (file := named_file(reference)) is not None:
        return file_code(Path(file[0])), file[1]
    if (module := _MODULE.fullmatch(reference)) is not None:
        return _module_code(module["module"], ""), module["name"]
    if is_reference(reference):
        raise PluginError(f"{reference!r} names no code; write it as file.py:Class or package.module:Class")
    points = entry_points(group).get(reference, [])
    if len(points) > 1:
        both = " and ".join(sorted(_distribution_of(one) for one in points))
        raise PluginError(f"{reference!r} is of {both}; uninstall one, or name its class as {points[0].value}")
    if not points:
        raise PluginError(f"there is no {reference!r}{nearest(reference, entry_points(group))}")
    try:
        module_name, name = points[0].module, points[0].attr  # without extras
    except AttributeError:  # it has not the form of an entry point
        name = ""
    if not name:
        value = f"{reference!r} is {points[0].value!r} in the entry points of {_distribution_of(points[0])}"
        raise PluginError(f"{value}, which names no class; write it there as package.module:Class")
    return _module_code(module_name, _distribution_of(points[0])), name


def plugin(reference: str, group: str, fits: Callable[[Any], bool], wanted: str) -> Any:
    """Returns what a reference, or the name of an entry point, names.

    Args:
        reference: `file.py:Class`, `module:Class`, or a name.
        group: Of entry points.
        fits: Whether something may be named.
        wanted: What may be, in words, with an article.

    Raises:
        PluginError: It is not there, cannot be imported, or is something else.
    """
    code, name = reference_code(reference, group)
    module = load(code)
    try:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        known = [one for one, value in vars(module).items() if not one.startswith("_") and fits(value)]
        raise PluginError(f"{code.origin} has no {name}{nearest(name, known)}") from error
    if not fits(found):
        kind = f"the class {name}" if isinstance(found, type) else f"{name}, of the type {type(found).__name__}"
        raise PluginError(f"{code.origin}: {kind} is not {wanted}; name one, or derive it")
    if isinstance(found, type) and not _is_found(found):
        known_as = f"{found.__module__.rpartition('.')[2]}.{found.__qualname__}"
        raise PluginError(
            f"{code.origin}: the class {name} is not to be found under its own name, {known_as}, by which other processes "
            "import it; define it at the top of a module, under the name that it is assigned to"
        )
    return found


def _is_found(made: type) -> bool:
    """Returns whether a class is found by the name that it has itself, as unpickling looks for it."""
    there: Any = sys.modules.get(made.__module__)
    for part in made.__qualname__.split("."):
        there = getattr(there, part, None)
    return there is made


def known_names(house: Iterable[str], group: str) -> list[str]:
    """Returns the names of this project and those of entry points."""
    return [*house, *sorted(entry_points(group))]


def _module_code(name: str, distribution: str) -> Code:
    top = name.partition(".")[0]
    if top in OURS:
        raise PluginError(f"module {name} is this project's own; name its kind, or a class of yours")
    try:
        spec = importlib.util.find_spec(top)
        there = spec is not None and importlib.util.find_spec(name) is not None
    except (Exception, SystemExit) as error:  # the code of a parent package
        why = f"{type(error).__name__}: {one_line(error, None)}"
        raise PluginError(f"module {name} cannot be imported: {why}; correct it, or install what it needs") from error
    if spec is None or not there:
        raise PluginError(f"there is no module {name} (no package of the environment has it); install it, or correct the name")
    if spec.submodule_search_locations is None:
        return file_code(Path(str(spec.origin)), _tops_beside(Path(str(spec.origin)).parent, top))
    folders = package_folders(top)
    return package_code(name, folders, distribution or " and ".join(map(str, folders)))


def _tops_beside(folder: Path, top: str) -> frozenset[str] | None:
    """Returns the top names of what may belong to a single module in a folder: of an installed one those of its distribution.

    None: whatever lies there may, since distributions are not installed in it.
    """
    if not any(folder.glob("*.dist-info")):
        return None
    known = importlib.metadata.packages_distributions()
    mine = {*known.get(top, ())}
    return frozenset({top, *(one for one, names in known.items() if mine & {*names})})


def installed_distributions() -> list[str]:
    """Returns the names of the distributions whose entry points name plug-ins in packages that this process has loaded."""
    tops = {*installed_packages()}
    groups = [one for one in importlib.metadata.entry_points().groups if one.startswith("dmqr.")]
    points = [one for group in groups for one in importlib.metadata.entry_points(group=group)]
    return sorted({one.dist.name for one in points if one.dist and re.split(r"[.:\s]", one.value.strip())[0] in tops})


def _distribution_of(point: importlib.metadata.EntryPoint) -> str:
    return "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
