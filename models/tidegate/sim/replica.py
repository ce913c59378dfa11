"""One engine replica, step by step: the reference every faster simulator must equal, and the heart of the engine twin.

The rules are vLLM's, as far as they matter for time: continuous batching, decodes first, then prompts already begun,
then new ones in order of arrival, under a token budget; chunked prefill; KV in blocks; on overflow the newest running
sequence loses its KV, goes to the head of the queue and computes prompt and generated tokens again, less what a prefix
cache still holds. With a prefix cache, hash blocks are shared in HBM; loads from and stores to the tiers below lengthen
the step in which a request is admitted or its prompt completed.

Nothing here knows a clock. Virtual time hands `step_until` a far future; the engine twin hands it the present.
Events at one instant are ordered: arrivals (in order of submission), the end of a step, the start of the next.
"""

import heapq
from collections import deque
from collections.abc import Iterator

from tidegate.perf.profile import EngineProfile
from tidegate.perf.steptime import step_ps
from tidegate.sim.batch import Flight, Plan, Sequence
from tidegate.sim.events import SimRequest, Step
from tidegate.sim.kvtier import KvTier
from tidegate.sim.prefix import PrefixCache
from tidegate.sim.setup import CacheSetup


class ReplicaSim:
    """One replica. Times are whole picoseconds since any origin; they never go back.

    Args:
        profile: The engine.
        cache: Its prefix cache; None: none, and a request's `cached_tokens` count instead of its hashes.
        remote: The KV pool it shares with others, if `cache` has a remote tier.

    Raises:
        ValueError: A cache that does not go with the engine's blocks.
    """

    def __init__(
        self, profile: EngineProfile, *, cache: CacheSetup | None = None, remote: KvTier | None = None
    ) -> None:
        self._profile = profile
        self._cache = None if cache is None else PrefixCache(cache, block_tokens=profile.block_tokens, remote=remote)
        self._free_blocks = profile.kv_blocks
        self._arriving: list[tuple[int, int, Sequence]] = []  # a heap
        self._submitted = 0
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # oldest admission first
        self._by_key: dict[int, Sequence] = {}
        self._flight: Flight | None = None
        self.preemptions = 0  # counters, as of the step that is planned
        self.hit_tokens = 0
        self.looked_up_tokens = 0

    @property
    def profile(self) -> EngineProfile:
        """The engine this replica behaves like."""
        return self._profile

    @property
    def running(self) -> int:
        """Sequences that hold KV."""
        return len(self._running)

    @property
    def cache(self) -> PrefixCache | None:
        """The prefix cache, to look at."""
        return self._cache

    @property
    def kv_used_blocks(self) -> int:
        """KV blocks in use; cached ones that nobody uses are free."""
        return self._profile.kv_blocks - self._available_blocks

    @property
    def _available_blocks(self) -> int:
        """KV blocks that can be had without preemption."""
        return self._free_blocks + (0 if self._cache is None else self._cache.unused_engine_blocks)

    @property
    def live(self) -> int:
        """Requests submitted and not yet finished or aborted."""
        return len(self._by_key)

    @property
    def context_tokens(self) -> int:
        """Tokens whose KV running sequences hold, with those of the step in progress."""
        return sum(s.held for s in self._running)

    def live_keys(self) -> tuple[int, ...]:
        """Return the keys of the requests submitted and not yet finished or aborted."""
        return tuple(self._by_key)

    def uncomputed_tokens(self, now_ps: int) -> int:
        """Return the prompts of waiting requests, and what no step has taken up yet of running ones, in tokens."""
        late = [seq for at_ps, _, seq in self._arriving if at_ps <= now_ps and not seq.gone]
        queued = sum(s.request.prompt_tokens for s in (*self._waiting, *late))
        return queued + sum(s.prefill_left for s in self._running)

    def waiting(self, now_ps: int) -> int:
        """Return how many requests are past the front end and hold no KV."""
        late = sum(1 for at_ps, _, seq in self._arriving if at_ps <= now_ps and not seq.gone)
        return len(self._waiting) + late

    def submit(self, request: SimRequest, arrived_ps: int) -> bool:
        """Take a request; return False when prompt and output can never fit the KV budget (it is then forgotten).

        Args:
            request: The request.
            arrived_ps: When it reached the front end; the scheduler sees it a front-end time later.

        Raises:
            ValueError: Token counts under 1, or a key that is already live.
        """
        if request.prompt_tokens < 1 or request.output_tokens < 1 or request.cached_tokens < 0:
            msg = f"request {request.key}: prompt and output must be >= 1 token, cached >= 0, got {request}"
            raise ValueError(msg)
        if request.key in self._by_key:
            msg = f"request {request.key} is already in the replica"
            raise ValueError(msg)
        if request.prompt_tokens + request.output_tokens > self._profile.longest_request_tokens:
            return False
        sequence = Sequence(request)
        front_end_ps = self._profile.front_end_ps + self._profile.front_end_ps_per_live * len(self._by_key)
        self._by_key[request.key] = sequence
        heapq.heappush(self._arriving, (arrived_ps + front_end_ps, self._submitted, sequence))
        self._submitted += 1
        return True

    def abort(self, key: int) -> bool:
        """Drop a request and free its KV at once; return False when it is not here. A step in progress stays as is."""
        sequence = self._by_key.pop(key, None)
        if sequence is None:
            return False
        sequence.gone = True
        if sequence.blocks:
            self._running.remove(sequence)
            self._release(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        return True

    def next_at_ps(self) -> int | None:
        """Return when something happens next: the end of the step in progress, or an arrival; None when idle."""
        if self._flight is not None:
            return self._flight.ends_at_ps
        while self._arriving and self._arriving[0][2].gone:
            heapq.heappop(self._arriving)
        return self._arriving[0][0] if self._arriving else None

    def step_until(self, now_ps: int) -> list[Step]:
        """Return the steps that end at or before `now_ps`, in order, and begin what begins by then."""
        done: list[Step] = []
        while (at_ps := self.next_at_ps()) is not None and at_ps <= now_ps:
            if self._flight is not None:
                done.append(self._end(self._flight))
            self._begin(at_ps)
        return done

    def _begin(self, at_ps: int) -> None:
        """Plan the next step at `at_ps`; no step when there is nothing to do."""
        while self._arriving and self._arriving[0][0] <= at_ps:
            sequence = heapq.heappop(self._arriving)[2]
            if not sequence.gone:
                self._waiting.append(sequence)
        plan = Plan(self._profile.token_budget)
        kv_read = self._plan_decodes(plan)
        decodes = len(plan.emitters)
        plan.budget -= decodes
        self._plan_prompts(plan)
        tokens = self._profile.token_budget - plan.budget
        if not tokens:
            self._flight = None
            return
        took_ps = step_ps(
            self._profile,
            tokens=tokens,
            kv_read_tokens=kv_read,
            double_pairs=plan.double_pairs,
            sequences=decodes + plan.chunks,
        )
        self._flight = Flight(
            began_at_ps=at_ps,
            ends_at_ps=at_ps + took_ps + plan.tiers_ps,
            decodes=decodes,
            prefill_tokens=tokens - decodes,
            preempted=tuple(plan.preempted),
            admitted=tuple(plan.admitted),
            emitters=plan.emitters,
            loaded_tokens=plan.loaded_tokens,
            stored_tokens=plan.stored_tokens,
        )

    def _plan_prompts(self, plan: Plan) -> None:
        """Give prompts what the decodes left of the budget."""
        for sequence in self._prompts(plan) if plan.budget else ():
            chunk = min(sequence.prefill_left, plan.budget)
            plan.double_pairs += chunk * (2 * sequence.held + chunk)
            sequence.held += chunk
            sequence.prefill_left -= chunk
            plan.budget -= chunk
            plan.chunks += 1
            if not sequence.prefill_left:
                plan.emitters.append(sequence)
                self._enrol(sequence, plan)
            if not plan.budget:
                break

    def _plan_decodes(self, plan: Plan) -> int:
        """Give every decoding sequence one token of KV, oldest first; return the KV tokens read."""
        running = self._running
        block_tokens = self._profile.block_tokens
        kv_read = 0
        index = 0
        # Preemption shortens the list from its end, always behind what is already planned.
        while index < len(running):
            sequence = running[index]
            index += 1
            if sequence.prefill_left:
                continue
            if sequence.held == sequence.blocks * block_tokens and not self._one_more_block(sequence, plan):
                break
            sequence.held += 1
            kv_read += sequence.held
            plan.emitters.append(sequence)
        return kv_read

    def _one_more_block(self, sequence: Sequence, plan: Plan) -> bool:
        """Grow `sequence` by a block, preempting the newest as needed; False when it was itself the newest."""
        while not self._available_blocks:
            victim = self._running.pop()
            self._release(victim)
            victim.held = 0
            victim.prefill_left = 0
            self._waiting.appendleft(victim)
            plan.preempted.append(victim.request.key)
            self.preemptions += 1
            if victim is sequence:
                return False
        self._take(1)
        sequence.blocks += 1
        return True

    def _take(self, blocks: int) -> None:
        """Use so many of the available blocks, forgetting cached ones only as far as needed."""
        while self._cache is not None and self._free_blocks < blocks:
            self._free_blocks += self._cache.forget_oldest()
        self._free_blocks -= blocks

    def _prompts(self, plan: Plan) -> Iterator[Sequence]:
        """Yield sequences to prefill: those begun, then new ones, admitted only as the caller goes on asking."""
        yield from [s for s in self._running if s.prefill_left]
        while not plan.preempted and (sequence := self._admit_next(plan)) is not None:
            plan.admitted.append(sequence.request.key)
            yield sequence

    def _admit_next(self, plan: Plan) -> Sequence | None:
        """Move the head of the queue into the batch if a place and KV for its prompt plus one token are free."""
        if not self._waiting or len(self._running) >= self._profile.max_sequences:
            return None
        sequence = self._waiting[0]
        request = sequence.request
        need = request.prompt_tokens + sequence.generated
        blocks = -(-(need + 1) // self._profile.block_tokens)
        hits = idle = per_hash = 0
        if self._cache is not None:
            hits, idle = self._cache.hits(request.hashes, request.prompt_tokens)
            per_hash = self._cache.engine_blocks
        if blocks - per_hash * hits > self._available_blocks - per_hash * idle:
            return None
        self._waiting.popleft()
        self._running.append(sequence)
        sequence.hits = hits
        sequence.held = self._known(sequence, plan)
        # The last token is always computed: its output is the next token.
        sequence.prefill_left = need - sequence.held
        self._take(blocks - per_hash * hits)
        sequence.blocks = blocks
        return sequence

    def _known(self, sequence: Sequence, plan: Plan) -> int:
        """Return the tokens of an admitted sequence that need not be computed; hold its hits and load what is below."""
        request, cache = sequence.request, self._cache
        if cache is None:
            return min(request.cached_tokens, request.prompt_tokens, request.prompt_tokens + sequence.generated - 1)
        sequence.shared = list(request.hashes[: sequence.hits])
        cache.refer(sequence.shared)
        loaded_tokens, load_ps = cache.load(request.hashes, request.prompt_tokens, sequence.hits)
        plan.loaded_tokens += loaded_tokens
        plan.tiers_ps += load_ps
        hit_tokens = cache.hit_tokens(sequence.hits)
        self.hit_tokens += hit_tokens
        self.looked_up_tokens += request.prompt_tokens if request.hashes else 0
        return hit_tokens + loaded_tokens

    def _enrol(self, sequence: Sequence, plan: Plan) -> None:
        """Share the whole hash blocks of a prompt that this step completes, and store them below."""
        if self._cache is None:
            return
        request = sequence.request
        sequence.shared += self._cache.enrol(request.hashes, request.prompt_tokens, sequence.hits)
        stored_tokens = self._cache.store(request.hashes, request.prompt_tokens)
        plan.stored_tokens += stored_tokens
        plan.tiers_ps += self._cache.store_ps(stored_tokens)

    def _end(self, flight: Flight) -> Step:
        emitted: list[int] = []
        finished: list[int] = []
        for sequence in flight.emitters:
            if sequence.gone:
                continue
            sequence.generated += 1
            key = sequence.request.key
            emitted.append(key)
            if sequence.generated == sequence.request.output_tokens:
                sequence.gone = True
                finished.append(key)
                self._release(sequence)
                del self._by_key[key]
        if finished:
            self._running = [s for s in self._running if not s.gone]
        return Step(
            began_at_ps=flight.began_at_ps,
            ended_at_ps=flight.ends_at_ps,
            decode_tokens=flight.decodes,
            prefill_tokens=flight.prefill_tokens,
            preempted=flight.preempted,
            admitted=flight.admitted,
            emitted=tuple(emitted),
            finished=tuple(finished),
            loaded_tokens=flight.loaded_tokens,
            stored_tokens=flight.stored_tokens,
        )

    def _release(self, sequence: Sequence) -> None:
        shared_blocks = 0
        if self._cache is not None:
            shared_blocks = self._cache.engine_blocks * len(sequence.shared)
            self._cache.release(sequence.shared)
            sequence.shared = []
        self._free_blocks += sequence.blocks - shared_blocks
        sequence.blocks = 0
