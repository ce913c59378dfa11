"""Becomes another program that dies with the process that asked for it.

Run as a file by `servers_process.launch`, as `servers_exec.py OWNER_PID PROGRAM [ARGUMENT…]`. It asks the kernel
for SIGKILL on the owner's death (PR_SET_PDEATHSIG, prctl(2)) and then execs, which keeps both the pid and that request.
A wrapper and not `preexec_fn`: code between fork and exec can deadlock in a process with threads, and gRPC starts some.
Run as a file it costs about 30 ms once per server on two busy cores; as `python -m tidegate.app.servers_exec`, 55 ms.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
EXIT_OWNER_GONE = 75
EXIT_NOT_STARTED = 127


def main() -> None:
    """Tie this process to its owner and exec the program; never returns."""
    owner_pid, program = int(sys.argv[1]), sys.argv[2]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.stderr.write(f"cannot tie {program} to its owner: {os.strerror(ctypes.get_errno())}\n")
        sys.exit(EXIT_NOT_STARTED)
    # The owner may have died before the request was in place; then nobody would ever send the signal.
    if os.getppid() != owner_pid:
        sys.exit(EXIT_OWNER_GONE)
    try:
        os.execv(program, sys.argv[2:])  # noqa: S606 - no shell is wanted
    except OSError as exc:
        sys.stderr.write(f"cannot start {program}: {exc.strerror}\n")
        sys.exit(EXIT_NOT_STARTED)


if __name__ == "__main__":
    main()
