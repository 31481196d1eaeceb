#!/usr/bin/env bash
# Resolves images/<variant>/requirements.in into hash-locked requirements.lock files.
#   lock.sh UV [VARIANT...]      UV is the uv to use; WHEELS=DIR holds the local wheels
set -Eeuo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly root=${here%/images}

compile() { # OUTPUT PYTHON GLIBC PINS INPUT...
	local output=$1 python=$2 glibc=$3 pins=$4
	shift 4
	"$uv" pip compile --quiet --generate-hashes --no-header --no-annotate --no-build \
		--python-version "$python" --python-platform "x86_64-manylinux_${glibc/./_}" \
		--constraints <(printf '%s\n' "$pins") "${wheels[@]}" --output-file "$output" "$@"
}

value() { python3 "$here/versions.py" get "$@"; }

lock_variant() {
	local variant=$1
	local -a wheels=()
	if [[ $(value "$variant" local_wheel) == true ]]; then
		wheels=(--find-links "$here/$variant/wheels")
	fi
	compile "$here/$variant/requirements.lock" "$(value "$variant" python)" "$(value "$variant" glibc)" \
		"$(python3 "$here/versions.py" pins "$variant")" \
		"$here/$variant/requirements.in" "$root/doctor/pyproject.toml"
}

lock_tools() {
	local -a wheels=()
	local oldest
	oldest=$(for variant in $(python3 "$here/versions.py" variants); do value "$variant" python; done | sort -V | head -n1)
	compile "$here/tools/requirements.lock" "$oldest" "$(value cpu glibc)" \
		"$(python3 "$here/versions.py" pins tools)" "$here/tools/requirements.in"
}

main() {
	local variant
	local -a names
	uv=$1
	shift
	mapfile -t names < <(python3 "$here/versions.py" variants)
	if (($# > 0)); then names=("$@"); fi
	python3 "$here/versions.py" sync-dockerfile
	lock_tools
	for variant in "${names[@]}"; do lock_variant "$variant"; done
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	main "$@"
fi
