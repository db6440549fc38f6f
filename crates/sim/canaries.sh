#!/bin/sh
# Proves the simulator: one build holds all planted bugs (crates/sim/bugs); with each of them switched on, seeds must fail
# within a minute of CPU, and with none switched on the same seeds must pass. Usage: crates/sim/canaries.sh [BUG...]
set -eu
cd "$(dirname "$0")/../.."

seeds=1000000
cpu_seconds=60
seconds=300 # at most, on a machine that is busy
targets="${CANARY_TARGET_DIR:-${CARGO_TARGET_DIR:-target}/canaries}"

. crates/planted/plant.sh
plant "$PWD/crates/sim/bugs"
# Optimised, but without the slow link of a release.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
(cd "$targets/tree" && cargo build --quiet --release -p weir-sim)
sim="$CARGO_TARGET_DIR/release/weir-sim"

missed=0
for bug in ${*:-$("$sim" --bugs)}; do
    # Reads go to standbys only in seeds with a cluster, one in six; SHORT=1 looks for these in short runs.
    case "$bug" in
        crashed_standby_trusted | old_primary_served | others_write_unread | own_write_unread | silent_primary_kept | standby_pipelined) of="--clusters${SHORT:+ --short}" ;;
        *) of= ;;
    esac
    if found="$("$sim" $of --seeds "$seeds" --seconds "$seconds" --first --bug "$bug")"; then
        echo "$bug: NOT found in $seconds s"
        missed=$((missed + 1))
        continue
    fi
    took="$(echo "$found" | sed -n 's/.* (\([0-9]*\) CPU seconds).*/\1/p')"
    seed="$(echo "$found" | sed -n 's/^seed \([0-9]*\) failed: .*/\1/p' | head -n 1)"
    if [ -z "$seed" ]; then
        echo "$bug: cannot be switched on"
        missed=$((missed + 1))
        continue
    fi
    echo "$bug: found in $took CPU seconds by seed $seed: $(echo "$found" | sed -n 's/^seed [0-9]* failed: //p' | head -n 1)"
    if [ "$took" -gt "$cpu_seconds" ]; then
        echo "$bug: but that is more than $cpu_seconds"
        missed=$((missed + 1))
    fi
    if ! "$sim" $of --seeds 1 --start "$seed" > "$targets/clean.txt"; then
        echo "$bug: but that seed fails without it, too:"
        grep failed "$targets/clean.txt" | head -n 5
        missed=$((missed + 1))
    fi
done
echo "$missed bugs missed"
[ "$missed" -eq 0 ]
