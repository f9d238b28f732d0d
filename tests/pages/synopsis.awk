# SPDX-License-Identifier: BSD-3-Clause
# synopsis.awk - takes the Fortran synopses of manual pages, as printed, and writes a module that
# compiles only if they are those of epx_f08: for each subroutine an interface as printed, to which
# a pointer to the real one is assigned, so that types, ranks and attributes are compared; and calls
# of the real one with the names that are printed. The names of the subroutines go to the file in
# the variable found.

FNR == 1 { end_page() }
/^[^ ]/ { in_synopsis = $0 == "SYNOPSIS" }
/^   [^ ]/ { in_fortran = in_synopsis && $0 == "   Fortran" }
/^[^ ]/ || /^   [^ ]/ {
    end_subroutine()
    next
}
!in_synopsis || !in_fortran || /^ *$/ { next }
$1 == "use" || $1 == "use," {
    uses = uses "    " $0 "\n"
    next
}
$1 == "subroutine" {
    end_subroutine()
    name = $2
    sub(/\(.*/, "", name)
    in_head = 1
}
in_head {
    head = head " " $0
    in_head = $0 ~ /&$/
    next
}
{ declarations = declarations "    " $0 "\n" }
END {
    end_page()
    print "module synopsis\n  implicit none\n  abstract interface\n" interfaces \
        "  end interface\ncontains\n" bodies "end module synopsis"
}

function end_page() {
    end_subroutine()
    uses = ""
    in_synopsis = in_fortran = 0
}

function end_subroutine(   names) {
    if (name == "")
        return
    names = head
    gsub(/[ &]/, "", names)
    sub(/^[^(]*\(/, "", names)
    sub(/\)$/, "", names)
    if (!(name in seen)) {
        interfaces = interfaces subroutine("printed_" name, names, "")
        bodies = bodies subroutine("call_" name, names, calls(names)) compare_interfaces()
        print name >found
        seen[name] = 1
    }
    name = head = declarations = ""
}

function subroutine(new_name, names, statement) {
    return "  subroutine " new_name "(" folded(names) ")\n" uses declarations statement \
        "  end subroutine\n"
}

# After the first arguments, which have no names in a call, the others are named: that fails unless
# names and their order are those of the real subroutine.
function calls(names,   name_of, count, positional, named, i, all) {
    count = split(names, name_of, ",")
    for (positional = 0; positional < count; positional++) {
        named = ""
        for (i = 1; i <= count; i++)
            named = named (i > 1 ? "," : "") (i > positional ? name_of[i] "=" : "") name_of[i]
        all = all "    call " name "(" folded(named) ")\n"
    }
    return all
}

function compare_interfaces() {
    return "  subroutine compare_" name "()\n" uses "    procedure(printed_" name \
        "), pointer :: printed\n    printed => " name "\n  end subroutine\n"
}

# A line of Fortran is not long.
function folded(names) {
    gsub(/,/, ", \\&\n      ", names)
    return names
}
