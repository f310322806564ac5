"""Speaks a model's chat format: the tokens of its prompt, and its answer without reasoning.

Special tokens that mark reasoning (Cohere, Magistral, gpt-oss, ...) stay in a text, so that `rewriters/reading` finds the end
of the reasoning, and so do the marks of a request; all others are left out. With a reasoning parser of vLLM the text is what
that calls the content.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from jinja2 import TemplateError

from cluster.cause import one_line
from cluster.errors import RewriterError

# By the model_type of config.json, where every model of the type reasons unless it is told not to.
ALWAYS_REASONING = {"minimax_m2": "minimax_m2", "seed_oss": "seed_oss"}
_MARK = re.compile(r"think|thought|reasoning|<unused9[45]>|<\|content_text\|>|<\|?channel\|?>", re.IGNORECASE)
_HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
_log = logging.getLogger(f"dmqr.{__name__}")


class Chat:
    """The chat format of one loaded model; its `marks` of reasoning stay in texts."""

    def __init__(self, tokenizer: Any, model: str, reasoning_parser: str | None) -> None:
        """Reads the special tokens of vLLM's tokenizer. Raises RewriterError if the parser is unknown, or does not fit it.

        `model` is its name, for a warning; `reasoning_parser` is a name of vLLM's; None: marks of reasoning stay in the text.
        """
        self._tokenizer, self.has_template = tokenizer, has_template(tokenizer)
        self._model, self._warned = model, False
        added = getattr(tokenizer, "added_tokens_decoder", None) or {}
        special = {str(token): int(number) for number, token in added.items() if getattr(token, "special", False)}
        special |= dict(zip(map(str, tokenizer.all_special_tokens), tokenizer.all_special_ids, strict=False))
        self.is_harmony = set(_HARMONY[:2]) <= set(special)
        self.marks = {token for token in special if _MARK.search(token) or (self.is_harmony and token in _HARMONY)}
        self._parser_class: Any = None
        if reasoning_parser is not None:
            from vllm.reasoning import ReasoningParserManager

            try:
                self._parser_class = ReasoningParserManager.get_reasoning_parser(reasoning_parser)
                parser = self._parser_class(tokenizer)
            except Exception as error:
                line = f"engine 'vllm': reasoning_parser {reasoning_parser!r}: {one_line(error)}; name another, or none"
                raise RewriterError("engine-setting", line) from error
            self.marks |= {parser.reasoning_start_str, parser.reasoning_end_str} & set(special)
        self._special, self._others = special, cache(self._others_than)

    def tokens(self, prompt: str, switches: Mapping[str, Any], system: str = "", *, as_text: bool = False) -> list[int]:
        """Returns the tokens of a prompt: by the chat template, if any, with its variables `switches`, else bare.

        A text has no template; it has what the tokenizer puts first, and special tokens. Messages without a template warn once.
        """
        whole = f"{system}\n\n{prompt}" if system and not as_text else prompt
        if not (as_text or self.has_template or self._warned):
            self._warned = True
            _log.warning("%s has no chat template: it is given the bare prompts, as a base model", self._model)
        if as_text or not self.has_template:
            return list(self._tokenizer.encode(whole))
        if system:
            with suppress(TemplateError):  # of Gemma 2 and Mistral's first: they know no such role
                return self._templated([{"role": "system", "content": system}, {"role": "user", "content": prompt}], switches)
        return self._templated([{"role": "user", "content": whole}], switches)

    def _templated(self, messages: Sequence[Mapping[str, str]], switches: Mapping[str, Any]) -> list[int]:
        return list(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False, **switches))

    def text(
        self, prompt: Sequence[int], tokens: Sequence[int], text: str, switches: Mapping[str, Any], marks: Collection[str] = ()
    ) -> str:
        """Returns an answer without its reasoning, as far as a parser separates it.

        It is given the tokens of prompt and answer, the text where vLLM made it ("": it is made here), the prompt's
        switches, and the marks of the request.
        """
        kept_tokens = frozenset(self.marks.union(marks))
        others, skipped = self._others(kept_tokens)
        if not text:
            kept = [token for token in tokens if token not in skipped]
            text = self._tokenizer.decode(kept, skip_special_tokens=not kept_tokens)
        elif kept_tokens:
            for token in others:
                text = text.replace(token, "")
        if self._parser_class is None:
            return text
        parser = self._parser_class(self._tokenizer, chat_template_kwargs=dict(switches))
        if parser.is_reasoning_end(list(prompt)):  # the template has ended it
            return text
        try:
            from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

            request = ChatCompletionRequest(messages=[{"role": "user", "content": ""}])
            _, content = parser.extract_reasoning(text, request)
        except NotImplementedError:  # it only tells where reasoning ends
            return text
        return content or ""

    def _others_than(self, kept: frozenset[str]) -> tuple[list[str], frozenset[int]]:
        """Returns the special tokens that are left out of a text, the longest first, and their ids."""
        others = sorted(set(self._special) - kept, key=len, reverse=True)
        return others, frozenset(self._special[token] for token in others)


def has_template(tokenizer: Any) -> bool:
    """Returns True if a tokenizer writes chats: by a template, or in a way of its own (Mistral's, DeepSeek's)."""
    from transformers import PreTrainedTokenizerBase

    write = getattr(type(tokenizer), "apply_chat_template", None)
    if write is PreTrainedTokenizerBase.apply_chat_template:
        return bool(tokenizer.chat_template)
    return write is not None


def guessed_parser(weights: str, revision: str | None) -> str | None:
    """Returns the reasoning parser of a model whose type says that it reasons; None where that is not certain."""
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(weights, revision=revision)
    except (OSError, ValueError):  # loading says it better
        return None
    return ALWAYS_REASONING.get(str(config.get("model_type"))) if isinstance(config, dict) else None
