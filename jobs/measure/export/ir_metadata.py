"""The ir_metadata header of an arm's TREC run file: what made the run, in YAML behind comment signs.

The schema (0.1) follows PRIMAD: platform, research goal, implementation, method, actor, data; https://www.ir-metadata.org,
Breuer, Keller and Schaer, ir_metadata: An Extensible Metadata Schema for IR Experiments (SIGIR 2022). Said is only what the
ablation has recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from jobs.runs.arms import arm_values, described_arm
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import masked

if TYPE_CHECKING:
    from jobs.measure.compare.comparison import Comparison

START, END = "# ir_metadata.start", "# ir_metadata.end"
SCHEMA = 0.1
CORRECTIONS = {"grid": "Benjamini-Hochberg", "always": "Holm", "arms": "Holm", "subsets": "Holm"}  # by family


def metadata_header(run: RunFolder, comparison: Comparison, arm: str, tags: Mapping[str, str]) -> str:
    """Returns the header of an arm's run file, with its line ends.

    Args:
        run: of the ablation.
        comparison: of its arms.
        arm: whose run it is.
        tags: arm -> run tag.
    """
    values = masked(_metadata(run, comparison, arm, tags))
    text = yaml.safe_dump(values, sort_keys=False, width=4096)  # ASCII: other characters are escaped
    return "".join(f"{line}\n" for line in (START, *(f"# {line}" for line in text.splitlines()), END))


def _hardware(start: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the machines have; on one machine its CPUs, where Ray counts those that the pools asked for."""
    resources = dict(start["resources"])
    if start.get("machine_cpus"):
        resources["cpus"] = float(start["machine_cpus"])
    return resources


def _metadata(run: RunFolder, comparison: Comparison, arm: str, tags: Mapping[str, str]) -> dict[str, Any]:
    config, last = run.config, run.record["starts"][-1]
    versions = {name: version for name, version in run.record["versions"].items() if version is not None}
    correction = CORRECTIONS.get(comparison.families.get(arm, ""))
    judged = {"qrels": config.evaluate.qrels, "topics": config.log.path}
    return {
        "schema-version": SCHEMA,
        "run-version": 1.0,
        "tag": tags[arm],
        "platform": {"hardware": _hardware(last), "software": {"python": versions}},
        "research goal": {
            "evaluation": {
                "reported measures": list(comparison.frame.measures),
                "baseline": [tags[comparison.base_of(arm)]],
                "significance test": [{"name": "paired t-test"} | ({"correction method": correction} if correction else {})],
            }
        },
        "implementation": {
            "executable": {"cmd": f"dmqr ablate {run.record['config_file']}"},
            "source": {"lang": ["python"]},
            "run": run.record["run_id"],
        },
        "method": {
            "automatic": True,
            "score ties": "none: scores are 1 / rank",
            "arm": arm,
            "changes": described_arm(run, arm).get("changes", {}),
            "retrieval": stages_of(run, arm),
        },
        "actor": {"role": "experimenter"},
        "data": {"test collection": {name: path for name, path in judged.items() if path is not None}},
    }


def stages_of(run: RunFolder, arm: str) -> list[dict[str, Any]]:
    """Returns the stages of an arm, or of a run: the retrievers, the fusion of their lists, the reranker."""
    described, values = described_arm(run, arm), arm_values(run, arm)
    texts = ["original"] * bool(described.get("original", True)) + list(described.get("strategies", []))
    retrievers, fused, reranked = values["retrieve"]["retrievers"], values["fuse"], values["rerank"]
    stages: list[dict[str, Any]] = [
        {"name": name, "method": settings["kind"], "texts": list(texts)} for name, settings in retrievers.items()
    ]
    fusion = {key: fused[key] for key in ("method", "k", "depth", "keep")}
    stages.append({"name": "fusion", **fusion, "interpolates": list(retrievers)})
    if reranked["kind"] != "none":
        stages.append({"name": "reranker", "method": reranked["kind"]})
        stages[-1] |= {key: reranked[key] for key in ("model", "combine", "keep")} | {"reranks": "fusion"}
        stages[-1] |= {"budget": reranked["budget"]} if reranked.get("budget") else {}
    if "tails" in run.tables:
        behind = "the other candidates in their order, then the fused documents that are none"
        stages.append({"name": "tail", "method": behind, "for": "measures that read deeper than the results"})
    return stages
