"""The data of a scenario's trainings: where they lie, whether they can be used, and what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra, WhyidleError

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import Scenario, ScenarioData
    from whyidle.scenarios.variant import Variant

    from .experiment import Request


class Sources:
    """The data of a comparison: where those of each net lie, opened once to be checked and described."""

    def __init__(self, chosen: Scenario, request: Request, limit: int | None, say: Callable[[str], None]) -> None:
        """
        Args:
            limit: so many samples only.
            say: told of data that are made or fetched.

        Raises:
            WhyidleError: the scenario has no such store as is asked for.
        """
        self.scenario = chosen
        self.limit = limit
        self._asked = request.data
        self._say = say
        self._store = (request.store or chosen.stores)[0]
        self._folders: dict[str, Path] = {}
        self._opened: dict[tuple[str, str], ScenarioData] = {}
        self._missing: dict[tuple[str, str], str] = {}
        for store in request.store or ():
            if store not in chosen.stores:
                raise WhyidleError(f"scenario {chosen.name} has no store {store!r}. It has {', '.join(chosen.stores)}.")

    def folder(self, net: str) -> Path:
        if net not in self._folders:
            self._folders[net] = self._asked or self.scenario.find_data(net, self._say)
        return self._folders[net]

    def data(self, net: str, store: str | None = None) -> ScenarioData:
        """
        Raises:
            DataError: no usable data there.
        """
        from whyidle.scenarios.registry import require_data
        from whyidle.scenarios.scenario import DataRequest

        store = store or self._store
        if (net, store) not in self._opened:
            request = DataRequest(folder=self.folder(net), net=net, store=store, limit=self.limit)
            opened = self.scenario.open_data(request)
            require_data(opened, self.scenario)
            self._opened[net, store] = opened
        return self._opened[net, store]

    def loading(self, net: str, store: str, augment: bool) -> ScenarioData:
        """As a training opens them, to be made into batches.

        Raises:
            DataError: no usable data there.
        """
        from whyidle.scenarios.scenario import DataRequest

        folder = self.folder(net)
        return self.scenario.open_data(
            DataRequest(folder=folder, net=net, augment=augment, store=store, limit=self.limit)
        )

    def missing(self, net: str, store: str) -> str | None:
        """What this store needs and is not installed. A store that is made of others is made here, before any run."""
        if (net, store) not in self._missing:
            try:
                self.data(net, store)
                self._missing[net, store] = ""
            except MissingExtra as error:
                self._missing[net, store] = str(error)
        return self._missing[net, store] or None

    def too_few(self, key: Variant) -> str | None:
        """Why a training cannot fill one batch; `None` if it can, or if what its store needs is not installed."""
        from whyidle.pipelines.order import count
        from whyidle.pipelines.protocol import Settings

        # A store of samples holds as many as another; what is served from memory has none of its own.
        store = self._store if key.feed == "synthetic" else key.store
        if self.missing(key.net, store):
            return None
        samples = len(self.data(key.net, store))
        if count(samples, Settings(key.batch_size, 0, 1, ranks=key.ranks)):
            return None
        ranks = f" for each of {key.ranks} ranks" if key.ranks > 1 else ""
        return (
            f"{samples} samples do not fill one batch of {key.batch_size}{ranks}; use a smaller --batch-sizes, "
            "a larger --limit, or more data"
        )

    def described(self, net: str, store: str | None = None) -> dict[str, Any]:
        return {"folder": str(self.folder(net)), **self.data(net, store).describe()}

    @property
    def notices(self) -> list[str]:
        return list(dict.fromkeys(text for data in self._opened.values() for text in data.notices()))
