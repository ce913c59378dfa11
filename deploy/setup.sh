#!/usr/bin/env bash
# Fills .venv/ in the checkout with the locked packages and finds or fetches the servers. Safe to repeat: a second run with
# nothing changed takes well under a second. Needs no root; as root it installs by apt what is missing.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$checkout/.venv"
cache="${TIDEGATE_CACHE:-$checkout/.cache/tidegate}"
lock="$checkout/requirements/dev.lock"
stamp="$venv/.tidegate-setup"

say() { printf 'setup: %s\n' "$*"; }
die() { say "$@" >&2; exit 1; }
as_root() { [ "$(id -u)" -eq 0 ]; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# The locks were resolved for 3.11 and hold the wheels of every later version; the nearest comes first.
find_python() {
  local candidate
  if [ -n "${TIDEGATE_PYTHON:-}" ]; then
    is_new_enough "$TIDEGATE_PYTHON" || die "TIDEGATE_PYTHON must name a Python 3.11 or newer, got $TIDEGATE_PYTHON"
    printf '%s\n' "$TIDEGATE_PYTHON"
    return 0
  fi
  for candidate in python3.11 python3 python3.12 python3.13 python3.14; do
    if is_new_enough "$candidate"; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

apt_install() {
  command -v apt-get >/dev/null || return 1
  say "installing $* by apt"
  local quiet=(-qq -o Acquire::Retries=2 -o Dpkg::Use-Pty=0)
  mkdir -p "$cache"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get "${quiet[@]}" install -y --no-install-recommends "$@" ||
    { apt-get "${quiet[@]}" update && apt-get "${quiet[@]}" install -y --no-install-recommends "$@"; }; } \
    </dev/null >>"$cache/setup.log" 2>&1 || { tail -n 5 "$cache/setup.log" >&2; return 1; }
}

# Debian and Ubuntu split `venv` off; Ubuntu 22.04 has Python 3.11 beside its own 3.10.
choose_python() {
  local python version
  if ! python="$(find_python)"; then
    if as_root; then apt_install python3.11 python3.11-venv >&2 || apt_install python3 python3-venv >&2 || true; fi
    python="$(find_python)" ||
      die "needs Python 3.11 or newer, found $(python3 --version 2>/dev/null || echo none); get it with: sudo apt-get install python3.11 python3.11-venv"
  fi
  if ! has_venv "$python"; then
    version="$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
    if as_root; then apt_install "$version-venv" >&2 || true; fi
    has_venv "$python" || die "$python cannot make virtual environments; get it with: sudo apt-get install $version-venv"
  fi
  printf '%s\n' "$python"
}

# What the environment depends on: the locks, the project's metadata, where it lies and whose Python it is.
fingerprint() {
  { printf '%s\n' "$checkout" && cat "$lock" "$checkout/pyproject.toml" && "$venv/bin/python" -VV; } 2>/dev/null | sha256sum
}

up_to_date() {
  [ -x "$venv/bin/tidegate" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]
}

fill_venv() {
  # A venv knows its own path: one that was copied or moved here must be made anew.
  if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1 || ! grep -qF "$venv" "$venv/bin/activate"; then
    local python
    python="$(choose_python)"
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
  fi
  rm -f "$stamp"
  say "installing the locked packages (about 1 GB on disk; minutes the first time)"
  # A person sees what is fetched; a log gets warnings and errors only.
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input) quiet=(--quiet)
  if [ -t 1 ]; then quiet=(); fi
  "${pip[@]}" install "${quiet[@]}" --require-hashes --no-deps --only-binary :all: -r "$lock"
  "${pip[@]}" install "${quiet[@]}" --no-deps --no-build-isolation --editable "$checkout"
  fingerprint >"$stamp"
}

main() {
  mkdir -p "$cache"
  # Two runs at once (a demo beside a test) must not fill the same folder together.
  exec 9>"$cache/setup.lock"
  flock 9
  up_to_date || fill_venv
  "$checkout/deploy/servers.sh"
  "$venv/bin/python" - <<'PYTHON' || exit 1
import sys
from tidegate.app.servers_find import find_binary
from tidegate.terms.errors import TidegateError
missing = []
for name in ("prometheus", "promtool", "alertmanager", "envoy"):
    try:
        find_binary(name)
    except TidegateError as exc:
        missing.append(f"setup: {exc}")
sys.exit("\n".join(missing) if missing else 0)
PYTHON
}

main "$@"
