#!/usr/bin/env bash
# bench.sh   runs the module's benchmarks against scratch servers that write
# through as they would in earnest, with pt-archiver there to compare with.
#
# From the environment, as for test.sh: PKG (./...), RUN (the benchmarks, all), ARGS.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh archiver
# shellcheck disable=SC2086  # lists of words, both
DURABLE=1 exec scripts/with-servers.sh go test -run '^$' -bench "${RUN:-.}" -benchmem -timeout 3h ${ARGS:-} ${PKG:-./...}
