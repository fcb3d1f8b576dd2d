#!/usr/bin/env bash
# test.sh   what `make test` does: lint, then all tests, against real databases.
#
# From the environment (make passes them on):
#   PKG   packages to test, without the lint (default: ./... with it)
#   RUN   tests to run, as go test -run takes it
#   ARGS  anything else for go test, e.g. "-v -count=3"
#   RACE  0 leaves the race detector out
set -euo pipefail
cd "$(dirname "$0")/.."

# These packages' tests run without the race detector. cmd/curfew's start the
# program over and over as a process, and it is the test binary: with the detector
# they take ten times as long, to watch code that has tests of its own below.
# internal/demo makes up data, in one goroutine.
unraced="/(cmd/curfew|internal/demo)$"

# In CI a missing compiler is a failure; on a laptop it is said, and the rest goes on.
cgo=0
if [ "${RACE:-1}" != 0 ]; then
	if scripts/need.sh gcc; then
		cgo=1
	elif [ "${CI:-}" = true ]; then
		exit 2
	else
		echo "test.sh: NO RACE DETECTION: it needs a C compiler, and there is none" >&2
	fi
fi
scripts/need.sh python
# Without it one test says that it did not run; in CI it fails.
CURFEW_TEST_PROMTOOL=$(scripts/promtool.sh) && export CURFEW_TEST_PROMTOOL || unset CURFEW_TEST_PROMTOOL

if [ -z "${PKG:-}" ]; then
	echo "gofmt, go vet, staticcheck" >&2
	scripts/lint.sh
fi

mkdir -p .build
CGO_ENABLED=0 go build -buildvcs=false -o .build/testreport ./scripts/testreport

# shellcheck disable=SC2086  # a list of words
packages=$(go list -e ${PKG:-./...})
if [ $cgo = 1 ]; then
	RACED=$(grep -vE "$unraced" <<<"$packages" || :)
	PLAIN=$(grep -E "$unraced" <<<"$packages" || :)
else
	RACED="" PLAIN=$packages
fi
REPORT=""
case " ${ARGS:-} " in *" -v "*) REPORT=-v ;; esac
export RACED PLAIN REPORT

args=(-json -timeout 40m)
[ -z "${RUN:-}" ] || args+=(-run "$RUN")
# shellcheck disable=SC2206  # a list of words
args+=(${ARGS:-})
# shellcheck disable=SC2016  # for the inner shell to expand
exec scripts/with-servers.sh bash -o pipefail -c '{
	rc=0
	[ -z "$RACED" ] || CGO_ENABLED=1 go test -race "$@" $RACED || rc=1
	[ -z "$PLAIN" ] || CGO_ENABLED=0 go test "$@" $PLAIN || rc=1
	exit $rc
} | .build/testreport $REPORT' -- "${args[@]}"
