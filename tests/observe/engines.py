"""Expositions that live: an engine whose counters advance, and recorded dumps made to advance."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.app.config import parse_policies
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.policy import ServicePolicy

DUMPS = Path(__file__).parents[1] / "data" / "metrics"
MODEL = "acme/chat-8b"


@dataclass
class Engine:
    """Two requests/s of 500 prompt and 100 output tokens, one in twenty slower than 0.1 s per token."""

    prefix: str = "vllm:"
    total: str = "_total"
    kv_name: str = "kv_cache_usage_perc"
    kv: float = 0.25
    running: float = 4.0
    requests_per_s: float = 2.0
    model: str = MODEL
    began_s: float = field(default_factory=time.monotonic)

    def page(self) -> str:
        count = 100 + self.requests_per_s * (time.monotonic() - self.began_s)
        label = f'engine="0",model_name="{self.model}"'
        rows = {
            f"num_requests_running{{{label}}}": self.running,
            f"num_requests_waiting{{{label}}}": 0.0,
            f"{self.kv_name}{{{label}}}": self.kv,
            f'request_success{self.total}{{{label},finished_reason="stop"}}': count,
            f"prompt_tokens{self.total}{{{label}}}": 500 * count,
            f"generation_tokens{self.total}{{{label}}}": 100 * count,
            f"num_preemptions{self.total}{{{label}}}": 0.0,
            f"request_prompt_tokens_sum{{{label}}}": 500 * count,
            f"request_prompt_tokens_count{{{label}}}": count,
            f"request_generation_tokens_sum{{{label}}}": 100 * count,
            f"request_generation_tokens_count{{{label}}}": count,
        }
        for family in ("request_time_per_output_token_seconds", "time_to_first_token_seconds"):
            rows[f"{family}_count{{{label}}}"] = count
            for bound, share in (("0.05", 0.90), ("0.1", 0.95), ("0.2", 1.0), ("+Inf", 1.0)):
                rows[f'{family}_bucket{{{label},le="{bound}"}}'] = share * count
        return "".join(f"{self.prefix}{name} {value}\n" for name, value in rows.items())


@dataclass
class Envoy:
    """Five attempts a second of which one is a retry and one ends badly, for one pool."""

    key: PoolKey
    attempts_per_s: float = 5.0
    began_s: float = field(default_factory=time.monotonic)

    def page(self) -> str:
        passed_s = time.monotonic() - self.began_s
        cluster = f'envoy_cluster_name="{self.key}"'
        tags = f'service="{self.key.service}",pool="{self.key.pool}",model="m"'
        rows = {
            f"envoy_cluster_upstream_rq_total{{{cluster}}}": self.attempts_per_s * passed_s,
            f"envoy_cluster_upstream_rq_retry{{{cluster}}}": 0.2 * self.attempts_per_s * passed_s,
            f"envoy_cluster_upstream_rq_active{{{cluster}}}": 8.0,
            f"envoy_cluster_upstream_rq_pending_active{{{cluster}}}": 0.0,
            f'envoy_tg_requests{{{tags},code_class="2xx"}}': 0.6 * self.attempts_per_s * passed_s,
            f'envoy_tg_requests{{{tags},code_class="5xx"}}': 0.2 * self.attempts_per_s * passed_s,
            f"envoy_tg_ttft_count{{{tags}}}": passed_s,
        }
        for bound, share in (("499", 0.90), ("999", 0.95), ("+Inf", 1.0)):
            rows[f'envoy_tg_ttft_bucket{{{tags},le="{bound}"}}'] = share * passed_s
        return "".join(f"{name} {value}\n" for name, value in rows.items())


def advancing(dump: str, underscore: str = "") -> Callable[[], str]:
    """Return a page that serves a recorded dump with its counters growing by 1 % a second.

    `underscore` is a prefix such as "vllm" whose colon becomes an underscore.
    """
    text = (DUMPS / dump).read_text(encoding="utf-8")
    counters = set(re.findall(r"^# TYPE (\S+) (?:counter|histogram)$", text, flags=re.MULTILINE))
    began_s = time.monotonic()

    def page() -> str:
        factor = 1 + 0.01 * (time.monotonic() - began_s)
        lines = []
        for line in text.splitlines():
            name = re.split(r"[{ ]", line, maxsplit=1)[0]
            base = re.sub(r"_(?:total|bucket|sum|count)$", "", name)
            if not line.startswith("#") and {name, base, f"{base}_total"} & counters:
                before, _, number = line.rpartition(" ")
                line = f"{before} {float(number) * factor}"  # noqa: PLW2901 - the line, grown
            lines.append(line.replace(f"{underscore}:", f"{underscore}_") if underscore else line)
        return "\n".join(lines) + "\n"

    return page


def policy(service: str, model: str = MODEL, engine: str = "vllm") -> ServicePolicy:
    (one,) = parse_policies(
        f"""
apiVersion: tidegate.io/v1alpha1
kind: ServicePolicy
metadata: {{name: {service}}}
spec:
  model: {model}
  slos:
    - {{name: ttft, indicator: ttft, percentile: 95, threshold: 1s, window: 1d}}
    - {{name: tpot, indicator: tpot, objective: 0.9, threshold: 150ms, window: 1d}}
    - {{name: available, indicator: availability, objective: 0.999, window: 1d}}
  pools:
    - name: main
      role: aggregated
      engine: {engine}
      accelerator: nvidia-a100-80gb
      gpusPerReplica: 1
      engineProfile: a100-llama8b-tp1
      minReplicas: 1
      maxReplicas: 8
      coldStart: 20s
      costPerHour: 1
      scaleTarget: {{kind: Local, name: main}}
"""
    )
    return one


def key_of(service: str) -> PoolKey:
    return PoolKey(service=service, pool="main")


def ready(service: str, *names: str, now_s: float, address: str = "", age_s: float = 1000.0) -> tuple[Replica, ...]:
    return tuple(
        Replica(
            name=name,
            pool=key_of(service),
            state=ReplicaState.READY,
            address=address,
            ordered_at_s=now_s - age_s,
            ready_at_s=now_s - age_s,
        )
        for name in names
    )


def members(*replicas: Replica, now_s: float) -> Membership:
    return Membership(taken_at_s=now_s, replicas=tuple(sorted(replicas, key=lambda r: r.name)))
