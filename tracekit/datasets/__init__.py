"""The catalog of public traces, and how to fetch them.

from tracekit import datasets
datasets.fetch_dataset("helios", "helios-raw")
"""

from __future__ import annotations

from tracekit.datasets.catalog import Dataset, RemoteFile, all_datasets, find_dataset
from tracekit.datasets.fetch import FetchedFile, choose_files, fetch_dataset

__all__ = [
    "Dataset",
    "FetchedFile",
    "RemoteFile",
    "all_datasets",
    "choose_files",
    "fetch_dataset",
    "find_dataset",
]
