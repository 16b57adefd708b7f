"""A bridge whose calls to the API server are carried out at once, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sched_lab.fleet.live.bridge import Api, ApiError, Bridge, BridgeSettings, Steps
from sched_lab.fleet.live.core import LiveSettings
from sched_lab.fleet.live.journal import Journal
from tests.fleet.audit import AuditedCluster


class DrivenBridge(Bridge):
    """A bridge with an API server and a clock that passes when it is told to."""

    live: AuditedCluster

    def __init__(self, api: Api, mode: str = "decide", settings: BridgeSettings | None = None, *,
                 live: LiveSettings = LiveSettings(), journal: Path | None = None) -> None:  # noqa: B008
        super().__init__(Journal(journal, AuditedCluster(live)), mode, settings)
        self.api = api
        self.pause: Callable[[float], object] = lambda seconds: None

    def bind(self, request: Any, at_s: float) -> dict[str, Any]:
        """Answer a bind."""
        return dict(self._carried_out(self.binding(request, at_s)))

    def settle(self, at_s: float) -> None:
        """Let time pass, and settle what has been in doubt for long."""
        self._carried_out(self.settling(at_s))

    def _carried_out(self, steps: Steps) -> Any:
        try:
            call = next(steps)
            while True:
                method = self.pause if call.method == "pause" else getattr(self.api, call.method)
                try:
                    found = method(*call.arguments)
                except ApiError as trouble:
                    call = steps.throw(trouble)
                else:
                    call = steps.send(found)
        except StopIteration as done:
            return done.value
