"""A trace file as bytes: plain or gzip by its first two bytes, text only, lines of bounded length."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from typing_extensions import Buffer

from tidegate.app.traces.problem import MAX_LINE_BYTES, TraceFileError, bad_file

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class _TextOnly(io.RawIOBase):
    """Passes bytes on, and stops at what no trace has: a zero byte, or a line without end."""

    def __init__(self, path: Path, inner: IO[bytes]) -> None:
        self._path = path
        self._inner = inner
        self._since_newline = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        block = self._inner.read(min(len(view), 1 << 18))
        if b"\0" in block:
            raise bad_file(self._path, "must be a text file (CSV or JSON lines), holds a zero byte")
        newest = block.rfind(b"\n")
        self._since_newline = self._since_newline + len(block) if newest < 0 else len(block) - newest - 1
        if self._since_newline > MAX_LINE_BYTES:
            raise bad_file(self._path, f"must be lines of at most {MAX_LINE_BYTES} bytes, holds a longer one")
        view[: len(block)] = block
        return len(block)


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a trace file for reading bytes, unpacked, without a byte order mark.

    Raises:
        TraceFileError: It does not exist, is no regular file, cannot be read, is damaged or is no text; also from
            inside the block, while reading.
    """
    if path.is_dir():
        raise bad_file(path, "must be a file, is a directory")
    if path.exists() and not path.is_file():
        # Errors are explained by a second reading, which a pipe does not give.
        raise bad_file(path, "must be a regular file, is a pipe or device")
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            inner = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if packed else raw)
            stream: io.BufferedReader = io.BufferedReader(cast("Any", _TextOnly(path, inner)), buffer_size=1 << 18)
            if stream.peek(len(_BOM)).startswith(_BOM):
                stream.read(len(_BOM))
            yield stream
    except EOFError as exc:
        raise bad_file(path, "must be a whole gzip file, ends in the middle (cut off while copying?)") from exc
    except (gzip.BadGzipFile, zlib.error) as exc:
        raise bad_file(path, f"must be a sound gzip file: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise bad_file(path, f"must be UTF-8 text: {exc.reason}") from exc
    except OSError as exc:
        raise bad_file(path, f"cannot be read: {exc.strerror or exc}") from exc


def first_line(path: Path, stream: io.BufferedReader) -> str:
    """Return the first line of a stream, without its end.

    Raises:
        TraceFileError: There is none, or it is no text.
    """
    line = stream.readline(MAX_LINE_BYTES)
    if not line.strip():
        raise bad_file(path, "is empty, must hold a header or a JSON object in its first line")
    try:
        return line.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError as exc:
        raise bad_file(path, "must be a text file (CSV or JSON lines), its first line is not UTF-8") from exc


def stem(path: Path) -> str:
    """Return a file's name without `.gz` and its kind."""
    name = path.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name


__all__ = ["TraceFileError", "first_line", "opened", "stem"]
