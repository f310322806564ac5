"""Arms that are one system under two names: a grid with `fuse.k` under minmax, or a grid point that is the config itself.

Equal are arms whose texts, lists, fusion and reranking are the same, by the settings that can matter to what is measured. A
generated arm (grid, subsets, samples) that is an earlier one is not made: the earlier one says that it is that one, too. Named
arms and those that are always there stay, say which earlier arm they are, and are no test of their own.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from jobs.chain.arms.arms import Arm
from jobs.chain.arms.resources import digest
from jobs.chain.arms.shared_work import Answer
from jobs.config.config import Config
from retrievers.fusion import list_weight
from retrievers.lists import BESIDE
from rewriters.rewriter import Rewriting

GENERATED = ("subsets", "samples", "grid")
_OF_TASKS = {"engine", "prompt", "variables", "decoding", "question", "strips", "search"}
"""Settings of grading and of the web that tasks and search engines have the content of."""


def distinct_arms(arms: Sequence[Arm], systems: Mapping[str, Hashable]) -> tuple[Arm, ...]:
    """Returns the arms that are made; `systems`: arm -> its `system`, but of oracles, which have no results of their own."""
    first, other_names = dict[Hashable, str](), dict[str, list[str]]()
    same = {name: first.setdefault(key, name) for name, key in systems.items()}
    left_out = {arm.name: same[arm.name] for arm in arms if arm.family in GENERATED and same[arm.name] != arm.name}
    for name, arm_name in left_out.items():
        other_names.setdefault(arm_name, []).append(name)
    return tuple(
        replace(
            arm,
            also=tuple(other_names.get(arm.name, ())),
            same_as=earlier if (earlier := same.get(arm.name, arm.name)) != arm.name else None,
            members=tuple(dict.fromkeys(left_out.get(name, name) for name in arm.members)),
        )
        for arm in arms
        if arm.name not in left_out
    )


def system(config: Config, rewriting: Rewriting, answer: Answer) -> Hashable:
    """Returns the identity of an arm, by the settings that decide its results."""
    fuse = config.fuse
    unused = {"weights", "retriever_weights", "redundancy", "depth", "keep_candidates"}
    unused |= {"rrf": {"divide"}, "minmax": {"k", "divide"}}.get(fuse.method, set())
    unused |= {"duplicate_chars"} if fuse.duplicates == "keep" else set()
    unused |= {"keep"} if fuse.duplicates == "keep" and answer.reranker is None else set()  # `answer.keep` says how many count
    unused -= {"k", "keep"} if config.iterate is not None else set()  # rounds are merged by them
    weights: Mapping[str, float] = {"original": 1.0} | {one.name: one.weight for one in rewriting.pool}
    lists = {
        f"{strategy}/{retriever}": list_weight(fuse.weights, strategy, retriever, weight)
        for strategy, weight in weights.items()
        for retriever in config.retrieve.route(strategy)
    }
    joined = {key: weight for key, weight in fuse.weights.items() if key.startswith(("together", BESIDE))}
    by_retriever = {name: fuse.retriever_weights.get(name, 1.0) for name in config.retrieve.retrievers}
    fusion = digest([fuse.model_dump(exclude=unused), config.used_redundancy, lists, joined, by_retriever])
    documents = answer.documents if fuse.duplicates == "drop" else None
    reranked = (answer.reranker, answer.combine) if answer.reranker is not None else None
    ordered = answer.search, answer.strategies, fusion, documents, reranked
    steps = [None if one is None else one.model_dump(exclude=_OF_TASKS) for one in (answer.grade, answer.web)]
    asked = {section: task.key for section, task in answer.tasks.items()}
    by_llm = digest([asked, steps, answer.web_search and answer.web_search.space])
    return *ordered, answer.keep, answer.looked, by_llm
