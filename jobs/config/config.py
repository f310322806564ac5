"""The models of the config: frozen, with their defaults. `jobs/config/load.py` reads a file into them.

The models check the form only; each verb checks the log, indexes and models that it reads. Paths are relative to the
current folder.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from cluster.errors import nearest
from cluster.run.settings import ClusterSettings
from cluster.settings import DURATION, NOT_IDENTITY, Names, Settings, duration_seconds
from jobs.config.settings import (
    AblateSettings,
    EvaluateSettings,
    LimitSettings,
    NotifySettings,
    PublishSettings,
    ReportSettings,
    RetrieveSettings,
    RewriteSettings,
    WebSearchSettings,
)
from jobs.log.settings import LogSettings
from retrievers.lists import BESIDE, TOGETHER
from retrievers.rerankers.settings import AnyRerankerSettings, RerankerSettings
from retrievers.settings import AnyCorpusSettings, AnyEncoderSettings, CorpusSettings, FuseSettings, RerankSettings
from rewriters.pool import named
from rewriters.steps.settings import (
    AnswerSettings,
    GradeSettings,
    IterateSettings,
    JudgeSettings,
    LlmStepSettings,
    RelevanceSettings,
)

MOST_LABEL = 64  # characters
BESIDE_RUNS = "<output>/store"  # the store's folder by default
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"  # what may stand in the name of a folder, here and on S3


def stage_of(section: str) -> str:
    """Returns the stage, as in costs, that does a step by its key of the config: what grades writes the query to the web."""
    return "grade" if section == "web" else section.partition(".")[0]


class Config(Settings):
    """A whole job."""

    name: Annotated[str, Field(pattern=NAME), NOT_IDENTITY]
    """First part of the name of the run's folder."""
    label: Annotated[Annotated[str, Field(pattern=NAME, max_length=MOST_LABEL)] | None, NOT_IDENTITY] = None
    """Part of the folder's name between `name` and fingerprint (`--label`); null: `log.date`. Another label is another run."""
    log: LogSettings
    """Query log."""
    corpus: Annotated[AnyCorpusSettings, NOT_IDENTITY] = CorpusSettings()
    """Corpus that indexes are built from; for a union, index name -> corpus."""
    rewrite: RewriteSettings
    """Rewriting: strategies and LLM engine."""
    retrieve: RetrieveSettings
    """Retrieval: retrievers, routes and depth."""
    fuse: FuseSettings = FuseSettings()
    """Fusion of a query's lists."""
    rerank: AnyRerankerSettings = RerankSettings()
    """Reranking of the fused candidates."""
    iterate: IterateSettings | None = None
    """Further rounds for queries that found little; null: none."""
    grade: GradeSettings | None = None
    """Grading of the first results before they are answered from; null: none."""
    web: WebSearchSettings | None = None
    """Web search where graded results do not suffice; null: none."""
    answer: AnswerSettings | None = None
    """Answers of an LLM from the first results; null: none."""
    judge: JudgeSettings | None = None
    """Judgements of an LLM on results and answers; null: none."""
    limits: Annotated[LimitSettings, NOT_IDENTITY] = LimitSettings()
    """Limits at which the job stops."""
    evaluate: Annotated[EvaluateSettings, NOT_IDENTITY] = EvaluateSettings()
    """Relevance judgements and measures."""
    ablate: Annotated[AblateSettings, NOT_IDENTITY] = AblateSettings()
    """Arms that `ablate` compares."""
    report: Annotated[ReportSettings, NOT_IDENTITY] = ReportSettings()
    """Content of the page."""
    notify: Annotated[NotifySettings | None, NOT_IDENTITY] = None
    """Notifications; null: none."""
    publish: Annotated[PublishSettings, NOT_IDENTITY] = PublishSettings()
    """Bounds for `export --promote`."""
    output: Annotated[str, NOT_IDENTITY, Names.FILE]
    """Folder, here or on S3, below which each run has its own folder."""
    store: Annotated[str | None, NOT_IDENTITY, Names.FILE] = BESIDE_RUNS
    """Folder, here or on S3, of completions, lists and scores that all jobs share; null: none."""
    store_ttl: Annotated[Annotated[str, Field(pattern=DURATION)] | None, NOT_IDENTITY] = None
    """Age up to which the store's content counts (`12h`, `30d`, `8w`), from the start of the job that made it; null: no
    limit."""
    cluster: Annotated[ClusterSettings, NOT_IDENTITY] = ClusterSettings()
    """Ray, shard size and worker pools."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for fault in chain(self._faults(), self._step_faults()):
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        lists, retrievers = ["original", *(named(entry).name for entry in self.rewrite.strategies)], self.retrieve.retrievers
        joined = [TOGETHER] * any(retriever.together for retriever in retrievers.values())
        for key in self.retrieve.routes:
            if key not in (known := lists + ["iterate"] * (self.iterate is not None)):
                yield f"retrieve.routes: {key!r} is not among the strategies{nearest(key, known)}"
        for key, weight in self.fuse.weights.items():
            strategy, _, retriever = key.partition("/")
            if key.startswith(BESIDE):
                strategy = key.removeprefix(BESIDE)
                if joined:
                    yield f"fuse.weights: {key}: a retriever searches all texts as one; set its together: false"
            if strategy not in lists + joined:
                yield f"fuse.weights: {strategy!r} is not among the strategies{nearest(strategy, lists + joined)}"
            if retriever and retriever not in retrievers:
                yield f"fuse.weights: no retriever {retriever!r}{nearest(retriever, retrievers)}"
            if strategy == TOGETHER and retriever and not retrievers[retriever].together:
                yield f"fuse.weights: {key}: {retriever} searches text by text; set its together: true, or remove it"
            if strategy == TOGETHER and not weight:
                yield f"fuse.weights: {key}: 0 leaves all texts out; set fuse.retriever_weights of the retriever to 0"
        if self.rewrite.planned and all(retriever.originals_only for retriever in retrievers.values()):
            yield (
                f"retrieve.retrievers: {', '.join(retrievers)} have lists of the log's queries alone, so that no rewrite would "
                "be searched; set rewrite.strategies: [], or name another retriever, too"
            )
        for name in (name for name in self.fuse.retriever_weights if name not in retrievers):
            yield f"fuse.retriever_weights: no retriever {name!r}{nearest(name, retrievers)}"
        members = [name for name in self.retrieve.members if name]  # each index of a union has a corpus of its own
        if isinstance(self.corpus, CorpusSettings):
            if self.corpus.paths and members:
                yield f"corpus.path: each index of a union has its own corpus; name it in corpus.{members[0]}.path"
        elif missing := [name for name in members if name not in self.corpus]:  # an arm may leave some out
            for name in (name for name in self.corpus if name not in members):
                yield f"corpus.{name}: no union has an index of that name{nearest(name, missing)}"

    def _step_faults(self) -> Iterator[str]:
        """Yields the faults of the gate and the steps: each needs an engine, results to read, or a score to go by."""
        rewrite, retrieve, grade, web, answer = self.rewrite, self.retrieve, self.grade, self.web, self.answer
        judge, iterate, has_reranker = self.judge, self.iterate, self.rerank.kind != "none"
        if rewrite.gate is not None:
            yield from self._original_faults("rewrite.gate.by", rewrite.gate.by)
        engines = {key: step.engine for key, step in self.steps.items()} | ({} if judge is None else {"judge": judge.engine})
        for where, engine in engines.items():
            if engine is None and rewrite.engine is None:
                yield f"{where}.engine is missing, and there is no rewrite.engine; name one"
        if judge is not None and answer is None and judge.kinds.keys() - {"relevance"}:
            yield "judge: accuracy and criteria need an `answer` section; add `answer: {}`"
        if web is not None and grade is None:
            yield "web: needs a `grade` section, whose grades decide when the web is searched; add `grade: {}`"
        if grade is not None and answer is None:
            yield "grade: needs an `answer` section; add `answer: {}`"
        if grade is not None and grade.by == "rerank" and not has_reranker:
            yield "grade.by: `rerank` needs a reranker, and rerank.kind is none; set grade.by: llm"
        if grade is not None and answer is not None:
            most = grade.documents + (web.documents if web is not None else 0)
            if answer.documents < most:
                hits = f" and {web.documents} hits of the web" if web is not None else ""
                left_out = f"{answer.documents} would leave out some of {grade.documents} graded results{hits}"
                yield f"answer.documents: {left_out}; set {most}"
        for where, documents in self.shown.items():
            if documents > self.results:
                more = "rerank.keep and fuse.keep" if has_reranker else "fuse.keep"
                yield f"{where}: {documents} of {self.results} results, as fewer are kept; lower it, or raise {more}"
        for key, step in (("iterate", iterate), ("answer", answer)):
            if step is not None and step.labels is not None and step.labels.by == "rerank" and not has_reranker:
                yield f"{key}.labels.by: `rerank` needs a reranker, and rerank.kind is none; use `score` or `rank`"
        if iterate is not None:
            if iterate.by == "rerank" and not has_reranker:
                yield "iterate.by: `rerank` needs a reranker, and rerank.kind is none; name a retriever"
            if iterate.by != "rerank" and iterate.by not in retrieve.retrievers:
                yield f"iterate.by: no retriever {iterate.by!r}{nearest(iterate.by, [*retrieve.retrievers, 'rerank'])}"
            if not retrieve.route("iterate"):
                yield "retrieve.routes.iterate is empty, so that refined queries would find nothing; name a retriever"
            if iterate.by in retrieve.retrievers:
                yield from self._original_faults("iterate.by", iterate.by, ", or rerank")
                if iterate.rounds > 1 and iterate.by not in retrieve.route("iterate"):
                    yield (
                        f"iterate.by: {iterate.by} does not search refined queries (retrieve.routes.iterate), so that a "
                        "second round would never be spared; add it there, or set iterate.rounds to 1"
                    )
        if self.rerank.kind == "bi_encoder" and self.reranking_encoder is None:
            yield "rerank: bi_encoder needs rerank.encoder, since no retriever is dense; set it"

    def _original_faults(self, where: str, by: str, more: str = "") -> Iterator[str]:
        """Yields the reason why a retriever has no scores of the original alone; `more`: names beside retrievers."""
        retrievers = self.retrieve.retrievers
        if by not in retrievers:
            yield f"{where}: no retriever {by!r}{nearest(by, retrievers)}"
        elif not retrievers[by].indexed(by):
            yield f"{where}: {by} searches no index, and its scores say little; name another retriever{more}"
        elif by in self.joining or by not in self.retrieve.route("original"):
            yield f"{where}: {by} has no list of the original alone; name another retriever{more}"

    @property
    def corpora(self) -> dict[str, CorpusSettings]:
        """Returns name of the index of a union -> its corpus; of other indexes "" -> it."""
        if not isinstance(self.corpus, CorpusSettings):
            return dict(self.corpus)
        return dict.fromkeys(self.retrieve.members or [""], self.corpus)

    @property
    def steps(self) -> dict[str, LlmStepSettings]:
        """Returns key -> settings of what LLMs are asked after retrieval, apart from the judge, in order of the chain."""
        grade, labels = self.grade, None if self.iterate is None else self.iterate.labels
        steps = {
            "iterate": self.iterate,
            "iterate.labels.grades": None if labels is None else labels.graded_by,
            "grade.question": grade and grade.question,
            "grade": grade if grade is not None and grade.by == "llm" else None,
            "grade.strips": grade and grade.strips,
            "web": self.web,
            "answer": self.answer,
        }
        return {key: step for key, step in steps.items() if step is not None}

    @property
    def asking(self) -> dict[str, list[LlmStepSettings | JudgeSettings]]:
        """Returns stage -> settings of what its LLMs are asked, of the stages after the first retrieval; `web` asks none."""
        stages = ("iterate", "grade", "web", "answer", "judge")
        asked: dict[str, list[LlmStepSettings | JudgeSettings]] = {key: [] for key in stages if getattr(self, key) is not None}
        for key, step in self.steps.items():
            asked[stage_of(key)].append(step)
        return asked | ({} if self.judge is None else {"judge": [self.judge]})

    @property
    def shown(self) -> dict[str, int]:
        """Returns key of the config -> how many of the first results LLMs are shown, or are graded."""
        sections: dict[str, IterateSettings | GradeSettings | AnswerSettings | RelevanceSettings | None]
        sections = {"iterate": self.iterate, "grade": self.grade, "answer": self.answer if self.grade is None else None}
        sections |= {"judge.relevance": None if self.judge is None else self.judge.relevance}
        return {f"{key}.documents": section.documents for key, section in sections.items() if section is not None}

    @property
    def results(self) -> int:
        return self.fuse.keep if self.rerank.kind == "none" else min(self.fuse.keep, self.rerank.keep)

    def names(self) -> dict[str, Names]:
        """Returns the files and servers that its own fields name; a store beside the runs has no place of its own."""
        return {name: what for name, what in super().names().items() if getattr(self, name) != BESIDE_RUNS}

    @property
    def shown_label(self) -> str | None:
        """Returns the label of the run, else the date of its log."""
        return self.label or self.log.date

    @field_validator("store")
    @classmethod
    def _named_store(cls, value: str | None) -> str | None:
        if value is not None and value != BESIDE_RUNS and (not value or value.startswith("<")):
            raise ValueError(f"{value!r} is not a folder; name one, or keep {BESIDE_RUNS}")
        return value

    @property
    def own_store(self) -> str | None:
        """Returns the folder of a store that has a place of its own; None: it is beside the runs, or there is none."""
        return None if self.store == BESIDE_RUNS else self.store

    @property
    def store_folder(self) -> str | None:
        return f"{self.output.rstrip('/')}/store" if self.store == BESIDE_RUNS else self.store

    @property
    def store_lifetime(self) -> float | None:
        """Returns for how many seconds what lies in the store counts; None: for ever."""
        return None if self.store_ttl is None else duration_seconds(self.store_ttl)

    @property
    def reads_texts(self) -> bool:
        return self.rerank.kind != "none" or self.fuse.duplicates == "drop" or bool(self.shown)

    @property
    def used_redundancy(self) -> str:
        """Returns the redundancy method in use: cosine needs a dense retriever, else overlap replaces it."""
        configured = self.fuse.redundancy
        return "overlap" if configured == "cosine" and self.dense_retriever is None else configured

    @property
    def joining(self) -> list[str]:
        """Returns the retrievers that search the original as one with its rewrites, and so have no list of it alone."""
        return [
            name
            for name, retriever in self.retrieve.retrievers.items()
            if retriever.together and self.fuse.retriever_weights.get(name, 1.0) > 0
            and any(name in self.retrieve.route(strategy) for strategy in self.rewrite.planned)
        ]  # fmt: skip

    @property
    def reranking_encoder(self) -> AnyEncoderSettings | None:
        """Returns the encoder of a bi_encoder reranker: its own, else that of the first dense retriever."""
        dense = self.dense_retriever
        own: AnyEncoderSettings | None = getattr(self.rerank, "encoder", None)
        return own or (None if dense is None else self.retrieve.retrievers[dense].encoder)

    @property
    def reranking(self) -> RerankerSettings:
        """Returns `rerank` with the encoder of a bi_encoder filled in."""
        if not isinstance(self.rerank, RerankSettings):
            return self.rerank
        encoder = self.reranking_encoder if self.rerank.kind == "bi_encoder" else None
        return self.rerank.model_copy(update={"encoder": encoder})

    @property
    def dense_retriever(self) -> str | None:
        return next((name for name, retriever in self.retrieve.retrievers.items() if retriever.encoder), None)
