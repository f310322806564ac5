"""The functions that bring a finished run to a search: each returns what its verb prints with `--json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmqr.results import Run

Folder = str | os.PathLike[str]


def export(
    run: Run | Folder,
    to: str | None = None,
    /,
    *,
    version: str | None = None,
    since: str | None = None,
    options: Mapping[str, Any] | None = None,
    url_env: str | None = None,
    api_key_env: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Writes the look-up rows of a finished run, as a version, to a target, or finds them there.

    Args:
        run: a run, or its folder, as `open` takes it.
        to: a folder, s3://BUCKET/FOLDER or elastic:NAME; None: `publish.to` of the run's config.
        version: its name; None: the run's id without the config's name.
        since: an earlier version of the target that it is compared with.
        options: of formats, by name, like `{"synonym_rules": 5000}`.
        url_env: of elastic:NAME: the environment variable with the address; None: ELASTICSEARCH_URL.
        api_key_env: the one with an API key; None: the server asks for none.
        settings: keys of `publish` that come before the run's: `formats`, `strategies`, `min_added`, `hits`, `buckets`, `salt`.

    Raises:
        DmqrError: the run, an argument or what lies at the target does not allow it.
    """
    from jobs.runs.folder import open_run
    from jobs.verbs.publishing import ExportArguments, exported

    given = ExportArguments(_with(to, settings), version, since, dict(options or {}), (url_env, api_key_env))
    return exported(open_run(_folder(run)), given).values()


def promote(
    run: Run | Folder,
    to: str | None = None,
    /,
    *,
    version: str | None = None,
    gates: Mapping[str, Any] | None = None,
    check: bool = False,
    qrels: Folder | None = None,
    key: str | None = None,
    url_env: str | None = None,
    api_key_env: str | None = None,
) -> dict[str, Any]:
    """Makes an exported version the one that a search uses, if the gates hold; with `check` it only says what they say.

    Args:
        run: as of `export`; so are the arguments that are not named here.
        to: as of `export`.
        version: as of `export`.
        gates: bounds that come before the run's (`publish.gates`), like `{"coverage": 0.9}`.
        check: whether nothing is to be changed; then gates that do not hold are in the values, and no error.
        qrels: judgements for the gate of quality; None: those of the run's config, else of its judge.
        key: what they name: log_id, query_id or query; None: as the run's config says.
        url_env: as of `export`.
        api_key_env: as of `export`.

    Raises:
        DmqrError: a gate does not hold (`code` is publish-gate), another promotion came first (publish-overtaken), or the
            version is not there.
    """
    from jobs.runs.folder import open_run
    from jobs.verbs.inputs import GroundTruth
    from jobs.verbs.publishing import PromoteArguments, promoted

    bounds = {f"gates.{name}": bound for name, bound in (gates or {}).items()}
    given = PromoteArguments(_with(to, bounds), version, (url_env, api_key_env), check)
    named: dict[str, Any] = {"qrels": None if qrels is None else os.fspath(qrels), "key": key}
    truth = GroundTruth(lambda _: None, "qrels", dashes="", **named)
    return promoted(open_run(_folder(run)), given, truth).values()


def rollback(to: str, /, *, check: bool = False, url_env: str | None = None, api_key_env: str | None = None) -> dict[str, Any]:
    """Makes the version before the promoted one the one that a search uses; with `check` it only says which that is.

    Arguments are those of `export`.

    Raises:
        DmqrError: there is none, it is gone, or another promotion came first.
    """
    from jobs.verbs.publishing import rolled_back

    return rolled_back(to, (url_env, api_key_env), check=check).values()


def _folder(run: Run | Folder) -> str:
    return os.fspath(run) if isinstance(run, str | os.PathLike) else run.folder


def _with(to: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    return dict(settings) if to is None else {**settings, "to": to}
