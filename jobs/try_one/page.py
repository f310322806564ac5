"""The output of `try`: a page for one config, or a table with a column per config for several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cluster import costs
from jobs.pipeline import COSTED
from jobs.tables import NOTES, ORIGINAL
from jobs.terminal.formats import clock
from jobs.terminal.summary import counted
from jobs.try_one.trial import Row, Trial, found_by

SHOWN_RESULTS = 10
SHOWN_IN_LISTS = 3  # hits per list
SHOWN_SIDE_BY_SIDE = 60  # characters per document in the table of several configs


def page(trials: Sequence[Trial]) -> RenderableType:
    """Returns one trial in full, or several side by side."""
    parts = _one(trials[0]) if len(trials) == 1 else _several(trials)
    return Group(Text(f"{_shown(trials[0].row['query'])}\n", style="bold"), *parts)


def _one(trial: Trial) -> Iterator[RenderableType]:
    row, config = trial.row, trial.config
    yield _section("rewrites", _calls(trial))
    yield Padding(_rewrites(trial), (0, 0, 1, 2))
    part = min(config.fuse.depth, config.retrieve.depth)
    yield _section("lists", f"the first {SHOWN_IN_LISTS} of what each text found; the first {part} take part")
    yield Padding(_lists(trial), (0, 0, 1, 2))
    more = len(row["hits"]) - SHOWN_RESULTS
    yield _section("results", _method(trial) + (f"; the first {SHOWN_RESULTS} of {len(row['hits'])}" if more > 0 else ""))
    yield Padding(_results(trial), (0, 0, 1, 2))
    found, results = trial.document_counts["found"], trial.document_counts["results"]
    yield _section("fell away", f"{found:,} documents were found, {results:,} are results")
    yield Padding(_dropped(trial), (0, 0, 1, 2))
    yield _section("cost", _cost(trial))
    yield Padding(_costs(trial), (0, 0, 0, 2))


def _several(trials: Sequence[Trial]) -> Iterator[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column("")
    for trial in trials:
        table.add_column(Text(trial.label), ratio=1, overflow="fold")

    def title(words: str) -> None:
        table.add_row()
        table.add_row(Text(words, style="bold cyan"))

    title("rewrites")
    strategies = list(dict.fromkeys(strategy for trial in trials for strategy in trial.config.rewrite.planned))
    written = [_rewrite_texts(trial) for trial in trials]
    for strategy in strategies:
        table.add_row(strategy, *(Text(each.get(strategy, ("-", ""))[0]) for each in written))
    title("results")
    first = {hit["doc_id"]: rank for rank, hit in enumerate(trials[0].row["hits"], start=1)}
    longest = max(len(trial.row["hits"]) for trial in trials)
    for place in range(min(longest, SHOWN_RESULTS)):
        table.add_row(str(place + 1), *(_cell(trial, place, None if trial is trials[0] else first) for trial in trials))
    title("cost")  # no seconds: the first trial also warms up caches for the others
    table.add_row("", *(_quantities(trial) for trial in trials))
    table.add_row("found", *(f"{trial.document_counts['found']:,} documents" for trial in trials))
    table.add_row("results", *(f"{trial.document_counts['results']:,}" for trial in trials))
    yield table
    yield Text(f"\n=  +2  -1  new: against the place in {trials[0].label}", style="dim")


def _section(name: str, words: str) -> Text:
    return Text.assemble((f"{name}  ", "bold cyan"), (words, "dim"))


def _grid(*ratios: int) -> Table:
    """Returns a table without lines; a column of ratio 0 is as wide as its content."""
    table = Table(box=None, show_header=False, show_edge=False, padding=(0, 2, 0, 0), expand=any(ratios))
    for ratio in ratios:
        table.add_column(ratio=ratio or None, no_wrap=not ratio, overflow="fold")
    return table


def _rewrite_texts(trial: Trial) -> dict[str, tuple[str, str]]:
    """Returns strategy -> its text and parser step, or the error message and reason."""
    found = {one["strategy"]: (_shown(one["text"]), one["parsed_as"]) for one in trial.row["rewrites"]}
    failed = {
        error["component"]: (f"none: {_shown(error['message'])}", error["reason"])
        for error in trial.row["errors"]
        if error["stage"] == "rewrite"
    }
    return failed | found


def _rewrites(trial: Trial) -> Table:
    table = _grid(0, 1, 0)
    query = _shown(trial.row["query"])
    table.add_row(ORIGINAL, Text(query), "")
    for strategy, (text, read_as) in _rewrite_texts(trial).items():
        same = " (the query as it is)" if text == query else ""
        table.add_row(strategy, Text.assemble(text, (same, "dim")), Text(read_as, style="dim"))
    return table


def _calls(trial: Trial) -> str:
    sums = costs.stage_sums(trial.spent, "rewrite")
    if not sums.get("requests"):
        return "none are planned" if not trial.config.rewrite.planned else "no request was made"
    parts = [counted("requests", sums["requests"])]
    if sums.get("prompt_tokens"):
        cached = f" ({int(sums['cached_tokens']):,} cached)" if sums.get("cached_tokens") else ""
        parts.append(f"{int(sums['prompt_tokens']):,} prompt tokens{cached}, {int(sums['completion_tokens']):,} written")
    return ", ".join(parts)


def _lists(trial: Trial) -> Table:
    names = list(trial.config.retrieve.retrievers)
    table = Table(box=None, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for name in names:
        table.add_column(name, overflow="fold")
    cells: dict[str, dict[str, str]] = {}
    for run in trial.row["lists"]:
        ids = [hit["doc_id"] for hit in run["hits"]]
        shown = " ".join(_shown(doc_id) for doc_id in ids[:SHOWN_IN_LISTS])
        words = f"{shown}{' ...' * (len(ids) > SHOWN_IN_LISTS)}  ({len(ids)})" if ids else "nothing"
        cells.setdefault(run["strategy"], {})[run["retriever"]] = words
    for strategy, by_name in cells.items():
        table.add_row(strategy, *(Text(by_name.get(name, "-")) for name in names))
    return table


def _method(trial: Trial) -> str:
    config = trial.config
    words = f"{config.fuse.method} over {len(trial.row['lists'])} lists"
    if config.used_redundancy != "none":
        words += f", {config.used_redundancy} redundancy"
    if config.rerank.kind == "none":
        return f"{words}, not reranked"
    return f"{words}, {config.rerank.kind} ({config.rerank.combine})"


def _results(trial: Trial) -> Table:
    table = _grid(0, 0, 1, 0)
    fused = _fused_ranks(trial.row)
    if not trial.row["hits"]:
        table.add_row("", "", "nothing was found", "")
    for rank, hit in enumerate(trial.row["hits"][:SHOWN_RESULTS], start=1):
        lists = found_by(hit["sources"])
        where = "; ".join(f"{strategy} {', '.join(ranks)}" for strategy, ranks in lists.items())
        new = "" if ORIGINAL in lists else "not found by the original; "
        moved = f"fused {fused[hit['doc_id']]}; " if trial.config.rerank.kind != "none" else ""
        words = Text.assemble(_snippet(trial, hit, 160), ("\n" + moved + new + where, "dim"))
        table.add_row(str(rank), Text(_shown(hit["doc_id"])), words, f"{hit['score']:.4f}")
    return table


def _dropped(trial: Trial) -> Table:
    table = _grid(0, 1)
    for why, count in trial.document_counts.items():
        if count and why not in {"found", "results"}:
            table.add_row(f"{count:,}", why)
    hits = {hit["doc_id"] for hit in trial.row["hits"]}
    dropped = [(doc_id, rank) for doc_id, rank in _fused_ranks(trial.row).items() if doc_id not in hits][:SHOWN_IN_LISTS]
    if dropped:
        table.add_row("", Text("best of them: " + ", ".join(f"{_shown(doc_id)} (fused {rank})" for doc_id, rank in dropped)))
    for error in trial.row["errors"]:
        if error["stage"] != "rewrite":
            kind = "note" if error["reason"] in NOTES else "error"
            table.add_row(kind, Text(f"{error['stage']}: {error['reason']}: {_shown(error['message'])}"))
    return table


def _costs(trial: Trial) -> Table:
    table = _grid(0, 1)
    for stage in COSTED:
        sums = costs.stage_sums(trial.spent, stage)
        if not sums:
            continue
        parts = [f"{sums.get('seconds', 0):.3f} s"]
        parts += [counted(name, sums[name]) for name in costs.QUANTITIES if sums.get(name)]
        if trial.start_up.get(stage, 0) >= 0.05:
            parts.append(f"after {clock(trial.start_up[stage])} of loading, once per worker")
        table.add_row(stage, ", ".join(parts))
    return table


def _cost(trial: Trial) -> str:
    seconds = costs.stage_sums(trial.spent).get("seconds", 0)
    money = "" if trial.usd is None else f"${trial.usd:.6f}, ${1000 * trial.usd:.4f} per 1,000 queries, "
    return f"{money}{seconds:.2f} s of work"


def _quantities(trial: Trial) -> str:
    sums = costs.stage_sums(trial.spent)
    return ", ".join(counted(name, sums[name]) for name in costs.QUANTITIES if sums.get(name)) or "-"


def _cell(trial: Trial, place: int, first: dict[str, int] | None) -> Text:
    if place >= len(trial.row["hits"]):
        return Text("")
    hit = trial.row["hits"][place]
    before = None if first is None else first.get(hit["doc_id"])
    mark = "" if first is None else "new " if before is None else "= " if before == place + 1 else f"{before - place - 1:+d} "
    return Text.assemble((mark, "bold"), f"{_shown(hit['doc_id'])} ", (_snippet(trial, hit, SHOWN_SIDE_BY_SIDE), "dim"))


def _fused_ranks(row: Row) -> dict[str, int]:
    return {candidate["doc_id"]: rank for rank, candidate in enumerate(row["candidates"], start=1)}


def _snippet(trial: Trial, hit: Row, length: int) -> str:
    text = _shown(trial.texts[hit["doc_id"]])
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _shown(text: str) -> str:
    """Returns a text in one line, with control and bidi characters replaced, which would change the terminal."""
    line = " ".join(str(text).split())
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
