"""Checks of an ablation before it starts."""

from collections.abc import Sequence
from dataclasses import replace

from cluster.errors import ConfigError
from jobs.chain.arms.arms import Arm, arms_of, configs_of
from jobs.chain.arms.compile import Compiled, compile_arms
from jobs.config.config import Config
from jobs.job.given_lists import given_list_notes, with_given_lists
from jobs.job.keys import SCHEMA_VERSION, VERSIONS, run_id
from jobs.job.measure_checks import check_baseline, check_measures, deepest_rank
from jobs.job.prepare import Ready, leave, log_columns, prepare
from jobs.log.check import has_values
from jobs.run.job import Job, job_of
from rewriters.rewriter import Rewriting

# Of `evaluate.slices`: known without a column of the log. Where it has one of that name, that is meant.
SLICES = ("query_type", "frequency", "difficulty", "words", "language")

ROWS = 100_000  # queries of a shard times arms, at most, at `CANDIDATES` each: some 150 MB in flight
CANDIDATES = 50
LEAST_SHARD = 20


def prepare_ablation(config: Config, config_path: str, ready: Ready = leave) -> Job:
    """Returns a checked ablation with the name of its folder; no table is written.

    Args:
        config: of the ablation.
        config_path: its file.
        ready: may build indexes that are missing, also those of arms alone.

    Raises:
        LogError, RewriterError, RetrieverError, ClusterError, ConfigError: it cannot be run.
    """
    arms = arms_of(config)
    check_measures(config.evaluate.measures)
    deepest = deepest_rank(config.evaluate.measures)
    check_baseline(config.evaluate.baseline, [arm.name for arm in arms])
    prepared = prepare(config, config_path, lambda _: ready([arm.config for arm in arms]))
    looked = config.ablate.keep or deepest
    _check_samples(config, prepared.rewriting)
    compiled = compile_arms(prepared, arms, looked, sources=config.ablate.sources)
    arms = list(compiled.arms)
    first, slices = prepared.files[0], config.evaluate.slices
    of_log = {one for one in slices if one not in SLICES or (one != "query_type" and has_values(first, one))}
    columns = {name for reading in compiled.work.readings for name in reading.rewriting.columns} | of_log
    identified_by = {"schema_version": SCHEMA_VERSION, "versions": VERSIONS, "indexes": prepared.indexes, **compiled.identity}
    answered = configs_of(arms)
    # where measures read more documents of a list than are candidates, shards have fewer queries
    most = ROWS * CANDIDATES // max(CANDIDATES, looked) // len(answered)
    size = min(config.cluster.shard_size, max(LEAST_SHARD, most))
    sized = prepared.config.cluster.model_copy(update={"shard_size": size})
    of_lists = (note for arm in arms for note in given_list_notes(with_given_lists(arm.config)))
    strategies = prepared.identity["rewrite"].get("rewriter", {}).get("strategies", [])  # of `full`
    noted = [_noted_arm(arm, compiled) for arm in arms]
    prepared = replace(
        prepared,
        config=prepared.config.model_copy(update={"cluster": sized}),
        columns=replace(log_columns(config, prepared.rewriting), values=tuple(sorted(columns))),
        identity=identified_by,
        run_id=run_id(config, identified_by),
        warnings=tuple(dict.fromkeys((*prepared.warnings, *_warnings(arms), *of_lists))),
        notes={"ablation": {"arms": noted, "answered": len(answered), "strategies": strategies}},
    )
    return job_of(prepared, compiled)


def _noted_arm(arm: Arm, compiled: Compiled) -> dict[str, object]:
    answer = next((one for one in compiled.work.answers if one.arm == arm.name), None)  # an oracle has none
    return arm.values() | {
        "fingerprint": compiled.fingerprints.get(arm.name),
        "reranker": None if answer is None or answer.reranker is None else compiled.work.rerankers[answer.reranker].label,
        "cut_from": None if answer is None else answer.cut_from,
        "reads_part_of": compiled.parts.get(arm.name),
        "rewrites_of": compiled.rewrites_of(arm.name),
        "answers": arm.config.answer is not None,
    }


def _check_samples(config: Config, rewriting: Rewriting) -> None:
    """Checks that further samples can differ from the first answers: else the noise floor would be 0, whatever it is."""
    why = "nothing is rewritten, so that all answers are the same; rewrite by a model"
    for strategy in rewriting.pool if config.ablate.samples > 1 else ():
        engine = strategy.engine or config.rewrite.engine
        if engine is not None and engine.is_recorded:
            why = "recorded answers are the same each time; name a live engine"
        elif {**rewriting.decoding, **strategy.decoding}["temperature"] == 0:
            why = "answers at temperature 0 are all the same; raise rewrite.decoding.temperature"
        else:
            return
    if config.ablate.samples > 1:
        raise ConfigError("config-value", f"ablate.samples: {config.ablate.samples}: {why}, or set samples: 1")


def _warnings(arms: Sequence[Arm]) -> tuple[str, ...]:
    overlap = [one.name for one in arms if one.config.used_redundancy not in ("none", one.config.fuse.redundancy)]
    names = "every arm" if len(overlap) == len(arms) else ", ".join(overlap)
    return (f"fuse.redundancy: overlap in place of cosine, since no retriever is dense: {names}",) if overlap else ()
