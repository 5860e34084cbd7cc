"""Lines of source of a process of another user: what that user may read, as it sees its files, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from whyidle.capture.stacks import source
from whyidle.capture.stacks.source import SourceLines

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")


@pytest.fixture
def files() -> Iterator[Path]:
    """A folder that anybody may look into."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


@contextmanager
def process(root: str, user: int) -> Iterator[int]:
    """A process that sees files from `root` on, as this user."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chroot(root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writes, b"!")
            signal.pause()
        finally:
            os._exit(1)
    try:
        assert os.read(reads, 1) == b"!"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)


def write(path: Path, mode: int, owner: int = 0) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{path.stem} = 1\n")
    path.chmod(mode)
    os.chown(path, owner, owner)
    return str(path)


@pytest.mark.parametrize("kernel", ["with openat2", "older"])
def test_only_what_its_user_may_read(files: Path, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = SourceLines()
    closed = write(files / "closed" / "inner.py", 0o644)
    (files / "closed").chmod(0o700)
    (files / "link.py").symlink_to("/etc/shadow")
    # To be looked into by a process that is its user, it must have begun as that: so has each that runs a program.
    with subprocess.Popen(["sleep", "600"], user=NOBODY, group=NOBODY, extra_groups=[]) as nobody:
        try:
            if kernel == "older":
                monkeypatch.setattr(source, "_OPENAT2", 100_000)
            assert lines(nobody.pid, write(files / "anyones.py", 0o644), 1) == ""
            lines = SourceLines()
            lines.hold(nobody.pid)
            assert lines(nobody.pid, write(files / "anyones.py", 0o644), 1) == "anyones = 1"
            assert lines(nobody.pid, write(files / "its.py", 0o600, NOBODY), 1) == "its = 1"
            assert lines(nobody.pid, write(files / "roots.py", 0o600), 1) == ""
            assert lines(nobody.pid, closed, 1) == ""
            assert lines(nobody.pid, str(files / "link.py"), 1) == ""
        finally:
            nobody.kill()
    # We are ourselves again, and read our own files.
    assert (os.geteuid(), os.getegid()) == (0, 0)
    assert lines(os.getpid(), closed, 1) == "inner = 1"


@pytest.mark.parametrize("user", [0, NOBODY])
def test_links_lead_to_files_of_its_root_and_never_to_ours(
    files: Path, user: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = files / "root", files / "ours"
    write(inside / "code.py", 0o644)
    write(outside / "secret.py", 0o644)
    (inside / "link.py").symlink_to("/code.py")
    (inside / "up.py").symlink_to(f"../../..{outside}/secret.py")
    (inside / "out.py").symlink_to(f"{outside}/secret.py")
    with process(str(inside), user) as pid:
        lines = SourceLines()
        lines.hold(pid)
        assert lines(pid, "/code.py", 1) == lines(pid, "/link.py", 1) == "code = 1"
        assert lines(pid, "/up.py", 1) == lines(pid, "/out.py", 1) == lines(pid, f"{outside}/secret.py", 1) == ""
        # Without a way to stay within its root, none of its files is opened.
        monkeypatch.setattr(source, "_OPENAT2", 100_000)
        lines = SourceLines()
        lines.hold(pid)
        assert lines(pid, "/code.py", 1) == lines(pid, "/out.py", 1) == lines(pid, f"{outside}/secret.py", 1) == ""
