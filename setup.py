"""Builds the wheel as pyproject.toml cannot say it: it carries `configs/`, which lies at the top here, as `dmqr/configs`."""

from setuptools import find_namespace_packages, setup

CODE = ("cluster", "dmqr", "jobs", "retrievers", "rewriters")
CONFIGS = "dmqr.configs"

setup(
    packages=[*find_namespace_packages(include=[pattern for name in CODE for pattern in (name, f"{name}.*")]), CONFIGS],
    package_dir={CONFIGS: "configs"},
)
