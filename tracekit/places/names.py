"""What a store needs to know of an object."""

from __future__ import annotations

from typing import Protocol


class ObjectName(Protocol):
    """The name of an object, whose text is its address."""

    @property
    def store(self) -> str:
        """The kind of store: s3, gs, az or hdfs."""

    @property
    def bucket(self) -> str:
        """Bucket, container (with the account behind an @), or host of the store."""

    @property
    def key(self) -> str:
        """What stands behind the bucket, '' for the bucket itself."""
