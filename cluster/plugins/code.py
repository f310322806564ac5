"""The code of a plug-in as files: what it is known by, and what other processes are sent.

Of a file these are the file and the modules beside it that it imports, however deep; of an installed package its modules. The
standard library and this project's packages are never taken for modules beside a file.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.cause import one_line

OURS = ("cluster", "dmqr", "jobs", "retrievers", "rewriters")
"""The packages of this project."""
_COMPILED = (".so", ".pyd")


class PluginError(Exception):
    """Code that cannot be used; the message is `what is wrong; what to do`."""


@dataclass(frozen=True)
class Code:
    """The code of a plug-in.

    Attributes:
        module: The name of its module; of a file without the prefix under which it is loaded.
        version: A hash of the content of its files, of an installed package with the distribution's name and version.
        files: Place beside the module's file -> content, sorted; empty for an installed package, which is imported.
        origin: Where it is from, for messages.
        distribution: Name and version of the distribution of a package; "": it is none's.
    """

    module: str
    version: str
    files: tuple[tuple[str, bytes], ...]
    origin: str
    distribution: str = ""

    @property
    def locals(self) -> frozenset[str]:
        """Returns the top names of the modules in its files that its imports find there.

        A file may have the name of a module of the standard library or of this project, which its imports mean.
        """
        return frozenset(top for place, _ in self.files if _beside(top := Path(place).parts[0].removesuffix(".py")))


def file_code(path: Path, *, alone: bool = False) -> Code:
    """Returns the code of a file, with the modules beside it that it imports; where `alone`, without.

    Raises:
        PluginError: There is no such file, it or a module beside it cannot be read, or is not Python.
    """
    if not _is_file(path):
        raise PluginError(f"there is no file {path}; correct the path, which is relative to the config's folder")
    found: dict[str, bytes] = {}
    left = [Path(path.name)]
    while left:
        place = left.pop()
        if place.as_posix() in found:
            continue
        content, tree = _read(path.parent / place)
        found[place.as_posix()] = content
        if not alone:
            left += [one for parts in _imported(tree, place) for one in _places(path.parent, parts)]
    files = tuple(sorted(found.items()))
    return Code(path.stem, _digest(files), files, str(path))


def package_code(module: str, folder: Path, distribution: str) -> Code:
    """Returns the code of a module of a package in a folder; `distribution` is its name and version, "" without one."""
    try:
        paths = sorted(one for one in folder.rglob("*") if one.suffix in (".py", *_COMPILED) and one.is_file())
        files = tuple((one.relative_to(folder).as_posix(), one.read_bytes()) for one in paths)
    except OSError as error:
        raise _unreadable(folder, error) from error
    return Code(module, _digest((("", distribution.encode()), *files)), (), distribution or str(folder), distribution)


def _digest(files: tuple[tuple[str, bytes], ...]) -> str:
    whole = hashlib.sha256()
    for place, content in files:
        whole.update(f"{place}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return f"sha256:{whole.hexdigest()[:32]}"


def _read(path: Path) -> tuple[bytes, ast.Module]:
    try:
        content = path.read_bytes()
        return content, ast.parse(content, str(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise PluginError(f"{path}{line} is not Python: {one_line(getattr(error, 'msg', error), None)}; correct it") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # a name that is too long, a folder that must not be read
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> PluginError:
    return PluginError(f"{path} cannot be read: {error.strerror}; make it readable, or correct the path")


def _imported(tree: ast.Module, place: Path) -> Iterator[tuple[str, ...]]:
    """Yields what a module of the files imports, also in functions, as parts of a name below the folder of the files.

    What a class names as its `opener` or `builder` is imported when it is opened or built.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (tuple(name.partition(":")[0].split(".")) for name in _opening(node))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            package = place.parent.parts
            start = package[: len(package) - node.level + 1] if node.level else ()
            whole = (*start, *(node.module or "").split(".")) if node.module else start
            yield whole
            yield from ((*whole, alias.name) for alias in node.names)


def _opening(made: ast.ClassDef) -> Iterator[str]:
    """Yields the texts that a class gives its class variables `opener` and `builder`."""
    for node in made.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield from (value.value for one in targets if isinstance(one, ast.Name) and one.id in ("opener", "builder"))


def _beside(top: str) -> bool:
    return bool(top) and top not in OURS and top not in sys.stdlib_module_names


def _places(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """Yields the files in a folder that an import of a name loads: those of its packages, and its own."""
    if not parts or not _beside(parts[0]):
        return
    for depth in range(1, len(parts) + 1):
        module = Path(*parts[:depth])
        for place in (module / "__init__.py", module.with_name(f"{module.name}.py")):
            if _is_file(folder / place):
                yield place
                break
