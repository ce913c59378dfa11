"""Names of the Envoy gateway's metrics, as its admin page exposes them.

The `envoy_cluster_*` names are Envoy's own; their label `envoy_cluster_name` is "service/pool". The `envoy_tg_*` names
come from the stats access logger that the gateway configures under the prefix `tg`, with the labels `service`, `pool`
and `model`. Envoy 1.40.
"""

CLUSTER_LABEL = "envoy_cluster_name"
CODE_CLASS_LABEL = "code_class"
SERVICE_LABEL = "service"
POOL_LABEL = "pool"
MODEL_LABEL = "model"

# Counters. An attempt ends in exactly one of the first four; a retry starts one more attempt.
ATTEMPTS_ATTACHED = "envoy_cluster_upstream_rq_total"  # got a connection
ATTEMPTS_EJECTED = "envoy_cluster_upstream_rq_pending_failure_eject"  # the connection it waited for failed
ATTEMPTS_OVERFLOWED = "envoy_cluster_upstream_rq_pending_overflow"  # refused by a circuit breaker
ATTEMPTS_HOMELESS = "envoy_cluster_upstream_cx_none_healthy"  # no endpoint at all
RETRIES = "envoy_cluster_upstream_rq_retry"

# Gauges.
IN_FLIGHT = "envoy_cluster_upstream_rq_active"
PENDING = "envoy_cluster_upstream_rq_pending_active"

# Counters of finished requests.
REQUESTS = "envoy_tg_requests"
STREAMS_CUT = "envoy_tg_streams_cut"
PROMPT_TOKENS = "envoy_tg_prompt_tokens"
OUTPUT_TOKENS = "envoy_tg_output_tokens"

# Histograms.
TTFT = "envoy_tg_ttft"
DURATION = "envoy_tg_duration"
TPOT = "envoy_tg_tpot"
# Their bounds are milliseconds, and what is counted was cut to whole milliseconds: le="999" holds all below 1000 ms.
BOUND_SCALE_S = 0.001
BOUND_OFFSET = 1.0

ATTEMPTS: tuple[str, ...] = (ATTEMPTS_ATTACHED, ATTEMPTS_EJECTED, ATTEMPTS_OVERFLOWED, ATTEMPTS_HOMELESS)
CLUSTER: tuple[str, ...] = (*ATTEMPTS, RETRIES, IN_FLIGHT, PENDING)
LOGGED: tuple[str, ...] = (REQUESTS, STREAMS_CUT)
HISTOGRAMS: tuple[str, ...] = (TTFT, DURATION, TPOT)
