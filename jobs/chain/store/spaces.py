"""The spaces of the store that a job uses."""

from collections.abc import Mapping
from typing import Any

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.store.files import Space
from jobs.config.config import Config


def kept_spaces(config: Config, work: SharedWork) -> dict[Space, Mapping[str, Any]]:
    """Returns the spaces that a job keeps in the store, with what each is about; answers that are recorded cost nothing."""
    spaces: dict[Space, Mapping[str, Any]] = {}
    engines = [one for reading in work.readings for one in reading.engines.values()]
    engines += [task.engine for arm in work.answers for task in arm.tasks.values()]
    for engine in engines:
        if not engine.settings.is_recorded:
            spaces[Space("completions", engine.space)] = {"engine": engine.identity}
    comparing = {work.compared_by(number) for number in range(len(work.searches))}
    for key, retriever in work.retrievers.items():
        if retriever.settings.originals_only:  # its lists are read from a file each time
            continue
        if retriever.of_pages:  # of the web, whose answers are paid for
            if config.retrieve.store is not False:
                spaces[Space("web", retriever.space)] = {"retriever": retriever.name, "web": dict(retriever.identity)}
            continue
        if any("unknown" in state for state in retriever.states.values()):  # nobody could tell that a list is still right
            continue
        is_kept = config.retrieve.store
        if is_kept is None:  # all but those of a local BM25 index
            is_kept = not all(one.is_lexical for one in retriever.settings.indexed(retriever.name).values())
        if not is_kept:
            continue
        about = {"retriever": retriever.name, "index": dict(retriever.identity), "depth": retriever.depth}
        spaces[Space("lists", retriever.space)] = about
        if key in comparing:
            spaces[Space("vectors", retriever.encoder_space)] = {"encoder": retriever.identity.get("encoder")}
    for search in (one.web_search for one in work.answers if one.web_search is not None):
        spaces[Space("web", search.space)] = {"retriever": search.name, "web": dict(search.identity)}
    for reranker in work.rerankers:
        spaces[Space("scores", reranker.space)] = {"reranker": dict(reranker.identity)}
    return spaces
