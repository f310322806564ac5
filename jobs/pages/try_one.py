"""The output of `try`: a page for one config, or a table with a column per config for several."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from cluster import costs
from jobs.chain.pipeline import COSTED
from jobs.measure.judged_rows import text_names
from jobs.pages.render import Head, Table
from jobs.pages.steps import answer_lines, grade_lines, judged_lines, list_words, round_lines
from jobs.pages.summary import counted
from jobs.tables import NOTES, ORIGINAL
from jobs.terminal.formats import money, one_line, place_beside, printable, shortened
from jobs.try_one.outcome import Trial
from retrievers.lists import TOGETHER
from rewriters.retries import FIRST_TRY

RESULTS, IN_LISTS = 10, 3  # that are shown: results, and documents of a list
CHARACTERS = 160  # of a context, a value, a document
CHARACTERS_BESIDE = 60  # of a document in the table of several configs


def page(trials: Sequence[Trial], prompts: bool = False) -> RenderableType:
    """Returns one trial in full, or several side by side; with `prompts` what was sent for each and what came back."""
    parts = _one(trials[0], prompts) if len(trials) == 1 else _several(trials, prompts)
    given: dict[str, str] = {}
    for row in (trial.row for trial in trials):
        given |= {"context": row["context"]} if row["context"] else {}
        given |= {name: value for name, value in (row["values"] or {}).items() if value is not None}
    told = [Text(f"{name}: {shortened(one_line(text), CHARACTERS)}", style="dim") for name, text in given.items()]
    return Group(Text(one_line(trials[0].row["query"]), style="bold"), *told, Text(), *parts)


def _one(trial: Trial, prompts: bool) -> Iterator[RenderableType]:
    row, config = trial.row, trial.config
    sums, planned = costs.stage_sums(trial.spent, "rewrite"), config.rewrite.planned
    text = ", ".join(_quantities(sums)) if sums.get("requests") else "no request was made" if planned else "none are planned"
    yield from _section("rewrites", text, _lines(_rewrites(trial)))
    if prompts:
        yield from requests(trial)
    if config.iterate is not None:
        text = f"refined queries, where the best score of {config.iterate.by} below {config.iterate.below:g}"
        none = [("", "none: the best score is not below, or the refined query is none (see below)")]
        yield from _section("rounds", text, _lines([*round_lines(row["rounds"])] or none))
    text = f"what each text found; the first {min(config.fuse.depth, config.retrieve.depth)} of each list take part"
    if joined := [one["retriever"] for one in row["lists"] if one["strategy"] == TOGETHER]:
        text += f"; {' and '.join(joined)} searched all texts as one, so there is no list of the original alone"
    yield from _section("lists", text, _lists(trial))
    text = _method(trial) + f"; the first {RESULTS} of {len(row['hits'])}" * (len(row["hits"]) > RESULTS)
    yield from _section("results", text, _results(trial) if row["hits"] else Text("nothing was found"))
    if config.grade is not None:
        text = f"the first {config.grade.documents} results, before they are answered from"
        yield from _section("grades", text, _lines(grade_lines(row["grades"], row["correction"])))
    if config.answer is not None:
        answer = row["answer"]
        documents = 0 if answer is None else len(answer["documents"])
        text = f"{answer['model']}, from {documents} result{'s' * (documents != 1)}" if answer else "none: see below"
        yield from _section("answer", text, _lines(answer_lines(answer)))
    if judged := row["judgements"]:
        yield from _section("judged", f"by {judged[0]['model']}", _lines(judged_lines(judged)))
    counts = trial.document_counts
    text = (
        f"{counts['found']:,} documents were found, {counts['candidates']:,} kept by fusion, {counts['results']:,} are results"
    )
    yield from _section("documents", text, _lines(_dropped(trial)))
    usd = "" if trial.usd is None else f"{money(trial.usd)}, {money(1000 * trial.usd)} per 1,000 queries, "
    text = f"{usd}{costs.stage_sums(trial.spent).get('seconds', 0):.2f} s of workers' time"
    yield from _section("cost", text + (f"; {trial.unpriced}" if trial.unpriced else ""), _lines(_costs(trial)))


def _section(name: str, title: str, part: RenderableType | None = None) -> Iterator[RenderableType]:
    yield Text.assemble((f"{name}  ", "bold cyan"), (title, "dim"))
    yield Padding("" if part is None else part, (0, 0, 1 if part is not None else 0, 2))


def _lines(lines: Iterable[Sequence[str]]) -> RenderableType:
    """Returns lines of a name and words, without heads."""
    rows = [[one_line(name), printable(words), *rest] for name, words, *rest in lines]
    return Table([Head("")] * max(map(len, rows), default=1), rows).terminal()


def _rewrites(trial: Trial) -> Iterator[tuple[str, str, str]]:
    query, written = one_line(trial.row["query"]), trial.row["rewrites"]
    yield ORIGINAL, query, ""
    names = text_names((one["strategy"], one["position"]) for one in written)
    for rewrite in written:
        text = one_line(rewrite["text"])
        yield (
            names[rewrite["strategy"], rewrite["position"]],
            text + " (the query as it is)" * (text == query),
            rewrite["parsed_as"],
        )
    if trial.not_selected:
        yield "not selected", ", ".join(trial.not_selected), ""
    if selected := trial.row["selection"]:
        query_type, reason = selected["query_type"] or "", selected["reason"] or ""
        if why := reason if reason.startswith(query_type) else ": ".join(filter(None, [query_type, reason])):
            yield "why", one_line(why), ""
    failures: dict[tuple[str, str], list[str]] = {}  # reason and message -> strategies: what one answer lacks is said once
    for error in (error for error in trial.row["errors"] if error["stage"] == "rewrite"):
        own = failures.setdefault((error["reason"], one_line(error["message"])), [])
        own += [error["component"]] if error["component"] else []  # a note on the query as a whole has none
    for (reason, message), strategies in failures.items():
        yield ("none", f"{message} ({', '.join(strategies)})", reason) if strategies else ("note", message, reason)


def _lists(trial: Trial) -> RenderableType:
    names = text_names((run["strategy"], run["position"]) for run in trial.row["lists"])
    rows = []
    for text, runs in groupby(trial.row["lists"], itemgetter("strategy", "position")):
        for number, run in enumerate(runs):
            first = " ".join(one_line(hit["doc_id"]) for hit in run["hits"][:IN_LISTS])
            rows.append(["" if number else names[text], f"{len(run['hits']):,} by {run['retriever']}", first])
    return Table([Head(""), Head("documents"), Head(f"the first {IN_LISTS}")], rows).terminal()


def _results(trial: Trial) -> RenderableType:
    names = text_names((one["strategy"], one["position"]) for one in trial.row["lists"])
    known_original = TOGETHER not in {strategy for strategy, _ in names}
    fused = trial.fused_ranks
    rows = []
    for hit in trial.row["hits"][:RESULTS]:
        doc_id = hit["doc_id"]
        before = f", rank {fused[doc_id]} after fusion" if trial.config.rerank.kind != "none" else ""
        lines = [f"{one_line(doc_id)}  (score {hit['score']:.4f}{before})"]
        lines += ["not found by the original"] * (known_original and ORIGINAL not in {of["strategy"] for of in hit["sources"]})
        address = hit["url"] or place_beside(doc_id, hit["place"] or "")
        lines += [shortened(one_line(address), CHARACTERS)] if address else []
        lines.append(shortened(one_line(hit["text"]), CHARACTERS))
        lines += list_words(hit["sources"], names).split("; ")
        rows.append([str(hit["rank"]), "\n".join(lines)])
    return _lines([("", "document, score, and its rank in the list of each text"), *rows])


def _method(trial: Trial) -> str:
    config, lists = trial.config, len(trial.row["lists"])
    text = f"{config.fuse.method} over {lists} list{'s' * (lists != 1)}"
    if config.used_redundancy != "none":
        text += f", {config.used_redundancy} redundancy"
    if config.rerank.kind == "none":
        return f"{text}, not reranked"
    return f"{text}, {config.rerank.counted_as} ({config.rerank.combine})"


def _dropped(trial: Trial) -> Iterator[tuple[str, str]]:
    hits = {hit["doc_id"] for hit in trial.row["hits"]}
    best = [f"{one_line(doc_id)} (fused {rank})" for doc_id, rank in trial.fused_ranks.items() if doc_id not in hits]
    if best:
        yield "not kept", f"best of them: {', '.join(best[:IN_LISTS])}"
    for error in trial.row["errors"]:
        if error["stage"] != "rewrite":
            kind = "note" if error["reason"] in NOTES else "error"
            yield kind, f"{error['stage']}: {error['reason']}: {one_line(error['message'])}"


def _costs(trial: Trial) -> Iterator[tuple[str, str]]:
    for stage in COSTED:
        if sums := costs.stage_sums(trial.spent, stage):
            yield stage, ", ".join([f"{sums.get('seconds', 0):.3f} s", *_quantities(sums)])


def _quantities(sums: dict[str, float]) -> list[str]:
    return [counted(name, sums[name]) for name in costs.QUANTITIES if sums.get(name)]


def requests(trial: Trial) -> Iterator[RenderableType]:
    """Yields each request: its prompt and its answer as they were sent and received."""
    for request in trial.requests:
        tries, sample = divmod(request["sample"], FIRST_TRY)
        which = f", sample {sample + 1}" * bool(sample) + f", try {tries + 1}" * bool(tries)
        about = "" if request["document"] is None else f" about {one_line(request['document'])}"
        tokens = (
            f"{request['prompt_tokens']:,} prompt tokens, {request['completion_tokens']:,} written"
            if request["prompt_tokens"]
            else ""
        )
        tier, stored = f"tier {request['tier']}" if request["tier"] else "", "from the store" if request["reused"] else ""
        facts = ", ".join(filter(None, [request["model"], tier, tokens, stored, request["finish_reason"], request["error"]]))
        yield from _section(f"request {request['request']}{about}{which}", facts)
        answer = request["answer"] if request["answer"] is not None else f"none: {request['message']}"
        for part, text in (("prompt", request["prompt"]), ("answer", answer)):
            yield Padding(Text(part, style="dim"), (0, 0, 0, 2))
            yield Padding(Text(printable(text)), (0, 0, 1, 4))


def _several(trials: Sequence[Trial], prompts: bool) -> Iterator[RenderableType]:
    columns: list[dict[str, list[str]]] = [{} for _ in trials]
    for trial, column in zip(trials, columns, strict=True):
        for name, title, _ in _rewrites(trial):
            column.setdefault(name, []).append(title)
    rows = [["rewrites", *[""] * len(trials)]]
    for name in dict.fromkeys(name for column in columns for name in column):
        rows.append([f"  {name}", *("\n".join(column.get(name, "-")) for column in columns)])
    rows.append(["results", *[""] * len(trials)])
    first = {hit["doc_id"]: hit["rank"] for hit in trials[0].row["hits"]}
    longest = max(len(trial.row["hits"]) for trial in trials)
    for number in range(min(longest, RESULTS)):
        rows.append([f"  {number + 1}", *(_cell(trial, number, None if trial is trials[0] else first) for trial in trials)])
    if any(trial.config.answer is not None for trial in trials):
        answers = [trial.row["answer"] for trial in trials]
        rows.append(["answer", *("-" if answer is None else printable(answer["text"]) for answer in answers)])
    # no seconds: the first trial also warms up caches for the others
    rows.append(["cost", *(", ".join(_quantities(costs.stage_sums(trial.spent))) or "-" for trial in trials)])
    rows.append(["found", *(f"{trial.document_counts['found']:,} documents" for trial in trials)])
    yield Table([Head(""), *(Head(trial.label) for trial in trials)], rows).terminal()
    yield Text(f"\n=  +2  -1  new: against the place in {trials[0].label}", style="dim")
    for trial in trials if prompts else ():
        yield Text(f"\n{trial.label}", style="bold")
        yield from requests(trial)


def _cell(trial: Trial, number: int, first: dict[str, int] | None) -> str:
    if number >= len(trial.row["hits"]):
        return ""
    hit = trial.row["hits"][number]
    before, source = None if first is None else first.get(hit["doc_id"]), place_beside(hit["doc_id"], hit["place"] or "")
    mark = "" if first is None else "new " if before is None else "= " if before == number + 1 else f"{before - number - 1:+d} "
    text = shortened(one_line(hit["text"]), CHARACTERS_BESIDE)
    return f"{mark}{one_line(hit['doc_id'])} {source and one_line(source) + ' '}{text}"
