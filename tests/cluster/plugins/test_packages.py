"""The code of installed packages: one version however they are installed, of all their folders, and the same files are sent."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.plugins.files import package_files
from cluster.plugins.modules import installed_packages
from cluster.plugins.references import installed_distributions, reference_code
from tests.support.plugins import forget, found, installed, refusal

OWN = "from cluster.settings import Settings\nclass Own(Settings):\n    size: int = 1\n"
FILES = {"regular/__init__.py": "", "regular/search.py": OWN, "regular/words.txt": "sea\n"}
POINTS = "[dmqr.tests]\nown = regular.search:Own\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return folder


@contextmanager
def on_path(*folders: Path, top: str = "regular") -> Iterator[None]:
    """Folders whose packages are importable until the end, as after an editable install by a .pth file."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in reversed(folders):
            patch.syspath_prepend(folder)
        importlib.invalidate_caches()
        yield
    forget(top)


def version(reference: str) -> str:
    return reference_code(reference, "dmqr.tests")[0].version


def test_its_version_is_that_of_its_files_however_it_is_installed(tmp_path: Path) -> None:
    known = set()
    with installed(tmp_path / "site", "regular", FILES, POINTS):
        known |= {version("own"), version("regular.search:Own")}
        (tmp_path / "site" / "regular-1.0.dist-info" / "top_level.txt").unlink()
        known |= {version("own"), version("regular.search:Own")}
    with installed(tmp_path / "next", "regular-next", FILES, POINTS):
        known.add(version("own"))
    with on_path(write(tmp_path / "project", FILES)):
        known.add(version("regular.search:Own"))
    assert len(known) == 1


def test_what_a_notebook_and_python_keep_beside_it_does_not_count(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", FILES)
    with on_path(folder):
        before = version("regular.search:Own")
        left_out = {
            "regular/.ipynb_checkpoints/search-checkpoint.py": "x = 1\n",
            "regular/deep/.ipynb_checkpoints/a.py": "x = 1\n",
            "regular/__pycache__/search.cpython-311.pyc": "x",
            "regular/old.pyc": "x",
        }
        write(folder, left_out)
        assert version("regular.search:Own") == before
        assert list(package_files([folder / "regular"])) == ["__init__.py", "search.py", "words.txt"]
        (folder / "regular" / "words.txt").write_text("bread\n")
        assert version("regular.search:Own") != before


def test_links_in_it_are_followed_but_not_upwards(tmp_path: Path) -> None:
    folder = write(tmp_path, FILES | {"shared/more.py": ""}) / "regular"
    (folder / "linked").symlink_to(tmp_path / "shared")
    (folder / "above").symlink_to(folder)
    assert list(package_files([folder])) == ["__init__.py", "linked/more.py", "search.py", "words.txt"]


SPREAD = (
    {"spread/search.py": "import spread.words\n" + OWN.replace("= 1", "= spread.words.SIZE")},
    {"spread/words.py": "SIZE = 7\n", "spread/search.py": "raise RuntimeError('the second of two')\n"},
)


def test_all_folders_of_a_namespace_package_count(tmp_path: Path) -> None:
    folders = [write(tmp_path / str(number), files) for number, files in enumerate(SPREAD)]
    with on_path(*folders, top="spread"):
        made, before = found("spread.search:Own"), version("spread.search:Own")
        assert made().size == 7
        assert installed_packages()["spread"] == [one / "spread" for one in folders]
        (folders[1] / "spread" / "words.py").write_text("SIZE = 8\n")
        assert version("spread.search:Own") != before
        (folders[1] / "spread" / "words.py").write_text("SIZE = 7\n")
        (folders[1] / "spread" / "search.py").write_text("# no import finds it\n")
        assert version("spread.search:Own") == before
    together = write(tmp_path / "together", SPREAD[1] | SPREAD[0])
    with on_path(together, top="spread"):
        assert version("spread.search:Own") == before


def test_a_package_that_adds_folders_itself_is_refused(tmp_path: Path) -> None:
    adding = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
    folders = [
        write(tmp_path / "a", {"adding/__init__.py": adding, "adding/search.py": OWN}),
        write(tmp_path / "b", {"adding/__init__.py": adding, "adding/words.py": ""}),
    ]
    with on_path(*folders, top="adding"):
        line = refusal(found, "adding.search:Own")
        assert "the package adding adds folders to its __path__, whose code is not known; remove its __init__.py" in line
    with on_path(folders[0], top="adding"):
        assert found("adding.search:Own")().size == 1


def test_modules_of_one_distribution_belong_together(tmp_path: Path) -> None:
    files = {"alone.py": "import words, others\n" + OWN, "words.py": ""}
    write(tmp_path, {"others.py": ""})
    with installed(tmp_path, "alone", files, "[dmqr.tests]\nalone = alone:Own\n"):
        by_name, by_module = (reference_code(one, "dmqr.tests")[0] for one in ("alone", "alone:Own"))
        assert [place for place, _ in by_name.files] == ["alone.py", "words.py"]
        assert by_name == by_module


def test_the_distributions_of_entry_points_are_known_whatever_names_the_package(tmp_path: Path) -> None:
    points = "[dmqr.retrievers]\nother = regular.search:Own [fast]\nbroken = a b\n"
    with installed(tmp_path / "site", "regular", FILES, points):
        assert installed_distributions() == []
        found("regular.search:Own")
        assert installed_distributions() == ["regular"]
