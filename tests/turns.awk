# SPDX-License-Identifier: BSD-3-Clause
# turns.awk - picks the tier for CI from the names of the matrix, which `tests/run --list' prints.
# Variable turns: sets of numbers of ranks, such as "1,3,8 2,4". The rules are for transports of
# hosts without pretended nodes:
#   - A program with three numbers of ranks or more over a transport runs with those of one set. Its
#     transports take the sets by turns, and so do programs.
#   - A program with a word (CASE) runs it over one transport, by turns.
#   - A program in Python, each rank of which loads torch or JAX, runs it over the first transport
#     of its lines, with the fewest ranks that are more than one.
# All other tests are taken. Those that take most of the machine are printed first, and those that
# mostly wait for time-outs evenly among them, so that the cores are busy meanwhile.
BEGIN {
    num_turns = split(turns, turn, " ")
    num_hosts = split("shm mpi ucx", hosts, " ")
    for (i = 1; i <= num_hosts; i++)
        place_of[hosts[i]] = i
}

{
    split_name($0)
    test[NR] = $0
    weight[NR] = ranks + 0
    if (!(transport in place_of) || ranks !~ /^[0-9]+$/)
        next
    if (!(program in number_of))
        number_of[program] = num_programs++
    if (program ~ /^(python|train|decode|transformers)_/)
        take_few_ranks()
    else if (program ~ /-/)
        note_transport()
    else
        take_turn()
}

END {
    for (w = 16; w >= 1; w--)
        for (i = 1; i <= NR; i++)
            if (weight[i] == w && !is_left_out(i))
                sort_in(test[i])
    for (i = 0; i < num_busy; i++) {
        print busy[i]
        while (printed * num_busy < (i + 1) * num_waiting)
            print waiting[printed++]
    }
    printf "%s", on_devices
}

# Tests on devices are skipped at once where there are none.
function sort_in(name) {
    if (name ~ /-(lsa|ipc|nccl|cuda-[a-z]+)-/)
        on_devices = on_devices name "\n"
    else if (name ~ /\/(test_(stopped|stall|mismatch|killed|cut)|soak_faults)-/)
        waiting[num_waiting++] = name
    else
        busy[num_busy++] = name
}

# Takes tests/PROGRAM-TRANSPORT-RANKS.mpi apart; PROGRAM may have a word behind it. Without a
# transport that is "-". In cuda-ucx the transport is that of devices.
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

# Numbers of ranks rise in a line. Loading torch or JAX weighs as much as some ranks.
function take_few_ranks() {
    weight[NR] += 4
    if (!(program in first_transport))
        first_transport[program] = transport
    if (transport != first_transport[program] || ranks_taken[program] > 1) {
        left_out[NR] = 1
        return
    }
    left_out[last[program]] = 1
    last[program] = NR
    ranks_taken[program] = ranks
}

# Which transports a program with a word has is known at the end.
function note_transport() {
    word_program[NR] = program
    word_transport[NR] = transport
    if (!((program, transport) in seen)) {
        seen[program, transport] = 1
        transports[program, num_transports[program]++] = transport
    }
}

function take_turn(   numbers) {
    line[NR] = program "-" transport
    num_in_line[line[NR]]++
    numbers = turn[(number_of[program] + place_of[transport]) % num_turns + 1]
    not_now[NR] = index("," numbers ",", "," ranks ",") == 0
    num_now[line[NR]] += !not_now[NR]
}

function is_left_out(i,   name) {
    if (i in word_program) {
        name = word_program[i]
        return word_transport[i] != transports[name, number_of[name] % num_transports[name]]
    }
    return left_out[i] || (not_now[i] && num_in_line[line[i]] > 2 && num_now[line[i]] > 0)
}
