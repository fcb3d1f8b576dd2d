#!/usr/bin/env bash
# servers.sh start [DIR]   starts a scratch PostgreSQL and a scratch MariaDB and
#                          prints the exports that point the tests at them
# servers.sh stop [DIR]    stops these two, and removes their data
#
# Without DIR there is one pair per clone, which stays up until it is stopped;
# starting it again prints the exports again. Both listen on 127.0.0.1 only, on
# a free port. Both are set up to be fast and to lose everything in a crash, with
# a default time zone that is not the machine's: who relies on it must notice.
# With DURABLE=1 they write through as they would in earnest, for benchmarks.
set -euo pipefail
cd "$(dirname "$0")/.."
pointer=.build/servers # holds the directory of this clone's pair

fail() { echo "servers.sh: $*" >&2; exit 1; }

# as USER COMMAND...: servers refuse to run as root, so root becomes someone else.
as() {
	local user=$1
	shift
	if [ "$(id -u)" -eq 0 ]; then
		su -s /bin/sh "$user" -c 'cd / && exec "$@"' -- sh "$@"
	else
		"$@"
	fi
}

# account NAME: that user if there is one, else nobody.
account() { id -u "$1" >/dev/null 2>&1 && echo "$1" || echo nobody; }

# free_port: below the range that the kernel hands out to outgoing connections.
# Another process may take it before we do, so starting is tried more than once.
free_port() {
	local port
	while :; do
		port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
		(exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null || { echo $port; return; }
	done
}

start_postgres() {
	local dir=$1/pg bin user port try
	bin=$(scripts/need.sh --pg-bin)
	user=$(account postgres)
	mkdir -p "$dir"
	[ "$(id -u)" -ne 0 ] || chown "$user" "$dir"
	as "$user" "$bin/initdb" -D "$dir/data" -A trust -U postgres --locale=C.UTF-8 -E UTF8 -N >"$dir/initdb.log" 2>&1 ||
		{ cat "$dir/initdb.log" >&2; fail "initdb failed"; }
	for try in 1 2 3; do
		port=$(free_port)
		cat >>"$dir/data/postgresql.conf" <<-CONF
			listen_addresses = '127.0.0.1'
			port = $port
			unix_socket_directories = '$dir'
			timezone = 'America/New_York'
			max_connections = 200
		CONF
		# Without autovacuum no plan changes in the middle of a test.
		if [ "${DURABLE:-}" = 1 ]; then
			cat >>"$dir/data/postgresql.conf" <<-CONF
				shared_buffers = 512MB
				max_wal_size = 4GB
			CONF
			# To count statements by, where the server came with it; off until a database asks.
			[ ! -e "$("$bin/pg_config" --pkglibdir)/pg_stat_statements.so" ] || cat >>"$dir/data/postgresql.conf" <<-CONF
				shared_preload_libraries = 'pg_stat_statements'
				pg_stat_statements.track = none
			CONF
		else
			cat >>"$dir/data/postgresql.conf" <<-CONF
				fsync = off
				synchronous_commit = off
				full_page_writes = off
				autovacuum = off
			CONF
		fi
		if as "$user" "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 60 start >/dev/null 2>&1; then
			echo "export CURFEW_TEST_POSTGRES='postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable'" >"$1/env.pg"
			return
		fi
		echo "servers.sh: PostgreSQL did not start on port $port (try $try)" >&2
	done
	tail -20 "$dir/log" >&2
	fail "PostgreSQL does not start"
}

start_mariadb() {
	local dir=$1/maria daemon user='' session='' size='' port try i
	daemon=$(PATH=$PATH:/usr/sbin:/usr/local/sbin command -v mariadbd) || fail "mariadbd is not installed: scripts/need.sh mariadb"
	mkdir -p "$dir"
	if [ "$(id -u)" -eq 0 ]; then
		user=--user=$(account mysql)
		chown "$(account mysql)" "$dir"
	fi
	mariadb-install-db --no-defaults ${user:+"$user"} --datadir="$dir/data" --auth-root-authentication-method=normal --skip-test-db >"$dir/install.log" 2>&1 ||
		{ cat "$dir/install.log" >&2; fail "mariadb-install-db failed"; }
	# A session of its own, so that Ctrl-C reaches us first, and this server through us.
	command -v setsid >/dev/null && session=setsid
	[ "${DURABLE:-}" != 1 ] || size="--innodb-buffer-pool-size=512M --innodb-log-file-size=1G"
	# An anonymous user at localhost would be preferred to a named one at '%'.
	cat >"$dir/init.sql" <<-SQL
		DROP USER IF EXISTS ''@localhost;
		CREATE USER IF NOT EXISTS curfew@'%' IDENTIFIED BY 'curfew';
		GRANT ALL PRIVILEGES ON *.* TO curfew@'%' WITH GRANT OPTION;
	SQL
	for try in 1 2 3; do
		port=$(free_port)
		: >"$dir/log"
		# shellcheck disable=SC2086  # $size is a list of options, or nothing
		$session "$daemon" --no-defaults ${user:+"$user"} --datadir="$dir/data" --port="$port" --bind-address=127.0.0.1 \
			--socket="$dir/sock" --pid-file="$dir/own.pid" --init-file="$dir/init.sql" --tmpdir="$dir" --skip-name-resolve \
			--default-time-zone=-05:00 --max-connections=200 --innodb-flush-log-at-trx-commit="${DURABLE:-0}" $size \
			--character-set-server=utf8mb4 --collation-server=utf8mb4_unicode_ci >>"$dir/log" 2>&1 </dev/null &
		echo $! >"$dir/pid"
		for ((i = 0; i < 600; i++)); do
			if grep -q 'ready for connections' "$dir/log"; then
				echo "export CURFEW_TEST_MARIADB='mysql://curfew:curfew@127.0.0.1:$port/'" >"$1/env.maria"
				return
			fi
			kill -0 "$(cat "$dir/pid")" 2>/dev/null || break
			sleep 0.1
		done
		echo "servers.sh: MariaDB did not start on port $port (try $try)" >&2
	done
	tail -20 "$dir/log" >&2
	fail "MariaDB does not start"
}

# runs PID PROGRAM: the process is there and is that program. A zombie has ended,
# though nobody has asked how; and small systems have no ps.
runs() {
	local state
	if [ -d /proc/self ]; then
		state=$(sed -E 's/^[0-9]+ \((.*)\) (.).*/\2 \1/' "/proc/$1/stat" 2>/dev/null) || return 1
	else
		state=$(ps -o stat= -o comm= -p "$1" 2>/dev/null) || return 1
	fi
	case $state in
	Z*) return 1 ;;
	*"$2"*) return 0 ;;
	esac
	return 1
}

# end PIDFILE PROGRAM SIGNAL: ends the process in the file if it is still that
# program, and waits until it has gone.
end() {
	local pid i
	pid=$(head -n 1 "$1" 2>/dev/null) || return 0
	runs "$pid" "$2" || return 0
	kill "-$3" "$pid" 2>/dev/null || return 0
	for ((i = 0; i < 200; i++)); do
		runs "$pid" "$2" || return 0
		sleep 0.05
	done
	kill -KILL "$pid" 2>/dev/null || :
}

stop() {
	# The data is thrown away, so neither needs to write it out first: QUIT is
	# PostgreSQL's immediate shutdown, and MariaDB has none but KILL.
	end "$1/pg/data/postmaster.pid" postgres QUIT
	end "$1/maria/pid" mariadbd KILL
	rm -rf "$1"
}

start() {
	chmod 755 "$1"
	start_postgres "$1" &
	local pg=$! bad=0
	start_mariadb "$1" || bad=1
	wait $pg || bad=1
	[ $bad -eq 0 ] || return 1
	cat "$1/env.pg" "$1/env.maria" >"$1/env"
	cat "$1/env"
}

# answers DIR: both servers of the directory are up.
answers() {
	[ -f "$1/env" ] && kill -0 "$(head -n 1 "$1/pg/data/postmaster.pid" 2>/dev/null || echo x)" 2>/dev/null &&
		kill -0 "$(cat "$1/maria/pid" 2>/dev/null || echo x)" 2>/dev/null
}

case "${1:-} ${2:+dir}" in
"start dir") start "$2" ;;
"stop dir") stop "$2" ;;
"start ")
	dir=$(cat $pointer 2>/dev/null || :)
	if [ -n "$dir" ] && answers "$dir"; then
		cat "$dir/env"
		exit
	fi
	[ -z "$dir" ] || stop "$dir"
	mkdir -p .build
	dir=$(mktemp -d /tmp/curfew-servers.XXXXXX) # a socket's path must be short, and other users must reach it
	echo "$dir" >$pointer
	start "$dir" || { stop "$dir"; rm -f $pointer; exit 1; }
	echo "# they stay up until: make servers-stop" >&2
	;;
"stop ")
	dir=$(cat $pointer 2>/dev/null || :)
	[ -n "$dir" ] || { echo "servers.sh: none of this clone are running" >&2; exit; }
	stop "$dir"
	rm -f $pointer
	;;
*)
	sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
	;;
esac
