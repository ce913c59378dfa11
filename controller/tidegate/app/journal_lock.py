"""One writer per journal: a lock the kernel drops when its process dies."""

import fcntl
import os
from pathlib import Path

from tidegate.terms.errors import RefusedError


class WriterLock:
    """An exclusive lock on `path`, held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            RefusedError: Another process (or another journal of this one) holds it.
            OSError: The lock file cannot be made.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            journal = str(path).removesuffix(".lock")
            msg = f"{journal}: is written by another controller (pid {holder}); stop it or use another journal"
            raise RefusedError(msg) from exc
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
