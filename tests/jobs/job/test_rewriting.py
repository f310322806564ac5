"""What a config rewrites with: its pool, prompt, rules and demonstrations from files, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.config import Config
from jobs.job.rewriting import read_rewriting
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting

Values = dict[str, Any]


def rewriting(values: Values, **rewrite: Any) -> Rewriting:
    return read_rewriting(Config.model_validate(values | {"rewrite": values["rewrite"] | rewrite}))


# ---------------------------------------------------------------- the joint prompt


@pytest.mark.parametrize("content", [b"Do this.\n{query}\n\n", b"\xef\xbb\xbfDo this.\r\n{query} \r\n", b"Do this.\n{query}"])
def test_what_an_editor_adds_is_not_in_it(tmp_path: Path, values: Values, content: bytes) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    assert rewriting(values, joint_prompt=str(path)).joint_prompt == "Do this.\n{query}"


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
