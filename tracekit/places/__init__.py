"""Places that are not on a disk of this machine: objects of S3, Google Cloud Storage, Azure and HDFS.

An address such as s3://bucket/folder/file stands where the path of a file would: `place_of` makes an `Address` of it,
which is a path too. It can be looked at and read; nothing can be written to it. Credentials come from the environment.
"""

from __future__ import annotations

from tracekit.places.address import Address, is_remote, place_of, refuse_remote, remote_form
from tracekit.places.stores import failure_behind

__all__ = ["Address", "failure_behind", "is_remote", "place_of", "refuse_remote", "remote_form"]
