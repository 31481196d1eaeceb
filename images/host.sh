#!/usr/bin/env bash
# Makes sure that this host has what the set-up and the tests run: as root on Debian or Ubuntu it installs
# what is missing from the distribution; elsewhere it names it.
#   host.sh            everything that `make test` needs
#   host.sh python     only what a virtual environment needs
set -Eeuo pipefail

# command or header -> package
readonly -a TEST_TOOLS=(
	gcc:gcc g++:g++ make:make tmux:tmux screen:screen docker-compose:docker-compose git:git flock:util-linux
)

say() { printf 'host: %s\n' "$*" >&2; }

missing_python() {
	python3 -c 'import ensurepip, venv' 2>/dev/null || printf 'python3-venv\n'
	python3 -m pip --version >/dev/null 2>&1 || printf 'python3-pip\n'
}

missing_tools() {
	local entry
	for entry in "${TEST_TOOLS[@]}"; do
		command -v "${entry%%:*}" >/dev/null || printf '%s\n' "${entry##*:}"
	done
	[[ -e $(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]] || printf 'python3-dev\n'
	[[ -e /usr/include/stdio.h ]] || printf 'libc6-dev\n'
}

install() {
	if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
		say "missing here: $*; on Debian or Ubuntu: sudo apt-get install $*"
		return 1
	fi
	say "installing from the distribution: $*"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

main() {
	local -a packages
	command -v python3 >/dev/null || install python3
	mapfile -t packages < <(missing_python && if [[ ${1:-} != python ]]; then missing_tools; fi)
	((${#packages[@]} == 0)) || install "${packages[@]}"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	main "$@"
fi
