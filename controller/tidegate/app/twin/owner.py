"""Is the process that started us still there? By pid and start time, as pids are used again."""

from pathlib import Path


def start_ticks(pid: int, *, proc: Path = Path("/proc")) -> int | None:
    """Return when process `pid` started, in clock ticks since boot; None when there is no such process."""
    try:
        stat = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name is in brackets and may hold anything, so count fields after the last one: state is 3rd, start time 22nd.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
