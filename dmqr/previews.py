"""Looks ahead of a run: its indexes, a plan, one query through all stages, the rewrites of some queries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError, DmqrError
from dmqr.face import OnProgress, caller
from dmqr.results import Planned, Result, Rewrites
from dmqr.whole_jobs import Settings, configured, warn

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.config.load import ConfigSource


def index(
    config: ConfigSource,
    corpus: str | os.PathLike[str] | Sequence[str] | None = None,
    /,
    *,
    replace: bool = False,
    dry_run: bool = False,
    date: str | None = None,
    progress: OnProgress | None = None,
    **settings: Any,
) -> Result:
    """Builds the indexes that a config names.

    Those that are built already are left as they are.

    Args:
        corpus: Parquet, JSON lines or CSV (doc_id, title, text, or the columns that the config names: corpus.id_column),
            documents (text, Markdown, HTML, PDF), or a folder of either (default: corpus.path of the config)
        replace: replace an index of another corpus, which is refused otherwise
        dry_run: build nothing, and say of each index what would become of it

    Example:
        dmqr index configs/quickstart.yaml
    """
    from jobs.index.index import index as build
    from jobs.job.indexes import encoder_warnings

    face = caller(progress)
    given, _ = configured(config, settings, date)
    paths = [os.fspath(corpus)] if isinstance(corpus, str | os.PathLike) else [os.fspath(path) for path in corpus or ()]
    with face.working("index") as display:
        built = list(build(given, paths, display, replace=replace, dry_run=dry_run))
        warn(*encoder_warnings(given, reranker=False))
    for name, retriever in given.retrieve.retrievers.items():
        if not retriever.indexed(name):
            face.note(f"retrieve.retrievers.{name} {retriever.without_index}")
    lines = [f"{row['index']}: {row['documents']:,} documents, {row['done']}".replace("; ", "\n  ") for row in built]
    return Result(built, None, *lines, notes=face.notes)


def try_query(
    *given: ConfigSource,
    date: str | None = None,
    context: str | None = None,
    value: Sequence[str] = (),
    prompts: bool = False,
    progress: OnProgress | None = None,
    **settings: Any,
) -> Result | Iterator[Result | DmqrError]:
    """Sends one query through every stage and shows each step.

    Several configs are shown side by side; without a query, queries are tried one after the other.

    Args:
        given: one or more configs, and the query, in quotes, in any order; without a query: asked for at a terminal, else read
            from standard input, one a line
        context: the earlier turns of the conversation, as log.context_column has them
        value: what the log's column NAME, a variable of a prompt, says of the query; once for each column
        prompts: show the prompt and the raw answer of each request, too

    Example:
        dmqr try configs/quickstart.yaml "why do onions make you cry"
    """
    from jobs.index.index import ready_indexes
    from jobs.pages.try_one import page
    from jobs.try_one.outcome import read_values, trial_values, typed_queries
    from jobs.try_one.trial import LoadedConfig

    sources, queries = told_apart(given)
    if len(queries) > 1:
        several = ", ".join(map(repr, queries))
        raise ConfigError("argument", f"{several}: one QUERY is sent; put it in quotes; a config ends in .yaml")
    if not sources:
        raise ConfigError("argument", "CONFIG is missing; give a YAML file, e.g. configs/quickstart.yaml")
    face = caller(progress)
    if not queries and face.json_log is None:
        raise ConfigError("argument", "query: is missing; give the query's text beside the config")
    typed = None if queries else typed_queries()

    def trials() -> Iterator[Result | DmqrError]:
        """Yields the result of each query, or the error that refuses it; models and indexes are opened once."""
        values = read_values(value)
        labels = [Path(one).stem if isinstance(one, str | os.PathLike) else f"config {n}" for n, one in enumerate(sources, 1)]
        labels = labels if len(set(labels)) == len(labels) else list(map(str, sources))
        configs = [configured(source, settings, date) for source in sources]
        with ExitStack() as stack:
            with face.working("try") as display:
                ready = partial(ready_indexes, progress=display)
                loaded = [
                    stack.enter_context(LoadedConfig(config, file, label, context, values, ready))
                    for (config, file), label in zip(configs, labels, strict=True)
                ]
                warn(*dict.fromkeys(warning for config in loaded for warning in config.warnings))
                for config in loaded if typed is not None else ():  # several queries come
                    config.load(display.phase)
            for query in queries if typed is None else typed:
                try:
                    with face.working("try") as display:
                        shown = [config.try_query(query, display.phase) for config in loaded]
                except DmqrError as error:
                    yield error
                    continue
                yield Result([*map(trial_values, shown)], page(shown, prompts))

    if typed is not None:
        return trials()
    result = next(trials())
    if isinstance(result, DmqrError):
        raise result
    return result


def told_apart(given: Sequence[ConfigSource]) -> tuple[list[ConfigSource], list[str]]:
    """Returns configs and queries; a text is a config if it is a file, or named like YAML."""
    sources = [
        source for source in given
        if not isinstance(source, str) or named_config(source) or (os.path.exists(source) and not os.path.isdir(source))
    ]  # fmt: skip
    return sources, [source for source in given if isinstance(source, str) and source not in sources]


def config_or_none(given: str, settings: Settings, date: str | None, label: str | None = None) -> tuple[Config, str] | None:
    """Returns the config that a word names, and its file; None where the word names something else."""
    if named_config(given):
        return configured(given, settings, date, label)
    for name, value in (("settings", settings), ("date", date)):
        if value:
            raise ConfigError("argument", f"{name}: changes a config, and {given} is not one; leave it out")
    return None


def named_config(word: str) -> bool:
    """Returns True if a word is named like a config, whether it is there or not."""
    return word.endswith((".yaml", ".yml")) and not any(map(str.isspace, word))


def plan(
    config: ConfigSource,
    /,
    *,
    date: str | None = None,
    label: str | None = None,
    sample: int = 0,
    progress: OnProgress | None = None,
    **settings: Any,
) -> Planned:
    """Shows a run's work and cost before it starts, and refuses what it would refuse.

    Of a config with arms, it says what an ablation would do.

    Args:
        sample: pay for N queries with missing results, keep these in the store, and estimate the cost of the others
            (default: 0, nothing is paid)

    Example:
        dmqr plan configs/quickstart.yaml
    """
    from jobs.config.settings import AblateSettings
    from jobs.index.index import ready_indexes
    from jobs.job.prepare import leave, prepare
    from jobs.plan.plan import plan as planned
    from jobs.plan.table import plan_table
    from jobs.run.ablation import prepare_ablation
    from jobs.run.job import run_of

    if sample < 0:
        raise ConfigError("argument", f"sample {sample}: is less than 0; give the number of queries to pay for")
    given, file = configured(config, settings, date, label)
    with caller(progress).working("plan") as display:
        ready = partial(ready_indexes, progress=display)  # what a run finds in the store is known by its indexes' content
        ablation = None if given.ablate == AblateSettings() else prepare_ablation(given, file, ready)
        prepared = prepare(given, file, leave if ablation else ready)
        jobs = [run_of(prepared), *([] if ablation is None else [ablation])]
        warnings = dict.fromkeys(warning for job in jobs for warning in job.prepared.warnings)
        warn(*warnings)
        values = planned(prepared, display, ablation, sample)
        return Planned(values, plan_table(values), warnings=list(warnings))


def rewrite(
    queries: Sequence[str],
    config: ConfigSource,
    /,
    *,
    context: str | None = None,
    values: Mapping[str, str] | None = None,
    progress: OnProgress | None = None,
    **settings: Any,
) -> Rewrites:
    """Returns the rewrites of some queries, as `dmqr try` makes them; no log is read, and nothing is retrieved.

    No index is needed, unless a gate or a strategy reads what a query finds.

    Args:
        queries: their texts.
        context: the earlier turns of the conversation, of all queries (`log.context_column`).
        values: column of the log -> what it says of all queries.
    """
    from jobs.index.index import ready_indexes
    from jobs.try_one.trial import LoadedConfig, rewriting_alone

    given, file = configured(config, settings)
    with caller(progress).working("rewrite") as display:
        ready = partial(ready_indexes, progress=display)
        with LoadedConfig(rewriting_alone(given), file, given.name, context, values, ready) as loaded:
            return Rewrites(loaded.rewrite(queries, display.phase), loaded.warnings)
