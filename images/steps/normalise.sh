#!/bin/sh
# Ends a RUN that writes to the final image: removes what differs from build to build and dates every
# file written in it with SOURCE_DATE_EPOCH, so that the same inputs give the same layer.
#   normalise.sh [FOLDER...]     default: /
set -eu

rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/apt/* /var/cache/debconf/*-old \
	/var/cache/ldconfig/aux-cache /var/lib/dpkg/*-old

for folder in "${@:-/}"; do
	# a file that is newer than the epoch was written by this build
	# (-writable leaves out what the builder mounts read-only)
	find "$folder" -xdev -newermt "@$SOURCE_DATE_EPOCH" -writable ! -path /proc ! -path /dev \
		! -path /sys ! -path '/etc/resolv.conf' \
		! -path /etc/hosts ! -path /etc/hostname \
		-exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
done
