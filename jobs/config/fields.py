"""What all models of the config share."""

from __future__ import annotations

from pydantic import ConfigDict, Field

FROZEN = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)
NOT_IDENTITY = Field(json_schema_extra={"identity": False})
"""Marks a field that does not count for a run's fingerprint (`jobs/job/keys.py`)."""
