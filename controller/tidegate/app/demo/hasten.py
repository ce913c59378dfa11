"""The demo's policy for a shorter demo: the tide turns faster, so replicas must start faster."""

from pathlib import Path

import yaml

from tidegate.app.config_quantity import parse_duration_s


def hastened(policy: Path, copy: Path, *, ratio: float) -> Path:
    """Write a copy of a policy file whose cold starts and shrink stabilisation are `ratio` times as long; return it.

    At 1 or more nothing is changed: a longer demo is an easier one, and says so by its better figures. Below it, an
    unchanged cold start would outlast the flood, and no scaler could follow.

    Args:
        policy: One valid ServicePolicy.
        copy: Where to write; its folder is made.
        ratio: Length of this demo by the standard one, > 0.
    """
    document = yaml.safe_load(policy.read_text(encoding="utf-8"))
    spec = document["spec"]
    if ratio < 1.0:
        for pool in spec["pools"]:
            pool["coldStart"] = _shorter(pool["coldStart"], ratio)
        scaling = spec.get("scaling", {})
        if "shrinkStabilisation" in scaling:
            scaling["shrinkStabilisation"] = _shorter(scaling["shrinkStabilisation"], ratio)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return copy


def _shorter(duration: str, ratio: float) -> str:
    return f"{max(1.0, parse_duration_s(duration) * ratio):.1f}s"
