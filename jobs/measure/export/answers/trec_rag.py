"""Answers as the TREC RAG track takes them: JSON lines of an answer's sentences and what each of them cites."""

from __future__ import annotations

import json
from typing import Any

from cluster.storage.whole_file import written
from jobs.chain.steps.contexts import cited_sentences
from jobs.measure.export.answers.answered import Answered, AnsweredArm
from jobs.measure.export.answers.written import WrittenAnswers

MOST_CITATIONS = 3  # of a sentence, the first ones
MOST_WORDS = 400  # of an answer; the track cuts or refuses longer ones


def write_trec_rag(path: str, answers: AnsweredArm) -> WrittenAnswers:
    """Writes a line per answer: run_id, topic_id, topic, references, response_length, answer.

    `references` are the documents of the context; `citations` of a sentence are places among them, from 0. `response_length`
    counts what white space parts. A topic without an answer has no line.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    rows, long, dropped = 0, 0, 0
    answered: set[str] = set()
    with written(path) as file, file.open("w", encoding="utf-8", newline="\n") as lines:
        for one in answers.read(contexts=False):
            line, without = rag_line(one, answers.run_id)
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")
            answered.add(one.row["query_id"])
            rows, long, dropped = rows + 1, long + (line["response_length"] > MOST_WORDS), dropped + without
    without = answers.without(len(answered))
    notes = [f"{without:,} queries without an answer have no line"] if without else []
    notes += [f"{long:,} have more than {MOST_WORDS} words, the most that the track takes"] if long else []
    notes += [f"{dropped:,} citations beyond {MOST_CITATIONS} of a sentence are left out"] if dropped else []
    return WrittenAnswers(path, rows, tuple(notes))


def rag_line(one: Answered, run_id: str) -> tuple[dict[str, Any], int]:
    """Returns the line of an answer, and how many citations it leaves out."""
    sentences = cited_sentences(one.row["text"], one.documents)
    line = {
        "run_id": run_id,
        "topic_id": one.topic,
        "topic": one.row["query"],
        "references": one.documents,
        "response_length": sum(len(sentence.text.split()) for sentence in sentences),
        "answer": [{"text": text, "citations": list(places[:MOST_CITATIONS])} for text, places in sentences],
    }
    return line, sum(max(0, len(sentence.places) - MOST_CITATIONS) for sentence in sentences)
