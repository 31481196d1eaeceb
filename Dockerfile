# One file for every variant of the image; the rows are in images/versions.toml.
#   make image VARIANT=cpu      or, for the default variant:  docker build -t torch-doctor .
# The defaults below are written by `make lock` from images/versions.toml.
# versions.toml: begin
ARG BASE_IMAGE="debian:trixie-slim"
ARG VARIANT="cuda"
ARG PYTHON_VERSION="3.13"
ARG DEBIAN_RELEASE="trixie"
ARG TORCH_VERSION="2.15.0"
ARG TORCH_CUDA="13.2"
ARG MINIMUM_DRIVER="580.65.06"
ARG REQUIRE_CUDA="cuda>=13.0"
ARG DOCTOR_VERSION="0.1.0"
ARG SOURCE_DATE_EPOCH="1793491200"
# versions.toml: end

FROM ${BASE_IMAGE} AS base

# ---------------------------------------------------------------------------------------------------
# What comes from Debian. Changes least, so it comes first.
# (Mounts are below /dev/shm, a tmpfs of the build, so that their mount points leave no trace in the layer.)
FROM base AS system
ARG PYTHON_VERSION
ARG SOURCE_DATE_EPOCH

# Python with its headers and a C and C++ compiler: torch.compile builds code at run time
#   https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
# tini: reaps orphaned DataLoader workers and passes signals on: https://github.com/krallin/tini
# tmux, screen, ncurses-term: sessions that outlive the connection, from any terminal
# libnss-unknown: gives `--user 12345` a name, which screen, ssh and getpass ask for
# procps: ps and pgrep, for who holds what
# Left out afterwards: link-time optimisation, sanitizers and static libraries, which nothing here uses.
RUN --mount=type=bind,source=images/steps/normalise.sh,target=/dev/shm/build/normalise.sh \
    --mount=type=secret,id=ca_bundle,target=/dev/shm/ca_bundle \
    set -eux; \
    export DEBIAN_FRONTEND=noninteractive; \
    if [ -s /dev/shm/ca_bundle ]; then set -- -o Acquire::https::CAInfo=/dev/shm/ca_bundle; fi; \
    apt-get "$@" update; \
    apt-get "$@" install -y --no-install-recommends \
        ca-certificates \
        g++ \
        gcc \
        libc6-dev \
        libnss-unknown \
        libpython"$PYTHON_VERSION"-dev \
        ncurses-term \
        procps \
        python"$PYTHON_VERSION" \
        screen \
        tini \
        tmux \
    ; \
    rm -f /usr/lib/gcc/x86_64-linux-gnu/*/lto1 /usr/libexec/gcc/x86_64-linux-gnu/*/lto1; \
    rm -f /usr/lib/gcc/x86_64-linux-gnu/*/lib*san*.a /usr/lib/x86_64-linux-gnu/lib*san.so*; \
    rm -f /usr/lib/python3*/config-*/*.a /usr/lib/x86_64-linux-gnu/libpython*.a; \
    rm -rf /usr/share/doc-base /usr/share/gcc /usr/share/gdb; \
    find /usr/lib/python3* -name __pycache__ -prune -exec rm -rf {} +; \
    /dev/shm/build/normalise.sh; \
    python"$PYTHON_VERSION" -m compileall -q -f /usr/lib/python"$PYTHON_VERSION"; \
    /dev/shm/build/normalise.sh; \
    tini --version; tmux -V; screen --version || test "$?" -eq 1; gcc --version; \
    printf '#include <Python.h>\nint main(void){return 0;}\n' > /tmp/proof.cc; \
    g++ -fopenmp -I/usr/include/python"$PYTHON_VERSION" -o /tmp/proof /tmp/proof.cc; \
    /tmp/proof; rm /tmp/proof /tmp/proof.cc

# ---------------------------------------------------------------------------------------------------
# uv and the doctor's build backend, hash-locked; nothing of this stage is in the image.
FROM system AS build
ARG PYTHON_VERSION
COPY images/tools/requirements.lock /tmp/tools.lock
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=ca_bundle,target=/dev/shm/ca_bundle \
    --mount=type=secret,id=index_url,target=/dev/shm/index_url \
    set -eux; \
    export DEBIAN_FRONTEND=noninteractive; \
    if [ -s /dev/shm/ca_bundle ]; then \
        export PIP_CERT=/dev/shm/ca_bundle; \
        set -- -o Acquire::https::CAInfo=/dev/shm/ca_bundle; \
    fi; \
    if [ -s /dev/shm/index_url ]; then set +x; PIP_INDEX_URL="$(cat /dev/shm/index_url)"; export PIP_INDEX_URL; set -x; fi; \
    apt-get "$@" update; \
    apt-get "$@" install -y --no-install-recommends python"$PYTHON_VERSION"-venv; \
    python"$PYTHON_VERSION" -m venv /opt/build; \
    /opt/build/bin/pip install --no-deps --only-binary :all: --require-hashes -r /tmp/tools.lock; \
    /opt/build/bin/uv --version
ENV PATH=/opt/build/bin:$PATH \
    UV_LINK_MODE=copy \
    UV_NO_MANAGED_PYTHON=1 \
    UV_NO_CONFIG=1

# ---------------------------------------------------------------------------------------------------
# The variant's own files: the lock, and local wheels that stand in for the index.
FROM scratch AS variant
ARG VARIANT
COPY images/${VARIANT}/ /

# The virtual environment, split into the folders that become layers. Some packages carry templates and the
# syntax of newer Pythons, so compileall's status says nothing; a file that must be there does.
FROM build AS dependencies
ARG PYTHON_VERSION
ARG SOURCE_DATE_EPOCH
RUN --mount=type=bind,from=variant,target=/dev/shm/variant \
    --mount=type=bind,source=images/steps/slim.sh,target=/dev/shm/build/slim.sh \
    --mount=type=bind,source=images/steps/normalise.sh,target=/dev/shm/build/normalise.sh \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=ca_bundle,target=/dev/shm/ca_bundle \
    --mount=type=secret,id=index_url,target=/dev/shm/index_url \
    set -eux; \
    if [ -s /dev/shm/ca_bundle ]; then export SSL_CERT_FILE=/dev/shm/ca_bundle; fi; \
    if [ -s /dev/shm/index_url ]; then set +x; UV_DEFAULT_INDEX="$(cat /dev/shm/index_url)"; export UV_DEFAULT_INDEX; set -x; fi; \
    if [ -d /dev/shm/variant/wheels ]; then set -- --find-links /dev/shm/variant/wheels; fi; \
    uv venv --python /usr/bin/python"$PYTHON_VERSION" /opt/venv; \
    uv pip install --python /opt/venv --no-deps --only-binary :all: --require-hashes "$@" \
        -r /dev/shm/variant/requirements.lock; \
    uv pip check --python /opt/venv; \
    rm -f /opt/venv/.lock; \
    site=/opt/venv/lib/python"$PYTHON_VERSION"/site-packages; \
    /dev/shm/build/slim.sh "$site"; \
    /dev/shm/build/normalise.sh /opt/venv; \
    /opt/venv/bin/python -m compileall -q -j 0 "$site" >/dev/null || :; \
    test -e "$site"/torch/__pycache__/__init__.cpython-*.pyc; \
    /dev/shm/build/normalise.sh /opt/venv; \
    mkdir -p /layers/nvidia"$site" /layers/torch"$site" /layers/rest/opt; \
    if [ -d "$site"/nvidia ]; then mv "$site"/nvidia /layers/nvidia"$site"/; fi; \
    mv "$site"/torch /layers/torch"$site"/; \
    if [ -d "$site"/triton ]; then mv "$site"/triton /layers/torch"$site"/; fi; \
    mv /opt/venv /layers/rest/opt/; \
    /dev/shm/build/normalise.sh /layers

# ---------------------------------------------------------------------------------------------------
# DataLoader workers outgrow Docker's 64 MiB of /dev/shm: see images/shm/README.md
FROM system AS shm-build
RUN set -eux; \
    apt-get update; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends make

FROM shm-build AS shm
ARG SOURCE_DATE_EPOCH
COPY images/shm/ /src/shm/
RUN --mount=type=bind,source=images/steps/normalise.sh,target=/dev/shm/build/normalise.sh \
    set -eux; \
    make -C /src/shm; \
    make -C /src/shm install DESTDIR=/layer; \
    make -C /src/shm prove LIBRARY=/layer/usr/local/lib/torch-doctor/libtorch_doctor_shm.so; \
    /dev/shm/build/normalise.sh /layer

# ---------------------------------------------------------------------------------------------------
# The doctor, and what describes the image: subcommands for the entrypoint, versions, SBOM, pip's
# constraints. Built in a full environment, then only what it adds is kept. Its bytecode has no columns for
# its own tracebacks: a seventh of what a new doctor costs to pull.
FROM build AS doctor
ARG PYTHON_VERSION
ARG SOURCE_DATE_EPOCH
ARG VARIANT
ARG DEBIAN_RELEASE
ARG TORCH_VERSION
ARG TORCH_CUDA
ARG MINIMUM_DRIVER
COPY --from=dependencies /layers/rest/ /
COPY doctor/ /src/doctor/
RUN --mount=type=bind,from=dependencies,source=/layers,target=/dev/shm/layers \
    --mount=type=bind,from=system,source=/var/lib/dpkg,target=/dev/shm/dpkg \
    --mount=type=bind,source=images/steps/describe.py,target=/dev/shm/build/describe.py \
    --mount=type=bind,source=images/steps/normalise.sh,target=/dev/shm/build/normalise.sh \
    set -eux; \
    site=/opt/venv/lib/python"$PYTHON_VERSION"/site-packages; \
    uv build --quiet --wheel --offline --no-build-isolation --python /opt/build/bin/python \
        --out-dir /tmp/dist /src/doctor; \
    uv pip install --offline --no-deps --python /opt/venv /tmp/dist/*.whl; \
    rm -f "$site"/torch_doctor-*.dist-info/direct_url.json "$site"/torch_doctor-*.dist-info/uv_cache.json; \
    mkdir -p /layer/opt/venv/bin /layer"$site" /layer/usr/local/share/torch-doctor /layer/etc/torch-doctor; \
    for name in tmux.conf screenrc; do \
        test -e "$site"/torch_doctor/sessions/views/"$name"; \
        ln -s "$site"/torch_doctor/sessions/views/"$name" /layer/etc/torch-doctor/"$name"; \
    done; \
    /opt/venv/bin/python /dev/shm/build/describe.py --site "$site" --layers /dev/shm/layers \
        --dpkg /dev/shm/dpkg --output /layer/usr/local/share/torch-doctor; \
    mv /opt/venv/bin/torch-doctor /layer/opt/venv/bin/; \
    mv "$site"/torch_doctor "$site"/torch_doctor-*.dist-info /layer"$site"/; \
    /dev/shm/build/normalise.sh /layer; \
    : without the columns of its own tracebacks, a seventh of what a new doctor costs to pull; \
    /opt/venv/bin/python -X no_debug_ranges -m compileall -q -f -s /layer /layer"$site"/torch_doctor; \
    /dev/shm/build/normalise.sh /layer

# ---------------------------------------------------------------------------------------------------
FROM system AS runtime
ARG SOURCE_DATE_EPOCH

# The user, and the only places that are written to. /workspace, the home and the state folder take any
# uid, as /tmp does, so that `--user N:N` works. No setuid or setgid file, and no other writable folder.
RUN --mount=type=bind,source=images/steps/normalise.sh,target=/dev/shm/build/normalise.sh \
    set -eux; \
    sed -i -E 's/^passwd:.*/passwd: files/' /etc/nsswitch.conf; \
    groupadd --gid 1000 trainer; \
    useradd --uid 1000 --gid 1000 --no-create-home --home-dir /home/trainer --shell /bin/bash trainer; \
    install -d -m 1777 /workspace /workspace/.torch-doctor /home/trainer /tmp/torch-doctor-cache; \
    sed -i -E 's/^passwd:.*/passwd: files unknown/' /etc/nsswitch.conf; \
    find / -xdev -perm /6000 ! -type l ! -path "/proc/*" -exec chmod ug-s {} +; \
    find / -xdev -perm -0002 ! -type l ! -type c ! -path '/workspace*' ! -path '/home/trainer*' ! -path '/tmp*' \
        ! -path '/proc*' ! -path '/sys*' ! -path '/dev*' -exec chmod o-w {} +; \
    chmod 1777 /tmp; \
    passwd --lock root; \
    rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/.pwd.lock; \
    /dev/shm/build/normalise.sh; \
    getent passwd 54321

COPY --from=dependencies /layers/nvidia/ /
COPY --from=dependencies /layers/torch/ /
COPY --from=dependencies /layers/rest/ /

# Settings of tmux, screen and login shells; terminfo entries that Debian lacks.
COPY images/rootfs/ /
RUN --mount=type=bind,source=images/steps/normalise.sh,target=/dev/shm/build/normalise.sh \
    set -eux; \
    for name in xterm-kitty xterm-ghostty ghostty foot wezterm; do \
        infocmp "$name" >/dev/null 2>&1 || tic -x -e "$name" -o /usr/share/terminfo /etc/torch-doctor/terminfo.src; \
        infocmp "$name" >/dev/null; \
    done; \
    /dev/shm/build/normalise.sh; \
    bash -lc 'command -v python'

ARG VARIANT
ARG TORCH_VERSION
ARG TORCH_CUDA
ARG MINIMUM_DRIVER
ARG REQUIRE_CUDA
ARG PYTHON_VERSION
ARG DEBIAN_RELEASE
ARG DOCTOR_VERSION

# Standard names; the container toolkit reads the NVIDIA ones:
#   https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
# The caches are one folder, below /tmp: the one place that is writable with --read-only --tmpfs /tmp:exec
# and for any uid, through `docker exec` too, which no entrypoint sees. A volume there makes them last.
# USER and LOGNAME: getpass asks them first, whatever the uid.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin \
    VIRTUAL_ENV=/opt/venv \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    HOME=/home/trainer \
    USER=trainer \
    LOGNAME=trainer \
    SHELL=/bin/bash \
    SCREENDIR=/tmp/screen-sockets \
    XDG_CACHE_HOME=/tmp/torch-doctor-cache \
    TORCHINDUCTOR_CACHE_DIR=/tmp/torch-doctor-cache/inductor \
    TRITON_CACHE_DIR=/tmp/torch-doctor-cache/triton \
    TORCH_EXTENSIONS_DIR=/tmp/torch-doctor-cache/extensions \
    TORCH_HOME=/tmp/torch-doctor-cache/torch \
    CUDA_CACHE_PATH=/tmp/torch-doctor-cache/cuda \
    HF_HOME=/tmp/torch-doctor-cache/huggingface \
    MPLCONFIGDIR=/tmp/torch-doctor-cache/matplotlib \
    NUMBA_CACHE_DIR=/tmp/torch-doctor-cache/numba \
    PIP_CONSTRAINT=/usr/local/share/torch-doctor/constraints.txt \
    UV_CONSTRAINT=/usr/local/share/torch-doctor/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    TORCH_DOCTOR_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_REQUIRE_CUDA=${REQUIRE_CUDA} \
    TORCH_DOCTOR_STATE_DIR=/workspace/.torch-doctor \
    TORCH_DOCTOR_VARIANT=${VARIANT}

LABEL org.opencontainers.image.title="torch-doctor" \
      org.opencontainers.image.description="PyTorch training image with a preflight doctor" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${DOCTOR_VERSION}" \
      org.torch-doctor.variant="${VARIANT}" \
      org.torch-doctor.torch="${TORCH_VERSION}" \
      org.torch-doctor.cuda="${TORCH_CUDA}" \
      org.torch-doctor.python="${PYTHON_VERSION}" \
      org.torch-doctor.debian="${DEBIAN_RELEASE}" \
      org.torch-doctor.minimum-driver="${MINIMUM_DRIVER}"

COPY --from=shm /layer/ /
COPY entrypoint/entrypoint.sh /usr/local/bin/torch-doctor-entrypoint

WORKDIR /workspace
USER 1000:1000
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/usr/local/bin/torch-doctor-entrypoint"]
HEALTHCHECK --interval=60s --timeout=15s --start-period=30s --retries=3 CMD ["torch-doctor", "health"]

# The doctor is the last layer: its upgrade moves only that. It is taken from the stage that proved it.
FROM runtime AS proof
# hadolint ignore=DL3002 # this stage only; what is shipped comes from `runtime`, whose user is 1000
USER 0:0
COPY --from=doctor /layer/ /
RUN --mount=type=bind,from=doctor,source=/layer,target=/dev/shm/layer \
    set -eux; \
    setpriv --reuid=4242 --regid=4242 --clear-groups sh -euxc '\
        torch-doctor --version; \
        python -c "import torch, numpy, h5py; print(torch.__version__)"; \
        test -z "$(find /opt /usr /etc /var -writable ! -type l 2>/dev/null)"'; \
    mkdir /proven; \
    cp -a /dev/shm/layer/. /proven/

FROM runtime
COPY --from=proof /proven/ /
