"""Code of a plug-in that cannot be used is refused in one line; a file may have the name of a module of others."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.plugins.code import file_code
from cluster.plugins.modules import load, module_beside
from tests.support.plugins import found, in_another_process, installed, refusal

OWN = "from cluster.settings import Settings\nclass Own(Settings):\n    size: int = 1\n"


@pytest.mark.parametrize(("name", "imported"), [("retrievers", "retrievers.kinds"), ("queue", "queue"), ("cluster", "cluster")])
def test_a_file_may_have_the_name_of_what_it_imports(tmp_path: Path, name: str, imported: str) -> None:
    (tmp_path / f"{name}.py").write_text(f"import {imported}\nfrom {imported} import __name__ as of\n{OWN}")
    made = found(f"{tmp_path}/{name}.py:Own")
    assert load(file_code(tmp_path / f"{name}.py")).of == imported
    assert in_another_process(made(size=3), "print(settings.size)") == "3"


@pytest.mark.parametrize(
    "line", ['opener = "searching"', 'builder: ClassVar[str] = "searching"', 'opener = "lib.searching:Own"']
)
def test_what_opens_it_is_among_its_files(tmp_path: Path, line: str) -> None:
    own = f"from typing import ClassVar\n{OWN}    {line}\n"
    own = own if "ClassVar[" in line else own.replace("opener =", "opener: ClassVar[str] =")
    module = line.split('"')[1].partition(":")[0]
    place = f"{module.replace('.', '/')}.py"
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / "own.py").write_text(own)
    (tmp_path / place).write_text("import words\nHERE = words.WORD\n")
    (tmp_path / "words.py").write_text("WORD = 'w1'\n")
    before = file_code(tmp_path / "own.py")
    assert {one for one, _ in before.files} == {"own.py", place, "words.py"}
    assert module_beside(found(f"{tmp_path}/own.py:Own"), module).HERE == "w1"
    (tmp_path / "words.py").write_text("WORD = 'w2'\n")
    assert file_code(tmp_path / "own.py").version != before.version
    assert module_beside(found(f"{tmp_path}/own.py:Own"), module).HERE == "w2"


def test_what_opens_it_and_fails_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    made = found(f"{tmp_path}/own.py:Own")
    with pytest.raises(ClusterError) as raised:
        module_beside(made, "no_such")
    assert str(raised.value).startswith(f"{tmp_path}/own.py names the module no_such, which cannot be imported: ModuleNotFound")
    assert raised.value.code == "plugin"


def test_code_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"{OWN}import sys\nsys.exit(3)\n")
    assert "(own.py, line 5) cannot be imported: SystemExit: 3; correct it" in refusal(found, f"{tmp_path}/own.py:Own")
    files = {"own_package/__init__.py": "raise SystemExit(3)\n", "own_package/search.py": OWN}
    with installed(tmp_path, "own-package", files, ""):
        for module in ("own_package", "own_package.search"):
            assert "cannot be imported: SystemExit: 3; correct it" in refusal(found, f"{module}:Own")


def test_a_path_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{'x' * 300}.py"
    assert refusal(found, f"{path}:Own") == f"{path} cannot be read: File name too long; make it readable, or correct the path"


def test_an_entry_point_may_have_extras_and_has_to_name_a_class(tmp_path: Path) -> None:
    points = "[dmqr.tests]\nextra = own_package:Own [fast]\nmodule = own_package\nnothing = a b\n"
    with installed(tmp_path, "own-package", {"own_package/__init__.py": OWN}, points):
        assert found("extra")(size=2).size == 2
        line = "'module' is 'own_package' in the entry points of own-package 1.0, which names no class; write it there as "
        assert refusal(found, "module").startswith(line)
        assert "which names no class" in refusal(found, "nothing")


@pytest.mark.parametrize(
    ("text", "known_as"),
    [
        (
            "def make():\n    class Own(Settings):\n        size: int = 1\n    return Own\nOwn = make()\n",
            "own.make.<locals>.Own",
        ),
        ("class Other(Settings):\n    size: int = 1\nOwn = Other\nclass Other(Settings):\n    size: int = 2\n", "own.Other"),
    ],
)
def test_a_class_that_other_processes_do_not_find_is_refused(tmp_path: Path, text: str, known_as: str) -> None:
    (tmp_path / "own.py").write_text(f"from cluster.settings import Settings\n{text}")
    line = refusal(found, f"{tmp_path}/own.py:Own")
    assert f"the class Own is not to be found under its own name, {known_as}, by which" in line


def test_a_class_may_have_another_name_beside_its_own(tmp_path: Path) -> None:
    (tmp_path / "impl.py").write_text(OWN)
    (tmp_path / "own.py").write_text("from impl import Own as Other\nAgain = Other\n")
    for name in ("Other", "Again"):
        one = found(f"{tmp_path}/own.py:{name}")(size=4)
        assert pickle.loads(pickle.dumps(one)) == one
