"""`tidegate check`: is the policy sound, and does every query match live series."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.app.cli.prometheus_flags import add_prometheus_arguments, observe_settings, prometheus_config
from tidegate.terms.errors import ServerUnreachableError
from tidegate.terms.policy import TargetKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.app.prospect import PoolProspect
    from tidegate.observe.selftest import ContractReport
    from tidegate.terms.policy import PoolPolicy, ServicePolicy
    from tidegate.terms.slo import Slo

EXAMPLE = "tidegate check -f policy.yaml --prometheus http://127.0.0.1:9090"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "-f", "--file", dest="files", type=Path, nargs="+", required=True, metavar="POLICY", help="policy files"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_prometheus_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was understood, what to expect of it, and how it matches.

    Returns 0 when all is well, 1 when a required query matches nothing.

    Raises:
        BadInputError: A policy or a flag is wrong.
        ServerUnreachableError: Prometheus could not be asked.
    """
    from tidegate.app.config import load_policy_set  # noqa: PLC0415  (pydantic is slow to import)

    loaded = load_policy_set(args.files)
    expected = _expected(loaded.policies)
    warnings = (*loaded.warnings, *(w for e in expected for w in e.warnings))
    config = prometheus_config(args)
    report = None
    if config is not None:
        from tidegate.app import clock  # noqa: PLC0415  (with the next two: only needed when asked for)
        from tidegate.observe.prometheus import PrometheusReader  # noqa: PLC0415
        from tidegate.observe.selftest import contract_report  # noqa: PLC0415

        stale_after_s = min(p.scaling.stale_after_s for p in loaded.policies)
        settings = observe_settings(args, stale_after_s)
        reader = PrometheusReader(config)
        try:
            report = contract_report(reader, loaded.policies, None, clock.now_s(), settings=settings)
        finally:
            reader.close()
        if report.failure is not None:
            raise ServerUnreachableError(report.failure.detail)
    if args.json:
        json.dump(_document(loaded.policies, warnings, expected, report), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write("\n".join(_text(loaded.policies, warnings, expected, report)) + "\n")
    return 0 if report is None or report.ok else 1


def _expected(policies: "Sequence[ServicePolicy]") -> "list[PoolProspect]":
    from tidegate.app.config import load_profile  # noqa: PLC0415  (pydantic is slow to import)
    from tidegate.app.prospect import prospect  # noqa: PLC0415  (numpy is slow to import)

    return [prospect(policy, pool, load_profile(pool.profile)) for policy in policies for pool in policy.pools]


def _notes(policies: "Sequence[ServicePolicy]") -> list[str]:
    """Return what is true of the policies and may surprise."""
    local = [str(p.key) for policy in policies for p in policy.pools if p.target.kind is TargetKind.LOCAL]
    if not local:
        return []
    twins = "engine twins, which answer with synthetic text: for demos and rehearsals, not for users"
    return [f"scale target Local ({', '.join(local)}) starts {twins}"]


def _document(
    policies: "Sequence[ServicePolicy]",
    warnings: "Sequence[str]",
    expected: "Sequence[PoolProspect]",
    report: "ContractReport | None",
) -> dict[str, object]:
    return {
        "policies": [dataclasses.asdict(p) for p in policies],
        "warnings": list(warnings),
        "notes": _notes(policies),
        "expected": [dataclasses.asdict(e) for e in expected],
        "contract": None if report is None else {"ok": report.ok, **dataclasses.asdict(report)},
    }


def _text(
    policies: "Sequence[ServicePolicy]",
    warnings: "Sequence[str]",
    expected: "Sequence[PoolProspect]",
    report: "ContractReport | None",
) -> list[str]:
    by_pool = {e.pool: e for e in expected}
    lines = [line for policy in policies for line in _understood(policy, by_pool)]
    lines += [f"note: {n}" for n in _notes(policies)]
    lines += [f"warning: {w}" for w in warnings]
    if report is None:
        return [*lines, "", "policy is sound; give --prometheus URL to check that its queries match live series"]
    lines += ["", *_table(report), ""]
    lines += [f"note: {note}" for note in report.notes]
    lines += list(report.violations)
    count = len(report.violations)
    verdict = "every required query matches" if report.ok else f"{count} contract violation{'s' if count > 1 else ''}"
    return [*lines, verdict]


def _understood(policy: "ServicePolicy", expected: "Mapping[str, PoolProspect]") -> list[str]:
    lines = [f"service {policy.name}: model {policy.model}, mode {policy.mode}, priority {policy.priority}"]
    lines += [f"  slo {slo.name}: {_promise(slo)}" for slo in policy.slos]
    for pool in policy.pools:
        lines.append(f"  pool {pool.key.pool}: {_shape(pool)}")
        lines.append(f"    {_carries(expected[str(pool.key)], policy.scaling.target_utilisation_ratio)}")
    return lines


def _carries(expected: "PoolProspect", target_ratio: float) -> str:
    planned_per_s = expected.requests_per_s * target_ratio
    return (
        f"one replica carries about {expected.requests_per_s:.3g} requests/s (limit: {expected.binding}) of "
        f"{expected.prompt_tokens:g} prompt and {expected.output_tokens:g} answer tokens, by its profile; "
        f"{planned_per_s:.3g} are planned for, at a target utilisation of {target_ratio:g}"
    )


def _promise(slo: "Slo") -> str:
    days = slo.window_s / 86_400
    window = f"{days:g} d" if days >= 1 else f"{slo.window_s:g} s"
    what = "answered without a server error"
    if slo.threshold_s is not None:
        what = f"with {slo.indicator} within {slo.threshold_s:g} s"
    return f"{slo.objective_ratio:.4g} of requests {what} over {window}"


def _shape(pool: "PoolPolicy") -> str:
    return (
        f"{pool.min_replicas}..{pool.max_replicas} replicas of {pool.gpus_per_replica} x {pool.accelerator}, "
        f"{pool.engine} profile {pool.profile}, cold start {pool.cold_start_prior_s:g} s until measured, "
        f"{pool.cost_usd_per_h:g} USD/h each, scales {pool.target.kind} {pool.target.name}"
    )


def _table(report: "ContractReport") -> list[str]:
    rows = [("POOL", "QUANTITY", "VERDICT", "REPLICAS", "SERIES", "AGE", "ALIAS")]
    for check in report.checks:
        age = "-" if check.newest_age_s is None else f"{check.newest_age_s:.1f}s"
        rows.append(
            (
                check.pool,
                check.quantity if check.required else f"({check.quantity})",
                check.verdict.value,
                f"{check.covered}/{check.expected}",
                str(check.series),
                age,
                ", ".join(check.aliases) or "-",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*table, "(in brackets: optional)"]
