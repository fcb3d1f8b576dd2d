#!/usr/bin/env bash
# lint.sh   gofmt, go vet and staticcheck over the whole module.
set -euo pipefail
cd "$(dirname "$0")/.."

# staticcheck runs at this version from the module proxy, and so stays out of go.mod.
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	printf 'not formatted (run gofmt -w on them):\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet ./...
go run $staticcheck ./...
