"""Lucene's own reader of synonyms, from the libraries of the Elasticsearch of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("Synonyms.java")


class LuceneSynonyms:
    """A program around Lucene's parser and filter."""

    def __init__(self, folder: Path) -> None:
        """Compiles it into a folder; skips the test where Java or the libraries are not here."""
        if not shutil.which("javac"):
            pytest.skip("no JDK here")
        found = sorted((Path(os.environ.get("DMQR_SHARED", "/nowhere")) / "elasticsearch").glob("elasticsearch-*.zip"))
        if not found:
            pytest.skip("no Elasticsearch: set DMQR_SHARED to a folder with elasticsearch/elasticsearch-*.zip")
        with zipfile.ZipFile(found[-1]) as archive:
            jars = [
                name for name in archive.namelist() if "/lib/lucene-core-" in name or "/lib/lucene-analysis-common-" in name
            ]
            paths = [archive.extract(name, folder) for name in jars]
        self._path = os.pathsep.join([*paths, str(folder)])
        subprocess.run(["javac", "-cp", self._path, "-d", str(folder), str(SOURCE)], check=True, timeout=300)

    def tokens(self, file: Path, queries: Iterable[str]) -> list[list[str]]:
        """Returns what the filter makes of each query, by the synonyms of a file."""
        lines = "".join(f"{one}\n" for one in queries)
        command = ["java", "-cp", self._path, "Synonyms", str(file)]
        done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return [line.split(" ") for line in done.stdout.decode().split("\n")[:-1]]
