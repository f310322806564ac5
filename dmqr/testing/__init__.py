"""Contracts of plug-ins, for their authors to run: a class of tests for each kind, which is given settings.

    from dmqr.testing import RetrieverContract, settings_of

    class TestOverlap(RetrieverContract):
        def settings(self):
            return settings_of("overlap:OverlapSettings", index="overlap.json")

Then `pytest test_overlap.py`. This project's own retrievers, rerankers and engines are tested by the same classes.
"""

from dmqr.testing.engines import EngineContract
from dmqr.testing.rerankers import RerankerContract
from dmqr.testing.retrievers import RetrieverContract, hits_of
from dmqr.testing.settings import HOSTILE, SettingsContract, engine_settings_of, refusal_of, reranker_settings_of, settings_of

__all__ = [
    "HOSTILE", "EngineContract", "RerankerContract", "RetrieverContract", "SettingsContract", "engine_settings_of", "hits_of",
    "refusal_of", "reranker_settings_of", "settings_of",
]  # fmt: skip
