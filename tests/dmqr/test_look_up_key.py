"""The look-up function is the `query_id` of the tables."""

from __future__ import annotations

import dmqr
from rewriters.normalise import query_id


def test_it_is_the_query_id_of_the_tables() -> None:
    assert dmqr.look_up_key("  Water on the ROAD ahead that isn't there ") == "bee42934aeb07bcbc440f344827289a3"
    turns = "any trains to the coast?"
    assert dmqr.look_up_key("And on Sundays?", turns) == query_id("And on Sundays?", turns)


def test_of_a_long_context_the_newest_characters_count() -> None:
    old, new = "b" * 30, "a" * 8000
    assert dmqr.look_up_key("q", old + new) == dmqr.look_up_key("q", new) != dmqr.look_up_key("q", "b" + new[1:])
