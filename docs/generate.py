"""Writes what is generated from the code: `python docs/generate.py`; with `--check` it only says which files are stale.

config.md             from the models of a config
errors.md             from `cluster/error_codes.toml`
strategy-files.md     from the models of strategies, rules and demonstrations

"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.error_codes import GROUPS
from cluster.settings import FROZEN, Settings

# Before the models are made. To read the docstrings of all fields takes 0.4 s, which no run needs to wait for.
for _inherited in (FROZEN, Settings.model_config):
    _inherited["use_attribute_docstrings"] = True

from jobs.config.config import Config  # noqa: E402
from rewriters.adaptive import Demonstration  # noqa: E402
from rewriters.classifier import Rule, Rules  # noqa: E402
from rewriters.pool import SET_BY_POOL  # noqa: E402
from rewriters.strategy import Marks, Strategy, Words  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
Schema = dict[str, Any]

_CONFIG = """# Keys of a config

Generated from the models by `docs/generate.py`; what to choose, and why: [settings.md](settings.md).

A key without a default may be left out or `null`. Keys marked ° are not part of a run's
[fingerprint](architecture.md#the-fingerprint) by themselves: they say only where, how fast or how long, or what they
resolve to counts in their place (weights, prompts, the content of a file or an index).
"""

_FILES = """# Files of strategies

Generated from the models by `docs/generate.py`. What strategies are for, and which there are: [strategies.md](strategies.md).

A strategy is one YAML file; its name is the strategy's. Those of `rewriters/strategies/` are named in a config by their
names, a file of yours by its path (`./strategies/medical.yaml`). Beside the fields below, a file may have

- `variables`: words of its own with their values, which stand in its prompt as `{domain}` and which a config may
  replace: `{hyde: {domain: a handbook of physics}}`;
- `variants`: names with fields that replace the file's where a config asks for it: `{decompose: {interpret: true}}`.

In a prompt, `{query}` is the query, `{context}` the earlier turns (`log.context_column`), `{n}` the number of texts,
`{language}` the value of `rewrite.language`, or "the language of the query". Any other name in braces that the file does
not declare is a column of the log.

With parameters a strategy has a name of its own, which stands in tables, weights and reports: `{rag_fusion: {n: 2}}` is
`rag_fusion(n=2)`. A parameter is a field below (from `search_as` to `engine`, and `n`), a key of `rewrite.decoding`, a
variable, a variant, or `name`, which replaces the long name.
"""

_ERRORS = """# What can go wrong

Generated from `cluster/error_codes.toml` by `docs/generate.py`. Whatever is refused or stops a run is one line, the
last on standard error, with its code at the end of the line:

    dmqr VERB: where: what was wrong; what to do [code]

The line names what was found, and where a name is unknown, the nearest and those that are known. By exit code:

| exit code | means |
|---|---|
| 0 | done |
| 1 | stopped (`stopped-...`), or something failed; what is committed stays, and the same command goes on |
| 2 | refused before work began (config, input, cluster); nothing of a run was written |
| 130, 143 | interrupted by Ctrl-C or SIGTERM, 128 and the number of the signal; the same command goes on |

An error that would be refused with exit code 2 ends a run with 1 once it has begun. Lines without a code
have exit code 1 (`interrupted; start it again`: 130 or 143):

- The system refused a file before a job began: `runs/a: Permission denied; make it writable, or name another`. A full disk:
  free space in the output's folder and in that of temporary files (TMPDIR). Too many open files: `ulimit -n`.
- A mistake of this program: the line ends with `report it with the trace above`.

S3, and Elasticsearch and servers of models for `patience_minutes`, are asked again while they give no good answer, before one
of these lines ends the work. What to do when a night stopped, by cause: [operations.md](operations.md#when-a-run-stopped).
"""


def main() -> int:
    """Writes the files, or says which are stale; returns the exit code."""
    generated = {f"docs/{name}": text for name, text in pages().items()}
    stale = {name: text for name, text in generated.items() if not _same(ROOT / name, text)}
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is stale; run: python docs/generate.py", file=sys.stderr)
        return int(bool(stale))
    for name, text in stale.items():
        (ROOT / name).write_text(text, encoding="utf-8")
        print(name)
    return 0


def pages() -> dict[str, str]:
    """Returns the generated pages by name."""
    return {
        "config.md": config_page(Config.model_json_schema()),
        "errors.md": errors_page(),
        "strategy-files.md": files_page(),
    }


def errors_page() -> str:
    """Returns every error code as tables, one of each group."""
    parts = [_ERRORS]
    for title, codes in GROUPS.items():
        rows = [f"| `{code}` | {means} | {remedy} |" for code, (means, remedy) in codes.items()]
        parts.append(f"## {title}\n\n| code | means | what to do |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def files_page() -> str:
    """Returns the fields of the files that a user may write for rewriting, as tables."""
    parts = [_FILES]
    for title, model in (
        ("A strategy", Strategy), ("`marks` of a strategy", Marks), ("`words` of a strategy", Words),
        ("Rules of `select: classified`", Rules), ("A rule", Rule), ("A demonstration of `select: adaptive`", Demonstration),
    ):  # fmt: skip
        schema = model.model_json_schema()
        fields = {key: field for key, field in schema["properties"].items() if model is not Strategy or key not in SET_BY_POOL}
        rows = [_row(key, field, key in schema.get("required", ())) for key, field in fields.items()]
        parts.append(f"## {title}\n\n| key | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def config_page(schema: Schema) -> str:
    """Returns every key of a config as tables, one of each model."""
    parts = [_CONFIG]
    places: dict[str, list[str]] = {}  # of each model, by its title in the schema
    models: dict[str, Schema] = {}
    for where, model in _models(schema, schema, ""):
        places.setdefault(model["title"], []).append(where)
        models[model["title"]] = model
    for name, model in models.items():
        kind = model["properties"].get("kind", {}).get("const")
        where = ", ".join(f"`{place}`" for place in dict.fromkeys(places[name]))
        title = "Top level" if where == "``" else where + (f", kind `{kind}`" if kind else "")
        rows = [_row(key, field, key in model.get("required", ())) for key, field in model["properties"].items()]
        about = "" if where == "``" else f"{model['description']}\n\n"
        parts.append(f"## {title}\n\n{about}| key | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _models(schema: Schema, model: Schema, where: str) -> Iterator[tuple[str, Schema]]:
    """Every model with its place in the config, in the order of the keys."""
    yield where, model
    for key, field in model["properties"].items():
        for inner, named in _inner(field):
            place = ".".join(filter(None, [where, key, "<name>" if named else ""]))
            found = schema["$defs"][inner]
            if "properties" in found:
                yield from _models(schema, found, place)


def _inner(field: Schema, named: bool = False) -> Iterator[tuple[str, bool]]:
    """The models that a field may hold, and whether they stand under names of the user's own."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2], named
    for one in field.get("anyOf", []) + field.get("oneOf", []):
        yield from _inner(one, named)
    if isinstance(field.get("additionalProperties"), dict):
        yield from _inner(field["additionalProperties"], True)
    if isinstance(field.get("items"), dict):
        yield from _inner(field["items"], named)


def _row(key: str, field: Schema, required: bool) -> str:
    default = field.get("default")
    shown = "**required**" if required else ""
    if default is not None and "$ref" not in field and not (isinstance(default, dict) and len(default) > 1):
        shown = f"`{json.dumps(default, ensure_ascii=False)}`"
    mark = " °" if field.get("identity") is False else ""
    about = " ".join(str(field.get("description", "")).split()).replace("|", "\\|")
    return f"| `{key}`{mark} | {_type(field)} | {shown} | {about} |"


_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


def _type(field: Schema) -> str:
    """A field's type in words, with its bounds."""
    if "const" in field or "enum" in field:
        return ", ".join(f"`{one}`" for one in field.get("enum", [field.get("const")]))
    if options := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(one) for one in options if one.get("type") != "null"))
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"name -> {_type(field['additionalProperties'])}"
    bounds = ", ".join(f"{sign} {field[name]:g}" for name, sign in _BOUNDS if name in field)
    return f"{_KINDS.get(str(field.get('type')), 'keys')} {bounds}".rstrip()


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
