#!/usr/bin/env bash
# promtool.sh   prints where promtool is, the checker of Prometheus rules that one
# test wants. Where it is not installed it is taken out of Debian's package into
# .build, and nothing is installed: the package would bring a service along.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v promtool && exit
tool=$PWD/.build/promtool/usr/bin/promtool
if [ ! -x "$tool" ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	# Old lists name versions that are gone: they are renewed once.
	(cd "$dir" && { apt-get -q download prometheus || { { apt-get -q update || sudo -n apt-get -q update; } && apt-get -q download prometheus; }; }) >/dev/null 2>&1 || :
	for deb in "$dir"/prometheus_*.deb; do
		[ -e "$deb" ] || break
		mkdir -p .build/promtool
		dpkg-deb -x "$deb" .build/promtool
	done
fi
if [ -x "$tool" ]; then
	echo "$tool"
else
	echo "promtool.sh: there is no promtool; it is in Prometheus, on Debian in the package prometheus" >&2
	exit 2
fi
