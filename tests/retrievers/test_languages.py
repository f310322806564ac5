"""BM25 of other languages than English on small samples; and the language of a corpus."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import pytest

from cluster.errors import RetrieverError
from dmqr.testing import hits_of
from jobs.index.index import outcome
from retrievers.analysis.detection import corpus_analyzer, other_language
from retrievers.local.build import build_local_index, local_indexes
from retrievers.local.index import open_retriever, read_index
from retrievers.retriever import SearchText
from tests.support.retrievers.blocks import index_fields, typed

SAMPLES = Path(__file__).parent / "languages"
NDCG = ir_measures.nDCG @ 10
OURS = {"german": "german", "chinese": "unicode", "japanese": "unicode", "thai": "unicode", "arabic": "arabic"}


def sample(language: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Documents, and judgements of each query."""
    documents, _, queries = (SAMPLES / f"{language}.txt").read_text(encoding="utf-8").partition("\n\n")
    judged = {}
    for line in queries.splitlines():
        query, _, grades = line.partition("\t")
        judged[query] = {doc_id: int(grade) for doc_id, _, grade in (one.partition(":") for one in grades.split())}
    return dict(line.split("\t") for line in documents.splitlines()), judged  # type: ignore[misc]


@pytest.mark.parametrize(
    ("language", "figure"),
    [
        ("german", 0.949),
        ("chinese", 0.956),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in [("japanese", 0.946), ("thai", 0.997), ("arabic", 0.952)]),
    ],
)
def test_our_figures(language: str, figure: float, write_corpus: Callable[..., Path], tmp_path: Path) -> None:
    documents, judged = sample(language)
    corpus = write_corpus({"doc_id": list(documents), "text": list(documents.values())})
    build_local_index(tmp_path / "index", corpus, index_fields(OURS[language]))
    retriever = open_retriever("bm25", typed({"kind": "local", "index": str(tmp_path / "index"), "analyzer": OURS[language]}))
    lists = hits_of(retriever.search([SearchText(query) for query in judged], 10))
    found = {query: dict(hits) or {"nothing": 1.0} for query, hits in zip(judged, lists, strict=True)}
    assert ir_measures.calc_aggregate([NDCG], judged, found)[NDCG] == pytest.approx(figure, abs=0.001)


# ---------------------------------------------------------------- the language of a corpus

SENTENCES = {
    "catalan": "El gat dorm al jardí mentre els nens juguen amb una pilota que no és del seu germà.",
    "czech": "Kočka spí v zahradě a děti si hrají s míčem, který není jejich bratra, ale je to dobře.",
    "danish": "Katten sover i haven, mens børnene leger med en bold, som ikke er deres brors, og det er af træ.",
    "dutch": "De kat slaapt in de tuin terwijl de kinderen met een bal spelen die niet van hun broer is.",
    "english": "The cat sleeps in the garden while the children play with a ball that is not their brother's.",
    "french": "Le chat dort dans le jardin pendant que les enfants jouent avec une balle.",
    "german": "Die Katze schläft im Garten, während die Kinder mit einem Ball spielen, der nicht ihrem Bruder gehört.",
    "greek": "Η γάτα κοιμάται στον κήπο και τα παιδιά παίζουν με μια μπάλα που δεν είναι του αδελφού τους.",
    "hindi": "बिल्ली बगीचे में सो रही है और बच्चे एक गेंद से खेल रहे हैं जो उनके भाई की नहीं है।",
    "hungarian": "A macska a kertben alszik, és a gyerekek egy labdával játszanak, ami nem az övék.",
    "indonesian": "Kucing itu tidur di taman dan anak-anak bermain dengan bola yang tidak ada di rumah.",
    "italian": "Il gatto dorme nel giardino mentre i bambini giocano con una palla che non è del fratello.",
    "norwegian": "Katten sover i hagen mens barna leker med en ball som ikke er brorens. Jeg vet ikke hva dette er.",
    "persian": "گربه در باغ خوابیده است و کودکان با توپی که از برادرشان نیست بازی می کنند.",
    "polish": "Kot śpi w ogrodzie, a dzieci bawią się piłką, która nie jest ich brata.",
    "portuguese": "O gato dorme no jardim enquanto as crianças brincam com uma bola que não é do irmão.",
    "romanian": "Pisica doarme în grădină și copiii se joacă cu o minge care nu este a fratelui lor.",
    "russian": "Кошка спит в саду, а дети играют с мячом, который не был их братом выброшен.",
    "spanish": "El gato duerme en el jardín mientras los niños juegan con una pelota que es de su hermano.",
    "swedish": "Katten sover i trädgården medan barnen leker med en boll som inte är deras brors.",
    "turkish": "Kedi bahçede uyuyor ve çocuklar bir top ile oynuyor ama bu top onların değil, çok eski.",
}
UNTOLD = {
    "bulgarian": ("Котката спи в градината, а децата играят с топка, която не е на брат им и за него.", "unicode"),
    "keywords": ("Red running shoes size 10 men", "english"),
    "korean": ("고양이는 정원에서 자고 아이들은 형의 것이 아닌 공을 가지고 논다", "unicode"),
    "nothing": ("", "english"),
    "slovak": ("Mačka spí v záhrade a deti sa hrajú s loptou, ktorá nie je ich brata, ale je na stole.", "unicode"),
    "ukrainian": ("Кішка спить у саду, а діти грають з м'ячем, який не є їхнього брата, але на ньому.", "unicode"),
    "vietnamese": ("Con mèo ngủ trong vườn và bọn trẻ chơi với quả bóng không phải của anh trai.", "unicode"),
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_language_is_told_by_its_stop_words(language: str) -> None:
    assert corpus_analyzer([SENTENCES[language]]) == (language, f"100 % of 1 document look {language.capitalize()}", True)


@pytest.mark.parametrize("language", OURS)
def test_the_samples_are_told(language: str) -> None:
    assert corpus_analyzer(sample(language)[0].values()).analyzer == OURS[language]


@pytest.mark.parametrize("text", UNTOLD)
def test_what_is_not_told_says_so(text: str) -> None:
    told = corpus_analyzer([UNTOLD[text][0]])
    assert told.analyzer == UNTOLD[text][1]
    assert "no language is recognised" in str(told.why) or text == "korean"


def test_a_corpus_of_several_languages() -> None:
    mixed = [SENTENCES["french"], SENTENCES["english"]] * 3
    assert corpus_analyzer(mixed) == ("unicode", "several languages: only 50 % of 6 documents look English", False)
    assert corpus_analyzer([*[SENTENCES["english"]] * 9, SENTENCES["french"]])[:2] == (
        "english",
        "90 % of 10 documents look English",
    )


def test_a_default_index_has_the_analyzer_of_its_corpus(write_corpus: Callable[..., Path], tmp_path: Path) -> None:
    documents, _ = sample("german")
    corpus = write_corpus({"doc_id": list(documents), "text": list(documents.values())})
    block: dict[str, Any] = {"kind": "local", "index": str(tmp_path / "index")}
    ((_, fields),) = local_indexes({"bm25": typed(block)}).items()
    built = build_local_index(tmp_path / "index", corpus, fields)
    assert built.notes == ["analyzer german: 100 % of 30 documents look German"]
    retriever = open_retriever("bm25", typed(block))
    assert retriever.identity()["analyzer"] == "german"
    assert {"g01", "g02"} == set(retriever.search([SearchText("die Häuser")], 5).doc_ids.to_pylist())
    again = build_local_index(tmp_path / "index", corpus, index_fields("german"))  # said or told: it is the same index
    assert (again.built, again.notes) == (False, [])
    with pytest.raises(RetrieverError, match="built with analyzer 'german', the config asks for 'english'"):
        open_retriever("bm25", typed(block | {"analyzer": "english"}))


@pytest.mark.parametrize(
    ("analyzer", "language", "warned"),
    [
        ("english", "german", True),
        ("english", "french", True),
        ("swedish", "danish", True),
        ("german", "german", False),
        ("unicode", "german", False),  # a choice of words as they are
        ("estonian", "dutch", False),  # has no stop words here, so the two cannot be compared
    ],
)
def test_an_analyzer_of_another_language_is_warned_of(
    analyzer: str, language: str, warned: bool, write_corpus: Callable[..., Path], tmp_path: Path
) -> None:
    corpus = write_corpus({"doc_id": [f"d{n}" for n in range(30)], "text": [SENTENCES[language]] * 30})
    block = {"kind": "local", "index": str(tmp_path / "index"), "analyzer": analyzer}
    ((_, fields),) = local_indexes({"bm25": typed(block)}).items()
    for built in (True, False):
        summary = build_local_index(tmp_path / "index", corpus, fields)
        assert summary.built == built
        looks = f"analyzer {analyzer}, but 100 % of 30 documents look {language.capitalize()}" if warned else None
        assert read_index(tmp_path / "index")["fields"]["bm25"]["analyzer"] == analyzer
        assert summary.notes == ([f"warning: {looks}"] if warned else [])
        said = outcome(summary)
        assert said.endswith(f"; warning: {looks}" if warned else ("built" if built else "to do"))
        assert "\n" not in said


@pytest.mark.parametrize(
    ("language", "analyzer"),
    [("bulgarian", "russian"), ("ukrainian", "russian"), ("slovak", "czech"), ("keywords", "german")],
)
def test_what_is_not_told_is_not_warned_of(language: str, analyzer: str) -> None:
    assert other_language(analyzer, [UNTOLD[language][0]] * 20) is None
