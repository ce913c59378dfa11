"""Prometheus' file_sd file: whom to scrape, and how each series is labelled."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from tidegate.actuate.local_state import LocalReplica, write_whole

log = logging.getLogger("tidegate.local")


class TargetsFile:
    """Rewrites `targets.json` when its content changes; Prometheus watches the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = ""

    def write(self, replicas: Iterable[LocalReplica]) -> None:
        """List every replica whose process lives.

        Starting ones too, so that the first series are there when they are ready, and draining ones until they end.
        """
        groups = [
            {
                "targets": [f"{r.host}:{r.port}"],
                "labels": {"service": r.service, "pool": r.pool, "replica": r.name},
            }
            for r in sorted(replicas, key=lambda r: r.name)
            if not r.ended and r.pid
        ]
        text = json.dumps(groups, indent=1)
        if text == self._written:
            return
        try:
            write_whole(self.path, text)
        except OSError as exc:
            # Scraping goes on by the old file; the next call tries again.
            log.error("targets not written: %s", exc)  # noqa: TRY400
            return
        self._written = text
