"""Pauses between the sends of a request, and what a server says without its secrets."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.cause import one_line, redacted
from cluster.outages import FIRST_PAUSE, pause


@given(st.integers(1, 10_000), st.floats(0.01, 600), st.floats(0, 1))
def test_a_pause_doubles_with_each_failure_up_to_the_longest(failures: int, longest: float, least: float) -> None:
    most = min(longest, FIRST_PAUSE * 2 ** min(failures - 1, 30))
    assert least * most * (1 - 1e-9) <= pause(failures, longest, least) <= most * (1 + 1e-9)


def test_clients_that_failed_together_do_not_return_together() -> None:
    assert len({pause(3) for _ in range(100)}) > 90


@given(st.text(), st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8), max_size=3))
def test_a_message_has_no_secret_and_one_line(said: str, secrets: list[str]) -> None:
    found = redacted(f"{said} {' '.join(secrets)} {said}", secrets)
    assert not any(secret in found for secret in secrets if not set(secret) <= set("*"))
    assert found == one_line(found, None)
    assert found.isprintable() or not found
    assert len(redacted(said, secrets, 9)) <= 9
