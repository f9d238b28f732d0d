# SPDX-License-Identifier: BSD-3-Clause
# kernel_source.awk - makes preprocessed CUDA C++ into C++: launches, and variables in the memory of
# a block. A declaration with __shared__ must stand on one line.
/<<</ {
    open += gsub(/<<</, "->*emulated_grid(")
}
open && />>>/ {
    open -= gsub(/>>>/, ")")
}
/__noinline__/ && !/__attribute__/ {
    gsub(/__noinline__/, "__attribute__((noinline))")
}
/__shared__/ {
    $0 = shared_variables($0)
}
{ print }
END {
    if (open)
        exit 1
}

# "__shared__ TYPE NAME[SIZE], NAME;" becomes references to shared memory.
function shared_variables(line,   dynamic, head, names, n, i, name, size, type, out) {
    dynamic = line ~ /extern[ \t]+__shared__/
    head = line
    sub(/[ \t]*(extern|static)?[ \t]*__shared__[ \t]*/, "", head)
    sub(/__attribute__[ \t]*\(\([^)]*\([^)]*\)\)\)[ \t]*/, "", head)
    sub(/;.*$/, "", head)
    n = split(head, names, /,/)
    for (i = 1; i <= n; i++) {
        name = names[i]
        size = ""
        if (match(name, /\[.*\]/)) {
            size = substr(name, RSTART)
            name = substr(name, 1, RSTART - 1)
        }
        sub(/[ \t]+$/, "", name)
        if (i == 1) {
            type = name
            sub(/[ \t]*[A-Za-z_0-9]+$/, "", type)
        }
        sub(/^.*[ \t]/, "", name)
        if (dynamic)
            out = out " " type " *const " name " = (" type " *)emulated_dynamic_shared();"
        else
            out = out " static char emulated_key_" name ";" \
                " using emulated_type_" name " = " type size ";" \
                " emulated_type_" name " &" name " = *(emulated_type_" name " *)" \
                "emulated_shared(&emulated_key_" name ", sizeof(emulated_type_" name "));"
    }
    return out
}
