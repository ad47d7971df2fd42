"""The catalog of public traces is complete and usable."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tracekit import datasets
from tracekit.datasets import Dataset, RemoteFile, all_datasets, find_dataset
from tracekit.errors import UsageError
from tracekit.ingest import all_formats

EVERY = list(all_datasets().values())
FILES = [(d, f) for d in EVERY for f in d.files]


def test_it_holds_every_public_trace_that_tracekit_reads() -> None:
    names = ["philly", "helios", "alibaba-pai", "alibaba-openb", "alibaba-dlrm", "alibaba-spot", "acme", "infinitehbd"]
    assert list(all_datasets()) == names
    assert set(names) == set(all_formats()) - {"csv", "flux", "kubernetes", "lsf", "pbs", "slurm", "swf"}


@pytest.mark.parametrize("dataset", EVERY, ids=lambda d: d.name)
def test_each_has_licence_study_origin_and_a_format(dataset: Dataset) -> None:
    assert dataset.title
    assert dataset.licence
    assert re.search(r"^\w+ et al\., .+ 20\d\d$", dataset.citation)
    assert all(urlsplit(url).scheme == "https" for url in (dataset.paper, dataset.origin))
    assert dataset.format in all_formats()
    assert dataset.bytes > 0
    assert len({f.name for f in dataset.files}) == len(dataset.files) > 0


@pytest.mark.parametrize(("dataset", "file"), FILES, ids=[f"{d.name}-{f.name}" for d, f in FILES])
def test_each_file_has_a_size_addresses_and_a_sound_checksum(dataset: Dataset, file: RemoteFile) -> None:
    assert re.fullmatch(r"[A-Za-z0-9][\w.-]*", file.name)
    assert (file.bytes or file.about_bytes or 0) > 0
    assert len(set(file.urls)) == len(file.urls) >= 2
    for url in file.urls:
        assert urlsplit(url).scheme == "https"
        assert Path(urlsplit(url).path.removesuffix(".part*")).name == file.name
        # Parts are joined until the size is reached, so that it must be known.
        assert "*" not in url.removesuffix("*")
        assert file.bytes is not None or not url.endswith("*")
    if file.sha256 is None:
        assert file.sha256_from is None
    else:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.sha256_from in ("publisher", "git-lfs", "recorded")
        assert file.bytes is not None
    # A sum that only others recorded belongs to a revision, which the first address must name.
    if file.sha256_from == "recorded":
        assert re.search(r"/[0-9a-f]{40}/", file.urls[0])


@pytest.mark.parametrize("file", [f for d, f in FILES], ids=[f"{d.name}-{f.name}" for d, f in FILES])
def test_the_format_knows_each_file(file: RemoteFile) -> None:
    (owner,) = (d for d, f in FILES if f is file)
    kinds = all_formats()[owner.format].raw_files
    inside = {"trace-data.tar.gz": "cluster_job_log", "data.zip": "cluster_log.csv"}
    unread = ("pai_sensor_table.", "pai_group_tag_table.", "pai_machine_metric.")
    name = inside.get(file.name, file.name).replace(".tar.gz", ".csv")
    assert any(kind.named(name) for kind in kinds) or file.name.startswith(unread)


def test_known_sums_are_those_of_the_publishers() -> None:
    (philly,) = find_dataset("philly").files
    assert philly.bytes == 1_055_988_361
    assert philly.sha256 == "2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c"
    pai = {f.name: f for f in find_dataset("alibaba-pai").files}
    assert len(pai) == 14
    assert {f.sha256_from for f in pai.values()} == {"publisher"}
    assert pai["pai_job_table.tar.gz"].sha256 == "5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0"


def test_size_is_exact_only_when_every_file_is() -> None:
    assert find_dataset("philly").size_is_exact
    assert not find_dataset("acme").size_is_exact
    assert find_dataset("acme").bytes == 108_000_000


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^unknown dataset 'heliso'; did you mean 'helios'\?$"):
        find_dataset("heliso")


def test_exports_are_complete() -> None:
    assert sorted(datasets.__all__) == datasets.__all__
    assert all(hasattr(datasets, name) for name in datasets.__all__)
