#!/usr/bin/env bash
# `make check`: the preflight in the image, or, where no Docker engine is to be had, on this host.
#   check.sh [SCRIPT]       VARIANT, SHM_SIZE, ENGINE and VENV_BIN come from the Makefile
# Ends with the status of torch-doctor check.
set -Eeuo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly root=${here%/images}

say() { printf 'check: %s\n' "$*" >&2; }

# options of docker run that hand a GPU over, where this host and its Docker can
gpu_options() {
	if command -v nvidia-container-cli >/dev/null || command -v nvidia-container-runtime >/dev/null; then
		printf -- '--gpus\nall\n'
	elif command -v nvidia-smi >/dev/null; then
		say "this host has an NVIDIA driver, but Docker cannot hand GPUs over: install the NVIDIA Container Toolkit"
	fi
}

in_image() {
	local client script=${1:-}
	local -a options
	client=$("$here/engine.sh" client)
	"$here/build.sh" "$VARIANT"
	mapfile -t options < <(gpu_options)
	if [[ -n $script ]]; then
		script=$(realpath -- "$script")
		# the script's folder as its owner sees it; the report names the script by its file name
		options+=(--volume "$(dirname "$script"):/workspace" --user "$(id -u):$(id -g)")
		set -- "$(basename "$script")"
	fi
	if [[ -t 1 ]]; then options+=(--tty); fi
	exec "$client" run --rm --shm-size "$SHM_SIZE" "${options[@]}" "torch-doctor:$VARIANT" check "$@"
}

on_host() {
	say "no Docker engine: checking this host in a virtual environment"
	make -C "$root" --silent .venv/.ready >&2
	exec "$VENV_BIN/torch-doctor" check "$@"
}

main() {
	if [[ -n ${1:-} && ! -f $1 ]]; then
		say "no such script: $1"
		return 2
	fi
	if "$here/engine.sh" ensure; then
		in_image "$@"
	else
		on_host "$@"
	fi
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	main "$@"
fi
