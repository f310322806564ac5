"""The arms of a stored ablation: what each has that the config has not."""

from __future__ import annotations

from typing import Any

from jobs.runs.folder import RunFolder


def described_arm(run: RunFolder, arm: str) -> dict[str, Any]:
    """Returns an arm as run.json has it; empty for a run, which has none."""
    return next((one for one in run.record.get("ablation", {}).get("arms", ()) if one["name"] == arm), {})


def arm_values(run: RunFolder, arm: str) -> dict[str, Any]:
    """Returns the config of a run, or of an arm, as JSON values."""
    values = run.config.model_dump(mode="json")
    for path, value in described_arm(run, arm).get("changes", {}).items():
        *sections, key = path.split(".")
        place = values
        for section in sections:
            if place.get(section) is None:  # an arm may name keys of a section that the config leaves null
                place[section] = {}
            place = place[section]
        place[key] = value
    return values
