"""What the tests of fits share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="package")
def _one_blas_thread() -> Iterator[None]:
    """Fit as `tracekit.fit` does, also where a test calls what is below it."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield
