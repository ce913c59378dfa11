"""Why a server did not answer, in words, from the exception of an HTTP client."""

import socket
import ssl

_MOST_CAUSES = 10  # an exception may name itself as its cause


def why(exc: BaseException) -> str:
    """Return the cause that an operator can act on, e.g. "connection refused"; the exception's type when none is known.

    Clients wrap the operating system's error several times; the wrapping says nothing.
    """
    found: BaseException | None = exc
    for _ in range(_MOST_CAUSES):
        if found is None:
            break
        match found:
            case ConnectionRefusedError():
                return "connection refused"
            case ConnectionResetError():
                return "the connection was reset"
            case socket.gaierror():
                return "the name does not resolve"
            case ssl.SSLError():
                return f"TLS: {found.reason or 'handshake failed'}"
            case TimeoutError():
                return "no answer in time"
            case _:
                pass
        inner = found.args[0] if found.args else None
        reason = getattr(inner, "reason", None)
        parts = (found.__cause__, found.__context__, reason, inner)
        found = next((p for p in parts if isinstance(p, BaseException)), None)
    return type(exc).__name__
