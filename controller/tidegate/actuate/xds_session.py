"""What one gateway has, what it was sent and what it refused: the delta xDS protocol without its transport."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.gateway.content import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tidegate.gateway.snapshot import Snapshot

_MAX_REASON_CHARS = 500
_WILDCARD = "*"
_NOTHING = ""  # version of a resource the gateway was told does not exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A delta discovery request, already decoded."""

    type_url: str
    nonce: str = ""
    error: str | None = None
    subscribe: Sequence[str] = ()
    unsubscribe: Sequence[str] = ()
    initial_versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One response to send: resources by name with their versions, and the names that are gone."""

    type_url: str
    nonce: str
    versions: Mapping[str, str]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A resource a gateway refused; it goes on with the version it had."""

    type_url: str
    name: str
    version: str
    kept_version: str | None
    reason: str


@dataclass(slots=True)
class _Type:
    """State of one resource type on one stream."""

    wildcard: bool = False
    seen: bool = False
    subscribed: set[str] = field(default_factory=set)
    has: dict[str, str] = field(default_factory=dict)  # what the gateway has acknowledged
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> (version, reason)
    alone: set[str] = field(default_factory=set)  # to be sent one by one, to learn which of them is refused
    in_flight: Push | None = None

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.subscribed

    def upserts(self, versions: Mapping[str, str]) -> dict[str, str]:
        return {
            name: version
            for name, version in versions.items()
            if self.wants(name) and self.has.get(name) != version and self.refused.get(name, ("",))[0] != version
        }


def plain_reason(error: str) -> str:
    """Return why Envoy refused something, without the copy of the whole resource it puts in front."""
    text = error.strip()
    if "\n}" in text:
        text = text.rpartition("\n")[2].lstrip("}: ")
    return text[:_MAX_REASON_CHARS]


class Session:
    """The protocol state of one stream.

    `handle` takes what the gateway says; `advance` returns what to send next towards a snapshot, in an order that never
    routes to a cluster the gateway does not have: clusters and endpoints before routes when something is added, routes
    before clusters when something goes. A refused cluster or endpoint set holds the snapshot's routes back.
    """

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self._types = {kind: _Type() for kind in (CLUSTER, ENDPOINTS, LISTENER, ROUTES)}
        self._nonce = 0

    def handle(self, request: Request) -> None:
        """Take one request: an acknowledgement, a refusal, or a change of subscription."""
        state = self._types.get(request.type_url)
        if state is None:
            return  # a type we serve nothing of
        if state.in_flight is not None and request.nonce == state.in_flight.nonce:
            self._settle(state, None if request.error is None else plain_reason(request.error))
        if not state.seen:
            state.seen = True
            state.wildcard = not request.subscribe
        if _WILDCARD in request.subscribe:
            state.wildcard = True
        names = [n for n in request.subscribe if n != _WILDCARD]
        state.subscribed.update(names)
        for name in names:
            state.has.pop(name, None)  # whoever subscribes anew expects an answer
        state.has.update(request.initial_versions)
        for name in request.unsubscribe:
            state.wildcard = state.wildcard and name != _WILDCARD
            state.subscribed.discard(name)
            state.has.pop(name, None)
            state.refused.pop(name, None)

    def advance(self, snapshot: Snapshot) -> list[Push]:
        """Return what can be sent now; call again after each request and each new snapshot."""
        pushes: list[Push] = []
        for kind in (CLUSTER, ENDPOINTS):
            self._send(pushes, kind, snapshot, removals=())
        if not self._has_all(snapshot, CLUSTER, ENDPOINTS):
            return pushes
        for kind in (LISTENER, ROUTES):
            self._send(pushes, kind, snapshot, removals=())
        if not self._has_all(snapshot, LISTENER, ROUTES):
            return pushes
        for kind in (CLUSTER, LISTENER):
            known = snapshot.versions.get(kind, {})
            gone = tuple(sorted(n for n in self._types[kind].has if n not in known))
            if gone:
                self._send(pushes, kind, snapshot, removals=gone)
        return pushes

    def settled(self, snapshot: Snapshot) -> bool:
        """Whether the gateway has exactly this snapshot."""
        return all(
            state.in_flight is None
            and {n: v for n, v in state.has.items() if v != _NOTHING} == dict(snapshot.versions.get(kind, {}))
            for kind, state in self._types.items()
        )

    def refusals(self) -> tuple[Refusal, ...]:
        """Return every resource that stands refused."""
        return tuple(
            Refusal(type_url=kind, name=name, version=version, kept_version=state.has.get(name), reason=reason)
            for kind, state in self._types.items()
            for name, (version, reason) in sorted(state.refused.items())
        )

    def has_versions(self, type_url: str) -> Mapping[str, str]:
        """Return the acknowledged version of each resource of a type."""
        return {n: v for n, v in self._types[type_url].has.items() if v != _NOTHING}

    def types(self) -> tuple[str, ...]:
        """Return the type URLs that are served."""
        return tuple(self._types)

    def waiting_for(self) -> tuple[str, ...]:
        """Return the types whose last push is not answered yet."""
        return tuple(kind for kind, state in self._types.items() if state.in_flight is not None)

    def _settle(self, state: _Type, error: str | None) -> None:
        push = state.in_flight
        assert push is not None  # noqa: S101 - the caller compared its nonce
        state.in_flight = None
        if error is None:
            for name, version in push.versions.items():
                state.has[name] = version
                state.refused.pop(name, None)
            for name in push.removed:
                if name in state.subscribed:
                    state.has[name] = _NOTHING
                else:
                    state.has.pop(name, None)
            state.alone -= push.versions.keys()
            return
        names = set(push.versions)
        if len(names) > 1:
            # The gateway took the good ones and names only one culprit: send each by itself to know.
            state.alone |= names
            return
        state.alone -= names
        for name in names:
            state.refused[name] = (push.versions[name], error)
        for name in push.removed:
            state.has.pop(name, None)  # never ask twice for a removal it refuses

    def _has_all(self, snapshot: Snapshot, *kinds: str) -> bool:
        return all(
            self._types[kind].in_flight is None
            and all(self._types[kind].has.get(n) == v for n, v in snapshot.versions.get(kind, {}).items())
            for kind in kinds
        )

    def _send(self, pushes: list[Push], kind: str, snapshot: Snapshot, *, removals: tuple[str, ...]) -> None:
        state = self._types[kind]
        if not state.seen or state.in_flight is not None:
            return
        known = snapshot.versions.get(kind, {})
        state.refused = {n: r for n, r in state.refused.items() if r[0] == known.get(n)}
        upserts = state.upserts(known)
        state.alone &= upserts.keys()
        alone = sorted(state.alone)
        if alone:
            upserts = {alone[0]: upserts[alone[0]]}
        missing = () if alone else tuple(sorted(n for n in state.subscribed if n not in known and n not in state.has))
        removed = removals + missing
        if not upserts and not removed:
            return
        self._nonce += 1
        state.in_flight = Push(type_url=kind, nonce=str(self._nonce), versions=upserts, removed=removed)
        pushes.append(state.in_flight)
        if kind == CLUSTER:
            for name in upserts:
                # A replaced cluster starts without endpoints; Envoy does not always ask for them again.
                self._types[ENDPOINTS].has.pop(name, None)
