#!/usr/bin/env bash
# Finds a Docker engine and a client that builds with BuildKit, and on Debian or Ubuntu installs and starts
# them where they are missing and this is root.
#   engine.sh client     prints the client to use; fails where there is none
#   engine.sh ensure     makes an engine answer: exit status 0, or 3 where there is none to be had
# ENGINE=never looks for none. DOCKER names the client to use.
set -Eeuo pipefail

readonly LOG=${TORCH_DOCTOR_DOCKERD_LOG:-/var/log/torch-doctor-dockerd.log}
readonly PATIENCE=${TORCH_DOCTOR_ENGINE_PATIENCE:-60} # seconds that a starting daemon gets

say() { printf 'engine: %s\n' "$*" >&2; }

# clients up to 20.10 carry BuildKit; later ones hand builds to the buildx plugin
builds() {
	local version
	version=$("$1" --version 2>/dev/null | grep -oE '[0-9]+' | head -n1) || return 1
	((version < 23)) || "$1" buildx version >/dev/null 2>&1
}

client() {
	local candidate
	while IFS= read -r candidate; do
		if builds "$candidate"; then
			printf '%s\n' "$candidate"
			return 0
		fi
	done < <(
		if [[ -n ${DOCKER:-} ]]; then printf '%s\n' "$DOCKER"; fi
		type -ap docker
	)
	return 1
}

answers() {
	local docker
	docker=$(client) && timeout 20 "$docker" info >/dev/null 2>&1
}

wait_until_answers() {
	local end=$((SECONDS + PATIENCE))
	until answers; do
		((SECONDS < end)) || return 1
		[[ -z ${1:-} ]] || kill -0 "$1" 2>/dev/null || return 1
		sleep 0.5
	done
}

can_install() { ((EUID == 0)) && [[ -e /etc/debian_version ]] && command -v apt-get >/dev/null; }

install_engine() {
	local -a packages=(docker.io) optional=(docker-cli docker-buildx)
	local name
	say "no Docker engine here; installing docker.io from the distribution"
	apt-get update -qq
	for name in "${optional[@]}"; do
		if apt-cache show "$name" >/dev/null 2>&1; then packages+=("$name"); fi
	done
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
}

start_plain() {
	say "starting dockerd as a plain process; its log: $LOG"
	setsid nohup dockerd >>"$LOG" 2>&1 </dev/null &
	if ! wait_until_answers "$!"; then
		say "dockerd does not answer; the end of $LOG:"
		tail -n 20 "$LOG" >&2
		return 1
	fi
}

start_engine() {
	if [[ -d /run/systemd/system ]]; then
		say "starting the docker service"
		systemctl start docker && wait_until_answers
	elif pgrep -x dockerd >/dev/null; then
		say "waiting for the dockerd that is already running"
		wait_until_answers
	else
		start_plain
	fi
}

ensure() {
	if [[ ${ENGINE:-auto} == never ]]; then
		say "ENGINE=never: not looking for one"
		return 3
	fi
	answers && return 0
	if [[ -n ${DOCKER_HOST:-} ]]; then
		say "the engine at DOCKER_HOST=$DOCKER_HOST does not answer, or no client here can build"
		return 3
	fi
	if ! can_install; then
		say "no Docker engine answers, and only root on Debian or Ubuntu can set one up from here"
		return 3
	fi
	if ! command -v dockerd >/dev/null || ! client >/dev/null; then
		install_engine || return 3
	fi
	start_engine || return 3
}

# one at a time: two makes must not start two daemons
ensure_alone() {
	local lock=/tmp/torch-doctor-engine-$EUID.lock
	exec 9>"$lock"
	flock 9
	ensure 9>&-
}

main() {
	case ${1:-} in
	client) client || {
		say "no docker client that can build (up to 20.10, or a later one with the buildx plugin)"
		return 3
	} ;;
	ensure) ensure_alone ;;
	*)
		say "usage: engine.sh client|ensure"
		return 2
		;;
	esac
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	main "$@"
fi
