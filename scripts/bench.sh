#!/usr/bin/env bash
# bench.sh   measures curfew beside plain SQL and pt-archiver, on scratch servers
# that write through as they would in earnest, and writes docs/benchmarks.md.
#
# From the environment: ARGS, e.g. "--rows 200000 --only postgres" or --help.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh archiver
mkdir -p .build
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o .build/curfew ./cmd/curfew
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o .build/bench ./internal/bench
# The tests' servers give up durability: they would flatter whoever commits often.
unset CURFEW_TEST_POSTGRES CURFEW_TEST_MARIADB
# shellcheck disable=SC2086  # a list of words
DURABLE=1 exec scripts/with-servers.sh .build/bench --curfew .build/curfew ${ARGS:-}
