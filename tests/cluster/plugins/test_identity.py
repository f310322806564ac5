"""What a class of a plug-in is known by: two classes of one version of code are two, wherever a config names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.plugins.modules import identity_of
from retrievers.rerankers.settings import RerankerSettings
from retrievers.retriever import with_code
from rewriters.settings import identity_fields
from tests.support.plugins import found, in_another_process, installed

OWN = "from cluster.settings import Settings\nclass Own(Settings):\n    size: int = 1\n"
RERANKER = "from retrievers.rerankers.settings import RerankerSettings\nclass Own(RerankerSettings):\n    {name}: int = 1\n"


def test_two_modules_of_a_package_have_two_classes_of_one_name(tmp_path: Path) -> None:
    files = {
        "own_package/__init__.py": "from own_package.a import Own\n",
        "own_package/a.py": OWN,
        "own_package/deep/b.py": OWN,
    }
    with installed(tmp_path, "own-package", files, ""):
        first, second, again = (found(f"own_package{one}:Own") for one in (".a", ".deep.b", ""))
        assert [identity_of(one)["module"] for one in (first, second, again)] == [
            "own_package.a", "own_package.deep.b", "own_package.a",
        ]  # fmt: skip
        assert identity_fields(first()) != identity_fields(second())
        assert with_code(first(), {"corpus": "c"}) != with_code(second(), {"corpus": "c"})
        assert with_code(first(), {"corpus": "c"}) == with_code(again(), {"corpus": "c"})


def test_two_files_that_import_each_other_have_two_classes_of_one_name(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.py").write_text(f"import {other}\n" + RERANKER.format(name="size"))
    first, second = (found(f"{tmp_path}/{name}.py:Own") for name in ("a", "b"))
    assert issubclass(first, RerankerSettings)
    assert identity_of(first)["code"] == identity_of(second)["code"]
    assert [identity_of(one)["module"] for one in (first, second)] == ["a", "b"]
    both = [made(kind="own") for made in (first, second)]
    assert both[0].known_by() != both[1].known_by()
    code = "from cluster.plugins.modules import identity_of; print([identity_of(type(one))['module'] for one in settings])"
    assert in_another_process(both, code) == "['a', 'b']"


def test_where_a_file_lies_is_no_part_of_it(tmp_path: Path) -> None:
    known: list[Any] = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        (folder / "own.py").write_text(OWN)
        known.append(identity_of(found(f"{folder}/own.py:Own")))
    assert known[0] == known[1]
    assert known[0].keys() == {"class", "module", "code"}
