"""Laws of the normal form, and that it leaves other writing systems alone."""

from __future__ import annotations

import os
import re
import unicodedata
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.normalise import PLAIN, id_bytes, normalise, query_id

ANY_TEXT = st.text(alphabet=st.characters(codec=None))  # lone surrogates included
SPACES = st.text(alphabet=" \t\n\r\u00a0\u2003\u3000\x1f\x85\u2028", min_size=1, max_size=4)
CASED = st.text(alphabet="abcXYZ 0123äÖéØßñçŁ.,-'αβΓΔжШ你好キ")


@given(ANY_TEXT | st.text(alphabet=st.sampled_from("ßŉǰΐΰևẖẗẘẙẚſıİKÅﬀﬃ\u0345\u0301\u0308\u0327aiI¨ˢ")))
def test_it_is_idempotent_and_has_single_spaces_within(query: str) -> None:
    assert normalise(normalise(query)) == normalise(query) == " ".join(normalise(query).split())


@given(CASED)
def test_case_does_not_count(query: str) -> None:
    assert normalise(query.upper()) == normalise(query) == normalise(query.lower())


@given(st.lists(st.text(alphabet="abC1é汉ع", min_size=1), max_size=5), st.data())
def test_white_space_counts_only_as_a_border(words: list[str], data: st.DataObject) -> None:
    query = "".join(data.draw(SPACES) + word for word in words) + data.draw(SPACES)
    assert normalise(query) == normalise(" ".join(words))


@given(ANY_TEXT)
def test_nothing_but_nfkc_casefold_and_white_space_changes(query: str) -> None:
    def fold(text: str) -> str:
        return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())

    assert "".join(normalise(query).split()) == "".join(fold(fold(query)).split())


@given(st.from_regex(PLAIN, fullmatch=True))
def test_plain_text_is_its_own_normal_form(query: str) -> None:
    assert normalise(query) == query


@given(st.text(alphabet=st.sampled_from("az AZ09~!\t\n\x0b\x1c\x1f\x00\x7fé\u00a0ſK")))
def test_no_text_that_normalising_changes_is_plain(query: str) -> None:
    assert normalise(query) == query or not re.fullmatch(PLAIN, query)


@pytest.mark.parametrize(("log", "distinct"), [("terabyte05_50k", 42_169), ("bing_covid_jan2020", 6_256)])
def test_distinct_queries_of_the_real_logs(log: str, distinct: int) -> None:
    shared = os.environ.get("DMQR_SHARED")
    if not shared:
        pytest.skip("DMQR_SHARED is not set: the real logs are not here")
    dataset = pytest.importorskip("pyarrow.dataset")
    column = dataset.dataset(Path(shared) / "logs" / log, format="parquet").to_table(columns=["query"])["query"]
    assert len({normalise(query) for query in column.to_pylist() if query and query.strip()}) == distinct


pieces = st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n", "\u2028", "\x1c", "\x00", "\u0301", ""]), max_size=6).map(
    "".join
)


@given(pieces, pieces, pieces, pieces)
def test_two_pairs_share_an_id_only_where_their_normal_forms_are_equal(a: str, after_a: str, b: str, after_b: str) -> None:
    same = (normalise(a), normalise(after_a)) == (normalise(b), normalise(after_b))
    assert (query_id(a, after_a) == query_id(b, after_b)) == same


@given(pieces)
def test_without_earlier_turns_the_id_is_that_of_the_words(query: str) -> None:
    alone = sha256(normalise(query).encode()).hexdigest()[:32]
    assert {query_id(query), query_id(query, None), query_id(query, ""), query_id(query, " \n\u3000")} == {alone}


def test_how_words_and_turns_are_joined() -> None:
    whole = b"and on sundays?\nany trains to the coast? every hour"
    assert query_id("And on  Sundays?", "Any trains to the coast?\nEvery hour") == sha256(whole).hexdigest()[:32]
    assert id_bytes("and on sundays?", "any trains to the coast? every hour").hex() == sha256(whole).hexdigest()[:32]
