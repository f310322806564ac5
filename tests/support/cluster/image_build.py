"""A Dockerfile without an engine: its instructions read, and its COPY, pip and start commands done below one folder.

All stages share the folder, which stands for `/`: so `COPY --from` must name the same path twice. What needs root or the
network of a distribution (apt-get, useradd) is not run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
NOT_RUN = ("apt-get ", "useradd ")
OWN_FOLDERS = re.compile(r"(?<![\w/.])/(?=opt/dmqr|src|work|cache)")


class Instruction(NamedTuple):
    """`FROM`, `RUN`, ... and the rest of its line."""

    name: str
    text: str


def instructions(dockerfile: Path) -> list[Instruction]:
    """The instructions of a file, each on one line, without comments."""
    lines = [line for line in dockerfile.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def environment(of: list[Instruction]) -> dict[str, str]:
    """The variables of all ENV instructions, unresolved."""
    return dict(pair.split("=", 1) for one in of if one.name == "ENV" for pair in one.text.split())


def in_context(path: Path) -> bool:
    """Whether .dockerignore leaves a file in the context: of everything the names that it lists, less some names anywhere."""
    rules = [line for line in Path(ROOT, ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    anywhere = {rule[3:] for rule in rules if rule.startswith("**/")}
    assert len(rules) == 1 + len(kept) + len(anywhere), "rules that this reader does not know"
    parts = path.relative_to(ROOT).parts
    return parts[0] in kept and not anywhere.intersection(parts)


def _ignored(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not in_context(Path(folder, name))]


class ImageBuild:
    """The steps of a Dockerfile, done below `root`."""

    def __init__(self, dockerfile: Path, root: Path, python: str) -> None:
        self.root, self.python = root, python
        self.folder, self.variables = root, {}
        self.commands: dict[str, list[str]] = {}
        self.user = ""
        self.as_user: dict[str, Any] = {}  # of subprocess, for who may change the user
        self.ran: list[str] = []
        for one in instructions(dockerfile):
            getattr(self, f"_{one.name.lower()}")(one.text)

    def below(self, text: str) -> str:
        """A text whose paths of the image are those below `root`."""
        return OWN_FOLDERS.sub(f"{self.root}/", text)

    def start(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Starts the image as `docker run IMAGE arguments` does: its entrypoint, with CMD where there are no arguments."""
        command = self.commands["ENTRYPOINT"] + (list(arguments) or self.commands["CMD"])
        return self.run(command, **more)

    def run(self, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command with the image's variables and folder, and no others but `more`."""
        variables = {"PATH": os.defpath, **self.variables, **more}
        found = shutil.which(command[0], path=variables["PATH"])
        assert found is not None, f"{command[0]} is not on the image's PATH"
        return subprocess.run(
            [found, *command[1:]], cwd=self.folder, env=variables, capture_output=True, text=True, check=False, timeout=1200,
            **self.as_user,
        )  # fmt: skip

    def _from(self, _: str) -> None:
        self.folder, self.variables, self.user = self.root, {}, ""

    def _arg(self, _: str) -> None:
        """A build argument: pip finds one of this name in the test's own environment."""

    def _env(self, text: str) -> None:
        for pair in text.split():
            name, value = pair.split("=", 1)
            self.variables[name] = self.below(value).replace("$PATH", os.defpath)

    def _workdir(self, text: str) -> None:
        self.folder = Path(self.below(text))
        self.folder.mkdir(parents=True, exist_ok=True)

    def _user(self, text: str) -> None:
        self.user = text

    def _copy(self, text: str) -> None:
        *options, last = text.split()
        if options[0].startswith("--from="):
            assert options[1] == last, "the scripts of an environment hold its path"
            return
        for source in options:
            of, to = ROOT / source, self.folder / last
            if of.is_dir():
                shutil.copytree(of, to, dirs_exist_ok=True, ignore=_ignored)
            else:
                assert in_context(of), f"{source} is not in the context"
                to = to / of.name if last.endswith("/") else to
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(of, to)

    def _run(self, text: str) -> None:
        if text.startswith(NOT_RUN):
            return
        command = self.below(text).replace("python -m venv", f"{self.python} -m venv")
        self.ran.append(text)
        allowed = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "PATH"}
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=allowed | self.variables, capture_output=True, text=True, check=False,
            timeout=1200,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"

    def _entrypoint(self, text: str) -> None:
        self.commands["ENTRYPOINT"] = json.loads(text)

    def _cmd(self, text: str) -> None:
        self.commands["CMD"] = json.loads(text)
