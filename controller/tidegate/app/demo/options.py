"""What `tidegate demo` is told."""

from dataclasses import dataclass
from pathlib import Path

POLICY = Path("examples/policies/demo.yaml")
NODES = Path("examples/policies/demo-nodes.yaml")
TRACE = Path("examples/traces/azure2023_conv_10min.csv")

# Two stretches of the trace on top of each other: about 15 requests/s at high water, which six replicas carry.
COPIES = 2
SECONDS = 240.0
# Below this the tide turns faster than a cold start, and nothing can follow it.
LEAST_SECONDS = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Files and length of one demo."""

    seconds: float
    policy: Path
    nodes: Path
    trace: Path
    out: Path
    json: bool = False
