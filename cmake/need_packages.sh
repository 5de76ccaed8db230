# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by tests/run.sh, examples/demo.sh, bench/run.sh and .ci/run.
# need_packages PACKAGE=WITNESS...: installs the Debian packages whose witness (a command, or a file by its path) is missing.
# As root, or with sudo that asks for no password; with neither it prints the one line to type and ends the script.
need_packages()
{
  local entry witness missing=() sudo=()
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  for entry in "$@"; do
    witness=${entry#*=}
    case $witness in
      /*) [ -e "$witness" ] || missing+=("${entry%%=*}") ;;
      *) command -v "$witness" >/dev/null 2>&1 || missing+=("${entry%%=*}") ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  if [ "$(id -u)" != 0 ]; then
    if ! command -v apt-get >/dev/null 2>&1 || ! sudo -n true 2>/dev/null; then
      echo "Missing: ${missing[*]}. Type this, then run the command again:" >&2
      local install="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
      if command -v sudo >/dev/null 2>&1; then
        echo "  sudo sh -c '$install'" >&2
      else
        echo "  su -c '$install'" >&2
      fi
      exit 1
    fi
    sudo=(sudo -n)
  elif ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing: ${missing[*]} (Debian names), and there is no apt-get here: install them, then run the command again." >&2
    exit 1
  fi

  echo "== installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${sudo[@]}" "${apt[@]}" update &&
    "${sudo[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    echo "apt-get could not install ${missing[*]}; its last lines are above." >&2
    exit 1
  fi
  rm -f "$log"
}
