#!/usr/bin/env bash
# Puts Prometheus and Alertmanager where Tidegate finds them; starts nothing and leaves no service running or enabled.
#
# Order, for each server: its environment variable, PATH, the cache, apt as root, `apt-get download` + `dpkg -x` without
# root. What cannot be had is named with the command that would get it, and the exit code is 1.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cache="${TIDEGATE_CACHE:-$checkout/.cache/tidegate}"
policy_file=/usr/sbin/policy-rc.d
log="$cache/servers.log"

say() { printf 'servers: %s\n' "$*"; }

# found NAME PACKAGE VARIABLE -> 0 when an executable of that name is at hand; Debian calls Alertmanager's by its package.
found() {
  local name="$1" package="$2" given="${!3:-}"
  if [ -n "$given" ]; then
    [ -x "$given" ] && return 0
    say "$3 is $given, which is no executable file"
    exit 1
  fi
  command -v "$name" >/dev/null || command -v "$package" >/dev/null || [ -x "$cache/bin/$name" ]
}

as_root() { [ "$(id -u)" -eq 0 ]; }

# Debian starts a daemon as soon as its package is unpacked; policy-rc.d is the documented way to say no. One that the
# machine already has is set aside for the time of the install (and kept, should an earlier install have been killed).
forbid_starts() {
  if [ -e "$policy_file" ] && [ ! -e "$policy_file.tidegate-kept" ]; then mv "$policy_file" "$policy_file.tidegate-kept"; fi
  printf '#!/bin/sh\nexit 101\n' >"$policy_file"
  chmod 755 "$policy_file"
}

allow_starts() {
  rm -f "$policy_file"
  if [ -e "$policy_file.tidegate-kept" ]; then mv "$policy_file.tidegate-kept" "$policy_file"; fi
}

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=2 "$@" </dev/null >>"$log" 2>&1; }

install_by_apt() {
  trap allow_starts EXIT
  trap 'exit 130' INT TERM
  forbid_starts
  # An image just made has no package lists, an old one has stale ones: try, refresh, try again.
  apt_get install -y --no-install-recommends "$@" ||
    { apt_get update && apt_get install -y --no-install-recommends "$@"; } || return 1
  allow_starts
  trap - EXIT INT TERM
  # Only what this run installed is disabled: a server the user had before was found in PATH and is never touched.
  local package
  for package in "$@"; do
    if command -v systemctl >/dev/null; then systemctl disable "$package.service" >>"$log" 2>&1 || true; fi
    if command -v update-rc.d >/dev/null; then update-rc.d "$package" disable >>"$log" 2>&1 || true; fi
  done
}

# Lists and archives live in the cache, so that neither root nor the machine's own apt state is needed.
private_apt() {
  local state="$cache/apt"
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  apt_get -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state" -o Dir::Cache::Archives="$state/archives" "$@"
}

unpack_without_root() {
  if ! command -v dpkg >/dev/null || ! command -v apt-get >/dev/null; then return 1; fi
  local root="$cache/root" packages="$cache/apt/packages" library package
  mkdir -p "$root" "$packages" "$cache/bin"
  (cd "$packages" && { apt_get download "$@" || { private_apt update && private_apt download "$@"; }; }) || return 1
  for package in "$packages"/*.deb; do dpkg -x "$package" "$root"; done
  # Go binaries need libc only; should a distribution link more, the libraries its package names are unpacked beside it.
  for package in "$@"; do
    if ldd "$root/usr/bin/$package" 2>/dev/null | grep -q 'not found'; then
      for library in $(apt-cache depends "$package" 2>/dev/null | awk '/ Depends: lib/ && !/libjs/ {print $2}'); do
        (cd "$packages" && apt_get download "$library") && dpkg -x "$packages/$library"_*.deb "$root"
      done
    fi
  done
  link_unpacked
  rm -rf "$cache/apt"
}

# A wrapper, not a link: it names the libraries unpacked beside the binary. `exec` keeps one process, so signals arrive.
link_unpacked() {
  local pair name file
  for pair in prometheus:prometheus promtool:promtool alertmanager:prometheus-alertmanager; do
    name="${pair%%:*}" file="$cache/root/usr/bin/${pair##*:}"
    [ -x "$file" ] || continue
    # shellcheck disable=SC2016 # the wrapper expands them when it runs
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "%s" "$@"\n' \
      "$cache/root/usr/lib/$(uname -m)-linux-gnu" "$file" >"$cache/bin/$name"
    chmod 755 "$cache/bin/$name"
  done
}

main() {
  mkdir -p "$cache"
  local missing=()
  found prometheus prometheus TIDEGATE_PROMETHEUS || missing+=(prometheus)
  found alertmanager prometheus-alertmanager TIDEGATE_ALERTMANAGER || missing+=(prometheus-alertmanager)
  [ "${#missing[@]}" -eq 0 ] && return 0
  : >"$log"
  if as_root && command -v apt-get >/dev/null; then
    say "installing ${missing[*]} by apt (no service is started or enabled)"
    install_by_apt "${missing[@]}" && return 0
  else
    say "unpacking ${missing[*]} into $cache (no root needed, no service)"
    unpack_without_root "${missing[@]}" && return 0
  fi
  say "cannot get ${missing[*]}"
  if [ -s "$log" ]; then tail -n 5 "$log" | sed 's/^/  /'; fi
  say "get them with: sudo apt-get install ${missing[*]}"
  say "or name your own: TIDEGATE_PROMETHEUS=/path/to/prometheus TIDEGATE_ALERTMANAGER=/path/to/alertmanager"
  return 1
}

main "$@"
