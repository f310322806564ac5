"""What a config rewrites with: its pool, prompt, rules and demonstrations from files, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import ConfigError
from jobs.config.config import Config
from jobs.job.rewriting import read_rewriting
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting

Values = dict[str, Any]


def rewriting(values: Values, **rewrite: Any) -> Rewriting:
    return read_rewriting(Config.model_validate(values | {"rewrite": values["rewrite"] | rewrite}))


def refused(values: Values, **rewrite: Any) -> str:
    with pytest.raises(ConfigError) as error:
        rewriting(values, **rewrite)
    assert "\n" not in str(error.value)
    return str(error.value)


# ---------------------------------------------------------------- the joint prompt


@pytest.mark.parametrize("content", [b"Do this.\n{query}\n\n", b"\xef\xbb\xbfDo this.\r\n{query} \r\n", b"Do this.\n{query}"])
def test_what_an_editor_adds_is_not_in_it(tmp_path: Path, values: Values, content: bytes) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    assert rewriting(values, joint_prompt=str(path)).joint_prompt == "Do this.\n{query}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory; name a text file in UTF-8"),
        (b"caf\xe9 {query}", "; name a text file in UTF-8"),
        (b"", "must have {query} once, as its last word"),
        (b"{query} {queries}", "unknown variable '{queries}'"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, values: Values, content: bytes | None, said: str) -> None:
    path = tmp_path / "prompt.txt"
    if content is not None:
        path.write_bytes(content)
    line = refused(values, joint_prompt=str(path))
    assert line.startswith(f"rewrite.joint_prompt: {path}: ")
    assert said in line


def test_a_folder_is_refused(tmp_path: Path, values: Values) -> None:
    assert "name a text file in UTF-8" in refused(values, joint_prompt=str(tmp_path))


# ---------------------------------------------------------------- the pool


def test_names_files_and_parameters_stand_beside_each_other(tmp_path: Path, values: Values) -> None:
    (tmp_path / "medical.yaml").write_text("label: Medical Terms\nprompt: 'Terms: {query}'\n", encoding="utf-8-sig")
    made = rewriting(values, strategies=["keyword", f"{tmp_path}/medical.yaml", {"rag_fusion": {"n": 2}}], language="German")
    assert [one.name for one in made.pool] == ["keyword", "medical", "rag_fusion(n=2)"]
    assert [request.name for request in Rewriter(made).requests(Query("id1", "tea"))] == ["dmqr", "rag_fusion(n=2)", "medical"]
    assert all(one.any_language for one in made.pool)


def test_earlier_turns_are_shown_where_the_log_has_them(values: Values) -> None:
    turned = values | {"log": values["log"] | {"context_column": "turns"}}
    (request,) = Rewriter(rewriting(turned)).requests(Query("id1", "and then?", "who was first"))
    assert "who was first" in request.prompt
    assert rewriting(values).context is False


@pytest.mark.parametrize("change", [{"strategies": []}, {"select": "never"}, {"strategies": [], "select": "random_k"}])
def test_without_strategies_nothing_is_asked(values: Values, change: Values) -> None:
    made = rewriting(values, **change)
    assert made.pool == ()
    assert not made.selects
    assert Rewriter(made).requests(Query("id1", "tea")) == []


@pytest.mark.parametrize(
    ("strategies", "said"),
    [
        (["keywrd"], "rewrite.strategies: unknown strategy 'keywrd'; did you mean 'keyword'?"),
        (["./none.yaml"], "rewrite.strategies: ./none.yaml: cannot be read: No such file or directory; correct the path"),
        ([{"rag_fusion": {"m": 1}}], "rewrite.strategies: strategy 'rag_fusion': no parameter 'm'"),
    ],
)
def test_a_wrong_strategy_is_refused(values: Values, strategies: list[Any], said: str) -> None:
    assert refused(values, strategies=strategies).startswith(said)


# ---------------------------------------------------------------- the selection


def test_demonstrations_and_rules_are_read_from_files(tmp_path: Path, values: Values) -> None:
    (tmp_path / "d.yaml").write_text(yaml.safe_dump([{"query": "a b", "rewrites": {"keyword": "a, b"}, "reason": "terms"}]))
    adaptive = rewriting(values, select={"kind": "adaptive", "demonstrations": str(tmp_path / "d.yaml")})
    (request,) = Rewriter(adaptive).requests(Query("id1", "tea"))
    assert "Query: a b\nKeyword Rewriting: a, b\nreason: terms\n\nQuery: tea" in request.prompt
    rules = {"rules": [{"type": "long", "contains": ["and"]}], "otherwise": "short"}
    types = {"descriptions": {"long": "l", "short": "s"}, "strategies": {"long": ["keyword"], "short": "none"}}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(rules | types))
    classified = Rewriter(rewriting(values, select={"kind": "classified", "rules": str(tmp_path / "r.yaml")}))
    assert dict(classified.choose(Query("id1", "salt and pepper")).texts) == {"keyword": None}
    assert dict(classified.choose(Query("id1", "salt")).texts) == {}


@pytest.mark.parametrize(("kind", "key"), [("classified", "rules"), ("adaptive", "demonstrations")])
def test_a_file_that_is_not_there_is_named_with_its_key(values: Values, kind: str, key: str) -> None:
    said = f"rewrite.select: ./no.yaml: cannot be read: No such file or directory; correct rewrite.select.{key}"
    assert refused(values, select={"kind": kind, key: "./no.yaml"}) == said


def test_rules_of_ours_that_do_not_exist_are_told_with_those_that_do(values: Values) -> None:
    line = refused(values, select={"kind": "classified", "rules": "englisch"})
    assert line.startswith("rewrite.select: englisch: cannot be read: ")
    assert line.endswith("; correct rewrite.select.rules; ours are: english")
