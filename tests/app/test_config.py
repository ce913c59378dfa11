import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.app.config import (
    PolicyFileError,
    PolicyNotBuiltYetError,
    load_nodes,
    load_policies,
    load_policy_set,
    parse_policies,
    policy_digest,
    policy_schema,
)
from tidegate.app.config_schema import inventory_schema
from tidegate.terms.errors import BadInputError, NotBuiltYetError
from tidegate.terms.fleet import EngineKind, PoolKey, Role
from tidegate.terms.policy import Mode, TargetKind
from tidegate.terms.slo import Indicator

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAT = (EXAMPLES / "policies" / "chat.yaml").read_text(encoding="utf-8")
MINIMAL = """\
apiVersion: tidegate.io/v1alpha1
kind: ServicePolicy
metadata: {name: chat}
spec:
  model: meta-llama/Llama-3.1-8B-Instruct
  slos: [{name: ttft, indicator: ttft, percentile: 99.9, threshold: 1s}]
  pools:
    - name: main
      engine: vllm
      accelerator: nvidia-a100-80gb
      engineProfile: a100-llama8b-tp1
      minReplicas: 1
      maxReplicas: 8
      coldStart: 20s
      costPerHour: 2.5
      scaleTarget: {kind: Local}
"""


def _errors(text: str) -> str:
    with pytest.raises(PolicyFileError) as caught:
        parse_policies(text, "p.yaml")
    return str(caught.value)


def _but(old: str, new: str) -> str:
    assert old in CHAT
    return CHAT.replace(old, new)


def test_example_is_read_into_the_cores_types() -> None:
    (policy,) = load_policies([EXAMPLES / "policies" / "chat.yaml"])
    assert policy.name == "chat"
    assert policy.mode is Mode.ACT
    assert policy.threshold_s(Indicator.TPOT) == 0.08
    assert policy.slos[0].objective_ratio == 0.95
    assert policy.slos[2].threshold_s is None
    assert policy.slos[0].window_s == 28 * 86_400
    pool = policy.pools[0]
    assert pool.key == PoolKey(service="chat", pool="main")
    assert (pool.role, pool.engine, pool.target.kind) == (Role.AGGREGATED, EngineKind.VLLM, TargetKind.LOCAL)
    assert (pool.min_replicas, pool.max_replicas, pool.cold_start_prior_s) == (1, 8, 20.0)
    assert policy.scaling.shrink_stabilisation_s == 60.0
    assert policy.gateway.max_body_bytes == 8 * 2**20
    assert policy.budget.max_cost_usd_per_h == 40.0


def test_defaults_are_the_documented_ones() -> None:
    (policy,) = parse_policies(MINIMAL)
    assert policy.mode is Mode.ADVISE  # nothing is written unless asked for
    assert policy.priority == 100
    assert policy.slos[0].objective_ratio == 0.999
    assert policy.slos[0].window_s == 28 * 86_400
    assert policy.pools[0].gpus_per_replica == 1
    assert policy.pools[0].target.name == "main"
    assert policy.scaling.max_grow_replicas == 4
    assert policy.scaling.max_shrink_replicas == 1
    assert policy.scaling.shrink_stabilisation_s is None
    assert policy.scaling.target_utilisation_ratio == 0.85
    assert policy.scaling.forecast_quantile == 0.9
    assert policy.scaling.stale_after_s == 30.0
    assert (policy.gateway.retries, policy.gateway.idle_timeout_s) == (3, 300.0)
    assert policy.budget.max_gpus is None
    assert policy.cache.enabled is False


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("threshold: 1s", "threshold: 500", "p.yaml:9: spec.slos[0].threshold: got 500, must be a duration with"),
        ("threshold: 1s", "threshold: 0s", 'slos[0].threshold: got "0s", must be a duration from 1ms to 1d'),
        ("threshold: 1s", "threshold: [1s]", "slos[0].threshold: got a list, must be a duration"),
        ("minReplicas: 1", "minReplicas: 9", "spec.pools[0].maxReplicas: got 8, must be >= minReplicas (9)"),
        ("minReplicas: 1", "minReplicas: -1", "spec.pools[0].minReplicas: got -1, must be >= 0"),
        ("minReplicas: 1", "minReplicas: '1'", 'spec.pools[0].minReplicas: got "1", must be a whole number'),
        ("minReplicas: 1", "minReplicas: 1.5", "spec.pools[0].minReplicas: got 1.5, must be a whole number"),
        ("minReplicas: 1", "minReplicas: true", "spec.pools[0].minReplicas: got true, must be a whole number"),
        ("costPerHour: 2.50", "costPerHour: -2.5", "spec.pools[0].costPerHour: got -2.5, must be >= 0"),
        ("costPerHour: 2.50", "costPerHour: .nan", "spec.pools[0].costPerHour: got nan, must be a finite number"),
        ("costPerHour: 2.50", "costPerHour: 1e999", "spec.pools[0].costPerHour: got inf, must be a finite number"),
        ("{tensor: 1,", "{tensor: 2,", "parallelism: tensor 2 x pipeline 1 is 2, must be gpusPerReplica (1)"),
        ("percentile: 95,", "percentile: 95, objective: 0.9,", "percentile and objective are both given"),
        ("percentile: 95, ", "", "spec.slos[0].objective: missing, must be given (or percentile)"),
        ("percentile: 95", "percentile: 0.99", "got 0.99, must be >= 1 (in percent: did you mean 99?)"),
        ("objective: 0.999", "objective: 99.5", "got 99.5, must be < 1 (a share: did you mean 0.995?)"),
        ("targetUtilisation: 0.85", "targetUtilisation: 85", "must be <= 1 (a share: did you mean 0.85?)"),
        ("forecastQuantile: 0.9", "forecastQuantile: 90", "must be < 1 (a share: did you mean 0.9?)"),
        ("percentile: 95", "percentile: 100", "spec.slos[0].percentile: got 100, must be < 100"),
        ("objective: 0.999", "objective: 99.9", "spec.slos[2].objective: got 99.9, must be < 1"),
        ("objective: 0.999", "percentile: 99.9", "availability is a share of requests, must be objective: 0.999"),
        ("objective: 0.999", "objective: 0.999, threshold: 1s", "availability has no threshold"),
        ("threshold: 80ms, ", "", "spec.slos[1].threshold: missing, must be the longest good tpot"),
        ("name: tpot", "name: ttft", 'p.yaml:10: spec.slos[1].name: "ttft" is given twice, first on line 9'),
        ("a100-llama8b-tp1", "a100-lama8b-tp1", "(did you mean a100-llama8b-tp1?)"),
        ("a100-llama8b-tp1", "zzz", "must be a shipped engine profile (`tidegate profile list` names all "),
        ("a100-llama8b-tp1", "none.yaml", "profile cannot be used: none.yaml: no such file"),
        ("a100-llama8b-tp1", "h100-llama8b-tp1", "must be nvidia-h100"),
        ("a100-llama8b-tp1", "a100-llama8b-tp2", "spec.pools[0].parallelism.tensor: got 1, must be 2"),
        ("engine: vllm", "engine: vlm", "got \"vlm\", must be one of 'vllm' or 'sglang' (did you mean vllm?)"),
        ("minReplicas", "min_replicas", "spec.pools[0].min_replicas: unknown field (did you mean minReplicas?)"),
        ("indicator: tpot", "indicator: topt", "(did you mean tpot?)"),
        ("kind: ServicePolicy", "kind: ServicePolcy", "(did you mean ServicePolicy?)"),
        ("kind: ServicePolicy", "kind: servicepolicy", "be ServicePolicy (spelled exactly so: capitals count)"),
        ("kind: ServicePolicy", "kind: Inventory", "this belongs in the nodes file"),
        ("v1alpha1", "v1", "p.yaml:1: apiVersion: got \"tidegate.io/v1\", must be one of 'tidegate.io/v1alpha1'"),
        ("name: chat", "name: Chat_1", 'p.yaml:3: metadata.name: got "Chat_1", must be lower-case letters'),
        ("name: chat", "name: 12", "metadata.name: got 12, must be text (write it in quotes)"),
        ("retries: 3", "retries: 3, retries: 4", "spec.gateway.retries: is given twice"),
        ("retries: 3", "retry: 3", "spec.gateway.retry: unknown field (did you mean retries?)"),
        ("8Mi", "8MB", 'spec.gateway.maxBodyBytes: got "8MB", must be a number of bytes'),
        ("8Mi", "8Ti", 'spec.gateway.maxBodyBytes: got "8Ti", must be from 1Ki to 1Gi'),
        ("maxGpus: 16", "maxGpus: 0", "spec.budget.maxGpus: got 0, must be >= 1"),
        ("maxCostPerHour: 40", "maxCostPerHour: 2", "must be >= 2.5, what the pools' minReplicas cost"),
        ("forecastQuantile: 0.9", "forecastQuantile: 1", "spec.scaling.forecastQuantile: got 1, must be < 1"),
        ("staleAfter: 30s", "staleAfter: 30", "must be a duration with its unit, such as 30ms or 30s"),
        ("enabled: false", "enabled: off", 'spec.cache.offload.enabled: got "off", must be true or false'),
        ("budget: {maxCostPerHour: 40, maxGpus: 16}", "budget: 40", "spec.budget: got 40, must be a mapping of fields"),
    ],
)  # fmt: skip
def test_wrong_field_is_named_with_what_it_must_be(old: str, new: str, said: str) -> None:
    assert said in _errors(_but(old, new))


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("role: aggregated", "role: prefill", "spec.pools[0].role: role prefill is not built yet"),
        ("role: aggregated", "role: decode", "spec.pools[0].role: role decode is not built yet"),
        ("minReplicas: 1", "minReplicas: 0", "pools[0].minReplicas: scaling to zero (minReplicas 0) is not built yet"),
        ("mode: act", "mode: shadow", "spec.mode: shadow mode is not built yet"),
        ("enabled: false", "enabled: true", "spec.cache.offload.enabled: cache offload is not built yet"),
        ("kind: Local", "kind: Deployment", "spec.pools[0].scaleTarget.kind: scaling a Deployment is not built yet"),
        ("  priority: 100", "  preemption: {allow: true}", "spec.preemption: preemption is not built yet"),
        ("  priority: 100", "  events: []", "spec.events: events is not built yet"),
        ("kind: ServicePolicy", "kind: FleetBudget", "kind: kind FleetBudget is not built yet"),
    ],
)  # fmt: skip
def test_field_without_behaviour_is_refused_as_not_built(old: str, new: str, field: str) -> None:
    with pytest.raises(PolicyNotBuiltYetError) as caught:
        parse_policies(_but(old, new), "p.yaml")
    assert field in str(caught.value)
    assert isinstance(caught.value, NotBuiltYetError)


def test_all_errors_are_told_at_once_in_line_order() -> None:
    text = _but("threshold: 1s", "threshold: 500").replace("minReplicas: 1", "minReplicas: 9").replace("2.50", "-1")
    lines = _errors(text.replace("mode: act", "mode: shadow")).splitlines()
    assert [line.split(":")[1] for line in lines] == ["6", "9", "21", "23"]


def test_errors_of_several_files_are_told_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(_but("8Mi", "8MB"), encoding="utf-8")
    two.write_text("", encoding="utf-8")
    with pytest.raises(PolicyFileError) as caught:
        load_policies([one, two, tmp_path / "three.yaml"])
    text = str(caught.value)
    assert "one.yaml:28: spec.gateway.maxBodyBytes" in text
    assert "two.yaml: is empty" in text
    assert "three.yaml: no such file" in text
    assert isinstance(caught.value, BadInputError)


def test_several_documents_are_several_services() -> None:
    other = CHAT.replace("name: chat", "name: code").replace("Instruct", "Coder")
    assert [p.name for p in parse_policies(f"{CHAT}---\n{other}")] == ["chat", "code"]


def test_service_and_model_given_twice_are_refused() -> None:
    text = _errors(f"{CHAT}---\n{CHAT}")
    assert 'metadata.name: "chat" is given twice, first in p.yaml:3' in text
    assert 'spec.model: "meta-llama/Llama-3.1-8B-Instruct" is given twice, first in p.yaml:5' in text


@pytest.mark.parametrize("name", ["a b", " a", "mod\u00e8le", "a\u200bb"])
def test_a_model_the_gateway_cannot_route_on_is_refused(name: str) -> None:
    text = _errors(CHAT.replace("meta-llama/Llama-3.1-8B-Instruct", f'"{name}"'))
    assert "p.yaml:5: spec.model: got" in text
    assert "must be printable ASCII characters without spaces" in text


def test_pool_given_twice_is_refused() -> None:
    start, end = MINIMAL.index("    - name"), len(MINIMAL)
    assert '"main" is given twice, first on line 8' in _errors(MINIMAL + MINIMAL[start:end])


def test_base_model_of_a_fine_tune_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(_but("model: meta-llama/Llama-3.1-8B-Instruct", "model: acme/chat-ft"), encoding="utf-8")
    loaded = load_policy_set([path])
    assert loaded.policies[0].model == "acme/chat-ft"
    assert "the service serves acme/chat-ft" in loaded.warnings[0]


def test_profile_path_is_relative_to_the_policy(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "models/tidegate/perf/profiles/a100-llama8b-tp1.yaml"
    (tmp_path / "mine.yaml").write_bytes(shipped.read_bytes())
    path = tmp_path / "p.yaml"
    path.write_text(_but("a100-llama8b-tp1", "mine.yaml"), encoding="utf-8")
    assert load_policies([path])[0].pools[0].profile == str(tmp_path / "mine.yaml")


def test_many_errors_are_cut_short() -> None:
    text = MINIMAL + "".join(f"  extra{i}: 1\n" for i in range(80))
    lines = _errors(text).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "… and 30 more"


def test_control_characters_never_reach_the_terminal() -> None:
    text = _errors(_but("mode: act", 'mode: "\\e[31mact"') + '  "\\e[2J": 1\n')
    assert "\x1b" not in text
    assert "\\u001b" in text


def test_digest_ignores_order_and_spelling_but_not_content() -> None:
    other = CHAT.replace("name: chat", "name: code").replace("Instruct", "Coder")
    one = policy_digest(parse_policies(f"{CHAT}---\n{other}"))
    respelled = CHAT.replace("threshold: 1s", "threshold: 1000ms").replace("percentile: 95", "objective: 0.95")
    assert policy_digest(parse_policies(f"{other}---\n{respelled}")) == one
    assert policy_digest(parse_policies(f"{CHAT.replace('maxReplicas: 8', 'maxReplicas: 9')}---\n{other}")) != one


def test_schema_is_draft_2020_12_and_accepts_the_examples() -> None:
    schema = policy_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(CHAT))
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(MINIMAL))
    inventory = yaml.safe_load((EXAMPLES / "nodes.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(inventory_schema())
    jsonschema.Draft202012Validator(inventory_schema()).validate(inventory)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "slos", 0, "threshold"), "500"),
        (("spec", "slos", 0, "objective"), 0.9),  # beside percentile
        (("spec", "pools", 0, "minReplicas"), "1"),
        (("spec", "pools", 0, "min_replicas"), 1),
        (("spec", "gateway", "maxBodyBytes"), "8MB"),
        (("spec", "pools"), []),
        (("kind",), "Policy"),
    ],
)
def test_schema_refuses_what_the_reader_refuses(path: tuple[str | int, ...], value: object) -> None:
    document = copy.deepcopy(yaml.safe_load(CHAT))
    at: Any = document
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(policy_schema()).validate(document)
    with pytest.raises(PolicyFileError):
        parse_policies(json.dumps(document))


def test_policy_written_as_json_is_the_same_policy() -> None:
    assert parse_policies(json.dumps(yaml.safe_load(CHAT))) == parse_policies(CHAT)


def test_nodes_are_read_in_order() -> None:
    nodes = load_nodes(EXAMPLES / "nodes.yaml")
    assert [(n.name, n.gpus, n.topology_domain) for n in nodes] == [("node-a", 8, "rack-1"), ("node-b", 8, "rack-2")]


INVENTORY = "apiVersion: tidegate.io/v1alpha1\nkind: Inventory\nmetadata: {name: a}\nspec:\n  nodes:\n"
NODE = "    - {name: n, gpus: 8, accelerator: x}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty, must hold"),
        ("[]", "got a list, must be a mapping with apiVersion"),
        (CHAT, "this belongs in a policy file"),
        (INVENTORY + NODE.replace("gpus", "gpu"), "spec.nodes[0].gpu: unknown field (did you mean gpus?)"),
        (INVENTORY + NODE.replace("8", "-1"), "spec.nodes[0].gpus: got -1, must be >= 0"),
        (INVENTORY + NODE + NODE, 'spec.nodes[1].name: "n" is given twice, first on line 6'),
    ],
)
def test_wrong_inventory_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyFileError) as caught:
        load_nodes(path)
    assert said in str(caught.value)


def _only_policy_file_errors(text: str) -> None:
    try:
        parse_policies(text)
    except PolicyFileError as exc:
        assert str(exc)  # noqa: PT017  (reading well is right too)


@given(st.text(max_size=200))
def test_junk_text_is_a_policy_file_error(text: str) -> None:
    _only_policy_file_errors(text)


@given(st.text(alphabet="{}[]:,-?&*!|>'\"#%@` \n\tab1.~", max_size=120))
def test_junk_of_yaml_signs_is_a_policy_file_error(text: str) -> None:
    _only_policy_file_errors(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
_PATHS: list[tuple[str | int, ...]] = [
    ("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("spec",), ("spec", "model"), ("spec", "mode"),
    ("spec", "slos"), ("spec", "slos", 0), ("spec", "slos", 0, "threshold"), ("spec", "slos", 0, "percentile"),
    ("spec", "pools"), ("spec", "pools", 0), ("spec", "pools", 0, "name"), ("spec", "pools", 0, "engineProfile"),
    ("spec", "pools", 0, "minReplicas"), ("spec", "pools", 0, "parallelism"), ("spec", "pools", 0, "scaleTarget"),
    ("spec", "budget"), ("spec", "gateway", "maxBodyBytes"), ("spec", "scaling", "staleAfter"), ("spec", "cache"),
    ("spec", "preemption"), ("spec", "events"), ("spec", "unheard"),
]  # fmt: skip


@settings(max_examples=200)
@given(st.sampled_from(_PATHS), _JSON)
def test_any_value_in_any_field_is_a_policy_or_a_policy_file_error(path: tuple[str | int, ...], value: object) -> None:
    document: Any = yaml.safe_load(CHAT)
    at = document
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    _only_policy_file_errors(json.dumps(document))


def test_work_is_bounded_when_everything_is_wrong() -> None:
    many = "{engine: vlm, engineProfile: a100-lama8b-tp1}, " * 5_000
    head = CHAT.split("  pools:")[0]
    assert len(_errors(f"{head}  pools: [{many}]\n").splitlines()) == 51
    assert "… and 155 more" in _errors("---\na: 1\n" * 5_000)  # five a document, until there are enough
