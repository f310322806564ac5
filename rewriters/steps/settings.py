"""Settings of the steps that an LLM does, as frozen models."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cluster.settings import NOT_IDENTITY, Names, Settings
from rewriters.engines.settings import AnyEngineSettings
from rewriters.settings import Decoding, is_path

RELEVANT, AMBIGUOUS, IRRELEVANT = "relevant", "ambiguous", "irrelevant"  # verdicts on a document
HIGHEST = 3  # grade of relevance
HIGHEST_GRADES = {"relevance": HIGHEST, "accuracy": 1, "criteria": 5}  # kind of judgement -> the highest grade; the lowest is 0


class PromptSettings(Settings):
    """Of anything that an LLM is asked."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT]
    """A built-in prompt of `rewriters/steps/`, or a YAML file of the same form; its text counts for the fingerprint."""
    variables: Annotated[dict[str, str], NOT_IDENTITY] = {}
    """Values of the variables of the prompt's file."""

    def names(self) -> dict[str, Names]:
        """Returns the files and servers that its own fields name; a built-in prompt is no file."""
        return {name: what for name, what in super().names().items() if name != "prompt" or is_path(self.prompt)}


class LlmStepSettings(PromptSettings):
    """Of any step that an LLM does."""

    engine: AnyEngineSettings | None = None
    """LLM engine; null: `rewrite.engine`."""
    decoding: Decoding = {}
    """Sampling parameters that replace those of the prompt's file; default: temperature 0."""


HIGH, MEDIUM, LOW = LABELS = ("High", "Medium", "Low")
LABEL_VARIABLES = frozenset(label.lower() for label in LABELS)  # variables of prompts: the documents with a label


class LabelSettings(Settings):
    """Labels of relevance (High, Medium, Low) of documents."""

    by: Literal["rank", "score", "rerank"] = "rank"
    """rank: thirds of the ranks; score: thresholds of the ranking score; rerank: thresholds of the reranker's own score."""
    high: float | None = None
    """Score or grade from which a document is High (not with `by: rank`)."""
    medium: float | None = None
    """Score or grade from which a document is Medium, and else Low (not with `by: rank`)."""

    @model_validator(mode="after")
    def _thresholds_where_they_count(self) -> Self:
        given = self.high is not None and self.medium is not None
        if (self.high is None) != (self.medium is None) or (self.by == "rank" and given):
            raise ValueError("high and medium belong together, and not to by: rank; set both, or neither")
        if self.by in ("score", "rerank") and not given:
            raise ValueError(f"by: {self.by} needs high and medium, scores; set both")
        if self.high is not None and self.medium is not None and self.high < self.medium:
            raise ValueError(f"high {self.high:g} is below medium {self.medium:g}; swap them")
        return self

    def label(self, rank: int, shown: int, score: float, reranked: float | None = None, grade: float | None = None) -> str:
        """Returns the label of a document; "" without the grade by which it would have one.

        `rank` is from 1, by `score`. Of the `shown` documents that are offered some may be left out for want of room.
        """
        if self.by == "rank":
            return LABELS[(rank - 1) * 3 // max(1, shown)]
        value = {"score": score, "rerank": reranked, "llm": grade}[self.by]
        if value is None:
            return LOW if self.by == "rerank" else ""
        high, medium = (2.0 if self.high is None else self.high), (1.0 if self.medium is None else self.medium)  # of an LLM
        return HIGH if value >= high else MEDIUM if value >= medium else LOW


class DocumentStepSettings(LlmStepSettings):
    """Of a step that is shown the first results of a query."""

    documents: Annotated[int, Field(ge=1)] = 5
    """Number of first results that the LLM is shown."""
    context_tokens: Annotated[int, Field(ge=1)] | None = None
    """Largest number of tokens of all documents; later ones are left out, the first is truncated."""
    document_chars: Annotated[int, Field(ge=1)] | None = None
    """Largest number of characters of a document."""
    labels: LabelSettings | None = None
    """Label of relevance behind each document; null: none."""
    separator: str = "\n\n"
    """Text between two documents."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """Language of the text that it writes, such as German; null: the query's."""


class AnswerSettings(DocumentStepSettings):
    """Answers to the queries from their first results."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "answer"
    """answer, short_answer (a few words, for exact match), or a YAML file of the same form; its content counts for the
    fingerprint."""


class QuestionSettings(LlmStepSettings):
    """One question made of a query and its rewrites."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "question"
    """question, or a YAML file of the same form; its content counts for the fingerprint."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """Language of the question, such as German; null: the query's."""


class StripsSettings(LlmStepSettings):
    """Sentences of an ambiguous document that help to answer."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "strips"
    """strips, or a YAML file of the same form; its content counts for the fingerprint."""


class GradeSettings(LlmStepSettings):
    """Grades of the first results; irrelevant ones are not answered from (corrective RAG)."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "three_grades"
    """three_grades (relevant, ambiguous, irrelevant), two_grades, relevance (0 to 3), or a YAML file of the same form; its
    content counts for the fingerprint."""
    documents: Annotated[int, Field(ge=1)] = 3
    """Number of first results that are graded; later ones are not answered from."""
    document_chars: Annotated[int, Field(ge=1)] | None = None
    """Largest number of characters of a document."""
    by: Literal["llm", "rerank"] = "llm"
    """Grades of an LLM, or scores of the reranker."""
    relevant: float | None = None
    """Grade from which a document is relevant; null: 2, for an LLM."""
    ambiguous: float | None = None
    """Grade from which it is ambiguous, and else irrelevant; null: 1, for an LLM."""
    against: Literal["question", "query"] | None = None
    """Text that documents are graded against; null: the question, where there is one."""
    question: QuestionSettings | None = None
    """Makes one question of query and rewrites first; null: the query is the question."""
    strips: StripsSettings | None = None
    """Cuts ambiguous documents to helpful sentences; null: they stay whole."""

    @model_validator(mode="after")
    def _thresholds(self) -> Self:
        if self.by == "rerank" and (self.relevant is None or self.ambiguous is None):
            raise ValueError("by: rerank needs relevant and ambiguous, scores of the reranker; set both")
        if self.least_ambiguous > self.least_relevant:
            raise ValueError(f"ambiguous {self.least_ambiguous:g} is above relevant {self.least_relevant:g}; swap them")
        if self.against == "question" and self.question is None:
            raise ValueError("against: question needs a `question` section; add `question: {}`")
        return self

    @property
    def least_relevant(self) -> float:
        """Returns the lowest grade of a relevant document."""
        return 2.0 if self.relevant is None else self.relevant

    @property
    def least_ambiguous(self) -> float:
        """Returns the lowest grade of an ambiguous document."""
        return min(1.0, self.least_relevant) if self.ambiguous is None else self.ambiguous

    def verdict(self, grade: float) -> str:
        """Returns relevant, ambiguous or irrelevant."""
        return RELEVANT if grade >= self.least_relevant else AMBIGUOUS if grade >= self.least_ambiguous else IRRELEVANT


class RelevanceSettings(PromptSettings):
    """Relevance of the first results, from 0 to 3."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "relevance"
    """relevance, or a YAML file of the same form; its content counts for the fingerprint."""
    documents: Annotated[int, Field(ge=1)] = 5
    """Number of first results that are judged; in an ablation those of each arm, each document once."""
    document_chars: Annotated[int, Field(ge=1)] | None = None
    """Largest number of characters of a document."""
    relevant: Annotated[int, Field(ge=1, le=HIGHEST), NOT_IDENTITY] = 2
    """Lowest grade of a relevant document, for binary measures."""


class AccuracySettings(PromptSettings):
    """Correctness of answers, 0 or 1."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "accuracy"
    """accuracy, or a YAML file of the same form; its content counts for the fingerprint."""


class CriteriaSettings(PromptSettings):
    """Quality of answers by several criteria, from 0 to 5."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "criteria"
    """criteria (the eight of DMQR-RAG), or a YAML file of the same form, whose `keys` are the criteria; its content counts for
    the fingerprint."""


class JudgeSettings(Settings):
    """An LLM as judge of results and answers."""

    engine: AnyEngineSettings | None = None
    """LLM engine; null: `rewrite.engine`, which then judges its own work."""
    decoding: Decoding = {}
    """Sampling parameters that replace those of the prompts' files; default: temperature 0."""
    relevance: RelevanceSettings | None = None
    """Judges results; null: no."""
    accuracy: AccuracySettings | None = None
    """Judges answers against `evaluate.answers`, or against the question; null: no."""
    criteria: CriteriaSettings | None = None
    """Judges answers by several criteria; null: no."""

    @model_validator(mode="after")
    def _judges(self) -> Self:
        if not self.kinds:
            raise ValueError("judges nothing; set relevance: {}, accuracy: {} or criteria: {}, or leave judge out")
        return self

    @property
    def kinds(self) -> dict[str, PromptSettings]:
        """Returns kind of judgement -> its settings."""
        kinds = {"relevance": self.relevance, "accuracy": self.accuracy, "criteria": self.criteria}
        return {kind: one for kind, one in kinds.items() if one is not None}

    def step(self, kind: str) -> LlmStepSettings:
        """Returns the settings of the step for one of `kinds`."""
        settings = self.kinds[kind]
        return LlmStepSettings(prompt=settings.prompt, variables=settings.variables, engine=self.engine, decoding=self.decoding)


class LabelGradeSettings(LlmStepSettings):
    """Grades of an LLM by which documents are labelled."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "three_grades"
    """three_grades, two_grades, relevance, or a YAML file of the same form; its content counts for the fingerprint."""
    document_chars: Annotated[int, Field(ge=1)] | None = None
    """Largest number of characters of a document."""


class RoundLabelSettings(LabelSettings):
    """Labels of relevance (High, Medium, Low) of documents, for refined queries."""

    by: Literal["rank", "score", "rerank", "llm"] = "rank"  # type: ignore[assignment]
    """rank: thirds of the ranks; score: thresholds of the ranking score; rerank: thresholds of the reranker's own score; llm:
    grades of an LLM (`grades`), High from 2 and Medium from 1."""
    grades: LabelGradeSettings | None = None
    """Grading with `by: llm`; null: its defaults."""

    @model_validator(mode="after")
    def _grades_by_an_llm(self) -> Self:
        if self.grades is not None and self.by != "llm":
            raise ValueError(f"grades are of an LLM, and by is {self.by}; set by: llm, or remove them")
        return self

    @property
    def graded_by(self) -> LabelGradeSettings | None:
        """Returns the settings of grades of documents; None: no LLM grades them."""
        return (self.grades or LabelGradeSettings()) if self.by == "llm" else None


class IterateSettings(DocumentStepSettings):
    """Further rounds of rewriting and retrieval for queries with a low best score."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "iterate"
    """iterate (a refined query from the results), refine (from graded documents), or a YAML file of the same form; its content
    counts for the fingerprint."""
    documents: Annotated[int, Field(ge=1)] = 3
    """Number of first results that the LLM is shown."""
    labels: RoundLabelSettings | None = None
    """Label of relevance behind each document; null: none."""
    by: Annotated[str, Field(min_length=1)]
    """Best score that decides on another round: a retriever's, or `rerank`."""
    below: float
    """Queries with a lower best score, or without a hit, have another round."""
    rounds: Annotated[int, Field(ge=1, le=5)] = 1
    """Largest number of rounds."""
    merge: Literal["best", "fuse"] = "fuse"
    """fuse: RRF of the rounds; best: each document's best fused score, for first rounds without rewrites."""
