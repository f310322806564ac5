"""Fixtures that tests of the store share."""

from collections.abc import Callable

import pytest

from cluster.storage.files import FileStorage

Killing = Callable[[int, pytest.MonkeyPatch], None]


@pytest.fixture
def killed_after() -> Killing:
    """Raises SystemExit instead of the next change of a store, after so many that are no lease's."""

    def patched(kept: int, patch: pytest.MonkeyPatch) -> None:
        changes = iter(range(100))

        def killing(change: Callable[..., object]) -> Callable[..., object]:
            def changed(self: FileStorage, *of: object) -> object:
                if not str(of[:1]).count("lease") and next(changes) >= kept:
                    raise SystemExit
                return change(self, *of)

            return changed

        for name in ("put", "delete"):
            patch.setattr(FileStorage, name, killing(getattr(FileStorage, name)))

    return patched
