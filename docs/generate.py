"""Writes the generated parts of pages, between their markers: `python docs/generate.py`; `--check` only names the stale pages.

config.md               from the models of a config and of strategy files
errors.md               from `cluster/error_codes.toml`
results-and-tables.md   from the schemas and `tables.toml`

"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.errors import GROUPS
from cluster.settings import FROZEN, Settings

# Before the models are made. To read the docstrings of all fields takes 0.4 s, which no run needs to wait for.
for _inherited in (FROZEN, Settings.model_config):
    _inherited["use_attribute_docstrings"] = True

from jobs.config.config import Config  # noqa: E402
from jobs.tables import COMPLETIONS, OPTIONAL_QUERIES, SOURCE, STORED, WEB_ANSWERS  # noqa: E402
from rewriters.adaptive import Demonstration  # noqa: E402
from rewriters.classifier import Rule, Rules  # noqa: E402
from rewriters.pool import SET_BY_POOL  # noqa: E402
from rewriters.strategy import Marks, Strategy, Words  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
END = "<!-- end of the generated part -->"
Schema = dict[str, Any]


def main() -> int:
    """Writes the files, or names the stale ones; returns the exit code."""
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
    """Returns the pages with generated parts by name."""
    return {
        "config.md": _page("config.md", {"keys": keys(Config.model_json_schema()), "strategy files": files()}),
        "errors.md": _page("errors.md", {"errors": errors()}),
        "results-and-tables.md": _page("results-and-tables.md", {"tables": tables()}),
    }


def _page(name: str, parts: dict[str, str]) -> str:
    """Returns a page whose parts, by the names in their markers, are these."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    for part, text in parts.items():
        before, begin, rest = page.partition(f"<!-- generated: {part} -->\n")
        page = f"{before}{begin}\n{text}\n{END}{rest.partition(END)[2]}"
    return page


# ---------------------------------------------------------------- errors


def errors() -> str:
    """Returns all error codes, in groups."""
    parts = []
    for title, codes in GROUPS.items():
        rows = [f"- `{code}`: {means} *{remedy}*" for code, (means, remedy) in codes.items()]
        parts.append(f"## {title}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


# ---------------------------------------------------------------- tables


def tables() -> str:
    """Returns the columns of all tables; raises SystemExit where a column has no meaning."""
    about = tomllib.loads((ROOT / "docs/tables.toml").read_text(encoding="utf-8"))
    schemas: dict[str, Any] = {**STORED, "completions": COMPLETIONS, "web_answers": WEB_ANSWERS}
    schemas["queries"] = [*schemas["queries"], *OPTIONAL_QUERIES]
    parts = []
    for name in about:
        fields = SOURCE if name == "sources" else schemas.pop(name)
        meanings = {key: text for key, text in about[name].items() if key != "about"}
        if [*meanings] != [field.name for field in fields]:
            raise SystemExit(f"docs/tables.toml: [{name}] has {[*meanings]}, wanted {[field.name for field in fields]}")
        rows = [f"| `{field.name}` | {_arrow_type(field.type)} | {meanings[field.name]} |" for field in fields]
        title = "Fields of `sources`" if name == "sources" else f"`{name}/`"
        head = f"### {title}\n\n{about[name]['about']}\n\n| column | type | meaning |\n|---|---|---|\n"
        parts.append(head + "\n".join(rows) + "\n")
    if schemas:
        raise SystemExit(f"docs/tables.toml lacks {', '.join(schemas)}")
    return "\n".join(parts)


def _arrow_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return "map of text"
    if pa.types.is_list(kind):
        return f"list of {'struct' if pa.types.is_struct(kind.value_type) else kind.value_type}"
    return str(kind)


# ---------------------------------------------------------------- config


def keys(schema: Schema) -> str:
    """Returns all keys of a config, a section per model."""
    parts, shown = list[str](), dict[str, str]()
    for places, model in _sections(schema):
        kind = model["properties"].get("kind", {}).get("const")
        where = f"`{places[0]}`" + (f", kind `{kind}`" if kind else "")
        title = where if places[0] else "Top level"
        about = [model["description"]] if places[0] else []
        if len(places) > 1 and kind in (None, *_FIRST_KINDS):
            about.append(f"The same keys: {', '.join(f'`{place}`' for place in places[1:])}.")
        parts.append("\n\n".join([f"## {title}", *([" ".join(about)] if about else []), _keys(model, where, shown)]))
    return "\n".join(parts)


def files() -> str:
    """Returns the fields of files that a config names, a section per model."""
    parts = []
    for title, model_class in (
        ("A strategy", Strategy), ("`marks` of a strategy", Marks), ("`words` of a strategy", Words),
        ("Rules of `select: classified`", Rules), ("A rule", Rule), ("A demonstration of `select: adaptive`", Demonstration),
    ):  # fmt: skip
        model = model_class.model_json_schema()
        if model_class is Strategy:
            model["properties"] = {key: field for key, field in model["properties"].items() if key not in SET_BY_POOL}
        parts.append(f"## {title}\n\n" + _keys(model, title, {}))
    return "\n".join(parts)


_FIRST_KINDS = ("vllm", "local", "web")
"""Kinds whose section names all places of an engine, retriever or encoder; they hold for the other kinds, too."""


def config_keys() -> list[str]:
    """Returns the keys of a config, once for each model."""
    return [f"{places[0]}.{key}" for places, model in _sections(Config.model_json_schema()) for key in model["properties"]]


def _sections(schema: Schema) -> list[tuple[list[str], Schema]]:
    """Returns each model with all its places in the config."""
    places: dict[str, list[str]] = {}  # of each model, by its title in the schema
    models: dict[str, Schema] = {}
    for where, model in _models(schema, schema, ""):
        places.setdefault(model["title"], []).append(where)
        models[model["title"]] = model
    return [(sorted(dict.fromkeys(places[name]), key=lambda place: ".of." in place), model) for name, model in models.items()]


def _keys(model: Schema, where: str, shown: dict[str, str]) -> str:
    """Returns a line per key; several keys that an earlier section has alike are named with it. `shown`: line -> section."""
    lines = {key: _line(key, field, key in model.get("required", ())) for key, field in model["properties"].items()}
    alike: dict[str, list[str]] = {}
    for key, line in lines.items():
        if (first := shown.setdefault(line, where)) != where:
            alike.setdefault(first, []).append(key)
    alike = {first: keys for first, keys in alike.items() if len(keys) > 1}
    elsewhere = {key for keys in alike.values() for key in keys}
    rows = [line for key, line in lines.items() if key not in elsewhere]
    rows += [f"- As in {first}: {', '.join(f'`{key}`' for key in keys)}." for first, keys in alike.items()]
    return "\n".join(rows) + "\n"


def _models(schema: Schema, model: Schema, where: str) -> Iterator[tuple[str, Schema]]:
    """Yields every model with its place in the config, in the order of the keys."""
    yield where, model
    for key, field in model["properties"].items():
        for inner, named in _inner(field):
            path = ".".join(filter(None, [where, key, "<name>" if named else ""]))
            inner_schema = schema["$defs"][inner]
            if "properties" in inner_schema:
                yield from _models(schema, inner_schema, path)


def _inner(field: Schema, named: bool = False) -> Iterator[tuple[str, bool]]:
    """Yields the models that a field may hold, and whether they stand under names of the user's own."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2], named
    for option in field.get("anyOf", []) + field.get("oneOf", []):
        yield from _inner(option, named)
    if isinstance(field.get("additionalProperties"), dict):
        yield from _inner(field["additionalProperties"], True)
    if isinstance(field.get("items"), dict):
        yield from _inner(field["items"], named)


def _line(key: str, field: Schema, required: bool) -> str:
    default = field.get("default")
    facts = [_type(field)]
    if required:
        facts.append("required")
    elif default is not None and "$ref" not in field and not (isinstance(default, dict) and len(default) > 1):
        facts.append(f"default `{json.dumps(default, ensure_ascii=False)}`")
    mark = " °" if field.get("identity") is False else ""
    about = re.sub(r"\s+", " ", str(field.get("description") or ("This kind." if "const" in field else "")))
    return f"- `{key}`{mark} ({', '.join(facts)}): {about}"


_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


def _type(field: Schema) -> str:
    """Returns a field's type in words, with its bounds."""
    if "const" in field or "enum" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if options := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(option) for option in options if option.get("type") != "null"))
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"name -> {_type(field['additionalProperties'])}"
    bounds = " ".join(f"{sign} {field[name]:g}" for name, sign in _BOUNDS if name in field)
    return f"{_KINDS.get(str(field.get('type')), 'mapping')} {bounds}".rstrip()


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
