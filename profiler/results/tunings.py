"""Tunings: which settings of a loader were tried, and with what result."""

from __future__ import annotations

import shlex
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ..errors import RecordError, WhyidleError
from ..record.run import open_run
from ..report.contract import tuning as tune_json
from ..report.contract.encode import Content
from ..report.document import Document
from ..report.documents.tuning import tuning_document
from ..tune.result import RECORDING, TUNE_JSON, Tuning, kept
from .result import Result


class TuningResult(Result):
    """A tuning that has a result; one that still runs, or was cut short, has no form."""

    what = "a tuning"

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        return cls(folder) if (folder / TUNE_JSON).is_file() else None

    @cached_property
    def loaded(self) -> tuple[Tuning, dict[str, Any]]:
        """The result, and its JSON as `tune` wrote it."""
        _, _, result = kept(self.folder)
        if result is None:
            raise WhyidleError(
                f"{self.folder} holds a tuning without a result: it still runs, or was cut short. To read its "
                f"recording: whyidle report {self.folder / RECORDING}"
            )
        try:
            return tune_json.read(result), result
        except RecordError as error:
            raise RecordError(f"{self.folder / TUNE_JSON}: {error}") from error

    def contract(self) -> Content:
        return self.loaded[1]

    def document(self) -> Document:
        asked, _, _ = kept(self.folder)
        return tuning_document(self.loaded[0], tuple(map(str, asked.get("notices") or ())))

    def page(self, place: Path | None) -> str:
        from ..report.page.frame import render
        from ..report.render import page_sections

        document = self.document()
        return render(
            "tune.html.j2",
            title=document.title,
            styles=("table.css",),
            cautions=document.cautions,
            sections=page_sections(document.blocks),
            environment=self._environment(),
        )

    def _environment(self) -> tuple[tuple[str, str], ...]:
        """(what, value): the command, when it began, and the host, as far as they are known: its
        first stretch may be gone, and an older one may tell less."""
        try:
            first = self.folder / RECORDING
            info = {} if first.is_symlink() else open_run(first).info
        except WhyidleError:
            info = {}
        asked, began, _ = kept(self.folder)
        command, host = asked.get("command"), info.get("host") or {}
        told = {
            "command": shlex.join(map(str, command)) if isinstance(command, list) else "",
            "began": began,
            "device": (info.get("device") or {}).get("title"),
            "host": ", ".join(str(host[name]) for name in ("name", "machine") if host.get(name)),
            "CPUs of the machine": host.get("cpus"),
            **{name: info.get(name.lower()) for name in ("Python", "torch", "whyidle")},
        }
        return tuple((what, str(value)) for what, value in told.items() if value not in (None, ""))
