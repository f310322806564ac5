"""The code of a plug-in: which files it is, what it is known by, two versions of it in one process, and in other processes."""

from __future__ import annotations

import pickle
import shutil
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cluster.plugins.code import PluginError, file_code
from cluster.plugins.modules import code_of, identity_of, load, module_beside
from cluster.plugins.references import reference_code, with_absolute_files
from tests.support.plugins import found, in_another_process, installed, refusal

MAIN = '''
import json
import words
from lib.parts import PART as part
from cluster.settings import Settings


class Own(Settings):
    """Own."""

    size: int = 1

    def all(self):
        import lib.deep.far as far
        from .beside import BESIDE

        return [words.WORD, part, far.FAR, BESIDE, self.size]
'''
FILES = {
    "own.py": MAIN,
    "words.py": "WORD = 'w1'\n",
    "lib/parts.py": "from . import inner\nPART = inner.INNER\n",
    "lib/inner.py": "INNER = 'p1'\n",
    "lib/deep/__init__.py": "",
    "lib/deep/far.py": "FAR = 'f1'\n",
    "beside.py": "import words\nBESIDE = words.WORD * 2\n",
    "unrelated.py": "raise RuntimeError\n",
    "random.py": "raise RuntimeError('not the one of the library')\n",
    "jobs.py": "raise RuntimeError('not the one of the project')\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place, text in FILES.items():
        (tmp_path / "own" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / place).write_text(text)
    return tmp_path / "own"


def own(folder: Path) -> type[Any]:
    made: type[Any] = load(file_code(folder / "own.py")).Own
    return made


def test_it_is_the_file_and_what_it_imports_from_its_folder(folder: Path) -> None:
    assert [place for place, _ in file_code(folder / "own.py").files] == [
        "beside.py", "lib/deep/__init__.py", "lib/deep/far.py", "lib/inner.py", "lib/parts.py", "own.py", "words.py",
    ]  # fmt: skip
    assert own(folder)().all() == ["w1", "p1", "f1", "w1w1", 1]


@pytest.mark.parametrize("changed", [place for place in FILES if place not in ("unrelated.py", "random.py", "jobs.py")])
def test_its_version_is_their_content(folder: Path, changed: str) -> None:
    before = file_code(folder / "own.py").version
    (folder / "unrelated.py").write_text("x = 2\n")
    shutil.move(folder, folder.with_name("elsewhere"))
    there = folder.with_name("elsewhere")
    assert file_code(there / "own.py").version == before
    (there / changed).write_text((there / changed).read_text() + "# a comment\n")
    assert file_code(there / "own.py").version != before


def test_two_versions_are_two_classes_each_with_its_own_modules(folder: Path) -> None:
    first = own(folder)
    (folder / "words.py").write_text("WORD = 'w2'\n")
    (folder / "lib" / "deep" / "far.py").write_text("FAR = 'f2'\n")
    second = own(folder)
    assert first is not second
    assert (first().all(), second().all()) == (["w1", "p1", "f1", "w1w1", 1], ["w2", "p1", "f2", "w2w2", 1])
    assert identity_of(first) != identity_of(second)
    assert own(folder) is second
    assert module_beside(second, "words").WORD == "w2"
    assert module_beside(second, "").Own is second


@pytest.mark.slow
def test_it_goes_to_another_process_without_its_file(folder: Path) -> None:
    first = own(folder)(size=3)
    (folder / "words.py").write_text("WORD = 'w2'\n")
    both = {"first": first, "second": own(folder)(size=4), "again": [first]}
    shutil.rmtree(folder)
    code = "print(*(settings[one].all() for one in ('first', 'second')), settings['again'][0] == settings['first'])"
    assert in_another_process(both, code) == ("['w1', 'p1', 'f1', 'w1w1', 3] ['w2', 'p1', 'f1', 'w2w2', 4] True")
    assert pickle.loads(pickle.dumps(both)) == both


def test_settings_inside_others_and_values_of_its_own_types_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from enum import Enum\nfrom cluster.settings import Settings\n"
        "class Sort(Enum):\n    A = 1\nclass Inner(Settings):\n    sort: Sort\nclass Own(Settings):\n    inner: list[Inner]\n"
    )
    settings = own(tmp_path)(inner=[{"sort": 1}])
    assert in_another_process(settings, "print(settings.inner[0].sort.name)") == "A"


def test_an_error_shows_the_line_of_the_file(folder: Path) -> None:
    (folder / "own.py").write_text("class Own:\n    def all(self):\n        return 1 / 0  # here\n")
    with pytest.raises(ZeroDivisionError) as raised:
        own(folder)().all()
    said = "".join(traceback.format_exception(raised.value))
    assert f'"{folder}/own.py", line 3' in said
    assert "# here" in said


PACKAGE = {
    "own_package/__init__.py": "",
    "own_package/search.py": "from cluster.settings import Settings\nfrom own_package.words import WORD\n"
    "class Own(Settings):\n    size: int = 1\n    def all(self):\n        return WORD\n",
    "own_package/words.py": "WORD = 'w1'\n",
}
POINTS = "[dmqr.tests]\nown = own_package.search:Own\n"


def test_a_package_is_found_by_its_entry_point_or_its_module(tmp_path: Path) -> None:
    with installed(tmp_path, "own-package", PACKAGE, POINTS):
        by_name, by_module = found("own"), found("own_package.search:Own")
        assert by_name is by_module
        assert by_name.__module__ == "own_package.search"
        code = code_of(by_name)
        assert code is not None
        assert code.origin == "own-package 1.0"
        before = reference_code("own", "dmqr.tests")[0].version
        (tmp_path / "own_package" / "words.py").write_text("WORD = 'w2'\n")
        assert reference_code("own", "dmqr.tests")[0].version != before


def test_a_process_with_another_version_of_the_package_refuses_it(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    take = "import io\n"
    with installed(tmp_path, "own-package", PACKAGE, POINTS):
        settings = pickle.dumps(found("own")())
        call = (
            code
            + take
            + "import pickle\ntry:\n    print(pickle.loads(settings).all())\nexcept Exception as error:\n    print(error)"
        )
        assert in_another_process(settings, call) == "w1"
        (tmp_path / "own_package" / "words.py").write_text("WORD = 'w2'\n")
        assert in_another_process(settings, call) == (
            "own-package 1.0: the package own_package is another version in this process than in that of the job; install the "
            "same on all nodes"
        )


def test_what_is_not_there_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    assert "there is no file" in refusal(found, f"{wrong}:Own")
    wrong.write_text("x = 1\nclass Own(\n")
    assert f"{wrong}, line 2 is not Python: '(' was never closed; correct it" in refusal(found, f"{wrong}:Own")
    wrong.write_text("x = 1\nimport no_such_library\n")
    why = "ModuleNotFoundError: No module named 'no_such_library'; correct it, or install what it needs"
    assert refusal(found, f"{wrong}:Own") == f"{wrong} (wrong.py, line 2) cannot be imported: {why}"
    wrong.write_text("from cluster.settings import Settings\nclass Owner(Settings):\n    pass\nclass Other:\n    pass\nx = 1\n")
    assert refusal(found, f"{wrong}:Own") == f"{wrong} has no Own; did you mean 'Owner'? (known: Settings, Owner)"
    assert "the class Other is not a class of Settings; name one, or derive it" in refusal(found, f"{wrong}:Other")
    assert "x, of the type int is not a class of Settings" in refusal(found, f"{wrong}:x")
    assert "there is no module no_such_module" in refusal(found, "no_such_module:Own")
    assert "there is no module json.nothing" in refusal(found, "json.nothing:Own")
    assert "is this project's own; name its kind" in refusal(found, "retrievers.local.settings:LocalSettings")
    assert "write it as file.py:Class or package.module:Class" in refusal(found, "a b:c")


def test_an_entry_point_that_two_packages_have_is_refused(tmp_path: Path) -> None:
    other = {place.replace("own_package", "other_package"): text for place, text in PACKAGE.items()}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        installed(tmp_path / "a", "own-package", PACKAGE, POINTS),
        installed(tmp_path / "b", "other-package", other, POINTS.replace("own_package", "other_package")),
    ):
        assert "'own' is of other-package 1.0 and own-package 1.0; uninstall one" in refusal(found, "own")


def test_paths_are_those_beside_the_config_and_nothing_else_changes() -> None:
    values = {"kind": "a.py:A", "arm": {"rerank.kind": "e.py:E"}, "u": "http://h:80"}
    others = {"text": "see a.py: it is", "of": {"also": "a.py"}, "env": {"APP": "server.py:app"}}
    assert with_absolute_files(values | others, Path("/conf")) == {
        "kind": "/conf/a.py:A",
        "arm": {"rerank.kind": "/conf/e.py:E"},
        "u": "http://h:80",
        **others,
    }


@pytest.mark.slow
@given(some.dictionaries(some.sampled_from(["a", "b", "c.d"]), some.integers() | some.text() | some.lists(some.text())))
def test_what_names_no_file_of_code_stays(values: dict[str, Any]) -> None:
    once = with_absolute_files(values, Path("/conf"))
    assert with_absolute_files(once, Path("/other")) == once
    if not any(".py:" in str(one) for one in values.values()):
        assert once == values


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(PluginError, match="is not Python"):
        file_code(tmp_path / "own.py")


def test_a_file_is_read_again_only_where_it_has_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or real(path))  # type: ignore[func-returns-value]
    now = time.time_ns()
    monkeypatch.setattr("cluster.plugins.files.time.time_ns", lambda: now)
    first = file_code(folder / "own.py")
    assert len(read) == len(first.files)
    now += 1
    file_code(folder / "own.py")
    assert len(read) == 2 * len(first.files)  # written just now, so that it may be written again within the same tick
    now += 3_600_000_000_000
    read.clear()
    assert [file_code(folder / "own.py") for _ in range(3)] == [first] * 3
    assert sorted(read) == sorted(Path(place).name for place, _ in first.files)
    (folder / "words.py").write_text("WORD = 'w22'\n")
    read.clear()
    assert file_code(folder / "own.py").version != first.version
    assert read == ["words.py"]
