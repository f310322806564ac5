"""The rewriting of a job: its pool, prompts and selection, read from the files that the config names."""

import io

from cluster.errors import ConfigError, RewriterError
from cluster.storage import open_file
from jobs.config.config import Config
from rewriters.adaptive import load_demonstrations
from rewriters.calls import load_joint_prompt
from rewriters.classifier import load_rules
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive, SelectClassified


def read_rewriting(config: Config) -> Rewriting:
    """Returns the pool of a config with the prompts and settings of its requests.

    Raises:
        ConfigError: a strategy or a prompt is wrong, or the selection does not fit the pool.
    """
    rewrite, select = config.rewrite, config.rewrite.select
    entries = rewrite.strategies if rewrite.planned else []
    context = config.log.context_column is not None
    try:
        pool = load_pool(entries, rewrite.language, context, read_text)
        engines = {"": rewrite.engine} | {strategy.name: strategy.engine for strategy in pool}
        rewriting = Rewriting(
            pool,
            rewrite.calls,
            rewrite.decoding.model_dump(),
            load_joint_prompt(rewrite.joint_prompt, context, read_text),
            rewrite.language,
            context,
            select,
            load_rules(select.rules, read_text) if isinstance(select, SelectClassified) else None,
            load_demonstrations(select.demonstrations, read_text) if isinstance(select, SelectAdaptive) else (),
            rewrite.guards,
            rewrite.retries,
            frozenset(name for name, engine in engines.items() if engine is not None and engine.is_recorded),
        )
        Rewriter(rewriting)  # raises for a selection
        return rewriting
    except RewriterError as error:
        places = {"strategy": "rewrite.strategies: ", "selection": "rewrite.select: ", "prompt": "rewrite.joint_prompt: "}
        raise ConfigError(error.code, f"{places.get(error.code, '')}{error}") from error


def read_text(path: str) -> str:
    """Returns the text of a file, here or on S3.

    Raises:
        UnavailableError: the storage is away.
        OSError, UnicodeDecodeError: the file cannot be read.
    """
    with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as file:
        return file.read()
