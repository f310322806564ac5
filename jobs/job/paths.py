"""Sends to workers on other machines the settings that they understand, and the code."""

from pathlib import Path
from typing import TypeVar

import cluster
from cluster.plugins import sent_modules
from cluster.settings import Names, Settings
from retrievers.models import at_commit

Model = TypeVar("Model", bound=Settings)


def absolute(settings: Model) -> Model:
    """Returns the settings as any worker understands them: paths are absolute, and a hub's model is the one of its commit now.

    A worker has another working directory; and it may start hours later, when the hub has another commit.
    """
    at_its_commit = settings.with_names(
        Names.MODEL, lambda name: absolute_path(name) if Path(name).exists() else at_commit(name)
    )
    return with_paths(at_its_commit)


def with_paths(settings: Model) -> Model:
    """Returns the settings with absolute paths of files."""
    return settings.with_names(Names.FILE, absolute_path)


def absolute_path(path: str) -> str:
    """Returns an absolute path; one of S3 as it is."""
    return path if "://" in path else str(Path(path).absolute())


def own_folders() -> list[str]:
    """Returns the folders of this project's packages."""
    root = Path(cluster.__path__[0]).parent
    return [str(root / name) for name in ("cluster", "jobs", "retrievers", "rewriters", "dmqr")]


def package_folders() -> list[str]:
    """Returns the code that is shipped to worker machines: the packages of this project, and modules of plug-ins."""
    return [*own_folders(), *map(str, sent_modules())]
