#!/usr/bin/env bash
# Builds one variant of the image, or finds that it is up to date.
#   build.sh VARIANT         as torch-doctor:VARIANT, and torch-doctor:latest for the default; or as TAG
# An image carries the hash of what it was built from as a label; where nothing changed, nothing is built.
# DOCKER names the client, BASE_IMAGE another base, WHEELS a folder with the local wheels, FORCE=1 builds
# in any case.
set -Eeuo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly root=${here%/images}
readonly system_bundle=${TORCH_DOCTOR_SYSTEM_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}
readonly label=org.torch-doctor.inputs

say() { printf 'image: %s\n' "$*" >&2; }
die() {
	say "$@"
	exit 1
}
value() { python3 "$here/versions.py" get "$@"; }
docker() { "${client:?}" "$@"; }
present() { docker image inspect "$1" >/dev/null 2>&1; }

# prints the image to start from: what is here, what can be pulled, or what images/base builds
base_image() {
	local variant=$1 wanted release own
	wanted=${BASE_IMAGE:-$(value "$variant" base_image)}
	release=$(value "$variant" debian)
	own=torch-doctor-base:$release
	if present "$wanted"; then
		printf '%s\n' "$wanted"
	elif [[ -z ${BASE_IMAGE:-} ]] && present "$own"; then
		printf '%s\n' "$own"
	elif timeout 120 "$client" pull --quiet "$wanted" >/dev/null 2>&1; then
		printf '%s\n' "$wanted"
	elif [[ -n ${BASE_IMAGE:-} ]]; then
		die "BASE_IMAGE=$BASE_IMAGE is not here and cannot be pulled"
	else
		say "$wanted cannot be pulled; building the same release from Debian's archive"
		DOCKER=$client SOURCE_DATE_EPOCH=$(epoch) "$here/base/build.sh" "$release" "$own" >&2
		printf '%s\n' "$own"
	fi
}

epoch() { python3 "$here/versions.py" build-args cpu | sed -n 's/^SOURCE_DATE_EPOCH=//p'; }

# the local wheel that a variant asks for, from WHEELS or from where pip's own configuration finds it
fetch_wheel() {
	local variant=$1 folder=$here/$1/wheels version
	[[ $(value "$variant" local_wheel) == true ]] || return 0
	version=$(value "$variant" torch)
	compgen -G "$folder/torch-$version-*.whl" >/dev/null && return 0
	mkdir -p "$folder"
	if [[ -n ${WHEELS:-} ]]; then
		cp -- "$WHEELS"/torch-"$version"-*.whl "$folder/" || die "WHEELS=$WHEELS holds no wheel of torch $version"
		return 0
	fi
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$folder" \
		--python-version "$(value "$variant" python)" --implementation cp --platform manylinux_2_28_x86_64 \
		"torch==$version" || die "no wheel of torch $version where pip looks; give its folder: make image VARIANT=$variant WHEELS=DIR"
}

# prints a CA bundle of this host that the base does not have: behind a TLS-inspecting proxy the build needs it
ca_bundle() {
	local base=$1 bundle
	for bundle in "${SSL_CERT_FILE:-}" "${PIP_CERT:-}" "$system_bundle"; do
		[[ -s $bundle ]] || continue
		docker run --rm --network none --entrypoint cat "$base" /etc/ssl/certs/ca-certificates.crt 2>/dev/null |
			cmp -s - "$bundle" || printf '%s\n' "$bundle"
		return 0
	done
}

# prints the hash of everything that goes into a variant
inputs() {
	local variant=$1 base=$2
	{
		python3 "$here/versions.py" build-args "$variant"
		docker image inspect --format '{{.Id}}' "$base"
		cd "$root"
		find Dockerfile .dockerignore LICENSE entrypoint doctor/pyproject.toml doctor/README.md doctor/torch_doctor \
			images/steps images/rootfs images/shm images/tools "images/$variant" \
			-type f ! -path '*/__pycache__/*' ! -path 'images/shm/build/*' ! -name '*.in' -print0 |
			LC_ALL=C sort -z | xargs -0 sha256sum
	} | sha256sum | cut -c1-64
}

secrets() {
	local base=$1 bundle index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-}}
	bundle=$(ca_bundle "$base")
	if [[ -n $bundle ]]; then printf -- '--secret\nid=ca_bundle,src=%s\n' "$bundle"; fi
	if [[ -n $index ]]; then
		(umask 077 && printf '%s' "$index" >"$scratch/index_url")
		printf -- '--secret\nid=index_url,src=%s\n' "$scratch/index_url"
	fi
}

proxies() {
	local name
	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		if [[ -n ${!name:-} ]]; then printf -- '--build-arg\n%s\n' "$name"; fi
	done
}

# prints a label of an image, or the ID with `id`; nothing where there is no such image
inspect() {
	case $2 in
	id) docker image inspect --format '{{.Id}}' "$1" 2>/dev/null || : ;;
	*) docker image inspect --format "{{index .Config.Labels \"$2\"}}" "$1" 2>/dev/null || : ;;
	esac
}

build() {
	local variant=$1 base=$2 hash=$3 tag=$4
	local -a args options
	mapfile -t args < <(python3 "$here/versions.py" build-args "$variant" | grep -v '^BASE_IMAGE=' | sed 'i--build-arg')
	mapfile -t options < <(secrets "$base" && proxies)
	say "building $tag on $base"
	DOCKER_BUILDKIT=1 docker build --progress "${PROGRESS:-auto}" --tag "$tag" --label "$label=$hash" \
		--build-arg "BASE_IMAGE=$base" "${args[@]}" "${options[@]}" "$root" >&2
}

# what a build replaced would stay as gigabytes without a name
drop_replaced() {
	local before=$1 tag=$2
	if [[ -n $before && $before != "$(inspect "$tag" id)" ]]; then
		docker image rm "$before" >/dev/null 2>&1 || :
	fi
}

main() {
	local variant=$1 base hash before tag=${TAG:-torch-doctor:$1}
	value "$variant" torch >/dev/null || return 2
	client=$("$here/engine.sh" client)
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	fetch_wheel "$variant"
	base=$(base_image "$variant")
	hash=$(inputs "$variant" "$base")
	before=$(inspect "$tag" id)
	if [[ -z ${FORCE:-} && $(inspect "$tag" "$label") == "$hash" ]]; then
		say "$tag is up to date"
	else
		build "$variant" "$base" "$hash" "$tag"
	fi
	if [[ -z ${TAG:-} && $variant == "$(python3 "$here/versions.py" default)" ]]; then
		docker tag "$tag" torch-doctor:latest
	fi
	drop_replaced "$before" "$tag"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	main "$@"
fi
