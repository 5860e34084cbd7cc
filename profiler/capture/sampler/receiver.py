"""The sampler's end of what processes deliver: their records and texts get into the run folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from pathlib import Path

from ...errors import RecordError
from ...record.files import MOST_MESSAGE, append_lines, peer, received_here, socket_address, write_text
from ...record.schema import KINDS, Kind
from ...record.segment import CLOSED, REFUSED, RecordRing, RecordSink

MOST_WAITING = 1024
"""Messages that the sampler has not taken yet."""
MOST_RING = 64 << 20
_FILE = re.compile(r"[\w-]+\.(json|jsonl|tsv|txt)")
"""Names of texts that the sampler writes for others."""


def listen(folder: Path) -> socket.socket | None:
    """Open what a sampler of this folder listens on; `None` where it cannot. Another process may be given it."""
    with contextlib.suppress(OSError):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(socket_address(folder))
            listener.listen(MOST_WAITING)
            return listener
        except OSError:
            listener.close()
    return None


class Receiver:
    """Takes what processes deliver and puts it into the run folder."""

    def __init__(self, folder: Path, listener: socket.socket | None) -> None:
        self._folder = folder
        self.listener = listener
        """Socket that is readable when something has come; `None`: nobody can deliver."""
        self._waiting: list[socket.socket] = []
        self._sinks: list[tuple[RecordSink, int]] = []
        """Files that rings are emptied into, each with the process that stores into it."""
        self._unmade: list[tuple[RecordRing, tuple[Kind, int, int, bool], int]] = []
        """Rings without a file yet, with what names the file and the process that stores into them."""
        self.refused = False
        """Whether processes are to be told that they may not be looked into."""
        if listener is not None:
            listener.setblocking(False)
            received_here.add(socket_address(folder))

    def look(self) -> None:
        """Take what has come. Never raises."""
        while self.listener is not None:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                break
            connection.setblocking(False)
            self._waiting.append(connection)
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            if self._take(connection):
                connection.close()
            else:
                self._waiting.append(connection)
        unmade, self._unmade = self._unmade, []
        for ring, who, process in unmade:
            try:
                self._sinks.append((RecordSink(ring, self._folder, *who, begun=True), process))
            except RecordError:
                # A full disk, say: until there is room the records wait in memory.
                if _lives(process):
                    self._unmade.append((ring, who, process))
        kept = []
        for sink, process in self._sinks:
            over = bool(sink.ring.words[CLOSED]) or not _lives(process)
            sink.ring.words[REFUSED] = self.refused
            if over:
                sink.close()
                sink.ring.close()
            else:
                sink.write()
                kept.append((sink, process))
        self._sinks = kept

    def close(self) -> None:
        """Take what is there, and leave the rest to those who have it: they write themselves from now on."""
        if self.listener is not None:
            with contextlib.suppress(OSError):
                # Nobody connects any more; what has come is still there.
                self.listener.shutdown(socket.SHUT_RD)
        self.look()
        if self.listener is not None:
            self.listener.close()
            received_here.discard(socket_address(self._folder))
        for sink, _ in self._sinks:
            sink.close()
        self._sinks.clear()

    def _take(self, connection: socket.socket) -> bool:
        """Take a message; whether nothing more is to come from there."""
        descriptors: list[int] = []
        try:
            data, descriptors, *_ = socket.recv_fds(connection, MOST_MESSAGE, 1)
            process, user = peer(connection)
            if not data or user != os.geteuid():
                return True
            message = json.loads(data)
            name = message.get("add") or message.get("put")
            if name is None:
                kind = KINDS[message["kind"]]
                if 0 < message["length"] <= MOST_RING:
                    ring = RecordRing(kind.record_bytes, message["length"], descriptors[0])
                    who = kind, int(message["rank"]), int(message["pid"]), bool(message["slot"])
                    self._unmade.append((ring, who, process))
            elif _FILE.fullmatch(name) and "put" in message:
                write_text(self._folder / name, message["text"])
            elif _FILE.fullmatch(name):
                append_lines(self._folder / name, message["lines"], message["most"], message["once"])
        except BlockingIOError:
            return False
        except (OSError, ValueError, KeyError, TypeError):
            # A full disk, say, or no process of ours.
            pass
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True


def _lives(process: int) -> bool:
    """Whether a process lives. One of which this machine knows nothing does."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return process <= 0
    except OSError:
        pass
    return True
