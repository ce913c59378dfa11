"""The re-implementation of NVIDIA's planner as a scaling policy of their simulator, to hold it against the original."""

from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.dynamo.engine import ITL_S, START_UP_S, TTFT_S
from benchmarks.dynamo.snapshots import ROLES, Snapshots
from benchmarks.dynamo.tidegate_policy import PLAIN, pool_policy

from tidegate.baselines.dynamo import RIVALS
from tidegate.perf.profile import EngineProfile
from tidegate.sim.policies import Contender, World
from tidegate.terms.fleet import PoolKey
from tidegate.terms.observation import Observation
from tidegate.terms.slo import Indicator, Slo

KEYS = {role: PoolKey(service=PLAIN.name, pool=role) for role in ROLES}
POLICY = replace(
    PLAIN,
    pools=tuple(pool_policy(KEYS[role], role) for role in ROLES),
    slos=(
        Slo(name="ttft", indicator=Indicator.TTFT, objective_ratio=0.99, threshold_s=TTFT_S, window_s=3600.0),
        Slo(name="itl", indicator=Indicator.ITL, objective_ratio=0.99, threshold_s=ITL_S, window_s=3600.0),
    ),
)


@dataclass(slots=True)
class PlannerPolicy:
    """One of the rivals; `initial_tick_ms` and `on_tick` are what their simulator calls."""

    contender: Contender
    _seen: Snapshots = field(init=False)
    _memory: Any = field(init=False)

    def __post_init__(self) -> None:
        self._seen = Snapshots(rate_window_s=self.contender.wants.rate_window_s)
        self._memory = self.contender.start

    def initial_tick_ms(self) -> float:
        """Return the time of the first call."""
        return 1000.0 * self.contender.wants.period_s

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return absolute targets, None where nothing moves, and the time of the next call."""
        self._seen.take(snapshot)
        now_s = self._seen.now_s
        pools = tuple(self._seen.pool(KEYS[role], role) for role in ROLES)
        observation = Observation(observed_at_s=now_s, services=(self._seen.service(PLAIN.name, pools),))
        decision, self._memory = self.contender.law(observation, (), (), (POLICY,), self._memory, now_s=now_s)
        answer: dict[str, Any] = {"next_tick_ms": 1000.0 * (now_s + self.contender.wants.period_s)}
        for role, pool in zip(ROLES, decision.pools, strict=True):
            here = snapshot[f"non_draining_{role}_count"]
            answer[f"target_{role}"] = pool.asked_replicas if pool.asked_replicas != here else None
        return answer


def planner_policy(name: str, profiles: tuple[EngineProfile, EngineProfile]) -> PlannerPolicy:
    """Return a rival by its name, believing in the fitted profiles."""
    world = World(
        policy=POLICY,
        profiles=dict(zip(ROLES, profiles, strict=True)),
        capacity_per_s={},
        concurrency={},
        prompt_tokens=0.0,
        output_tokens=0.0,
        cold_start_s=START_UP_S,
        mean_per_s=0.0,
        peak_per_s=0.0,
    )
    rival = next(r for r in RIVALS if r.name == name)
    return PlannerPolicy(rival.make(world, None))
