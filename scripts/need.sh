#!/usr/bin/env bash
# need.sh WHAT...   makes sure that what the tests need is installed.
#
#   postgres  initdb, pg_ctl     mariadb  mariadbd, mariadb-install-db
#   python    python3            gcc      a C compiler, for go test -race
#   archiver  pt-archiver, for the benchmarks
#
# On Debian and its relatives it installs what is missing, as root or through
# sudo. It removes and upgrades nothing, starts no service and creates no
# database cluster: a server that already runs here never notices. Anywhere else
# it says what is missing and exits with 2.
set -euo pipefail

# PostgreSQL's server programs are not on the PATH of a Debian system.
pg_bin() {
	local dir
	for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) /usr/local/pgsql/bin; do
		[ -x "$dir/initdb" ] && { echo "$dir"; return; }
	done
	dir=$(command -v initdb) && dirname "$dir"
}

have() {
	case $1 in
	postgres) pg_bin >/dev/null ;;
	mariadb) PATH=$PATH:/usr/sbin:/usr/local/sbin command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null ;;
	python) command -v python3 >/dev/null ;;
	gcc) command -v "${CC:-gcc}" >/dev/null ;;
	archiver) command -v pt-archiver >/dev/null ;;
	*) echo "need.sh: unknown need '$1'" >&2; exit 2 ;;
	esac
}

# Debian's names. The -core packages are MariaDB's programs without its service.
packages() {
	case $1 in
	postgres) echo postgresql ;;
	mariadb) echo mariadb-server-core mariadb-client-core ;;
	python) echo python3 ;;
	gcc) echo gcc libc6-dev ;;
	archiver) echo percona-toolkit ;;
	# The page's tests will want: chromium) echo chromium ;;
	esac
}

# The caller's question "where is it", answered without installing anything.
if [ "${1:-}" = --pg-bin ]; then
	pg_bin || { echo "need.sh: PostgreSQL's server programs (initdb, pg_ctl) are not installed" >&2; exit 2; }
	exit
fi

missing=()
for what in "$@"; do
	have "$what" || missing+=("$what")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	cat >&2 <<TEXT
The tests need, and this system lacks: ${missing[*]}.
Only Debian and its relatives are set up by themselves. Please install:
  postgres  PostgreSQL 15 or newer with its server programs (initdb, pg_ctl)
  mariadb   MariaDB 10.11 or newer with its server programs (mariadbd, mariadb-install-db)
  python    Python 3.11 or newer       gcc  a C compiler
  archiver  Percona Toolkit
with your package manager, e.g.  brew install postgresql@17 mariadb python3
or  dnf install postgresql-server postgresql-contrib mariadb-server python3 gcc,  and run this again.
TEXT
	exit 2
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || {
		echo "need.sh: to install (${missing[*]}) this must run as root, or with sudo installed" >&2
		exit 2
	}
	root=(sudo)
	[ -t 0 ] || root=(sudo -n) # nobody is there to type a password
fi

# apt ARGUMENTS...: its output is only worth reading when it fails.
apt() {
	"${root[@]}" env DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 \
		apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null || { cat "$log" >&2; exit 2; }
}

# install never removes or upgrades: a machine with, say, MySQL's server
# gets an error here instead of losing it.
lists=""
install() {
	[ -n "$lists" ] || apt update
	lists=fresh
	apt --no-remove --no-upgrade --no-install-recommends install "$@"
}

# While packages are being installed no service may start: policy-rc.d is
# Debian's switch for that. And PostgreSQL's package shall not create a cluster.
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.conf
undo=()
put_back() {
	local step
	for step in "${undo[@]}"; do "${root[@]}" sh -c "$step"; done
	undo=()
	rm -f "$log"
}
log=$(mktemp)
trap put_back EXIT
trap 'exit 130' INT TERM

if [ ! -e $policy ]; then
	undo+=("rm -f $policy")
	printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee $policy >/dev/null
	"${root[@]}" chmod 755 $policy
fi

for what in "${missing[@]}"; do
	echo "installing $(packages "$what")" >&2
	if [ "$what" = postgres ]; then
		install postgresql-common
		undo+=("mv -f $cluster.curfew $cluster")
		"${root[@]}" cp -p $cluster $cluster.curfew
		echo "create_main_cluster = false" | "${root[@]}" tee -a $cluster >/dev/null
	fi
	# shellcheck disable=SC2046  # several packages are several words
	install $(packages "$what")
	have "$what" || { echo "need.sh: installed $(packages "$what"), and still there is no $what" >&2; exit 2; }
done
