"""A cluster of raylets with a job server, whose nodes have every library and not the project."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from shutil import rmtree
from typing import Any

from tests.support.jobs.whole_runs import ROOT

NODES = Path(__file__).with_name("cluster_nodes.py")
CPUS = 4  # of each node: a job's two workers and its tasks have room on one


class Simulated:
    """The cluster: started when it is first asked for, and anew after its head was killed."""

    def __init__(self, place: Path, secrets: dict[str, str], workers: int = 2) -> None:
        """Makes the interpreter of its nodes.

        Args:
            place: An empty folder.
            secrets: Variables that the nodes hold.
            workers: Nodes beside the head.
        """
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "python"], check=True)
        found = [one for one in os.environ.get("PYTHONPATH", "").split(":") if one and Path(one).resolve() != ROOT]
        libraries = [sysconfig.get_paths()["purelib"], *found]  # a .pth file there, as an editable install's, is not read
        inside = next((place / "python" / "lib").iterdir()) / "site-packages"
        (inside / "libraries.pth").write_text("\n".join(libraries))
        (place / "empty").mkdir()
        self.python = place / "python" / "bin" / "python"
        self._place, self._workers = place, workers
        self._temporary = tempfile.mkdtemp(prefix="dmqr-")  # the paths of Ray's sockets must be short
        known = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}
        self._environment = known | secrets | {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "RAY_TMPDIR": self._temporary,
            "RAY_AUTH_MODE": "disabled",
            "RAY_JOB_STOP_WAIT_TIME_S": "120",
        }  # fmt: skip
        self._nodes: subprocess.Popen[str] | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """The address of its job server."""
        if self._nodes is None:
            self._nodes = subprocess.Popen(
                [self.python, NODES, str(self._workers), str(CPUS)], cwd=self._place / "empty", env=self._environment,
                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(self._place / "err").open("a"),
            )  # fmt: skip
            self._address = self._answer()["address"]
        return self._address

    def add(self, cpus: int) -> str:
        """Has a node join; returns its id."""
        return str(self._order(f"add {cpus}"))

    def kill(self, node: str) -> None:
        """Kills a node other than the head."""
        self._order(f"kill {node}")

    def kill_head(self) -> None:
        """Kills the head and its job's driver; the next address is that of a new cluster."""
        self._order("kill head")
        self.close()

    def close(self) -> None:
        """Ends it."""
        if self._nodes is not None:
            self._nodes.communicate(timeout=120)
            self._nodes = None

    def remove(self) -> None:
        """Removes its files."""
        rmtree(self._temporary, ignore_errors=True)

    def workers(self) -> Counter[tuple[str, str]]:
        """The living actors of all jobs: (stage, or class, and id of the node) -> how many."""
        found = self._listed("actors?limit=1000&detail=1&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE")
        names = (re.findall(r"\w+", actor["class_name"])[-1] for actor in found)  # MapWorker(MapBatches(Rewrite))
        return Counter((name, actor["node_id"]) for name, actor in zip(names, found, strict=True))

    def _listed(self, what: str) -> list[dict[str, Any]]:
        return list(json.loads(fetched_text(f"{self.address}/api/v0/{what}"))["data"]["result"]["result"])

    def _order(self, line: str) -> Any:
        assert self._nodes is not None
        assert self._nodes.stdin is not None
        self._nodes.stdin.write(f"{line}\n")
        self._nodes.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._nodes is not None
        assert self._nodes.stdout is not None
        line = self._nodes.stdout.readline()
        assert line, (self._place / "err").read_text()[-3000:]
        return json.loads(line)


def fetched_text(address: str) -> str:
    """Returns the answer to a GET."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())
