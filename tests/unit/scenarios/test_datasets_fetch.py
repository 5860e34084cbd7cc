"""Downloads from a server on this machine: verified and whole, or not there."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from whyidle.errors import DataError
from whyidle.scenarios.datasets.fetch import fetch

CONTENT = bytes(range(256)) * 20
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/absent":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.path == "/whole":
            self.wfile.write(CONTENT)
        elif self.path == "/cut-off":
            self.wfile.write(CONTENT[:1000])
        elif self.path == "/other":
            self.wfile.write(CONTENT[::-1])

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def nothing(text: str) -> None:
    """Says nothing."""


def test_a_file_is_there_once_its_checksum_is_right(server: str, tmp_path: Path) -> None:
    said: list[str] = []
    target = tmp_path / "set" / "file.gz"
    assert fetch([f"{server}/whole"], target, md5=MD5, say=said.append) == target
    assert target.read_bytes() == CONTENT
    assert said == [f"Downloading {server}/whole"]
    assert [path.name for path in target.parent.iterdir()] == ["file.gz"]


@pytest.mark.parametrize("bad", ["absent", "cut-off", "other"])
def test_the_next_mirror_is_asked(server: str, tmp_path: Path, bad: str) -> None:
    fetch([f"{server}/{bad}", f"{server}/whole"], tmp_path / "file", md5=MD5, say=nothing)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(("bad", "why"), [("absent", "Not Found"), ("cut-off", "its md5 is"), ("other", "its md5 is")])
def test_a_bad_download_leaves_nothing_and_says_where_to_put_the_file(
    server: str, tmp_path: Path, bad: str, why: str
) -> None:
    with pytest.raises(DataError) as caught:
        fetch([f"{server}/{bad}"], tmp_path / "file.gz", md5=MD5, say=nothing)
    assert "\n" not in str(caught.value)
    for part in (why, f"{server}/{bad}", f"put the file (md5 {MD5}) into {tmp_path}", "--data"):
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(server: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch([f"{server}/whole"], tmp_path / "taken" / "file", md5=MD5, say=nothing)


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    assert fetch(["http://127.0.0.1:9/file"], tmp_path / "file", sha256=SHA256, say=nothing).read_bytes() == CONTENT


def test_another_file_in_its_place_is_refused_and_left_alone(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match="is cut off or another file: its md5 is") as caught:
        fetch([f"{server}/whole"], tmp_path / "file", md5=MD5, say=nothing)
    assert f"the published one's {MD5}" in str(caught.value)
    assert (tmp_path / "file").read_bytes() == CONTENT[:-1]


def test_a_download_without_a_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no checksum"):
        fetch([], tmp_path / "file", say=nothing)
