#!/usr/bin/env bash
# fuzz.sh [TIME]   runs every fuzz test of the module for a while each (10s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}

found=0
for pkg in $(go list ./...); do
	for name in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || :); do
		found=1
		echo "== $pkg $name"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$pkg"
	done
done
[ $found -eq 1 ] || { echo "fuzz.sh: no fuzz test found" >&2; exit 1; }
