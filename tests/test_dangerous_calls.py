"""No call in the four packages runs what it reads: no pickle of a file, no shell, no `eval`, no unsafe YAML."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path for package in ("cluster", "dmqr", "jobs", "retrievers", "rewriters") for path in (ROOT / package).rglob("*.py")
)
# Arguments of one process's own tasks, which Ray pickles in any case, and settings of plug-ins among them; no file is involved.
# Code that the config names, and no other, is run.
ALLOWED = {
    "cluster/run/spread.py": {"pickle"},
    "cluster/plugins/modules.py": {"pickle", "exec"},
    "dmqr/testing/settings.py": {"pickle"},
}
FORBIDDEN = {"eval", "exec", "os.system", "os.popen", "yaml.unsafe_load", "yaml.full_load", "torch.load", "marshal.loads"}


def found(source: str) -> set[str]:
    """The dangerous things of a source: calls, imports of pickle, arguments."""
    things: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name, tensors = (
                ast.unparse(node.func),
                any(one.arg == "weights_only" and ast.unparse(one.value) == "True" for one in node.keywords),
            )  # torch.load of tensors alone runs nothing
            things |= {name} & FORBIDDEN - ({"torch.load"} if tensors else set())
            for one in node.keywords:
                if one.arg in ("shell", "allow_pickle", "trust_remote_code") and ast.unparse(one.value) == "True":
                    things.add(f"{one.arg}=True")
                if one.arg == "weights_only" and ast.unparse(one.value) == "False":
                    things.add("weights_only=False")
        elif isinstance(node, ast.Import):
            things |= {alias.name for alias in node.names} & {"pickle", "dill", "cloudpickle", "joblib", "shelve"}
        elif isinstance(node, ast.ImportFrom):
            things |= {node.module or ""} & {"pickle", "dill", "cloudpickle", "joblib", "shelve"}
    return things


def test_no_file_of_the_packages_has_one() -> None:
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        assert found(path.read_text(encoding="utf-8")) <= ALLOWED.get(name, set()), name


def test_the_search_finds() -> None:
    source = "import pickle\nsubprocess.run(x, shell=True)\ntorch.load(f)\nnp.load(f, allow_pickle=True)\neval(x)"
    assert found(source) == {"pickle", "shell=True", "torch.load", "allow_pickle=True", "eval"}
    assert found("torch.load(f, weights_only=True)") == set()
