"""Which ready replica gets the next request."""

from collections.abc import Sequence


def least_request(live: Sequence[int], turn: int) -> int:
    """Return the index of the replica with the fewest requests in flight.

    Envoy's least-request balancer with a full scan breaks ties by chance; here the first one at or after `turn` wins,
    so that a rehearsal is repeatable and an idle fleet is used in rotation.

    Args:
        live: Requests in flight per replica, at least one entry.
        turn: Any number >= 0, e.g. how many requests were routed before.

    Source: Envoy, least_request.v3.LeastRequest, selection_method FULL_SCAN.
    """
    count = len(live)
    return min(range(count), key=lambda i: (live[i], (i - turn) % count))
