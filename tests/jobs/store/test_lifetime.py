"""Rows of before `store_ttl` do not count."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from jobs.config.load import load_config
from tests.support.jobs.nights import Nights
from tests.support.jobs.stored import found, opened, put, texts

DAY = 86_400.0


def test_rows_that_are_too_old_do_not_count(tmp_path: Path) -> None:
    now = time.time()
    put(tmp_path, {"moon": "old", "yeast": "old"}, now - 31 * DAY)
    put(tmp_path, {"moon": "new"}, now - 29 * DAY)
    assert texts(tmp_path, ["moon", "yeast"]) == {"moon": "old", "yeast": "old"}
    assert found(opened(tmp_path, lifetime=30 * DAY), ["moon", "yeast"]) == {"moon": "new"}
    assert found(opened(tmp_path, lifetime=10 * DAY), ["moon", "yeast"]) == {}


@pytest.mark.parametrize("value", ["30", "0d", "1y", "-1d"])
def test_it_is_a_duration(nights: Nights, value: str) -> None:
    with pytest.raises(ConfigError, match="store_ttl"):
        load_config(nights.path, [f'store_ttl="{value}"'])
