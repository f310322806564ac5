"""What is sent to workers on other machines: settings that they understand, and the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

import cluster
import jobs
import retrievers
import rewriters
from retrievers.elastic.settings import ElasticSettings
from retrievers.models import at_commit
from retrievers.settings import EncoderSettings, ServerSettings

Model = TypeVar("Model", bound=BaseModel)


def absolute(settings: Model) -> Model:
    """Returns the settings as any worker understands them: paths are absolute, and a hub's model is the one of its commit now.

    A worker has another working directory; and it may start hours later, when the hub has another commit.
    """
    changed: dict[str, Any] = {}
    files = {"ca_file"} if isinstance(settings, ElasticSettings) else {"index", "model"}
    if isinstance(settings, ServerSettings) and settings.kind in ("openai", "server"):  # its model is a name
        files = set()
    files |= {"api_key_file", "password_file"}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            changed[name] = absolute(value)
        elif isinstance(value, dict):
            changed[name] = {key: absolute(one) if isinstance(one, BaseModel) else one for key, one in value.items()}
        elif name in files and value and Path(value).exists():
            changed[name] = str(Path(value).absolute())
        elif name == "model" and _loads(settings):
            changed[name] = at_commit(value)
    return settings.model_copy(update=changed)


def _loads(settings: BaseModel) -> bool:
    """Returns whether workers load the weights that the settings name."""
    return isinstance(settings, EncoderSettings) or getattr(settings, "kind", None) == "cross_encoder"


def package_folders() -> list[str]:
    """Returns the folders of the four packages, to be shipped to worker machines that have not installed them."""
    return [str(Path(package.__path__[0])) for package in (cluster, jobs, retrievers, rewriters)]
