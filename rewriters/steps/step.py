"""A step that an LLM does with a query and what was found for it: a value that says what is asked, and how the answer is read.

Its form is YAML, as a strategy's is. The built-in ones are the files of this folder, found by the same door as a file of the
user.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from cluster.errors import RewriterError, nearest
from cluster.settings import FROZEN
from rewriters.engines import Request, object_schema
from rewriters.files import Read, checked, read_local, read_yaml, take_variables
from rewriters.guards.mask import Mask
from rewriters.pool import OF_THE_QUERY
from rewriters.query import Query
from rewriters.settings import Decoding, is_path
from rewriters.strategy import render, shared_prefix, template_hash, told_hash, variables

_FOLDER = Path(__file__).parent


class LlmStep(BaseModel):
    """The request of a step; an immutable value."""

    model_config = FROZEN

    name: str
    """The file's name."""
    system: str = ""
    """The system message; the same for all queries, so that a server caches it."""
    prompt: str
    """The template of the user's message. Its variables are those of the step (`{query}`, `{documents}`, ...) and the file."""
    document: str = "{text}"
    """The template of one of its documents: `{number}`, `{source}`, `{label}`, `{text}`."""
    output: Literal["text", "grade", "object", "grades"] = "text"
    """The form of the answer: a text, one of `grades`, a JSON object with `keys`, or such an object with a grade of each."""
    grades: dict[str, int] = {}
    """Of a grade: the words or digits that name one -> its number."""
    keys: tuple[str, ...] = ()
    """Of an object: its keys."""
    optional: tuple[str, ...] = ()
    """Those of them whose text may be empty or missing."""
    max_chars: Annotated[int, Field(ge=1)] = 8000
    """A longer text fails as `too_long`."""
    decoding: Decoding = {}
    """Replaces values of the default decoding; temperature 0 unless it says another."""

    @property
    def prompt_hash(self) -> str:
        return template_hash("\x1e".join((self.system, self.prompt, self.document)))

    @cached_property
    def variables(self) -> frozenset[str]:
        """Returns the names that its prompt shows."""
        return frozenset(variables(self.prompt))

    def identity(self) -> dict[str, Any]:
        """Returns the identity of its results apart from the engine, as JSON values."""
        return self.model_dump(mode="json", exclude={"name", "decoding"}, exclude_defaults=True)

    def request(self, query: Query, values: Mapping[str, str], mask: Mask, decoding: Mapping[str, Any], engine: str) -> Request:
        """Returns the request for a query, whose personal data are masked.

        `values` are of the variables beside the query; they tell this request of the query from its others.
        """
        shown = {**values, "query": mask(query.text), "context": mask(query.context) if query.context else "(none)"}
        value = {"type": "integer", "enum": sorted({*self.grades.values()})} if self.grades else {"type": "string"}
        schema = object_schema({key: dict(value) for key in self.keys}) if self.keys else None
        return Request(
            query.query_id, query.text, self.name, render(self.prompt, shown), self.prompt_hash,
            schema, decoding, self.name, 0, engine, told_hash(values, mask.counts),
            shared_prefix(self.prompt, shown), self.system,
        )  # fmt: skip

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        if (self.output in ("grade", "grades")) != bool(self.grades):
            raise ValueError("grades belong to output: grade or grades, which need them")
        if (self.output not in ("text", "grade")) != bool(self.keys):
            raise ValueError("keys belong to output: object or grades, which need them")
        if set(self.optional) - set(self.keys) or (self.optional and self.output != "object"):
            raise ValueError("optional belongs to output: object")
        return self


def shipped_steps() -> list[str]:
    """Returns the sorted names of the built-in steps."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_step(
    source: str, known: frozenset[str], where: str, parameters: Mapping[str, str], language: str | None, read: Read = read_local
) -> LlmStep:
    """Returns the step of a file, with its own variables filled in.

    `source` is a name of a file here, or the path of a file of the user. The stage fills in the `known` variables; `parameters`
    replace values of those that the file declares. `where` is the key of the config that names it, for messages. The answer is
    written in `language`; None: the query's.

    Raises:
        RewriterError: It is unknown, or the file is wrong.
    """
    if is_path(source):
        where, path = f"{where}: {source}", source
    elif source in shipped_steps():
        where, path, read = f"{where}: steps/{source}.yaml", str(_FOLDER / f"{source}.yaml"), read_local
    else:
        raise RewriterError("prompt", f"{where}: unknown step {source!r}{nearest(source, shipped_steps())}")
    fields = read_yaml("prompt", where, path, read, "correct the path, or the file", "the fields of a step")
    declared = take_variables("prompt", where, fields)
    if "name" in fields:
        raise RewriterError("prompt", f"{where}: name is not a field of a file; remove it")
    for key in parameters.keys() - declared.keys():
        raise RewriterError("prompt", f"{where}: has no variable {key!r}{nearest(key, declared)}")
    with checked("prompt", where, lambda place: () if place else [*LlmStep.model_fields, "variables"]):
        step = LlmStep.model_validate(fields | {"name": Path(source).stem})
    filled = {**declared, **parameters} | {"language": language or OF_THE_QUERY}
    step = step.model_copy(update={name: render(getattr(step, name), filled) for name in ("system", "prompt")})
    for name in sorted((variables(step.prompt) | variables(step.system)) - known):
        line = f"{where}: no variable {{{name}}}{nearest(name, known)}; correct it, or declare it"
        raise RewriterError("prompt", line)
    if variables(step.system):
        raise RewriterError("prompt", f"{where}: system is the same for all queries; put its variables into prompt")
    return step
