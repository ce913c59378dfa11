"""Every verb with its one-line summary; the verb's module is imported only when it is asked for."""

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb and where it lives."""

    name: str
    summary: str
    module: str


VERBS: tuple[Verb, ...] = (
    Verb("run", "run the controller: observe, forecast, decide, act", "tidegate.app.cli.run"),
    Verb("demo", "show the whole loop on a real trace with engine twins", "tidegate.app.cli.demo"),
    Verb("rehearse", "replay a trace against this and rival policies", "tidegate.app.cli.rehearse"),
    Verb("backtest", "rehearse on your own Prometheus history", "tidegate.app.cli.backtest"),
    Verb("check", "check a policy, and that each query matches live series", "tidegate.app.cli.check"),
    Verb("schema", "print the JSON Schema of the policy file", "tidegate.app.cli.schema"),
    Verb("explain", "say why a pool was sized as it was, from the journal", "tidegate.app.cli.explain"),
    Verb("replay", "decide every journal line again and prove it identical", "tidegate.app.cli.replay"),
    Verb("status", "ask a running controller for its state", "tidegate.app.cli.status"),
    Verb("engine", "run an engine twin: a process that behaves like a vLLM server", "tidegate.app.cli.engine"),
    Verb("gateway", "render, validate or inspect the Envoy gateway", "tidegate.app.cli.gateway"),
    Verb("export", "run an exporter: gpu or engine", "tidegate.app.cli.export"),
    Verb("dashboards", "render Grafana boards and Prometheus rules", "tidegate.app.cli.dashboards"),
    Verb("profile", "list, show and fit engine profiles", "tidegate.app.cli.profile"),
    Verb("completion", "print a shell completion script", "tidegate.app.cli.completion"),
)

# Spelled as they will be, so that scripts and completions need not change; each answers "not built yet" (exit code 2).
NOT_BUILT: tuple[tuple[str, str], ...] = (
    ("forecast", "forecast a series and score the forecast"),
    ("recommend", "advise parallelism for a model"),
    ("doctor", "one page on what is found, missing, stale or suspect"),
    ("keys", "manage gateway API keys"),
    ("usage", "tokens and requests by key and model"),
)
