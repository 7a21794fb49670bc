"""What was built for the programs goes with the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from foreign_client import remove_builds


@pytest.fixture(scope="session", autouse=True)
def _builds() -> Iterator[None]:
    yield
    remove_builds()
