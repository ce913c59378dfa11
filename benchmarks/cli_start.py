"""How long `tidegate --help` takes, against an interpreter that does nothing.

`python benchmarks/cli_start.py [--rounds 15]` prints one JSON row: medians over rounds that alternate both, their
ratio (which a busy or slow machine changes little), and the limit of 0.5 s the command line promises. Exits 1 above it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

LIMIT_S = 0.5


def took_s(*words: str) -> float:
    """Return the wall-clock time of one run of this interpreter."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def main() -> int:
    """Measure and print the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    took_s("-m", "tidegate", "--help")  # fills the file cache
    pairs = [(took_s("-c", "pass"), took_s("-m", "tidegate", "--help")) for _ in range(rounds)]
    bare_s, help_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    row = {
        "part": "tidegate --help",
        "rounds": rounds,
        "help_s": round(help_s, 3),
        "bare_interpreter_s": round(bare_s, 3),
        "ratio": round(help_s / bare_s, 2),
        "limit_s": LIMIT_S,
    }
    sys.stdout.write(json.dumps(row) + "\n")
    return 0 if help_s <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
