"""How fast a trace of ten million requests is read, and in how much memory.

`python benchmarks/trace_reading.py [--rows 10000000]` writes a trace of that many requests (a tenth of them where each
has hashes), reads it in a process of its own, and prints one JSON row per format. Exits 1 when it held 1 GiB or more.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LIMIT_BYTES = 1 << 30
_BLOCK_ROWS = 100_000
_READ = """
import json, resource, sys, time
from pathlib import Path
from tidegate.app.traces.read import read_trace
began_s = time.perf_counter()
trace = read_trace(Path(sys.argv[1])).trace
took_s = time.perf_counter() - began_s
print(json.dumps({"rows": len(trace), "read_s": round(took_s, 2), "rows_per_s": round(len(trace) / took_s),
                  "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


def own_csv(rows: int) -> Iterator[str]:
    yield "arrival_s,input_tokens,output_tokens,client\n"
    rng = np.random.default_rng(0)
    at_s = 0.0
    for first in range(0, rows, _BLOCK_ROWS):
        n = min(_BLOCK_ROWS, rows - first)
        times = at_s + np.cumsum(rng.exponential(0.01, n))
        at_s = float(times[-1])
        columns = (times.tolist(), rng.integers(1, 9000, n).tolist(), rng.integers(1, 900, n).tolist())
        yield "".join(f"{t:.4f},{p},{o},{p % 50}\n" for t, p, o in zip(*columns, strict=True))


def azure_csv(rows: int) -> Iterator[str]:
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    start = np.datetime64("2023-11-16T18:15:46.6805900")
    for first in range(0, rows, _BLOCK_ROWS):
        times = start + np.arange(first, min(first + _BLOCK_ROWS, rows)) * np.timedelta64(9_999_900, "ns")
        yield "".join(f"{str(t)[:27].replace('T', ' ')},{300 + i % 999},{1 + i % 500}\n" for i, t in enumerate(times))


def mooncake_lines(rows: int) -> Iterator[str]:
    for i in range(rows):
        ids = [0, *range(8 * i + 1, 8 * i + 8)]
        yield json.dumps({"timestamp": 10 * i, "input_length": 4096, "output_length": 200, "hash_ids": ids}) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    worst = 0
    # A tenth of the rows where each has a list of hashes.
    formats = {
        "tidegate-csv": (own_csv, rows),
        "azure-csv": (azure_csv, rows),
        "mooncake-jsonl": (mooncake_lines, rows // 10),
    }
    for name, (lines, count) in formats.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(lines(count))
            said = subprocess.run([sys.executable, "-c", _READ, path], check=True, capture_output=True, text=True)
        row = {"format": name, **json.loads(said.stdout), "limit_bytes": LIMIT_BYTES}
        worst = max(worst, row["peak_rss_bytes"])
        sys.stdout.write(json.dumps(row) + "\n")
    return 0 if worst < LIMIT_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
