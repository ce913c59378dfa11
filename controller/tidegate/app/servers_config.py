"""Configuration files of the servers we start, as plain values; `servers` writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Prometheus' own default; a scrape must also be over before the next one starts.
_LONGEST_SCRAPE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeJob:
    """What Prometheus scrapes under one job name: fixed targets, a file of targets, or both.

    Prometheus hands new targets, fixed ones too, to its scrapers every 5 s (a constant of its discovery manager; seen
    with 2.42): the first sample of a target comes up to 5 s and one scrape interval after the target was named.
    """

    name: str
    targets: tuple[str, ...] = ()
    """host:port, each."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Put on every series of `targets`."""
    file_sd: str | None = None
    """Glob of file_sd files (absolute); they may appear, change and disappear while Prometheus runs."""
    metrics_path: str = "/metrics"
    params: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """URL parameters of each scrape."""


def prometheus_config(
    jobs: Sequence[ScrapeJob],
    *,
    scrape_interval_s: float,
    rule_files: Sequence[Path] = (),
    alertmanager: str | None = None,
) -> dict[str, Any]:
    """Return `prometheus.yml` as a value.

    Args:
        jobs: At least one is usual; none is legal.
        scrape_interval_s: Also the interval at which rules are evaluated, >= 0.001.
        rule_files: Paths; relative ones count from the folder of `prometheus.yml`, so hand in absolute ones.
        alertmanager: host:port, or None for no alerts.
    """
    interval = seconds(scrape_interval_s)
    config: dict[str, Any] = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": seconds(min(scrape_interval_s, _LONGEST_SCRAPE_TIMEOUT_S)),
            "evaluation_interval": interval,
        },
        "scrape_configs": [_scrape_config(job) for job in jobs],
    }
    if rule_files:
        config["rule_files"] = [str(path) for path in rule_files]
    if alertmanager:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    return config


def _scrape_config(job: ScrapeJob) -> dict[str, Any]:
    config: dict[str, Any] = {"job_name": job.name, "metrics_path": job.metrics_path}
    if job.params:
        config["params"] = {key: list(values) for key, values in job.params.items()}
    if job.targets:
        config["static_configs"] = [{"targets": list(job.targets), "labels": dict(job.labels)}]
    if job.file_sd:
        # Changes are seen by inotify; the interval only covers file systems that have none.
        config["file_sd_configs"] = [{"files": [job.file_sd], "refresh_interval": "2s"}]
    return config


def alertmanager_config(*, webhook_url: str, bearer_token_file: Path) -> dict[str, Any]:
    """Return `alertmanager.yml` as a value: every alert goes to one webhook, each in its own group, within a second."""
    return {
        "route": {
            "receiver": "tidegate",
            "group_by": ["..."],
            "group_wait": "1s",
            "group_interval": "5s",
            "repeat_interval": "1h",
        },
        "receivers": [
            {
                "name": "tidegate",
                "webhook_configs": [
                    {
                        "url": webhook_url,
                        "send_resolved": True,
                        "http_config": {
                            "authorization": {"type": "Bearer", "credentials_file": str(bearer_token_file.absolute())}
                        },
                    }
                ],
            }
        ],
    }


def seconds(value_s: float) -> str:
    """Return a duration as Prometheus spells it, to the millisecond, never below one."""
    return f"{max(1, round(value_s * 1000))}ms"
