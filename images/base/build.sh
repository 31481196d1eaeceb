#!/usr/bin/env bash
# Builds the base image from Debian's signed archive, for where the Debian slim image cannot be pulled.
#   build.sh RELEASE TAG        e.g. build.sh trixie torch-doctor-base:trixie
# Needs root, and mmdebstrap (installed when it is missing). DOCKER names the client.
# Mirrors come from this host's own apt configuration; without a Debian mirror there, mmdebstrap's default.
set -Eeuo pipefail

# left out as the Debian slim images do: documentation, locales; copyright files stay
readonly -a EXCLUDES=(
	'/usr/share/doc/*' '/usr/share/man/*' '/usr/share/info/*' '/usr/share/locale/*'
	'/usr/share/lintian/*' '/usr/share/linda/*' '/usr/share/groff/*'
)
readonly -a INCLUDES=('/usr/share/doc/*/copyright' '/usr/share/locale/locale.alias')

die() {
	printf 'images/base: %s\n' "$*" >&2
	exit 1
}

have_tools() { command -v mmdebstrap >/dev/null && [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]]; }

install_tools() {
	have_tools && return
	((EUID == 0)) || die "mmdebstrap is missing; as root: apt-get install mmdebstrap debian-archive-keyring"
	printf 'images/base: installing mmdebstrap from the distribution\n' >&2
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		mmdebstrap debian-archive-keyring >&2
}

# prints the site that this host's apt uses for a label ("Debian", "Debian-Security"), or nothing
site_of() {
	# shellcheck disable=SC2016 # apt-get expands these itself
	apt-get indextargets --format '$(LABEL)|$(SITE)' 2>/dev/null |
		awk -F'|' -v label="$1" '$1 == label { print $2; exit }'
}

# prints sources.list lines for a release, or nothing where the host has no Debian mirror
sources() {
	local release=$1 archive security
	[[ -n $(site_of Debian) ]] || apt-get update -qq || : # a bare machine has no package lists yet
	archive=$(site_of Debian)
	security=$(site_of Debian-Security)
	[[ -n $archive ]] || return 0
	printf 'deb %s %s main\n' "$archive" "$release"
	printf 'deb %s %s-updates main\n' "$archive" "$release"
	if [[ -n $security ]]; then
		printf 'deb %s %s-security main\n' "$security" "$release"
	fi
}

dpkg_options() {
	printf -- '--dpkgopt=path-exclude=%s\n' "${EXCLUDES[@]}"
	printf -- '--dpkgopt=path-include=%s\n' "${INCLUDES[@]}"
}

build() {
	local release=$1 tar=$2 lines
	local -a options mirrors=()
	mapfile -t options < <(dpkg_options)
	lines=$(sources "$release")
	if [[ -n $lines ]]; then mirrors=(-); fi
	# shellcheck disable=SC2016 # mmdebstrap's shell expands $1, the root of the new system
	printf '%s\n' "$lines" | mmdebstrap --quiet --variant=minbase --include=ca-certificates --format=tar \
		--aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' "${options[@]}" \
		--customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/log/* "$1"/var/cache/ldconfig/aux-cache' \
		--customize-hook='rm -f "$1"/etc/hostname "$1"/etc/resolv.conf' \
		"$release" "$tar" "${mirrors[@]}"
}

main() {
	local release=$1 tag=$2 scratch
	install_tools
	scratch=$(mktemp -d)
	# shellcheck disable=SC2064 # the name of today, not of the exit
	trap "rm -rf '$scratch'" EXIT
	build "$release" "$scratch/rootfs.tar"
	"${DOCKER:-docker}" import --change 'CMD ["bash"]' "$scratch/rootfs.tar" "$tag" >/dev/null
	printf 'images/base: %s is ready\n' "$tag" >&2
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
	main "$@"
fi
