# SPDX-License-Identifier: BSD-3-Clause
# turns.awk - picks the tier for CI from the names of the matrix, which `tests/run --list' prints.
# Variable turns: sets of numbers of ranks, such as "1,3,8 2,4". A line of the matrix with three
# numbers or more over a transport of hosts runs with the numbers of one set; its transports take
# the sets by turns, and each program begins with the set after that of the program before. Programs
# in Python, each rank of which loads torch or JAX, run with the most ranks of a line. All other
# tests are taken. Those that take most of the machine are printed first.
BEGIN {
    num_turns = split(turns, turn, " ")
    num_hosts = split("shm mpi ucx", hosts, " ")
    for (i = 1; i <= num_hosts; i++)
        shift[hosts[i]] = i
}

{
    split_name($0)
    test[NR] = $0
    weight[NR] = ranks + 0
    plain = transport in shift && ranks ~ /^[0-9]+$/
    if (plain && program ~ /^(python|train|decode)_/)
        take_most_ranks()
    else if (plain)
        take_turn()
}

END {
    for (w = 16; w >= 1; w--)
        for (i = 1; i <= NR; i++)
            if (weight[i] == w && !left_out[i] && !(not_now[i] && has_turns(line[i])))
                print test[i]
}

# Numbers of ranks rise in a line.
function take_most_ranks(   name) {
    name = program "-" transport
    weight[NR] += 4
    left_out[last[name]] = 1
    last[name] = NR
}

function take_turn(   numbers) {
    if (!(program in place))
        place[program] = num_programs++
    line[NR] = program "-" transport
    num_in_line[line[NR]]++
    numbers = turn[(place[program] + shift[transport]) % num_turns + 1]
    not_now[NR] = index("," numbers ",", "," ranks ",") == 0
    num_now[line[NR]] += !not_now[NR]
}

function has_turns(name) {
    return num_in_line[name] > 2 && num_now[name] > 0
}

# Takes tests/PROGRAM-TRANSPORT-RANKS.mpi apart; without a transport "-" stands for none. In
# cuda-ucx the transport is that of devices.
function split_name(name,   words, n) {
    sub(/^tests\//, "", name)
    sub(/\.mpi$/, "", name)
    n = split(name, words, "-")
    ranks = words[n]
    transport = n > 2 && words[n - 2] != "cuda" ? words[n - 1] : "-"
    program = words[1]
    for (i = 2; i < n - 1; i++)
        program = program "-" words[i]
}
