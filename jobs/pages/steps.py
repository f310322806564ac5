"""The work of the stages on one query, as lines of a name and words, for `try` and for the samples of a page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rewriters.steps.settings import HIGHEST_GRADES

Row = Mapping[str, Any]
Line = tuple[str, str]


def list_words(sources: Iterable[Row], names: Mapping[tuple[str, int], str]) -> str:
    """Returns the lists that have a document, with its ranks there, of (strategy, position) -> name."""
    ranks: dict[str, list[str]] = {}
    for source in sources:
        name = names.get((source["strategy"], source["position"]), source["strategy"])
        ranks.setdefault(source["retriever"], []).append(f"{name} {source['rank']}")
    return "; ".join(f"{retriever}: {', '.join(of)}" for retriever, of in ranks.items())


def round_lines(rounds: Iterable[Row], *, texts: bool = True) -> Iterator[Line]:
    """Yields the query and the hits of each further round."""
    for row in rounds:
        best = "no hit before" if row["best"] is None else f"best score {row['best']:.4g} before"
        text = f"{best}; {row['new']} new result{'s' * (row['new'] != 1)}"
        labelled = [f"{of['doc_id']} ({of['label']} relevance)" for of in row["documents"] or () if of["label"]]
        text += f"; written from {', '.join(labelled)}" if labelled else ""
        yield f"round {row['round']}", f"{row['text']} ({text})" if texts else text


def grade_lines(grades: Iterable[Row], correction: Row | None, *, texts: bool = True) -> Iterator[Line]:
    """Yields the question, the grade of each document with what is kept of it, and what the web was asked and found."""
    if correction and correction["question"] is not None and texts:
        yield "question", correction["question"]
    for row in grades:
        grade = "" if row["grade"] is None else f" {row['grade']:.4g}"
        kept = "" if row["strips"] is None else " refined to nothing"
        if row["strips"]:
            kept = f" refined to: {row['strips']}" if texts else " refined"
        yield row["verdict"] or "ungraded", f"{row['doc_id']}{grade}{kept}"
    if correction and correction["web_query"] is not None:
        hits = "away" if correction["hits"] is None else f"{correction['hits']} hit{'s' * (correction['hits'] != 1)}"
        yield "web", f"{correction['web_query']} ({hits})" if texts else hits
        for page in (correction.get("pages") or ()) if texts else ():
            yield "", f"{page['title'] or ''} {page['url'] or ''}"


def answer_lines(answer: Row | None, *, texts: bool = True) -> Iterator[Line]:
    """Yields the answer, and the documents that it was made from, with those that it cites marked."""
    if answer is None:
        return
    yield "answer", answer["text"] if texts else f"by {answer['model']}"
    for number, document in enumerate(answer["documents"], start=1):
        label = f", {document['label']} relevance" if document["label"] else ""
        yield f"[{number}]", f"{document['doc_id']}{label}" + ", cited" * (document["doc_id"] in answer["cited"])
    if answer["left_out"]:
        yield "", f"no room for {answer['left_out']:,} more (answer.context_tokens)"


def judged_lines(judgements: Sequence[Row]) -> Iterator[Line]:
    """Yields the judge's grades of results and of the answer; of what was asked several times the others behind the first."""
    grades: dict[str, dict[str, list[int]]] = {}
    for row in sorted(judgements, key=lambda row: row["sample"]):
        kind, _, criterion = row["kind"].partition("/")
        grades.setdefault(kind, {}).setdefault(row["doc_id"] or criterion or kind, []).append(row["grade"])
    for kind, by_model in grades.items():
        titles = {"accuracy": "answer, 1 is right", "relevance": f"results, 0 to {HIGHEST_GRADES['relevance']}"}
        texts = [
            f"{name} {first}" + (f" (again {', '.join(map(str, more))})" if more else "")
            for name, (first, *more) in by_model.items()
        ]
        yield titles.get(kind, f"answer, 0 to {HIGHEST_GRADES['criteria']}"), ", ".join(texts)
