"""Personal data do not leave, and come back into the rewrites."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.guards.mask import Mask, has_check_digit, unmasked

ALL = ("mail", "phone", "card")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("who is ann.lee+x@mail.example.org?", "who is <MAIL_1>?"),
        ("from a@b.io to c@d.io and A@b.io, a@b.io", "from <MAIL_1> to <MAIL_2> and <MAIL_3>, <MAIL_1>"),
        ("card 4111 1111 1111 1111 refused", "card <CARD_1> refused"),
        ("card 4111-1111-1111-1111", "card <CARD_1>"),
        ("card 4111 1111 1111 1111 12/28", "card <CARD_1> 12/28"),
        ("12 4111 1111 1111 1111 123", "12 <CARD_1> 123"),
        ("who calls from +49 30 1234567", "who calls from <PHONE_1>"),
        ("0044 20 7946 0000", "<PHONE_1>"),
        ("(030) 1234567 at night", "<PHONE_1> at night"),
        ("030/1234567", "<PHONE_1>"),
        ("555-010-0417 again", "<PHONE_1> again"),
        ("tel. 1234567", "tel. <PHONE_1>"),
        ("<MAIL_1> and a@b.io", "<MAIL_1> and <MAIL_2>"),
    ],
)
def test_what_is_masked(text: str, masked: str) -> None:
    mask = Mask(ALL)
    assert mask(text) == masked
    assert unmasked(masked, mask.values) == text


@pytest.mark.parametrize(
    "text",
    [
        "from 1990-2000 in 2025-03-05 at 10:30",
        "isbn 978-3-16-148410-0",
        "order 4111 1111 1111 1112",  # no check digit
        "192.168.100.200 and 10.0.0.1",
        "python 3.11.7 on windows 10 22631.4317",
        "12000000 people and 3,500,000 euros",
        "0.1 + 0.2",
        "chmod 0644 id_rsa",
        "@home and a@b",
        "call 911",
    ],
)
def test_what_is_not(text: str) -> None:
    assert Mask(ALL)(text) == text


def test_only_what_is_asked_for() -> None:
    assert Mask(["mail"])("a@b.io +49 30 1234567") == "<MAIL_1> +49 30 1234567"
    assert Mask([])("a@b.io") == "a@b.io"


def test_placeholders_hold_for_all_texts_of_a_query() -> None:
    mask = Mask(ALL)
    assert (mask("a@b.io"), mask("x@y.io, a@b.io"), mask.counts) == ("<MAIL_1>", "<MAIL_2>, <MAIL_1>", {"mail": 2})


@pytest.mark.parametrize("written", ["<MAIL_1>", "<mail_1>", "[MAIL_1]", "MAIL_1", "&lt;MAIL_1&gt;", "Mail 1", "(MAIL-1)"])
def test_a_placeholder_is_known_however_the_model_writes_it(written: str) -> None:
    assert unmasked(f"owner, {written}, name", {"MAIL_1": "a@b.io"}) == "owner, a@b.io, name"


def test_other_numbers_are_no_placeholder() -> None:
    assert unmasked("MAIL_10 email_1", {"MAIL_1": "a@b.io"}) == "MAIL_10 email_1"


PIECES = st.lists(st.sampled_from(["a@b.io", "+49 30 1234567", "4111111111111111", "why", "12", "MAIL_1", "x-y.z@q.example"]))


@given(PIECES)
def test_what_was_masked_comes_back(pieces: list[str]) -> None:
    text, mask = " ".join(pieces), Mask(ALL)
    masked = mask(text)
    assert unmasked(masked, mask.values) == text
    assert not any(secret in masked for secret in ("a@b.io", "+49 30 1234567", "4111111111111111", "x-y.z@q.example"))


def test_check_digits() -> None:
    assert has_check_digit("4111 1111 1111 1111")
    assert not has_check_digit("4111 1111 1111 1121")
    assert not has_check_digit("0000 0000 0000 0000")
