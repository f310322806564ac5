"""The configs and the sample that come with this project, as files of a folder in which the commands of the README work."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster.errors import ConfigError

QUICKSTART = "configs/quickstart.yaml"


def configs_folder(root: Path = Path(__file__).parents[2]) -> Path:
    """Returns the folder of the configs: that of a clone, or what an installed package carries.

    `root`: where the packages lie.

    Raises:
        ConfigError: neither is there.
    """
    for folder in (root / "dmqr" / "configs", root / "configs"):  # another package might have an own `configs` beside ours
        if (folder / "quickstart.yaml").is_file():
            return folder
    raise ConfigError("config-file", f"{root}: no configs lie there; install dmqr again, or clone it")


def write_sample(folder: Path) -> list[str]:
    """Writes the configs and the sample into `configs/` of a folder; returns the names of files that were there already.

    These stay as they are.
    """
    source, kept = configs_folder(), []
    for path in sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        name = path.relative_to(source)
        target = folder / "configs" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            kept.append(f"configs/{name.as_posix()}")
        else:
            shutil.copyfile(path, target)
    return kept
