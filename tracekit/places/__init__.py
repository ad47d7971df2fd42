"""Read places outside this machine's disks: objects in S3, Google Cloud Storage, Azure and HDFS.

You can give an address such as s3://bucket/folder/file instead of a file path. `place_of` turns it into an `Address`,
which is also a path. An address is read-only. Credentials come from the environment.
"""

from __future__ import annotations

from tracekit.places.address import Address, is_remote, place_of, refuse_remote, remote_form
from tracekit.places.stores import failure_behind

__all__ = ["Address", "failure_behind", "is_remote", "place_of", "refuse_remote", "remote_form"]
