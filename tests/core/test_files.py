"""A file that is written is whole or not there, and what cannot be written is refused
beforehand.
"""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from core.errors import InflightError
from core.files import open_file, require_file, require_writable, written
from core.recorders.raw import read_raw
from core.serving.http.collect import token_of
from core.simulate.named import cost_in
from core.trace.trace import Trace
from core.workload.datasets import read_dataset
from core.workload.workload import Workload


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "t"
    path.write_text("old")
    path.chmod(0o640)
    with written(path) as out:
        out.write("new")
        out.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o640
    for stop in (KeyboardInterrupt, ValueError):
        with pytest.raises(stop), written(path) as out:
            out.write("half")
            raise stop
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["t"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to("real")
    with written(tmp_path / "link") as out:
        out.write("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    require_writable(pipe)  # does not open it: its reader would see an end
    reader.start()
    with written(pipe) as out:
        out.write("new")
    reader.join()
    assert read == ["new"] and pipe.is_fifo()


def test_a_full_disk_is_said_of_the_file_and_leaves_the_old_one(tmp_path):
    (path := tmp_path / "t").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(InflightError) as refused, written(path) as out:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
        try:
            out.write("new")
            out.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(refused.value) == f"{path} cannot be written: File too large."
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["t"]


def test_what_goes_wrong_with_another_file_is_not_said_of_this_one(tmp_path):
    with pytest.raises(FileNotFoundError), written(tmp_path / "t") as out:
        out.write(Path(tmp_path / "other").read_text(encoding="utf-8"))


def test_what_cannot_be_written_is_refused_beforehand(tmp_path):
    (here := tmp_path / "here").write_text("old")
    (circle := tmp_path / "circle").symlink_to("circle")
    (astray := tmp_path / "astray").symlink_to("nowhere/t")
    for path, words in (
        (tmp_path / "nowhere" / "t", f"there is no folder {tmp_path / 'nowhere'}."),
        (astray, f"there is no folder {tmp_path / 'nowhere'}."),
        (tmp_path, "it is a folder."),
        (Path("/"), "it is a folder."),
        (circle, "Too many levels of symbolic links."),
        (tmp_path / ("t" * 300), "File name too long."),
        (here / "t", "there is no folder"),
        (Path("-"), "name a file, or /dev/stdout"),
    ):
        with pytest.raises(InflightError) as refused:
            require_writable(path)
        assert str(refused.value).startswith(f"{path} cannot be written: ") and words in str(
            refused.value
        )
    (tmp_path / "down").mkdir()
    (link := tmp_path / "link").symlink_to("here")
    for again in (here, link, tmp_path / "down" / ".." / "here"):
        with pytest.raises(InflightError, match="twice"):
            require_writable(here, None, again)
        with pytest.raises(InflightError, match="it is what is read"):
            require_writable(here, read=[again])
        with pytest.raises(InflightError, match="it is what is read"):
            require_writable(again, read=[here])
    require_writable(here, tmp_path / "new", read=[tmp_path / "other"])
    assert here.read_text() == "old" and sorted(os.listdir(tmp_path)) == [
        "astray",
        "circle",
        "down",
        "here",
        "link",
    ]


def test_what_is_no_file_is_said_to_be_none_and_nobody_waits_at_a_pipe(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe.json")
    for path, kind in (
        (pipe, "is not a regular file"),
        (tmp_path, "is a folder"),
        (tmp_path / "none", "There is no file"),
    ):
        with pytest.raises(InflightError, match=kind):
            require_file(path)
    for read in (Workload.load, Trace.load, read_dataset, cost_in, lambda p: read_raw([p])):
        with pytest.raises(InflightError, match="cannot be read: It is not a regular file"):
            read(pipe)
        with pytest.raises(InflightError, match=r"cannot be read: Is a directory|is a folder"):
            read(tmp_path)
    (tmp_path / ".token").symlink_to(pipe)
    with pytest.raises(InflightError, match="It is not a regular file"):
        token_of(tmp_path)


def test_an_empty_token_in_the_environment_is_no_token(tmp_path, monkeypatch):
    monkeypatch.setenv("INFLIGHT_COLLECT_TOKEN", "named")
    assert (token_of(tmp_path), token_of(tmp_path, "given")) == ("named", "given")
    monkeypatch.setenv("INFLIGHT_COLLECT_TOKEN", "")
    with pytest.raises(InflightError, match="The collector's token is empty"):
        token_of(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_stream_in_dev_is_as_good_as_a_file():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out:
        out.write("{}")
    with os.fdopen(reading), open_file(f"/dev/fd/{reading}") as file:
        assert file.read() == b"{}"


@pytest.mark.parametrize("name", ["t" * 255, "ä" * 127, "t" * 252 + ".gz"])
def test_the_longest_names_that_there_are_can_be_written(tmp_path, name):
    path = tmp_path / name
    require_writable(path)
    with written(path) as out:
        out.write("new")
    assert os.listdir(tmp_path) == [name]
