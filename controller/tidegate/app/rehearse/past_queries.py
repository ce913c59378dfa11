"""The queries that look for a service's history under the names Tidegate knows, best first."""

from dataclasses import dataclass

from tidegate.catalogue.own import POOL_REPLICAS
from tidegate.observe import queries
from tidegate.observe.matchers import Matcher, any_of, duration, selector
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.policy import ServicePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PastQueries:
    """What the user spelled himself; empty: tried by known names."""

    arrivals: str = ""  # requests/s, all series summed
    prompt_buckets: str = ""  # requests by `le` over an hour
    output_buckets: str = ""
    replicas: str = ""  # replicas that serve; with several pools by label `pool`


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryText:
    """A query and what to call it."""

    text: str
    what: str
    sums: str = ""  # for histograms: tokens over the stretch
    counts: str = ""  # and requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Queries by what they find, each to be tried in order."""

    arrivals: tuple[QueryText, ...]
    replicas: tuple[QueryText, ...]
    prompt_length: tuple[QueryText, ...]
    output_length: tuple[QueryText, ...]

    def lengths(self, quantity: str) -> tuple[QueryText, ...]:
        """Return the queries of one of the two lengths."""
        return self.prompt_length if quantity == "prompt_length" else self.output_length


def defaults(policy: ServicePolicy, settings: ObserveSettings, step_s: float) -> Defaults:
    """Return what to try for a service: by its service label first, then by the model's name."""
    scopes = [any_of(settings.service_label, (policy.name,))]
    scopes += [Matcher(label=c.model_label, values=(policy.model,)) for c in queries.engines_of(policy_list(policy))]
    window_s = max(settings.rate_window_s, step_s)
    return Defaults(
        arrivals=tuple(_finished(policy, scope, window_s) for scope in scopes),
        replicas=_replicas(policy, settings, scopes),
        prompt_length=tuple(q for scope in scopes for q in _lengths(policy, "prompt_length", scope, step_s)),
        output_length=tuple(q for scope in scopes for q in _lengths(policy, "output_length", scope, step_s)),
    )


def policy_list(policy: ServicePolicy) -> tuple[ServicePolicy, ...]:
    """Return the policy as the query builders take it."""
    return (policy,)


def _spellings(policy: ServicePolicy, quantity: str) -> list[str]:
    found = [name for c in queries.engines_of(policy_list(policy)) for name, _ in c.spellings(quantity)]
    return list(dict.fromkeys(found))


def _finished(policy: ServicePolicy, scope: Matcher, window_s: float) -> QueryText:
    # Several spellings at once, each under its own label: `rate` drops the names, and one would hide the other.
    names = _spellings(policy, "finished_requests")
    each = [
        f'label_replace(rate({selector([n], scope)}[{duration(window_s)}]), "{queries.SPELLING}", "{n}", "", "")'
        for n in names
    ]
    return QueryText(text=f"sum({' or '.join(each)})", what=f"requests finished by engines with {scope}")


def _lengths(policy: ServicePolicy, quantity: str, scope: Matcher, step_s: float) -> list[QueryText]:
    window = duration(step_s)
    return [
        QueryText(
            text=f"sum by (le) (increase({selector([f'{name}_bucket'], scope)}[{window}]))",
            sums=f"sum(increase({selector([f'{name}_sum'], scope)}[{window}]))",
            counts=f"sum(increase({selector([f'{name}_count'], scope)}[{window}]))",
            what=f"{name} with {scope}",
        )
        for name in _spellings(policy, quantity)
    ]


def _replicas(policy: ServicePolicy, settings: ObserveSettings, scopes: list[Matcher]) -> tuple[QueryText, ...]:
    pool, service = settings.pool_label, scopes[0]
    own = selector([POOL_REPLICAS.name], service, Matcher(label="state", values=("ready",)))
    found = [
        QueryText(text=f"sum by ({pool}) ({own})", what=f"{POOL_REPLICAS.name} with {service}"),
        QueryText(
            text=f"count by ({pool}) ({selector([queries.UP], service)} == 1)", what=f"targets up with {service}"
        ),
    ]
    running = _spellings(policy, "running_requests")
    found += [
        QueryText(
            text=f"count by ({pool}) (group by ({pool},instance) ({selector(running, scope)}))",
            what=f"engines that report running requests with {scope}",
        )
        for scope in scopes
    ]
    return tuple(found)
