#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# quickstart and run-tests configure alike, so that the second one finds built what the first one
# built; they say how many objects are to be compiled, and which of them are kernels. configure
# leaves config.h, which all objects depend on, as it is if only its arguments have changed. `make
# lint' builds no tests.
set -u
check=check_scripts
# shellcheck source=tests/tools/checks.sh
. "${srcdir:-.}/tests/tools/checks.sh"
cd "$work" || exit 1
export MPIEXEC=true

# A tree whose configure notes its arguments, and whose make compiles a C file and a kernel.
make_tree() {
    mkdir -p tree/tests
    cp -R "$srcdir/contrib" tree
    chmod -R u+w tree
    echo 'need() { :; }' >>tree/contrib/setup.sh
    printf '#!/bin/sh\n' >tree/contrib/make-venv
    echo 'echo a.sh' >tree/tests/short
    cat >tree/configure <<'END'
#!/bin/sh
echo "$*" >>../arguments
printf '#!/bin/sh\necho "%s"\n' "$*" >config.status
chmod +x config.status
[ -f config.h ] || touch config.h
touch stamp-h1
cp ../Makefile Makefile
END
    chmod +x tree/configure
    cat >tree/Makefile <<'END'
all: config.h
	@$(MAKE) all-am
all-am: a.o k.lo
config.h: stamp-h1
	@test -f $@
stamp-h1: config.status
	@touch $@
a.o: config.h
	@echo "  CC      " $@; touch $@
k.lo:
	@echo "  NVCC    " $@; sleep 3; touch $@
tools/configure_line.h:
list-tests:
	@echo a.sh
check: all
	@echo "PASS: a.sh"
END
    echo text >tree/text
}

# arguments NUMBER - those of a run of configure.
arguments() {
    sed -n "$1p" tree/arguments
}

check_alike() {
    expect_code 0 sh tree/contrib/quickstart
    expect_line out '1 of 2 objects are kernels for GPUs, .*'
    expect_line out '    [12] of 2 objects, [0-9]+ s'
    expect_line out 'building in build +[0-9]+ s, 2 of 2 objects'
    expect_code 0 sh tree/contrib/run-tests --quick
    ! grep -q objects out || fail "what quickstart built is built again: $(cat out)"
    ! grep -q '^  CC' tree/build/run-tests.log || fail "an object is compiled again"
    expect_line out '1 of 1 tests passed, .*'
    [ "$(arguments 1)" = "$(arguments 2)" ] || fail "configured in two ways: $(cat tree/arguments)"
}

check_arguments() {
    expect_code 0 sh tree/contrib/quickstart --without-cuda --prefix=/x CC=clang tree/text
    expect_line out "true -n 4 build/epx_moe $work/tree/text"
    case $(arguments 3) in
    *" --without-cuda --prefix=/x CC=clang") ;;
    *) fail "configure was given $(arguments 3)" ;;
    esac
    expect_code 0 sh tree/contrib/run-tests --quick
    [ "$(arguments 3)" = "$(arguments 4)" ] || fail "configured in two ways: $(cat tree/arguments)"
    expect_line out 'configure gets what it got the last time: .* --without-cuda .* CC=clang'
    expect_code 0 sh tree/contrib/run-tests --quick --with-python
    [ "$(arguments 5)" = "$(arguments 4) --enable-python PYTHON=$work/tree/venv/bin/python" ] ||
        fail "configure was given $(arguments 5)"
    expect_code 0 sh tree/contrib/run-tests --quick --with-python
    [ "$(arguments 5)" = "$(arguments 6)" ] || fail "configured in two ways: $(cat tree/arguments)"
    expect_code 0 sh tree/contrib/run-tests --quick --with-cuda=/y
    case $(arguments 7) in
    *" --with-cuda=/y") ;;
    *) fail "configure was given $(arguments 5)" ;;
    esac
}

# set_up ARGUMENT... - configures a build that is as small as can be.
set_up() {
    (cd real && "$srcdir/configure" -q -C --without-cuda --without-nccl --without-ucx \
        CC="${CC:-cc}" "$@") >log 2>&1 || {
        tail -n 5 log >&2
        fail "configure does not work"
    }
    make -C real config.h tools/configure_line.h >>log 2>&1 || fail "no header: $(cat log)"
}

check_config_header() {
    mkdir real
    set_up
    touch -d '1 hour ago' real/config.h real/tools/configure_line.h
    set_up
    [ -z "$(find real/config.h real/tools/configure_line.h -newermt '30 minutes ago')" ] ||
        fail "a header changes though configure got the same arguments"
    set_up --prefix="$work/it's \"here\""
    [ -z "$(find real/config.h -newermt '30 minutes ago')" ] ||
        fail "config.h changes with the arguments of configure"
    grep -q 'prefix=.*it.*s.*here' real/tools/configure_line.h ||
        fail "what configure was given is not in $(cat real/tools/configure_line.h)"
    # shellcheck disable=SC2086 # the compiler may have arguments
    ${CC:-cc} -fsyntax-only -x c real/tools/configure_line.h ||
        fail "no C: $(cat real/tools/configure_line.h)"
}

# The lints want the library, and no program of the tests.
check_lint() {
    expect_code 0 make -C real -n lint
    grep -q 'CCLD.* libepx\.la' out || fail "make lint builds no library"
    ! grep -E '^echo "  (CC|CCLD) +" +tests/' out || fail "make lint builds programs of the tests"
}

make_tree
check_alike
check_arguments
check_config_header
check_lint
exit $status
