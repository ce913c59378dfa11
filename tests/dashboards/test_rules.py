"""Each alert fires when it should and stays silent when it should, judged by promtool on synthetic series."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tidegate.app.cli.main import EXIT_DONE, main
from tidegate.app.config import load_policies
from tidegate.app.servers import find_binary
from tidegate.catalogue import gateway
from tidegate.dashboards.render import RULES_NAME, rendered
from tidegate.dashboards.rules import rules_file
from tidegate.dashboards.slo_rules import Objective, burn_alerts, error_ratio
from tidegate.terms.slo import Indicator

CHAT = {"service": "chat"}
POOL = {"service": "chat", "pool": "main"}
# Promtool's series: start+step x count, one value a minute.
BUSY = {'envoy_tg_requests{service="chat",pool="main",model="m",code_class="2xx"}': "0+600x{n}"}  # 10/s
KNOWN = {'tidegate_pool_asked_replicas{service="chat",pool="main"}': "3x{n}"}


@dataclass(frozen=True)
class Case:
    """Series for `minutes`, the alert asked about at their end, and the labels it must carry (None: silent)."""

    alert: str
    series: dict[str, str]
    labels: dict[str, str] | None
    minutes: int = 20
    step_minutes: int = 1  # between samples and between evaluations


def ttft(good: int, bad: int) -> dict[str, str]:
    """Per minute, `good` answers within a second and `bad` later ones."""
    name = 'envoy_tg_ttft_{part}{{service="chat",pool="main",model="m"{le}}}'
    return {
        name.format(part="bucket", le=',le="499"'): f"0+{good}x{{n}}",
        name.format(part="bucket", le=',le="999"'): f"0+{good}x{{n}}",
        name.format(part="bucket", le=',le="+Inf"'): f"0+{good + bad}x{{n}}",
        name.format(part="count", le=""): f"0+{good + bad}x{{n}}",
    }


def tpot(good: int) -> dict[str, str]:
    """Per minute, `good` answers within 80 ms a token."""
    return {
        f'{gateway.TPOT}_bucket{{service="chat",le="79"}}': f"0+{good}x{{n}}",
        f'{gateway.TPOT}_count{{service="chat"}}': f"0+{good}x{{n}}",
    }


def answers(good: int, failed: int = 0, cut: int = 0) -> dict[str, str]:
    labels = 'service="chat",pool="main",model="m"'
    series = {f'envoy_tg_requests{{{labels},code_class="2xx"}}': f"0+{good}x{{n}}"}
    if failed:
        series[f'envoy_tg_requests{{{labels},code_class="5xx"}}'] = f"0+{failed}x{{n}}"
    if cut:
        series[f"envoy_tg_streams_cut{{{labels}}}"] = f"0+{cut}x{{n}}"
    return series


UNKNOWN = 'tidegate_signal_unknown{service="chat",pool="main",signal="kv_used_ratio",reason="absent"}'
HARMLESS = 'tidegate_signal_unknown{service="chat",pool="main",signal="itl",reason="not_offered"}'
OBJECTIVE = 'tidegate_signal_unknown{service="chat",pool="",signal="slo_ttft",reason="absent"}'
WANTED = 'tidegate_pool_wanted_replicas{service="chat",pool="main"}'
ASKED = 'tidegate_pool_asked_replicas{service="chat",pool="main"}'
AT_MAX = 'tidegate_decisions_total{service="chat",pool="main",verdict="hold",reason="at_maximum"}'
STEADY = 'tidegate_decisions_total{service="chat",pool="main",verdict="hold",reason="steady"}'
PAGE = {"severity": "page"}
SIGNAL = {"signal": "kv_used_ratio", "reason": "absent"}
TICKS = "tidegate_tick_duration_seconds_count"

CASES = {
    "unknown signal under load": Case("TidegateMetricsUnknown", {UNKNOWN: "1x{n}"} | BUSY, PAGE | POOL | SIGNAL),
    "unknown signal without traffic": Case("TidegateMetricsUnknown", {UNKNOWN: "1x{n}"}, None),
    "unknown signal for 4 minutes": Case("TidegateMetricsUnknown", {UNKNOWN: "_x16 1x4"} | BUSY, None),
    "signal that is never offered": Case("TidegateMetricsUnknown", {HARMLESS: "1x{n}"} | BUSY, None),
    "objective that is unknown": Case("TidegateMetricsUnknown", {OBJECTIVE: "1x{n}"} | BUSY, None),
    "contract violated": Case(
        "TidegateContractViolated", {'tidegate_contract_violations{service="chat",pool="main"}': "2x{n}"}, PAGE | POOL
    ),
    "contract kept": Case(
        "TidegateContractViolated", {'tidegate_contract_violations{service="chat",pool="main"}': "0x{n}"}, None
    ),
    "wanted above the maximum": Case(
        "TidegatePoolAtLimit", {WANTED: "11x{n}", ASKED: "8x{n}", AT_MAX: "0+6x{n}"}, PAGE | POOL
    ),
    "wanted above asked by a rate limit only": Case(
        "TidegatePoolAtLimit", {WANTED: "11x{n}", ASKED: "8x{n}", STEADY: "0+6x{n}"}, None
    ),
    "asked is what is wanted": Case("TidegatePoolAtLimit", {WANTED: "8x{n}", ASKED: "8x{n}", AT_MAX: "0+6x{n}"}, None),
    "controller gone": Case("TidegateControllerDown", {TICKS: "0+4x5"}, PAGE),
    "controller here": Case("TidegateControllerDown", {TICKS: "0+4x{n}"}, None),
    "controller makes no tick": Case("TidegateControllerStuck", {TICKS: "7x{n}"}, PAGE),
    "controller ticks": Case("TidegateControllerStuck", {TICKS: "0+4x{n}"}, None),
    "journal not writable": Case("TidegateJournalNotWritable", {"tidegate_journal_writable": "0x{n}"}, PAGE),
    "journal writable": Case("TidegateJournalNotWritable", {"tidegate_journal_writable": "1x{n}"}, None),
    "availability burns fast": Case(
        "TidegateSloBurnsFast", answers(580, failed=20), PAGE | CHAT | {"slo": "available"}, minutes=70
    ),
    "cut streams burn availability": Case(
        "TidegateSloBurnsFast", answers(600, cut=20), PAGE | CHAT | {"slo": "available"}, minutes=70
    ),
    "no request fails and no failure series exists": Case("TidegateSloBurnsFast", answers(600), None, minutes=70),
    "one failure among few requests": Case(
        "TidegateSloBurnsFast",
        {
            'envoy_tg_requests{service="chat",code_class="2xx"}': "0+1x{n}",
            'envoy_tg_requests{service="chat",code_class="5xx"}': "0x65 1x5",
        },
        None,
        minutes=70,
    ),
    "no traffic at all": Case("TidegateSloBurnsFast", answers(0, failed=0) | ttft(0, 0), None, minutes=70),
    "availability burned an hour ago and is well now": Case(
        "TidegateSloBurnsFast",
        {
            'envoy_tg_requests{service="chat",code_class="2xx"}': "0+600x{n}",
            'envoy_tg_requests{service="chat",code_class="5xx"}': "0+20x30 600x40",
        },
        None,
        minutes=70,
    ),
    "ttft burns fast": Case("TidegateSloBurnsFast", ttft(100, 500) | BUSY, PAGE | CHAT | {"slo": "ttft"}, minutes=70),
    "ttft within its objective": Case("TidegateSloBurnsFast", ttft(590, 10) | BUSY, None, minutes=70),
    "availability burns slowly": Case(
        "TidegateSloBurnsSlowly",
        answers(6000, failed=24),
        {"severity": "ticket", "slo": "available"} | CHAT,
        minutes=1500,
        step_minutes=10,
    ),
    "availability within its objective": Case(
        "TidegateSloBurnsSlowly", answers(6000, failed=1), None, minutes=1500, step_minutes=10
    ),
    "objective without indicator under load": Case(
        "TidegateSloNotMeasured",
        BUSY | KNOWN | tpot(600),
        {"severity": "ticket", "slo": "ttft"} | CHAT,
        minutes=40,
    ),
    "objective with indicator": Case(
        "TidegateSloNotMeasured", BUSY | KNOWN | ttft(600, 0) | tpot(600), None, minutes=40
    ),
    "objective without traffic": Case("TidegateSloNotMeasured", KNOWN, None, minutes=40),
}


def promtool(folder: Path, test: Mapping[str, object], *, step_minutes: int = 1) -> subprocess.CompletedProcess[str]:
    (folder / RULES_NAME).write_text(rendered()[RULES_NAME])
    (folder / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": [RULES_NAME], "evaluation_interval": f"{step_minutes}m", "tests": [test]})
    )
    argv = [str(find_binary("promtool")), "test", "rules", "test.yaml"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_alert_fires_or_stays_silent(case: Case, tmp_path: Path) -> None:
    # Asked as a query of ALERTS: the texts of annotations are not the point here.
    expected = []
    if case.labels is not None:
        labels = {"alertname": case.alert, "alertstate": "firing"} | case.labels
        written = ",".join(f'{name}="{value}"' for name, value in labels.items())
        expected = [{"labels": f"ALERTS{{{written}}}", "value": 1}]
    test = {
        "interval": f"{case.step_minutes}m",
        "input_series": [
            {"series": name, "values": values.format(n=case.minutes // case.step_minutes)}
            for name, values in case.series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}',
                "eval_time": f"{case.minutes}m",
                "exp_samples": expected,
            }
        ],
    }
    done = promtool(tmp_path, test, step_minutes=case.step_minutes)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    groups = yaml.safe_load(yaml.safe_dump(rules_file()))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert {case.alert for case in CASES.values() if case.labels is not None} == alerts
    assert {case.alert for case in CASES.values() if case.labels is None} == alerts


def test_availability_error_ratio_is_absent_without_traffic_and_never_nan(tmp_path: Path) -> None:
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": v.format(n=20)} for name, v in answers(0).items()],
        "promql_expr_test": [
            {"expr": "slo:sli_error:ratio_rate5m", "eval_time": "20m", "exp_samples": []},
        ],
    }
    done = promtool(tmp_path, test)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("le", ["999", "999.0"])
def test_ttft_error_ratio_reads_the_bound_in_either_spelling(le: str, tmp_path: Path) -> None:
    series = {
        f'envoy_tg_ttft_bucket{{service="chat",le="{le}"}}': "0+75x20",
        'envoy_tg_ttft_count{service="chat"}': "0+100x20",
    }
    labels = 'slo:sli_error:ratio_rate5m{service="chat",slo="ttft"}'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": v} for name, v in series.items()],
        "promql_expr_test": [
            {
                "expr": 'slo:sli_error:ratio_rate5m{slo="ttft"}',
                "eval_time": "20m",
                "exp_samples": [{"labels": labels, "value": 0.25}],
            },
        ],
    }
    done = promtool(tmp_path, test)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("engine", "at_gateway", "expected"),
    [
        ("1x20", {}, 0.0),
        ("0.75x20", {}, 0.25),
        ("0.75x9 _x5 0.75x5", {}, 0.25),  # unknown for a while: a gap, not a zero
        ("0.75x20", tpot(600), 0.0),  # what the gateway counted itself goes first
    ],
)
def test_tpot_error_ratio_falls_back_to_the_engines_reading(
    engine: str, at_gateway: dict[str, str], expected: float, tmp_path: Path
) -> None:
    series = {'tidegate_slo_attained_ratio{service="chat",slo="tpot",source="engine"}': engine} | at_gateway
    labels = 'slo:sli_error:ratio_rate1h{service="chat",slo="tpot"}'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": v.format(n=20)} for name, v in series.items()],
        "promql_expr_test": [
            {
                "expr": 'slo:sli_error:ratio_rate1h{slo="tpot"}',
                "eval_time": "20m",
                "exp_samples": [{"labels": labels, "value": expected}],
            },
        ],
    }
    done = promtool(tmp_path, test)
    assert done.returncode == 0, done.stdout + done.stderr


def test_error_ratio_of_itl_comes_from_the_engines_alone() -> None:
    expr = error_ratio(objective(indicator=Indicator.ITL), "1h")
    assert expr.startswith("1 - avg by (service) (avg_over_time(tidegate_slo_attained_ratio{")
    assert 'service="chat",slo="fast",source="engine"}[1h]' in expr


def objective(**changes: object) -> Objective:
    plain: dict[str, object] = {
        "service": "chat",
        "slo": "fast",
        "indicator": Indicator.E2E,
        "objective_ratio": 0.9,
        "threshold_s": 7.5,
        "window_s": 28 * 86400.0,
    }
    return Objective(**(plain | changes))  # type: ignore[arg-type]  # a test's shorthand


def test_error_ratio_of_a_policy_is_limited_to_its_service_and_bound() -> None:
    expr = error_ratio(objective(), "1h")
    assert 'envoy_tg_duration_bucket{service="chat",le=~"7499|7499\\\\.0"}[1h]' in expr
    assert 'envoy_tg_duration_count{service="chat"}[1h]' in expr


@pytest.mark.parametrize(("threshold_s", "bound"), [(1.0, "999"), (1.1, "1099"), (0.08, "79"), (0.0805, "80")])
def test_error_ratio_reads_the_bucket_of_what_took_less_than_the_threshold(threshold_s: float, bound: str) -> None:
    assert f'le=~"{bound}|{bound}\\\\.0"' in error_ratio(objective(threshold_s=threshold_s), "1h")


def test_error_ratio_knows_prometheus_3_spelling_of_long_bounds() -> None:
    expr = error_ratio(objective(threshold_s=1200.001), "1h")
    assert 'le=~"1200000|1200000\\\\.0|1\\\\.2e\\\\+06"' in expr


def test_burn_alert_can_still_fire_when_the_factor_exceeds_the_whole_budget() -> None:
    fast, _ = burn_alerts(objective())
    assert '{slo="fast",service="chat"} > 0.9 ' in str(fast["expr"])  # 13.44 times 0.1 is over 1
    assert "> 0.56 " in str(fast["expr"])


def test_burn_alert_scales_with_the_window() -> None:
    fast, _ = burn_alerts(objective(objective_ratio=0.999, window_s=30 * 86400.0))
    assert "> 0.0144 " in str(fast["expr"])
    assert "> 0.006 " in str(fast["expr"])


def test_rules_of_an_example_policy_pass_promtool_and_watch_its_services_only(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "policies" / "chat.yaml"
    assert main(["dashboards", "render", "-f", str(example), "--out", str(tmp_path)]) == EXIT_DONE
    argv = [str(find_binary("promtool")), "check", "rules", str(tmp_path / RULES_NAME)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    groups = yaml.safe_load((tmp_path / RULES_NAME).read_text())["groups"]
    recorded = [rule for group in groups for rule in group["rules"] if "record" in rule]
    slos = {(rule["labels"]["service"], rule["labels"]["slo"]) for rule in recorded}
    assert slos == {(policy.name, slo.name) for policy in load_policies([example]) for slo in policy.slos}
