"""Read objects in S3, Google Cloud Storage, Azure and HDFS.

An address such as s3://bucket/folder/file works in place of a file path. `place_of` turns it into an `Address`, which
is also a path, but read-only. Credentials come from the environment.
"""

from __future__ import annotations

from tracekit.places.address import Address, is_remote, place_of, refuse_remote, remote_form
from tracekit.places.stores import failure_behind

__all__ = ["Address", "failure_behind", "is_remote", "place_of", "refuse_remote", "remote_form"]
