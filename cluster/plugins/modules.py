"""The modules of plug-ins in this process.

Files are loaded from their content, below a package that is named by its hash: two versions of one file are two modules, here
and in workers, which are sent the content with the settings and need no file. An import of a module beside the file finds that
of the same version. A package that is installed is imported by its own name; another process that has it otherwise refuses it.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pickle
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.cause import one_line
from cluster.errors import ClusterError, DmqrError
from cluster.plugins.code import Code, PluginError, package_code

PREFIX = "dmqr_code_"
_FILES: dict[str, Code] = {}  # package by hash -> code
_INSTALLED: dict[str, Code] = {}  # top name of a package -> code


def load(code: Code) -> types.ModuleType:
    """Returns the module of code, after it has been run once in this process.

    Raises:
        PluginError: It raises an error.
    """
    try:
        return importlib.import_module(_entered(code))
    except ClusterError:  # another version than that of the job
        raise
    except (Exception, SystemExit) as error:  # whatever its code raises
        raise PluginError(f"{raised(code, error, 'cannot be imported')}, or install what it needs") from error


def raised(code: Code, error: BaseException, what: str) -> str:
    """Returns what code of a plug-in raised, in one line: where, `what` could not be done, the error, a remedy."""
    return f"{code.origin}{_line_in(code, error)} {what}: {type(error).__name__}: {one_line(error, None)}; correct it"


@contextmanager
def own_errors(
    made: type, what: str, refusal: type[DmqrError], where: str = "", but: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Says in one line what code of a plug-in raises: `what` failed, of the class `made`, under the key `where` of the config.

    Errors of ours and of connections, which say it themselves, pass, and so do those of `but`, and all where `made` is no
    plug-in's.
    """
    passing: tuple[type[BaseException], ...] = (DmqrError, ConnectionError, *but)
    try:
        yield
    except passing:
        raise
    except (Exception, SystemExit) as error:
        if (code := code_of(made)) is None:
            raise
        raise refusal("plugin", f"{where}{': ' if where else ''}{raised(code, error, what)}") from error


def error_of_plugin(error: BaseException) -> ClusterError | None:
    """Returns an error that was raised in code of a plug-in, or below it, as one of one line; None: in none.

    One of a connection says itself what is away.
    """
    trace, found = error.__traceback__, None
    while trace is not None and not isinstance(error, ConnectionError):
        top = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        found = _FILES.get(top) or _INSTALLED.get(top) or found
        trace = trace.tb_next
    return None if found is None else ClusterError("plugin", raised(found, error, "failed"))


def code_of(made: type) -> Code | None:
    """Returns the code that a class of a plug-in is from; None: it is no plug-in's."""
    top = made.__module__.partition(".")[0]
    return _FILES.get(top) or _INSTALLED.get(top)


def identity_of(made: type) -> dict[str, str]:
    """Returns what a class of a plug-in is known by: its name, its module's, and the version of its code; {}: it is none's.

    The module counts, since one version of code may have several classes of one name.
    """
    code = code_of(made)
    if code is None:
        return {}
    module = made.__module__.partition(".")[2] if code.files else made.__module__
    return {"class": made.__qualname__, "module": module, "code": code.version}


def module_beside(made: type, name: str) -> types.ModuleType:
    """Returns a module by its name as code of a class's own module imports it; "": that module.

    Raises:
        ClusterError: It is a plug-in's, and raises an error.
    """
    code = code_of(made)
    if not name:
        return sys.modules[made.__module__]
    if code is None:
        return importlib.import_module(name)
    beside = name.partition(".")[0] in code.locals
    try:
        return importlib.import_module(f"{_entered(code).partition('.')[0]}.{name}" if beside else name)
    except ClusterError:
        raise
    except (Exception, SystemExit) as error:
        line = raised(code, error, f"names the module {name}, which cannot be imported")
        raise ClusterError("plugin", f"{line}, or install what it needs") from error


def installed_packages() -> dict[str, list[Path]]:
    """Returns the packages of plug-ins that this process has loaded by their own names: name -> its folders."""
    return {top: package_folders(top) for top in sorted(_INSTALLED)}


def package_folders(top: str) -> list[Path]:
    """Returns the folders of a package: several of a namespace package."""
    spec = importlib.util.find_spec(top)
    places = () if spec is None else spec.submodule_search_locations or ()
    return [Path(one) for one in dict.fromkeys(places) if Path(one).is_dir()]  # else what an editable install hooks into


def pickled(one: Any) -> tuple[Any, ...] | None:
    """Returns how an object of a plug-in's class is pickled, for its `__reduce_ex__`; None: it is no plug-in's.

    It takes the code with it, so that a process which has never heard of the plug-in can load it.
    """
    made = type(one)
    code = code_of(made)
    if code is None:
        return None
    return _restored, (code, made.__module__, made.__qualname__, pickle.dumps(one.__getstate__()))


def _restored(code: Code, module: str, qualname: str, state: bytes) -> Any:
    _entered(code)
    made: Any = importlib.import_module(module)
    for name in qualname.split("."):
        made = getattr(made, name)
    found = made.__new__(made)
    found.__setstate__(pickle.loads(state))
    return found


def _entered(code: Code) -> str:
    """Returns the name by which a module is imported, after its package has become known."""
    if code.files:
        package = f"{PREFIX}{code.version.partition(':')[2]}"
        _FILES[package] = code
        return f"{package}.{code.module}"
    top = code.module.partition(".")[0]
    if top not in _INSTALLED:
        module = importlib.import_module(top)
        folders = package_folders(top)
        if not folders:
            raise ClusterError(
                "plugin",
                f"{code.origin}: the package {top} lies in no folder, but is found by a hook of its installation; install it "
                "anew: pip install, or pip install --config-settings editable_mode=compat -e",
            )
        if getattr(module, "__file__", None) and {*map(Path, module.__path__)} - {*folders}:
            raise ClusterError(
                "plugin",
                f"{code.origin}: the package {top} adds folders to its __path__, whose code is not known; remove its "
                "__init__.py, so that it is a namespace package, or put its code into one folder",
            )
        if package_code(code.module, folders, code.origin).version != code.version:
            raise ClusterError(
                "plugin",
                f"{code.origin}: the package {top} is another version in this process than in that of the job; install the "
                "same on all nodes",
            )
        _INSTALLED[top] = code
    return code.module


def _line_in(code: Code, error: BaseException) -> str:
    """Returns ` (FILE, line N)`, where in the code's files or package the error was raised; "": in none of them."""
    found, trace = "", error.__traceback__
    shown = {_shown(code, place): place for place, _ in code.files}
    while trace is not None:
        if (place := shown.get(trace.tb_frame.f_code.co_filename)) is not None:
            found = f" ({place}, line {trace.tb_lineno})"
        elif not code.files and _is_of(code, module := str(trace.tb_frame.f_globals.get("__name__"))):
            found = f" ({module}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def _is_of(code: Code, module: str) -> bool:
    return module.partition(".")[0] == code.module.partition(".")[0]


def _shown(code: Code, place: str) -> str:
    """Returns the file name of a module in tracebacks: where it was when the code was read."""
    return str(Path(code.origin).parent / place)


class _CodeLoader(importlib.abc.InspectLoader):
    """Runs modules from the content of files."""

    def __init__(self, code: Code, package: str, place: str | None) -> None:
        self._code, self._package, self._place = code, package, place

    def get_source(self, fullname: str) -> str:
        """Returns the text of the module, for tracebacks."""
        return "" if self._place is None else importlib.util.decode_source(dict(self._code.files)[self._place])

    def is_package(self, fullname: str) -> bool:
        """Returns whether modules are below it."""
        return self._place is None or self._place.endswith("/__init__.py")

    def exec_module(self, module: types.ModuleType) -> None:
        """Runs the module; its imports find modules beside it in the same version."""
        if self._place is None:
            return
        shown = _shown(self._code, self._place)
        module.__file__ = shown
        code, package = self._code, self._package

        def find(name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] = (), level: int = 0) -> Any:
            top = name.partition(".")[0]
            if level or top not in code.locals:
                return builtins.__import__(name, globals, locals, fromlist, level)
            if fromlist:
                return builtins.__import__(f"{package}.{name}", globals, locals, fromlist, 0)
            importlib.import_module(f"{package}.{name}")
            return sys.modules[f"{package}.{top}"]  # `import a.b` binds a

        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": find}
        exec(compile(dict(code.files)[self._place], shown, "exec", dont_inherit=True), module.__dict__)


class _CodeFinder(importlib.abc.MetaPathFinder):
    """Finds modules of the code that is known in this process."""

    def find_spec(
        self, fullname: str, path: Any = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns where a module is; None: it is no plug-in's."""
        package, *parts = fullname.split(".")
        code = _FILES.get(package)
        if code is None:
            return None
        place = _place(dict(code.files), parts)
        if place is None and not _is_folder(code, parts):
            return None
        return importlib.machinery.ModuleSpec(
            fullname, _CodeLoader(code, package, place), is_package=place is None or place.endswith("/__init__.py")
        )


def _place(files: Mapping[str, bytes], parts: Sequence[str]) -> str | None:
    module = "/".join(parts)
    return next((one for one in (f"{module}/__init__.py", f"{module}.py") if one in files), None)


def _is_folder(code: Code, parts: Sequence[str]) -> bool:
    start = "".join(f"{part}/" for part in parts)
    return any(place.startswith(start) for place, _ in code.files)


sys.meta_path.append(_CodeFinder())
