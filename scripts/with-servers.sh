#!/usr/bin/env bash
# with-servers.sh COMMAND...   runs the command with both test databases up.
#
# It uses the servers that CURFEW_TEST_POSTGRES and CURFEW_TEST_MARIADB name, if
# both are set; else it starts a pair of its own and stops it afterwards, however
# the command ends.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${CURFEW_TEST_POSTGRES:-}" ] && [ -n "${CURFEW_TEST_MARIADB:-}" ]; then
	exec "$@"
fi

scripts/need.sh postgres mariadb
dir=$(mktemp -d /tmp/curfew-test.XXXXXX) # a socket's path must be short, and other users must reach it
trap 'scripts/servers.sh stop "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
echo "starting a scratch PostgreSQL and MariaDB in $dir" >&2
scripts/servers.sh start "$dir" >/dev/null
# shellcheck disable=SC1091  # written just now
. "$dir/env"

# The command is a process group of its own, so that one signal ends all of it,
# test binaries included, and the servers outlive it until it has ended.
set -m
"$@" &
group=$!
set +m
trap 'kill -INT -- -$group' INT
trap 'kill -TERM -- -$group' TERM HUP
while :; do
	rc=0
	wait $group || rc=$?
	kill -0 -- -$group 2>/dev/null || break # a signal of ours ends the wait early
done
exit "$rc"
