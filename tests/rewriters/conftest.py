"""Property tests without a time limit per example: the machine that runs them may be busy."""

from __future__ import annotations
