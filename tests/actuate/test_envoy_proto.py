import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from tests.gateway.harness import fleet, replica, service

from tidegate.actuate import envoy_proto
from tidegate.actuate.envoy_proto import EncodingError, EnvoyMessages
from tidegate.app.servers import find_binary
from tidegate.gateway.content import ENDPOINTS
from tidegate.gateway.envoy import ListenerSettings
from tidegate.gateway.snapshot import build
from tidegate.terms.errors import BadInputError, ServerUnreachableError


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("descriptors") / "envoy.pb"
    assert envoy_proto.write_descriptors(find_binary("envoy"), out) > 500
    return out


@pytest.fixture(scope="module")
def messages(descriptors: Path) -> EnvoyMessages:
    return envoy_proto.load_descriptors(descriptors)


def test_messages_read_from_the_binary_encode_and_decode(messages: EnvoyMessages) -> None:
    body = {"cluster_name": "chat/main", "policy": {"overprovisioning_factor": 7}}
    raw = messages.encode(ENDPOINTS, body)
    again = messages.of("envoy.config.endpoint.v3.ClusterLoadAssignment").FromString(raw)
    assert str(again) == 'cluster_name: "chat/main"\npolicy {\n  overprovisioning_factor {\n    value: 7\n  }\n}\n'


def test_encoding_names_the_resource_and_the_field(messages: EnvoyMessages) -> None:
    with pytest.raises(EncodingError, match=r'ClusterLoadAssignment chat/main: .*"nonsense"'):
        messages.encode(ENDPOINTS, {"cluster_name": "chat/main", "nonsense": 1})
    with pytest.raises(EncodingError, match=r"ClusterLoadAssignment chat/main: .*overprovisioning_factor"):
        messages.encode(ENDPOINTS, {"cluster_name": "chat/main", "policy": {"overprovisioning_factor": "many"}})


def test_the_process_wide_pool_is_left_alone(messages: EnvoyMessages) -> None:
    messages.of("envoy.config.listener.v3.Listener")
    default = descriptor_pool.Default()
    for name in ("envoy.config.listener.v3.Listener", "xds.core.v3.ContextParams", "validate.FieldRules"):
        with pytest.raises(KeyError):
            default.FindMessageTypeByName(name)


def test_other_users_of_the_same_protos_are_not_disturbed(descriptors: Path) -> None:
    # Another package registers its own, different google.rpc and opentelemetry files after ours were loaded.
    program = f"""
from pathlib import Path
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, json_format, struct_pb2
from tidegate.actuate import envoy_proto
ours = envoy_proto.load_descriptors(Path({str(descriptors)!r}))
ours.of("envoy.config.listener.v3.Listener")
for path, package in (("google/rpc/status.proto", "google.rpc"),
                      ("opentelemetry/proto/common/v1/common.proto", "opentelemetry.proto.common.v1")):
    file = descriptor_pb2.FileDescriptorProto(name=path, package=package, syntax="proto3")
    message = file.message_type.add(name="Status")
    message.field.add(name="theirs", number=77, type=9, label=1)
    descriptor_pool.Default().Add(file)
    found = descriptor_pool.Default().FindMessageTypeByName(package + ".Status")
    assert [f.name for f in found.fields] == ["theirs"]
packed = any_pb2.Any()
packed.Pack(duration_pb2.Duration(seconds=3))
assert json_format.MessageToDict(packed)["value"] == "3s"
assert "code" in ours.of("google.rpc.Status").DESCRIPTOR.fields_by_name
import envoy
assert envoy.__file__
print("undisturbed")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("undisturbed", 0), done.stderr


def test_the_binary_is_read_once_when_a_cache_is_given(tmp_path: Path) -> None:
    first = envoy_proto.messages_of(find_binary("envoy"), cache_dir=tmp_path)
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns
    second = envoy_proto.messages_of(find_binary("envoy"), cache_dir=tmp_path)
    assert (first.source, second.source) == (str(kept), str(kept))
    assert kept.stat().st_mtime_ns == before


def test_descriptors_from_a_file_need_no_envoy(descriptors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_ENVOY_DESCRIPTORS", str(descriptors))
    monkeypatch.setenv("TIDEGATE_ENVOY", "/nonexistent/envoy")
    assert envoy_proto.find_messages().source == str(descriptors)


def test_no_envoy_at_all_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_ENVOY_DESCRIPTORS", raising=False)
    monkeypatch.setenv("TIDEGATE_ENVOY", "/nonexistent/envoy")
    with pytest.raises(ServerUnreachableError, match="pip install"):
        envoy_proto.find_messages()


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF" + b"\0" * 5000, bytes(range(256)) * 200, b"\x0a\x08a/b.proto\x12" * 300]
)
def test_a_file_that_is_no_envoy_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=str(path)):
        envoy_proto.read_descriptors(path)
    with pytest.raises(BadInputError, match=str(path)):
        envoy_proto.load_descriptors(path)


def test_an_envoy_without_a_needed_message_is_named(descriptors: Path, tmp_path: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes())
    kept = [f for f in files.file if not f.name.endswith("sse_to_metadata.proto")]
    older = tmp_path / "older.pb"
    older.write_bytes(descriptor_pb2.FileDescriptorSet(file=kept).SerializeToString())
    with pytest.raises(
        BadInputError, match=r"lacks envoy\.extensions\.filters\.http\.sse_to_metadata\.v3\.SseToMetadata;"
    ):
        envoy_proto.load_descriptors(older)


def test_every_message_a_snapshot_uses_is_looked_for_at_start() -> None:
    snapshot = build((service(),), fleet(replica("a", "127.0.0.1:1")), listening=ListenerSettings())
    used = set(re.findall(r'"@type": "type.googleapis.com/([^"]+)"', json.dumps(snapshot.resources)))
    kinds = {kind.rpartition("/")[2] for kind in snapshot.resources}
    assert used
    assert used | kinds <= set(envoy_proto.REQUIRED_MESSAGES)
