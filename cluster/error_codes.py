"""The codes of errors, of `error_codes.toml`: what each means, and what to do. docs/errors.md is made from them."""

import tomllib
from pathlib import Path

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    title: {code: (row["meaning"], row["remedy"]) for code, row in codes.items()}
    for title, codes in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
"""Title -> code -> meaning, remedy."""

CODES = {code: row for group in GROUPS.values() for code, row in group.items()}  # all codes
