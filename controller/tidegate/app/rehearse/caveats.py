"""What a reader must know before any figure: what no policy could help, and what binds all of them."""

from dataclasses import replace

from tidegate.app.sizing import modelled
from tidegate.sim.policies import World
from tidegate.sim.trace import Trace
from tidegate.terms.policy import ServicePolicy


def within_budget(policy: ServicePolicy) -> ServicePolicy:
    """Return the policy with its one pool's `maxReplicas` no higher than the budget pays for: it binds rivals too.

    With several pools the budget is theirs together, and only Tidegate's own law keeps it; `caveats` says so.
    """
    if len(policy.pools) != 1:
        return policy
    pool, budget = policy.pools[0], policy.budget
    caps = [pool.max_replicas]
    if budget.max_gpus is not None:
        caps.append(budget.max_gpus // pool.gpus_per_replica)
    if budget.max_cost_usd_per_h is not None and pool.cost_usd_per_h > 0.0:
        caps.append(int(budget.max_cost_usd_per_h / pool.cost_usd_per_h + 1e-9))
    return replace(policy, pools=(replace(pool, max_replicas=max(pool.min_replicas, min(caps))),))


def caveats(world: World, trace: Trace) -> tuple[str, ...]:
    """Return a sentence for each thing that makes figures mean other than they seem."""
    policy = world.policy
    found = []
    longest = max(p.longest_request_tokens for p in world.profiles.values())
    too_long = int((trace.prompt_tokens + trace.output_tokens > longest).sum())
    if too_long:
        found.append(
            f"{too_long} of {len(trace)} requests are longer than any engine here takes ({longest} tokens): "
            "every policy misses them."
        )
    if not any(s.threshold_s is not None for s in policy.slos):
        found.append("The policy promises no latency: attainment says only whether requests were answered.")
    for pool in policy.pools:
        _, binding = modelled(policy, world.profiles[pool.profile], world.prompt_tokens, world.output_tokens)
        if binding.endswith("out of reach"):
            found.append(
                f"{pool.key}: {binding} by the profile {pool.profile}, even of an idle replica at this load's mean "
                "lengths: no number of replicas helps."
            )
    capped = policy.budget.max_gpus is not None or policy.budget.max_cost_usd_per_h is not None
    if capped and len(policy.pools) > 1:
        found.append("The budget binds Tidegate alone: over several pools rivals are not held to it.")
    return tuple(found)
