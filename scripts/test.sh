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

args=(-json -timeout 20m)

# In CI a missing compiler is a failure; on a laptop it is said, and the rest goes on.
cgo=0
if [ "${RACE:-1}" != 0 ]; then
	if scripts/need.sh gcc; then
		cgo=1
		args+=(-race)
	elif [ "${CI:-}" = true ]; then
		exit 2
	else
		echo "test.sh: NO RACE DETECTION: it needs a C compiler, and there is none" >&2
	fi
fi
scripts/need.sh python

if [ -z "${PKG:-}" ]; then
	echo "gofmt, go vet, staticcheck" >&2
	scripts/lint.sh
fi

mkdir -p .build
CGO_ENABLED=0 go build -buildvcs=false -o .build/testreport ./scripts/testreport

[ -z "${RUN:-}" ] || args+=(-run "$RUN")
# shellcheck disable=SC2206  # lists of words, both
args+=(${ARGS:-} ${PKG:-./...})
verbose=""
case " ${ARGS:-} " in *" -v "*) verbose=-v ;; esac
CGO_ENABLED=$cgo VERBOSE=$verbose exec scripts/with-servers.sh bash -o pipefail -c 'go test "$@" | .build/testreport $VERBOSE' -- "${args[@]}"
