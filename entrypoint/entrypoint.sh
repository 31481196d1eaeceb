#!/usr/bin/env bash
# What `docker run IMAGE [ARGUMENTS]` starts, below tini: validate, prepare, exec.
#   no argument                       torch-doctor check
#   a torch-doctor subcommand, or -x  torch-doctor with these arguments
#   anything else                     exec'd as given, after fast preflight warnings on stderr
#                                     (TORCH_DOCTOR_PREFLIGHT=off|warn|strict; an interactive shell gets none)
set -Eeuo pipefail

# written at build time from the command line itself: one subcommand a line
: "${TORCH_DOCTOR_SUBCOMMANDS:=/usr/local/share/torch-doctor/subcommands}"
# what the preflight looks at: quick, and without torch
readonly PREFLIGHT_SELECT=${TORCH_DOCTOR_PREFLIGHT_SELECT:-shm,gpu,fs}

# a quick look finds nothing from here on: the least /dev/shm of `check` without a script, and some room
readonly QUICK_SHM_KIB=$((1024 * 1024))
readonly QUICK_FREE_KIB=$((1024 * 1024))
: "${TORCH_DOCTOR_MOUNTS:=/proc/self/mounts}"

say() { printf 'torch-doctor: %s\n' "$*" >&2; }

is_subcommand() {
	local word
	while IFS= read -r word; do
		[[ $word == "$1" ]] && return 0
	done <"$TORCH_DOCTOR_SUBCOMMANDS"
	return 1
}

is_interactive_shell() {
	case ${1##*/} in
	bash | sh | dash) (($# == 1)) || [[ $2 == -i || $2 == -l || $2 == --login ]] ;;
	*) return 1 ;;
	esac
}

# a folder can be made, and written to
usable() { mkdir -p -- "$1" 2>/dev/null && [[ -w $1 ]]; }

# `--read-only` takes the home away, and `-v ...:/home/trainer` may give one of another owner
prepare_home() {
	local fallback="/tmp/home-$EUID"
	if ! usable "${HOME:-/}" && usable "$fallback"; then
		export HOME=$fallback
	fi
}

# programs fail to draw, or refuse to start, with a terminal that terminfo does not know
prepare_term() {
	local term=${TERM:-}
	[[ -n $term && $term != dumb ]] || return 0
	[[ -e /usr/share/terminfo/${term:0:1}/$term || -e /lib/terminfo/${term:0:1}/$term ||
		-e /etc/terminfo/${term:0:1}/$term || -e ${TERMINFO:-/nonexistent}/${term:0:1}/$term ]] && return 0
	say "this image has no terminfo entry for TERM=$term; using xterm-256color (docker run -e TERM=xterm-256color)"
	export TERM=xterm-256color
}

# size of /dev/shm in KiB as its mount states it, or 0 where it states none
shm_kib() {
	local folder options
	while read -r _ folder _ options _; do
		if [[ $folder == /dev/shm && $options =~ (^|,)size=([0-9]+)k(,|$) ]]; then
			printf '%s\n' "${BASH_REMATCH[2]}"
			return
		fi
	done <"$TORCH_DOCTOR_MOUNTS"
	printf '0\n'
}

# the fallback library says that it serves what /dev/shm cannot hold (images/shm/README.md, bit ACTIVE)
shm_served() {
	python -I -S -c 'import ctypes, sys; sys.exit(not ctypes.CDLL(None).torch_doctor_shm_status() & 2)' 2>/dev/null
}

roomy() {
	local free
	[[ -w . && -w $HOME && -w ${TMPDIR:-/tmp} ]] || return 1
	while read -r free; do
		[[ $free == Avail ]] || ((free >= QUICK_FREE_KIB)) || return 1
	done < <(df --output=avail . "$HOME" "${TMPDIR:-/tmp}")
}

# True where the preflight would find nothing: it takes 0.3 s, and this takes 5 to 30 ms. A GPU, or a request for
# one that is not the image's own, is never judged from here.
looks_healthy() {
	[[ ! -e /dev/nvidiactl && ${NVIDIA_VISIBLE_DEVICES:-} == "${TORCH_DOCTOR_VISIBLE_DEVICES:-}" ]] || return 1
	roomy && { (($(shm_kib) >= QUICK_SHM_KIB)) || shm_served; }
}

# prints what was found, or nothing; returns the status of the check
look() {
	local status=0 report
	report=$(torch-doctor check --select "$PREFLIGHT_SELECT" "$@" 2>&1) || status=$?
	((status == 0)) || printf '%s\n' "$report" >&2
	return "$status"
}

preflight() {
	case ${TORCH_DOCTOR_PREFLIGHT:-warn} in
	warn) looks_healthy || look --fail-on warning || : ;;
	strict)
		if ! look --fail-on error; then
			say "not started: TORCH_DOCTOR_PREFLIGHT=strict and the preflight found an error (docker run -e TORCH_DOCTOR_PREFLIGHT=warn starts anyway)"
			exit 1
		fi
		;;
	esac
}

validate() {
	case ${TORCH_DOCTOR_PREFLIGHT:-warn} in
	off | warn | strict) ;;
	*)
		say "TORCH_DOCTOR_PREFLIGHT=$TORCH_DOCTOR_PREFLIGHT is none of off, warn, strict (docker run -e TORCH_DOCTOR_PREFLIGHT=warn)"
		exit 2
		;;
	esac
}

main() {
	(($# > 0)) || set -- check
	validate
	prepare_home
	if [[ $1 == -* ]] || is_subcommand "$1"; then
		exec torch-doctor "$@"
	fi
	prepare_term
	is_interactive_shell "$@" || preflight
	exec "$@"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	main "$@"
fi
