"""The renderer of all HTML pages: one environment of templates, one style sheet, one script, all in `templates/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import yaml

from cluster.errors import ConfigError
from cluster.storage.s3_duckdb import kept_duckdb, reason
from jobs.runs.folder import RunFolder
from jobs.terminal import formats

if TYPE_CHECKING:
    import jinja2

FILTERS = ("shown", "number", "signed", "percent", "duration", "size", "money", "p_words", "p_equals", "figure")
DOCUMENT_CHARACTERS = 160  # of a document's text that a page shows


def render(name: str, run: RunFolder, values: Callable[[], Mapping[str, Any]]) -> str:
    """Returns a run's page, self-contained.

    Args:
        name: of the template.
        run: whose page it is.
        values: returns the variables of the template, beside those that all pages have.

    Raises:
        ConfigError: the run's tables cannot be read.
    """
    try:
        with kept_duckdb():
            found = values()
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        where = f"{run.storage.root}: the {'ablation' if run.is_ablation else 'run'}'s tables cannot be read"
        raise ConfigError("run-damaged", f"{where} ({reason(error)}); put back what was changed there") from error
    common = {
        "run": run,
        "record": run.record,
        "label": run.config.shown_label,
        "document_characters": DOCUMENT_CHARACTERS,
        "config": as_yaml(run.record["config"]),
        "root": formats.masked(run.storage.root),
    }
    own = {"style": _text("style.css"), "script": _text("script.js")}
    return _environment().get_template(name).render(**own, **common, **found).encode("utf-8", "backslashreplace").decode()


@cache
def _environment() -> jinja2.Environment:
    """The environment: a process that writes several pages compiles each template once."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(formats, name) for name in FILTERS}
    return environment


def as_yaml(values: object) -> str:
    """Returns values as YAML, without the passwords of URLs."""
    return yaml.safe_dump(formats.masked(values), sort_keys=False, allow_unicode=True, width=100)


def _text(name: str) -> str:
    return files("jobs.pages").joinpath("templates", name).read_text(encoding="utf-8")
