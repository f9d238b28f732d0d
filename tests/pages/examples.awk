# SPDX-License-Identifier: BSD-3-Clause
# examples.awk - takes the programs of a manual page, as printed, and the sessions that show what
# they print. A program goes from its first #include to the brace that ends main, which comes last
# in it. A line "$ cc NAME.c ..." names the program before it; each line "$ mpiexec -n N ./NAME ..."
# starts a session, whose output goes on to an empty line or the next command. Writes NAME.c and
# NAME.N.shown to the folder in the variable work, and prints for each session: NAME.N NAME N ARGS.

/^[^ ]/ {
    on = $0 == "EXAMPLES"
    next
}
!on { next }
in_program {
    add_line()
    next
}
/^ *#include / {
    indentation = match($0, /[^ ]/) - 1
    in_program = 1
    in_main = 0
    in_session = 0
    program = ""
    add_line()
    next
}
{ text = substr($0, indentation + 1) }
text ~ /^\$ cc / {
    expected = "$ cc " $3 " $(pkg-config --cflags --libs epx) -o " name_of($3)
    if (text != expected)
        complain("not the command that compiles it: " text)
    printf "%s", program >(work "/" $3)
    close(work "/" $3)
    next
}
text ~ /^\$ mpiexec -n [0-9]+ \.\/[a-z_]+/ {
    begin_session()
    next
}
/^ *$/ { in_session = 0 }
in_session { print text >shown }
END {
    if (in_program)
        complain("a program without an end")
}

function add_line(   line) {
    line = substr($0, indentation + 1)
    program = program line "\n"
    if (line ~ /^int main\(/)
        in_main = 1
    if (in_main && line == "}")
        in_program = 0
}

function begin_session(   name, session, arguments, i) {
    name = substr($5, 3)
    session = name "." ++num_sessions
    for (i = 6; i <= NF; i++)
        arguments = arguments " " $i
    print session, name, $4 arguments
    shown = work "/" session ".shown"
    printf "" >shown
    in_session = 1
}

function name_of(file) {
    sub(/\.c$/, "", file)
    return file
}

function complain(what) {
    print "examples.awk: line " FNR ": " what >"/dev/stderr"
    exit 1
}
