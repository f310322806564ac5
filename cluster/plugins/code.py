"""The code of a plug-in as files: what it is known by, and what other processes are sent, which are the same.

Of a file these are the file and the modules beside it that it imports, however deep; of an installed package its files, in all
folders of a namespace package. How it is installed makes no difference. The standard library and this project's packages are
never taken for modules beside a file.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cluster.cause import one_line
from cluster.plugins.files import FileState, file_state, hash_of_contents, hash_of_files, package_files

OURS = ("cluster", "dmqr", "jobs", "retrievers", "rewriters")
"""The packages of this project."""


class PluginError(Exception):
    """Code that cannot be used; the message is `what is wrong; what to do`."""


@dataclass(frozen=True)
class Code:
    """The code of a plug-in.

    Attributes:
        module: The name of its module; of a file without the prefix under which it is loaded.
        version: A hash of the places and the content of its files.
        files: Place beside the module's file -> content, sorted; empty for an installed package, which is imported.
        origin: Where it is from, for messages.
    """

    module: str
    version: str
    files: tuple[tuple[str, bytes], ...]
    origin: str

    @property
    def locals(self) -> frozenset[str]:
        """Returns the top names of the modules in its files that its imports find there.

        A file may have the name of a module of the standard library or of this project, which its imports mean.
        """
        return frozenset(top for place, _ in self.files if _beside(top := Path(place).parts[0].removesuffix(".py")))


def file_code(path: Path, tops: Set[str] | None = None) -> Code:
    """Returns the code of a file, with the modules beside it that it imports.

    Args:
        path: Of the file.
        tops: The top names of the modules that may be taken for its own; None: all that lie beside it.

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
        one = _module(path.parent / place)
        found[place.as_posix()] = one.content
        imported = [parts for parts in one.imported_at(place) if tops is None or parts[0] in tops]
        left += [one for parts in imported for one in _places(path.parent, parts)]
    files = dict(sorted(found.items()))
    return Code(path.stem, f"sha256:{hash_of_contents(files)}", tuple(files.items()), str(path))


def package_code(module: str, folders: Sequence[Path], origin: str) -> Code:
    """Returns the code of a module of a package that lies in these folders."""
    try:
        return Code(module, f"sha256:{hash_of_files(package_files(folders).items())}", (), origin)
    except OSError as error:
        raise _unreadable(Path(error.filename or folders[0]), error) from error


@dataclass(frozen=True)
class _Module:
    """A file of Python.

    Attributes:
        content: Of the file.
        names: What it imports, also in functions: dots at the beginning, and parts of a name.
    """

    content: bytes
    names: tuple[tuple[int, tuple[str, ...]], ...]

    def imported_at(self, place: Path) -> Iterator[tuple[str, ...]]:
        """Yields what it imports where it lies at a place, as parts of a name below the folder of the files."""
        package = place.parent.parts
        for dots, parts in self.names:
            if whole := (*(package[: len(package) - dots + 1] if dots else ()), *parts):
                yield whole


def _module(path: Path) -> _Module:
    """Returns a file of Python, which is read again when it has changed."""
    try:
        return _read(file_state(path))
    except OSError as error:
        raise _unreadable(path, error) from error


@lru_cache(maxsize=512)
def _read(state: FileState) -> _Module:
    content = Path(state.path).read_bytes()
    try:
        return _Module(content, tuple(_imported(ast.parse(content, state.path))))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        why = one_line(getattr(error, "msg", error), None)
        raise PluginError(f"{state.path}{line} is not Python: {why}; correct it") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # a name that is too long, a folder that must not be read
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> PluginError:
    return PluginError(f"{path} cannot be read: {error.strerror}; make it readable, or correct the path")


def _imported(tree: ast.Module) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields what a module imports, as `_Module.names`.

    What a class names as its `opener` or `builder` is imported when it is opened or built.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((0, tuple(name.partition(":")[0].split("."))) for name in _opening(node))
        elif isinstance(node, ast.Import):
            yield from ((0, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            whole = tuple((node.module or "").split(".")) if node.module else ()
            yield node.level, whole
            yield from ((node.level, (*whole, alias.name)) for alias in node.names)


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
