"""Addresses: what they name, what is refused, and that none is taken for a file on disk."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tracekit.errors import OutputError, StoreError, UsageError
from tracekit.outputs import StagedFolder, check_files, real_path
from tracekit.places import Address, is_remote, place_of, refuse_remote, remote_form
from tracekit.places.stores import native_path

_NAMES = st.text(st.characters(exclude_characters="/\0?@\\", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
_WHOLE = _NAMES.filter(lambda name: name not in {".", ".."})


@pytest.mark.parametrize(
    ("text", "shown", "kind", "bucket", "key", "native"),
    [
        ("s3://bucket/a/b.csv", "s3://bucket/a/b.csv", "s3", "bucket", "a/b.csv", "bucket/a/b.csv"),
        ("s3a://bucket/a/", "s3a://bucket/a", "s3", "bucket", "a", "bucket/a"),
        ("S3://bucket", "s3://bucket", "s3", "bucket", "", "bucket"),
        ("gs://bucket/a", "gs://bucket/a", "gs", "bucket", "a", "bucket/a"),
        ("az://box/a", "az://box/a", "az", "box", "a", "box/a"),
        (
            "abfss://box@site.dfs.core.windows.net/a",
            "abfss://box@site.dfs.core.windows.net/a",
            "az",
            "box@site.dfs.core.windows.net",
            "a",
            "box/a",
        ),
        ("hdfs://host:9000/a/b", "hdfs://host:9000/a/b", "hdfs", "host:9000", "a/b", "/a/b"),
        ("hdfs:///a/b", "hdfs://default/a/b", "hdfs", "default", "a/b", "/a/b"),
    ],
)
def test_an_address_names_a_store_and_an_object(
    text: str, shown: str, kind: str, bucket: str, key: str, native: str
) -> None:
    found = place_of(text)
    assert isinstance(found, Address)
    assert (str(found), found.store, found.bucket, found.key, native_path(found)) == (shown, kind, bucket, key, native)


@pytest.mark.parametrize("text", ["logs", "./s3/x", "/data/s3:/x", "http://host:9090", "file:///x", "s3", "C:/logs"])
def test_all_else_is_a_path_on_disk(text: str) -> None:
    assert not is_remote(text)
    assert place_of(text) == Path(text)
    assert remote_form(text) == text
    refuse_remote(Path(text))


@settings(max_examples=examples(100))
@given(_WHOLE, st.lists(_WHOLE, min_size=1, max_size=4))
def test_an_address_survives_joins_text_paths_and_pickling(bucket: str, names: list[str]) -> None:
    text = f"s3://{bucket}/{'/'.join(names)}"
    whole = place_of(text)
    assert str(whole) == text
    assert place_of(whole) is whole
    assert place_of(Path(text)) == whole  # pathlib leaves one slash of the two
    assert place_of(f"s3://{bucket}").joinpath(*names) == whole
    assert (whole.name, whole.parent / whole.name, str(whole.with_name("x"))) == (
        names[-1],
        whole,
        str(whole.parent / "x"),
    )
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert {whole: 1}[pickle.loads(pickle.dumps(whole))] == 1
    assert real_path(whole) == whole.resolve() == whole.absolute() == whole


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIAID:verysecret@bucket/a",
        "s3://verysecret@bucket/a",
        "abfss://id:verysecret@site.dfs.core.windows.net/a",
        "az://box/a?sv=2024&sig=verysecret",
        "gs://bucket/a?access_token=verysecret",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(text: str) -> None:
    for act in (place_of, lambda given: place_of(Path(given))):
        with pytest.raises(UsageError, match="environment") as caught:
            act(text)
        assert "verysecret" not in str(caught.value)
    with pytest.raises(OutputError) as refused:
        refuse_remote(Path(text))
    assert "verysecret" not in str(refused.value) + remote_form(text)


@pytest.mark.parametrize("text", ["s3://", "s3://b/a//c", "s3://b/../c", "gs://b/./c", "s3://b/a\nc"])
def test_names_that_not_every_store_can_have_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        place_of(text)


def test_nothing_takes_an_address_for_a_file_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    address = place_of("s3://bucket/a")
    with pytest.raises(StoreError, match="is in an object store, but this needs a file on disk"):
        os.stat(address)  # noqa: PTH116 -- what a library does with a path
    for write in (
        lambda: address.mkdir(parents=True),
        lambda: address.write_text("x"),
        lambda: address.write_bytes(b"x"),
        lambda: address.open("ab"),
        lambda: StagedFolder(address, force=True, marker="m", kind="a thing"),
        lambda: StagedFolder(Path("s3://bucket/a"), force=True, marker="m", kind="a thing"),
        lambda: check_files(Path("s3://bucket/a"), force=True),
    ):
        with pytest.raises(
            OutputError, match="s3://bucket/a: is in an object store, which tracekit can only read; write to disk"
        ):
            write()
    assert list(tmp_path.iterdir()) == []
