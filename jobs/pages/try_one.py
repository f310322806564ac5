"""The output of `try`: a page for one config, or a table with a column per config for several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cluster import costs
from jobs.chain.pipeline import COSTED
from jobs.pages.provenance import NOT_THERE, SHOWN_RESULTS, Results, fused_ranks
from jobs.pages.summary import counted
from jobs.pages.trial_lists import SHOWN_IN_LISTS, lists
from jobs.pages.try_steps import answer_table, answer_text, grades_table, judged_table, rounds_table
from jobs.tables import NOTES, ORIGINAL
from jobs.terminal.formats import clock, money, one_line, printable, shortened
from jobs.try_one.trial import TextId, Trial, text_names
from retrievers.lists import TOGETHER
from rewriters.outcome.retries import FIRST_TRY

SHOWN_GIVEN = 160  # characters of a context or value
SHOWN_SIDE_BY_SIDE = 60  # characters per document in the table of several configs


def page(trials: Sequence[Trial], prompts: bool = False) -> RenderableType:
    """Returns one trial in full, or several side by side; with `prompts` what was sent for each and what came back."""
    parts = _one(trials[0], prompts) if len(trials) == 1 else _several(trials, prompts)
    return Group(Text(one_line(trials[0].row["query"]), style="bold"), *_given(trials), Text(), *parts)


def _given(trials: Sequence[Trial]) -> list[Text]:
    """Returns a line for each thing that a prompt may know of the query besides its words."""
    given: dict[str, str] = {}
    for row in (trial.row for trial in trials):
        given |= {"context": row["context"]} if row["context"] else {}
        given |= {name: value for name, value in (row["values"] or {}).items() if value is not None}
    return [Text(f"{name}: {shortened(one_line(text), SHOWN_GIVEN)}", style="dim") for name, text in given.items()]


def _one(trial: Trial, prompts: bool) -> Iterator[RenderableType]:
    row, config = trial.row, trial.config
    yield _section("rewrites", _calls(trial))
    yield Padding(_rewrites(trial), (0, 0, 1, 2))
    if prompts:
        yield from requests(trial)
    if config.iterate is not None:
        below = f"{config.iterate.by} below {config.iterate.below:g}"
        yield _section("rounds", f"refined queries, where the best score of {below}")
        yield Padding(rounds_table(trial), (0, 0, 1, 2))
    part = min(config.fuse.depth, config.retrieve.depth)
    yield _section("lists", f"the first {SHOWN_IN_LISTS} of what each text found; the first {part} take part{_joined(trial)}")
    yield Padding(lists(trial), (0, 0, 1, 2))
    more = len(row["hits"]) - SHOWN_RESULTS
    yield _section("results", _method(trial) + (f"; the first {SHOWN_RESULTS} of {len(row['hits'])}" if more > 0 else ""))
    if row["hits"]:
        yield Padding(Results(trial), (0, 0, 0, 2))
        words = f"numbers: rank in each list; {NOT_THERE}: not among its first {part}"
        if any(run["position"] > 1 for run in row["lists"]):
            words += "; several numbers: of the strategy's texts, in order"
        yield Padding(Text(words, style="dim"), (0, 0, 1, 2))
    else:
        yield Padding(Text("nothing was found"), (0, 0, 1, 2))
    if config.grade is not None:
        yield _section("grades", f"the first {config.grade.documents} results, before they are answered from")
        yield Padding(grades_table(trial), (0, 0, 1, 2))
    if config.answer is not None:
        answer = row["answer"]
        made_of = 0 if answer is None else len(answer["documents"])
        of = f"{answer['model']}, from {made_of} result{'s' * (made_of != 1)}" if answer else "none: see below"
        yield _section("answer", of)
        yield Padding(answer_table(trial), (0, 0, 1, 2))
    if judged := row.get("judgements"):
        yield _section("judged", f"by {judged[0]['model']}")
        yield Padding(judged_table(trial), (0, 0, 1, 2))
    found, results = trial.document_counts["found"], trial.document_counts["results"]
    yield _section("fell away", f"{found:,} documents were found, {results:,} are results")
    yield Padding(_dropped(trial), (0, 0, 1, 2))
    yield _section("cost", _cost(trial))
    yield Padding(_costs(trial), (0, 0, 0, 2))


def _several(trials: Sequence[Trial], prompts: bool) -> Iterator[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column("")
    for trial in trials:
        table.add_column(Text(trial.label), ratio=1, overflow="fold")

    def title(words: str) -> None:
        table.add_row()
        table.add_row(Text(words, style="bold cyan"))

    title("rewrites")
    for name, cells in _side_by_side(trials):
        table.add_row(name, *cells)
    title("results")
    first = {hit["doc_id"]: rank for rank, hit in enumerate(trials[0].row["hits"], start=1)}
    longest = max(len(trial.row["hits"]) for trial in trials)
    for place in range(min(longest, SHOWN_RESULTS)):
        table.add_row(str(place + 1), *(_cell(trial, place, None if trial is trials[0] else first) for trial in trials))
    if any(trial.config.answer is not None for trial in trials):
        title("answer")
        table.add_row("", *(Text(answer_text(trial)) for trial in trials))
    title("cost")  # no seconds: the first trial also warms up caches for the others
    table.add_row("", *(_quantities(trial) for trial in trials))
    table.add_row("found", *(f"{trial.document_counts['found']:,} documents" for trial in trials))
    table.add_row("results", *(f"{trial.document_counts['results']:,}" for trial in trials))
    yield table
    yield Text(f"\n=  +2  -1  new: against the place in {trials[0].label}", style="dim")
    for trial in trials if prompts else ():
        yield Text(f"\n{trial.label}", style="bold")
        yield from requests(trial)


def _side_by_side(trials: Sequence[Trial]) -> Iterator[tuple[str, list[Text]]]:
    """Yields a line per text: its name, and the text of each trial; then what was not selected, and what failed."""
    written = [_rewrite_texts(trial) for trial in trials]
    for strategy in dict.fromkeys(strategy for trial in trials for strategy in trial.config.rewrite.planned):
        texts = sorted({text for of in written for text in of if text[0] == strategy}) or [(strategy, 1)]
        for text, name in text_names(texts).items():
            cells = []
            for trial, of in zip(trials, written, strict=True):
                absent = "not selected" if strategy in trial.not_selected else "-"
                cells.append(Text(of[text][0]) if text in of else Text(absent, style="dim"))
            yield name, cells
    if any(trial.why_selected for trial in trials):
        yield "why", [Text(one_line(trial.why_selected) or "-", style="dim") for trial in trials]
    if any(map(_failures, trials)):
        yield "none", [Text("\n".join(map(_failure, _failures(trial).items()))) for trial in trials]


def _joined(trial: Trial) -> str:
    """Says where there is no list of the original alone."""
    names = [one["retriever"] for one in trial.row["lists"] if one["strategy"] == TOGETHER]
    return f"; {' and '.join(names)} searched all texts as one, so there is no list of the original alone" if names else ""


def _section(name: str, words: str) -> Text:
    return Text.assemble((f"{name}  ", "bold cyan"), (words, "dim"))


def _grid(*ratios: int) -> Table:
    """Returns a table without lines; a column of ratio 0 is as wide as its content."""
    table = Table(box=None, show_header=False, show_edge=False, padding=(0, 2, 0, 0), expand=any(ratios))
    for ratio in ratios:
        table.add_column(ratio=ratio or None, no_wrap=not ratio, overflow="fold")
    return table


def _rewrite_texts(trial: Trial) -> dict[TextId, tuple[str, str]]:
    """Returns (strategy, position) -> the text and its parser step."""
    return {(one["strategy"], one["position"]): (one_line(one["text"]), one["parsed_as"]) for one in trial.row["rewrites"]}


def _failures(trial: Trial) -> dict[tuple[str, str], list[str]]:
    """Returns (reason, message) -> the strategies without a rewrite for it: what one answer lacks is said once."""
    found: dict[tuple[str, str], list[str]] = {}
    for error in trial.row["errors"]:
        if error["stage"] == "rewrite":
            found.setdefault((error["reason"], one_line(error["message"])), []).extend(
                [error["component"]] if error["component"] else []  # a note on the query as a whole has none
            )
    return found


def _failure(failure: tuple[tuple[str, str], list[str]]) -> str:
    (_, message), strategies = failure
    return f"{message} ({', '.join(strategies)})" if strategies else message


def _rewrites(trial: Trial) -> Table:
    table = _grid(0, 1, 0)
    query = one_line(trial.row["query"])
    table.add_row(ORIGINAL, Text(query), "")
    written = _rewrite_texts(trial)
    names = text_names(written)
    for of, (text, read_as) in written.items():
        same = " (the query as it is)" if text == query else ""
        table.add_row(names[of], Text.assemble(text, (same, "dim")), Text(read_as, style="dim"))
    if trial.not_selected:
        table.add_row(Text("not selected", style="dim"), Text(", ".join(trial.not_selected)), "")
    if trial.why_selected:
        table.add_row(Text("why", style="dim"), Text(one_line(trial.why_selected), style="dim"), "")
    for failure in _failures(trial).items():
        named = Text("none", style="red") if failure[1] else Text("note", style="dim")
        table.add_row(named, Text(_failure(failure)), Text(failure[0][0], style="dim"))
    if trial.similar:
        table.add_row("", Text(f"recorded are, for example: {'; '.join(map(one_line, trial.similar))}", style="dim"), "")
    return table


def requests(trial: Trial) -> Iterator[RenderableType]:
    """Yields each request: its prompt and its answer as they were sent and received."""
    alike = [(one["request"], one["document"]) for one in trial.requests if one["sample"] < FIRST_TRY]
    samples, shown = Counter(alike), Counter[tuple[str, str | None]]()
    for one in trial.requests:
        name, (tries, place) = (one["request"], one["document"]), divmod(one["sample"], FIRST_TRY)
        if not tries:  # requests of a step differ in what they show, and not in their samples
            shown[name] += 1
        place = place + 1 if tries else shown[name]
        sample = (f" {place} of {samples[name]}" if samples[name] > 1 else "") + (f", try {tries + 1}" if tries else "")
        about = "" if one["document"] is None else f" about {one_line(one['document'])}"
        tokens = f"{one['prompt_tokens']:,} prompt tokens, {one['completion_tokens']:,} written" if one["prompt_tokens"] else ""
        tier = f"tier {one['tier']}" if one["tier"] else ""
        stored = "from the store" if one["reused"] else ""
        words = ", ".join(filter(None, [one["model"], tier, tokens, stored, one["finish_reason"], one["error"]]))
        yield _section(f"request {one['request']}{about}{sample}", words)
        for part in ("prompt", "answer"):
            if part == "prompt" and one[part] is None:
                continue  # of a later step that has failed
            yield Padding(Text(part, style="dim"), (0, 0, 0, 2))
            text = one[part] if one[part] is not None else f"none: {one['message']}"
            yield Padding(Text(printable(text)), (0, 0, 1, 4))


def _calls(trial: Trial) -> str:
    sums = costs.stage_sums(trial.spent, "rewrite")
    if not sums.get("requests"):
        return "none are planned" if not trial.config.rewrite.planned else "no request was made"
    parts = [counted("requests", sums["requests"])]
    if sums.get("prompt_tokens"):
        cached = f" ({int(sums['cached_tokens']):,} cached)" if sums.get("cached_tokens") else ""
        parts.append(f"{int(sums['prompt_tokens']):,} prompt tokens{cached}, {int(sums['completion_tokens']):,} written")
    return ", ".join(parts)


def _method(trial: Trial) -> str:
    config = trial.config
    fused = len(trial.row["lists"])
    words = f"{config.fuse.method} over {fused} list{'s' * (fused != 1)}"
    if config.used_redundancy != "none":
        words += f", {config.used_redundancy} redundancy"
    if config.retrieve.collections:
        words += f", {len(config.retrieve.collections)} collections merged by {config.fuse.collections}"
    if config.rerank.kind == "none":
        return f"{words}, not reranked"
    return f"{words}, {config.rerank.counted_as} ({config.rerank.combine})"


def _dropped(trial: Trial) -> Table:
    table = _grid(0, 1)
    for why, count in trial.document_counts.items():
        if count and why not in {"found", "results"}:
            table.add_row(f"{count:,}", why)
    hits = {hit["doc_id"] for hit in trial.row["hits"]}
    dropped = [(doc_id, rank) for doc_id, rank in fused_ranks(trial.row).items() if doc_id not in hits][:SHOWN_IN_LISTS]
    if dropped:
        table.add_row("", Text("best of them: " + ", ".join(f"{one_line(doc_id)} (fused {rank})" for doc_id, rank in dropped)))
    for error in trial.row["errors"]:
        if error["stage"] != "rewrite":
            kind = "note" if error["reason"] in NOTES else "error"
            table.add_row(kind, Text(f"{error['stage']}: {error['reason']}: {one_line(error['message'])}"))
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
    usd = "" if trial.usd is None else f"{money(trial.usd)}, {money(1000 * trial.usd)} per 1,000 queries, "
    return f"{usd}{seconds:.2f} s of work" + (f"; {trial.unpriced}" if trial.unpriced else "")


def _quantities(trial: Trial) -> str:
    sums = costs.stage_sums(trial.spent)
    return ", ".join(counted(name, sums[name]) for name in costs.QUANTITIES if sums.get(name)) or "-"


def _cell(trial: Trial, number: int, first: dict[str, int] | None) -> Text:
    if number >= len(trial.row["hits"]):
        return Text("")
    hit = trial.row["hits"][number]
    before, place = None if first is None else first.get(hit["doc_id"]), trial.places.get(hit["doc_id"], "")
    mark = "" if first is None else "new " if before is None else "= " if before == number + 1 else f"{before - number - 1:+d} "
    return Text.assemble(
        (mark, "bold"),
        f"{one_line(hit['doc_id'])} {place and one_line(place) + ' '}",
        (shortened(one_line(trial.texts[hit["doc_id"]]), SHOWN_SIDE_BY_SIDE), "dim"),
    )
