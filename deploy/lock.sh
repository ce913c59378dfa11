#!/usr/bin/env bash
# Writes requirements/runtime.lock and requirements/dev.lock (which contains the first) from pyproject.toml, with hashes.
# Pins move only with `make lock LOCK_ARGS=--upgrade`. Nothing of this machine may leak into the files: pip's configuration, local
# wheel folders and constraints are shut out, and no index address is written.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$checkout"
groups="$(mktemp --suffix=.in)"
trap 'rm -f "$groups"' EXIT
.venv/bin/python -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["dependency-groups"]["dev"], sep="\n")' >"$groups"

# shellcheck disable=SC2086 # LOCK_ARGS are words
compile() {
  env -u PIP_FIND_LINKS -u PIP_CONSTRAINT -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL -u PIP_NO_INDEX -u PIP_REQUIRE_VIRTUALENV \
    PIP_CONFIG_FILE=/dev/null CUSTOM_COMPILE_COMMAND="make lock" \
    .venv/bin/python -m piptools compile --quiet --no-config --generate-hashes --allow-unsafe --strip-extras \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options --annotation-style line \
    ${LOCK_ARGS:-} "$@"
}

compile --extra demo --output-file requirements/runtime.lock pyproject.toml
# The hashes already known are reused: else every wheel of every version would be fetched twice.
test -f requirements/dev.lock || cp requirements/runtime.lock requirements/dev.lock
compile --extra demo --constraint requirements/runtime.lock --output-file requirements/dev.lock pyproject.toml "$groups"
sed -i "s#$groups#pyproject.toml (dev)#g" requirements/dev.lock
