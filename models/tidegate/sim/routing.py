"""Which ready replica gets the next request."""

from collections.abc import Callable, Sequence

from tidegate.sim.members import Member
from tidegate.sim.setup import FleetSetup, Routing
from tidegate.sim.trace import Trace

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: spreads consecutive numbers


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


def splitmix64(seed: int) -> int:
    """Return the next number, 0 … 2^64 - 1, of the generator whose state is `seed` (any integer, modulo 2^64).

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    z = (seed + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Router:
    """The rule of one fleet. The only thing it remembers is how many requests it has routed."""

    def __init__(self, trace: Trace, setup: FleetSetup) -> None:
        self._trace = trace
        self._setup = setup
        self._seed = setup.seed & _MASK
        self._routed = 0
        rules: dict[Routing, Callable[[int, Sequence[Member]], Member]] = {
            Routing.RANDOM: self._random,
            Routing.ROUND_ROBIN: self._round_robin,
            Routing.LEAST_REQUEST: emptiest,
            Routing.PREFIX_HASH: self._prefix_hash,
            Routing.KV_AWARE: self._kv_aware,
            Routing.WEIGHTED: self._weighted,
            Routing.LENGTH_SPLIT: self._length_split,
        }
        self._rule = rules[setup.routing]

    def pick(self, request: int, candidates: Sequence[Member]) -> Member:
        """Return the member that gets a request, by its index in the trace.

        Args:
            request: Also the turn that breaks ties.
            candidates: Ready members by index, at least one.
        """
        member = self._rule(request, candidates)
        self._routed += 1
        return member

    def _random(self, request: int, candidates: Sequence[Member]) -> Member:
        return candidates[splitmix64(self._seed ^ ((request * _GOLDEN) & _MASK)) % len(candidates)]

    def _round_robin(self, _request: int, candidates: Sequence[Member]) -> Member:
        return candidates[self._routed % len(candidates)]

    def _weighted(self, request: int, candidates: Sequence[Member]) -> Member:
        pools = self._setup.pools
        # Millionths of a request per weight, so that weights compare without fractions.
        loads = [m.engine.live * 1_000_000 // pools[m.pool].weight for m in candidates]
        return candidates[least_request(loads, request)]

    def _prefix_hash(self, request: int, candidates: Sequence[Member]) -> Member:
        """Highest random weight by prefix; who already has 1.25 times the mean is passed over.

        Source: Mirrokni, Thorup and Zadimoghaddam, Consistent hashing with bounded loads, SODA 2018; KubeAI's factor.
        """
        count = len(candidates)
        total = sum(m.engine.live for m in candidates)
        key = self._key(request) & _MASK

        def order(member: Member) -> tuple[int, int]:
            return -splitmix64(key ^ ((member.index * _GOLDEN) & _MASK) ^ self._seed), member.index

        # Not all can be above the mean, so there is always one.
        return next(m for m in sorted(candidates, key=order) if 4 * m.engine.live * count <= 5 * (total + 1))

    def _key(self, request: int) -> int:
        trace = self._trace
        if len(trace.prefix_id):
            return int(trace.prefix_id[request])
        hashes = trace.hashes_of(request)
        return hashes[0] if hashes else request

    def _kv_aware(self, request: int, candidates: Sequence[Member]) -> Member:
        loads = [
            1000 * (m.sampled_waiting + m.sent_since_sample)
            + 1000 * m.sampled_kv_used_blocks // m.engine.profile.kv_blocks
            for m in candidates
        ]
        return candidates[least_request(loads, request)]

    def _length_split(self, request: int, candidates: Sequence[Member]) -> Member:
        prompt = int(self._trace.prompt_tokens[request])
        roles = {self._setup.pools[m.pool].role for m in candidates}
        bounds = {
            i: float("inf") if p.longest_prompt_tokens is None else float(p.longest_prompt_tokens)
            for i, p in enumerate(self._setup.pools)
            if p.role in roles and (p.longest_prompt_tokens is None or p.longest_prompt_tokens >= prompt)
        }
        tightest = min(bounds.values(), default=None)
        fitting = [m for m in candidates if bounds.get(m.pool) == tightest and m.pool in bounds]
        return emptiest(request, fitting or candidates)


def emptiest(turn: int, candidates: Sequence[Member]) -> Member:
    """Return the member with the fewest requests in flight; ties go to the first at or after `turn`."""
    return candidates[least_request([m.engine.live for m in candidates], turn)]
