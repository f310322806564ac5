"""Locates the files of models, identifies their weights, and loads them, by libraries whose import takes seconds.

A model is named by a folder, by `package:NAME` (an installed package that carries weights), or by a hub name
(`BAAI/bge-base-en-v1.5`, or `BAAI/bge-base-en-v1.5@REVISION`). What loads one takes a `dtype` "float32", "float16" or
"bfloat16", a `device` "cpu" or "cuda:0", and whether code beside the weights may run. It raises RetrieverError if there is no
such model, its files cannot be loaded, it needs code that is not trusted, or the device does not exist.
"""

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from cluster.cause import one_line
from cluster.errors import RetrieverError
from cluster.plugins import hash_of_files

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_TEXT_FILES = {".json", ".txt", ".model", ".tiktoken", ".jinja"}
_WEIGHTS = (".safetensors", ".bin")  # the loaders take the first kind that exists
_OF_MODULE = re.compile(r"\d+_\w+/(?:config\.json|model\.safetensors|pytorch_model\.bin)")  # of sentence-transformers
_DESCRIPTION = (
    "config.json", "modules.json", "*/config.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    "tokenizer_config.json", "chat_template.jinja",
)  # fmt: skip
_TOKENIZERS = {"bert": "BertTokenizer", "roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer"}
_SHIFTED = ("roberta", "camembert", "mpnet", "longformer", "ibert", "data2vec-text", "xmod")  # begin at pad_token_id + 1


def resolved_dtype(dtype: str, device: str) -> str:
    """Returns the precision of a model: `auto` is float32 on a CPU and float16 on a GPU.

    float16, as in FlagEmbedding, and not bfloat16: with 8 significant bits, scores between 8 and 16 are multiples of 1/16 and
    tie (float16: 1/128), and the values in encoders and rerankers are far below the largest float16.
    """
    if dtype != "auto":
        return dtype
    return "float32" if device == "cpu" else "float16"


def resolve_model(name: str, code: bool = False) -> Path:
    """Returns the folder of a model's files, downloaded from the hub if need be; with its Python files where `code`."""
    return local_folder(name) or _fetched(name, weights=True, code=code)


Json = TypeVar("Json", dict[str, Any], list[dict[str, Any]])


def description(name: str) -> Path:
    """Returns a folder with a model's JSON files, those of its modules (`1_Pooling/`) among them; downloads no weights."""
    return local_folder(name) or _fetched(name)


def read_json(path: Path, kind: type[Json] = dict) -> Json:  # type: ignore[assignment]
    """Returns the content of a model's JSON file, a dict or a list as `kind` says; that of no file is empty."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(read, kind):
            raise ValueError(f"it is no {kind.__name__}")
        return read
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError) as e:
        raise RetrieverError("model", f"model file {path} cannot be read: {type(e).__name__}: {e}; copy it again") from None


def max_positions(config: dict[str, Any]) -> int:
    """Returns the most tokens for which a model has positions, by its config.json."""
    positions = int(config.get("max_position_embeddings") or 512)
    if any(kind in str(config.get("model_type")) for kind in _SHIFTED):  # 514 positions are for 512 tokens
        positions -= int(config.get("pad_token_id", 1)) + 1
    return positions


def model_identity(name: str, code: bool = False) -> str:
    """Returns the identity of a model's weights: `sha256:...` of a folder's files, `commit:...` of a hub name.

    Where `code`, a folder's Python files count, too. Cost: weights are read once per process (about 1 s for 1 GB).
    """
    folder = local_folder(name)
    if folder is None:
        return f"commit:{_commit(name)}"
    return _identity_of(_model_files(folder) + (sorted(folder.glob("*.py")) if code else []))


def read_weights(file: Path) -> dict[str, Any]:
    """Returns the weights of a file by name, tensors on the CPU."""
    import torch
    from safetensors.torch import load_file

    safe = file.suffix == ".safetensors"
    return load_file(file) if safe else torch.load(file, map_location="cpu", weights_only=True)


def file_hash(folder: Path) -> str:
    """Returns `sha256:...` of the files of a folder of a model's module, such as `2_Dense/`."""
    return _identity_of([f for f in (folder / "config.json", module_weights(folder)) if f.is_file()])


def module_weights(folder: Path) -> Path:
    """Returns the file with the weights of a model's module, such as `2_Dense/`; of none the first that could be."""
    files = [folder / "model.safetensors", folder / "pytorch_model.bin"]
    return next(filter(Path.is_file, files), files[0])


def _identity_of(files: Iterable[Path]) -> str:
    return f"sha256:{hash_of_files((file.name, file) for file in files)}"


def at_commit(name: str) -> str:
    """Returns the name of a hub's model with its present commit, `repository@commit`; any other name as it is."""
    try:
        return name if local_folder(name) is not None else f"{_hub_parts(name)[0]}@{_commit(name)}"
    except RetrieverError:  # there is no such model: whoever loads it says so
        return name


def local_folder(name: str) -> Path | None:
    """Returns the folder of a path or of `package:NAME`; None for a hub name."""
    if name.startswith("package:"):
        return _package_folder(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise RetrieverError("model", f"model {name}: the folder has no config.json; give the folder of a model's files")
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or not _HUB_NAME.fullmatch(name):
        raise RetrieverError("model", f"model {name}: no such folder; give a folder, package:NAME or a hub name")
    return None


def _package_folder(name: str) -> Path:
    package = name.removeprefix("package:")
    spec = importlib.util.find_spec(package) if re.fullmatch(r"\w+", package) else None
    if spec is None or not spec.submodule_search_locations:
        install = package.replace("_", "-")
        raise RetrieverError("package-missing", f"model {name}: no package {package!r} is installed; pip install {install}")
    root = Path(next(iter(spec.submodule_search_locations)))
    for folder in (root, root / "model", *sorted(f for f in root.iterdir() if f.is_dir())):
        if (folder / "config.json").is_file():
            return folder
    problem = f"package {package!r} has no config.json in its folder or one below it"
    raise RetrieverError("model", f"model {name}: {problem}; name another")


def _model_files(folder: Path) -> list[Path]:
    """Returns the files that determine a model's output (weights, configuration, vocabulary), sorted by name."""
    files = sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
    for kind in _WEIGHTS:
        weights = [f for f in files if f.suffix == kind]
        if weights:
            return sorted(weights + [f for f in files if f.suffix in _TEXT_FILES])
    raise RetrieverError("model", f"model {folder}: no weights there (no *.safetensors, no *.bin); copy them there")


def _hub_parts(name: str) -> tuple[str, str | None]:
    repo, _, revision = name.partition("@")
    return repo, revision or None


@lru_cache(maxsize=64)
def _commit(name: str) -> str:
    from huggingface_hub import HfApi

    repo, revision = _hub_parts(name)
    try:
        sha = HfApi().model_info(repo, revision=revision, timeout=10).sha
    except Exception as e:  # offline, no such repository, or no access: the cache may have it
        return _cached(name, e).name
    return str(sha)


@lru_cache(maxsize=64)
def _fetched(name: str, weights: bool = False, code: bool = False) -> Path:
    """Returns the folder in the hub's cache with a model's description, or, with `weights`, all that loading it takes."""
    from huggingface_hub import HfApi, snapshot_download

    repo, revision = _hub_parts(name)
    try:
        info = HfApi().model_info(repo, revision=revision, timeout=10)
        names = [f.rfilename for f in info.siblings or []]
        files = [f for f in names if "/" not in f]
        kind = next((k for k in _WEIGHTS if any(f.endswith(k) for f in files)), ".bin")
        patterns = [f for f in files if Path(f).suffix in _TEXT_FILES | {kind} | ({".py"} if code else set())]
        patterns += [f for f in names if _OF_MODULE.fullmatch(f)]
        folder = snapshot_download(repo, revision=info.sha, allow_patterns=patterns if weights else list(_DESCRIPTION))
    except Exception as e:  # offline, no such repository, or no access: the cache may have it
        folder = str(_cached(name, e))
    if weights and not Path(folder, "config.json").is_file():
        raise RetrieverError("model", f"model {name}: the repository has no config.json, so it cannot be loaded; name another")
    return Path(folder)


def _cached(name: str, reason: Exception) -> Path:
    """Returns the folder of a hub model in the hub's cache, which is named by the commit.

    The hub's library takes a folder for whole only if all of a repository's files are there, and not all are fetched.
    """
    from huggingface_hub import snapshot_download

    repo, revision = _hub_parts(name)
    try:
        return Path(snapshot_download(repo, revision=revision, local_files_only=True, allow_patterns=["config.json"]))
    except Exception:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
        problem = f"no such folder here, not in the hub's cache, and the hub did not give it{offline}: {type(reason).__name__}"
        remedy = f"give a folder, package:NAME, or fetch it first with: hf download {repo}"
        raise RetrieverError("model", f"model {name}: {problem}; {remedy}") from None


def open_flag_llm(model: str, dtype: str, device: str, trust_remote_code: bool, **arguments: Any) -> Any:
    """Returns FlagEmbedding's reranker of a language model, with its `.model` on the device, in the given precision.

    Its class is given: by itself FlagEmbedding takes it from the last part of the path, a commit for models of the hub. Callers
    must keep the returned object: when it is deleted, it moves its model to the CPU. `arguments` are further ones of the class.
    """
    if importlib.util.find_spec("FlagEmbedding") is None:
        problem = f"rerank.model: {model} is scored by FlagEmbedding, which is not installed"
        raise RetrieverError("package-missing", f'{problem}; pip install "dmqr[flag]"')

    def make(folder: str) -> Any:
        opened = importlib.import_module("FlagEmbedding").FlagAutoReranker.from_finetuned(
            folder, model_class="decoder-only-base", devices=device, use_fp16=dtype == "float16", use_bf16=dtype == "bfloat16",
            trust_remote_code=trust_remote_code, **arguments,
        )  # fmt: skip
        if dtype == "float16":
            opened.model.half()  # FlagEmbedding would do so at the first call, with all weights on the device in float32
        return opened

    return _load(f"rerank: model {model}", model, device, trust_remote_code, make)


def open_transformer(what: str, model: str, kind: str, dtype: str, device: str, trust_remote_code: bool) -> Any:
    """Returns a model of transformers: its `.tokenizer`, and `.model` on the device in the given precision.

    `what` is its use and name, for messages; `kind` the class of transformers that opens it, such as "AutoModelForCausalLM".
    """

    def make(folder: str) -> Any:
        import torch
        import transformers

        from retrievers.encoders.bert import open_bert

        precision = getattr(torch, dtype)
        network = None if kind == "AutoModelForCausalLM" else open_bert(Path(folder), kind != "AutoModel", precision)
        described = read_json(Path(folder, "tokenizer_config.json"))
        own = str(described.get("tokenizer_class")).removesuffix("Fast")
        if network is None or "auto_map" in described or own != _TOKENIZERS[network.config.model_type]:
            own = "AutoTokenizer"  # whose import alone takes seconds
        tokenizer = getattr(transformers, own).from_pretrained(folder, trust_remote_code=trust_remote_code)
        if tokenizer.pad_token is None:  # masked, so that any will do
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if network is None:
            made = getattr(transformers, kind).from_pretrained(folder, dtype=precision, trust_remote_code=trust_remote_code)
            network = made.eval()  # which code beside the weights may leave out
        network.config.use_cache = False  # of decoders: what they would need to write on
        return SimpleNamespace(tokenizer=tokenizer, model=network)

    return _load(what, model, device, trust_remote_code, make)


def _load(what: str, model: str, device: str, trust_remote_code: bool, make: Callable[[str], Any]) -> Any:
    folder = resolve_model(model, code=trust_remote_code)
    try:
        from transformers.utils import logging

        logging.disable_progress_bar()  # the output of a worker is no terminal
        opened = make(str(folder))
    except Exception as e:  # corrupt weights, an architecture unknown here
        if not trust_remote_code and "trust_remote_code" in str(e):
            problem = "needs code that lies beside its weights; set trust_remote_code: true if you trust it, or name another"
            raise RetrieverError("model", f"{what} {problem}") from e
        raise RetrieverError("model", f"{what} cannot be loaded: {type(e).__name__}: {one_line(e)}; name another") from e
    try:
        opened.model.to(device)
    except (RuntimeError, AssertionError) as e:
        problem = f"no device {device} on this machine, or out of memory: {one_line(e)}"
        remedy = "correct cluster.retrieve.gpus and cluster.rerank.gpus"
        raise RetrieverError("cluster-small", f"{what}: {problem}; {remedy}") from e
    return opened
