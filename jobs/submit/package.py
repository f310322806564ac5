"""The folder that is sent to a cluster: the four packages, the config with prices and text files, and our version."""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path

import yaml

from jobs.job.shipping import package_folders
from jobs.submit.sent_config import FOLDER, SentConfig

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def write_package(folder: Path, sent: SentConfig, config_name: str, prices: Path) -> str:
    """Writes what is sent into an empty folder; returns the config's place in it.

    Args:
        folder: To be the job's current folder, on the head and on every node with a worker.
        sent: The config and its files.
        config_name: Name of its file.
        prices: The file of prices, which need not exist.
    """
    for package in map(Path, package_folders()):
        shutil.copytree(package, folder / package.name, ignore=_LEFT_OUT)
    for place, file in sent.files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / place)
    place = f"{FOLDER}/{config_name}"
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / place).write_text(yaml.safe_dump(sent.values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    if prices.exists():
        shutil.copyfile(prices, folder / FOLDER / "prices.yaml")
    _write_version(folder)
    return place


def _write_version(folder: Path) -> None:
    """Writes what `importlib.metadata` reads our version from, for nodes on which we are not installed."""
    try:
        version = importlib.metadata.version("dmqr")
    except importlib.metadata.PackageNotFoundError:
        return
    named = folder / f"dmqr-{version}.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dmqr\nVersion: {version}\n", encoding="utf-8")
