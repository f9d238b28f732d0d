# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
# setup.sh - what quickstart, run-tests and CI share: they source it, and steps.sh for what installs
# and builds, at the top of the tree.
missing=
python=

# need PACKAGE COMMAND... - the package is missing if the command fails.
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

has_mpi_headers() {
    printf '#include <mpi.h>\n' | "${MPICC:-mpicc}" -E -x c -
}

has_ucx_headers() {
    # shellcheck disable=SC2046 # a list of words
    printf '#include <ucp/api/ucp.h>\n' | gcc $(pkg-config --cflags ucx 2>/dev/null) -E -x c -
}

# POSIX has `type'; it also finds what is in /usr/sbin only for root.
need_to_build() {
    need build-essential sh -c 'type make && type gcc && type g++'
    need autoconf type autoreconf
    need automake type automake
    need libtool type libtoolize
    need pkg-config type pkg-config
    need libopenmpi-dev has_mpi_headers
    need openmpi-bin type "${MPIEXEC:-mpiexec}"
}

# need_ucx CONFIGURE-ARGUMENT... - unless they say otherwise.
need_ucx() {
    case " $* " in
    *" --without-ucx "* | *" --with-ucx="*) ;;
    *) need libucx-dev has_ucx_headers ;;
    esac
}

need_to_test() {
    need check pkg-config --exists check
    need mandoc type mandoc
    need groff-base type groff
    need lowdown type lowdown
    need iproute2 type ip
    need spin type spin
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# A password is asked for here, if at all: the steps that follow have no terminal to read from.
may_install() {
    type apt-get >/dev/null 2>&1 || return
    [ "$(id -u)" -ne 0 ] || return 0
    type sudo >/dev/null 2>&1 || return
    if [ -t 0 ]; then sudo -v; else sudo -n true 2>/dev/null; fi
}

# Installs what is missing, or says what to install and ends.
install_missing() {
    [ -n "$missing" ] || return 0
    echo "Missing packages:$missing"
    # shellcheck disable=SC2086 # a list of words
    if may_install && step "reading the lists of packages" as_root apt-get update &&
        step "installing the missing packages" as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends $missing; then
        missing=
        return 0
    fi
    echo "They cannot be installed from here. Please have root run" >&2
    echo "    apt-get update && apt-get install -y --no-install-recommends$missing" >&2
    exit 1
}

# Open MPI refuses root, and more ranks than cores, unless told otherwise.
prepare_mpi() {
    if [ "$(id -u)" -eq 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe-1}"
    export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle-1}"
    export OMPI_MCA_hwloc_base_binding_policy="${OMPI_MCA_hwloc_base_binding_policy-none}"
    : "${PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe}"
    : "${PRTE_MCA_hwloc_default_binding_policy=none}"
    export PRTE_MCA_rmaps_default_mapping_policy PRTE_MCA_hwloc_default_binding_policy
}

# For a job on one node, which needs no TCP: Open MPI 5 prints a line for each pair of ranks whose
# interfaces it cannot match.
leave_out_tcp() {
    export OMPI_MCA_btl="${OMPI_MCA_btl-^tcp}"
}

# in_folder FOLDER COMMAND...
in_folder() {
    (cd "$1" && shift && "$@")
}

# configure FOLDER [CONFIGURE-ARGUMENT...] - without arguments those of the last time, so that what
# is built stays built; with the Python package if $python is a Python.
configure() {
    folder=$1
    shift
    if [ $# -eq 0 ] && [ -x "$folder/config.status" ]; then
        eval "set -- $("$folder/config.status" --config)"
        [ "$*" = --enable-option-checking=fatal ] ||
            echo "configure gets what it got the last time: $*"
    else
        set -- --enable-option-checking=fatal "$@" # or a misspelled option would be ignored
    fi
    case "${python:+yes} $* " in
    "yes "*" --enable-python "* | " "*) ;;
    *) set -- "$@" --enable-python PYTHON="$python" ;;
    esac
    step "configuring in $folder" in_folder "$folder" ../configure "$@"
}

# build FOLDER [CONFIGURE-ARGUMENT...] - bootstraps, configures and builds out of tree.
build() {
    [ -x configure ] || step "making configure" ./autogen.sh || return
    mkdir -p "$1"
    configure "$@" && make_step "building in $1" "$1" all
}
