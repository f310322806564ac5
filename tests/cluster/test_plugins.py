"""Classes that a config names: modules of the current folder and of installed packages, entry points, what is refused."""

import pickle
from pathlib import Path

import pytest

from cluster.plugins import identity_of, sent_modules
from cluster.settings import Settings
from tests.support.plugins import forget, found, installed, refusal

OWN = "from cluster.settings import Settings\n\n\nclass Own(Settings):\n    size: int = 1\n\n\nclass Other:\n    pass\n"
POINTS = "[dmqr.tests]\nown = own_package.words:Own\nno_class = own_package.words\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_words.py").write_text(OWN)
    return tmp_path


def test_a_module_of_the_current_folder_is_known_by_its_file_and_sent(here: Path) -> None:
    made = found("own_words:Own")
    first = identity_of(made)
    assert (first["class"], first["module"]) == ("Own", "own_words")
    assert pickle.loads(pickle.dumps(made(size=2))) == made(size=2)
    assert here / "own_words.py" in sent_modules()
    forget("own_words")
    (here / "own_words.py").write_text(OWN + "\n# another version\n")
    assert identity_of(found("own_words:Own"))["code"] != first["code"]


def test_a_package_of_the_current_folder_is_sent_whole(here: Path) -> None:
    (here / "own_package").mkdir()
    (here / "own_package" / "words.py").write_text(OWN)
    found("own_package.words:Own")
    assert here / "own_package" in sent_modules()


def test_an_installed_package_is_known_by_its_version_and_not_sent(tmp_path: Path) -> None:
    with installed(tmp_path, "own-package", {"own_package/words.py": OWN}, POINTS):
        made = found("own")
        assert made is found("own_package.words:Own")
        assert identity_of(made)["code"] == "own-package 1.0"
        assert tmp_path / "own_package" not in sent_modules()


def test_a_class_of_this_project_is_no_plug_in() -> None:
    assert identity_of(Settings) == {}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("no_such.module:Own", "there is no module no_such.module; correct the name, install it, or start dmqr in"),
        ("own_words.py:Own:", "'own_words.py:Own:' names no class; write it as package.module:Class"),
        ("own_words:Owm", "module own_words has no Owm; did you mean 'Own'"),
        ("own_words:Other", "own_words:Other is not a class of Settings; name one, or derive it"),
        ("raises:Own", "module raises cannot be imported: KeyError: 'no'; correct it, or install what it needs"),
        ("ends:Own", "module ends cannot be imported: SystemExit: 3"),
        ("lacks:Own", "module lacks cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_what_cannot_be_used_is_refused(here: Path, name: str, line: str) -> None:
    for module, text in {"raises": '{}["no"]', "ends": "raise SystemExit(3)", "lacks": "import nowhere"}.items():
        (here / f"{module}.py").write_text(text)
    assert line in refusal(found, name)
