#!/bin/sh
# Proves the model test of the event loops: one build holds all bugs planted in them (crates/driver/bugs); with each of them
# switched on, the test must fail, and with none it must pass. Usage: crates/driver/canaries.sh [BUG...]
set -eu
cd "$(dirname "$0")/../.."

seeds="${WEIR_LOOP_SEEDS:-0..2000}"
targets="${CANARY_TARGET_DIR:-${CARGO_TARGET_DIR:-target}/canaries}"
. crates/planted/plant.sh
plant "$PWD/crates/driver/bugs"

model() {
    (cd "$targets/tree" && cargo test --quiet -p weir-driver --test model "$@")
}

# run BUG FIRST..END: prints what the test says.
run() {
    WEIR_LOOP_BUG="$1" WEIR_LOOP_SEEDS="$2" model both_loops_tell_a_shard_the_same 2>&1
}

model --no-run

missed=0
for bug in ${*:-$(cd crates/driver/bugs && ls | sed 's/\.patch$//')}; do
    begun="$(date +%s)"
    if found="$(run "$bug" "$seeds")"; then
        echo "$bug: NOT found by seeds $seeds"
        missed=$((missed + 1))
        continue
    fi
    took=$(($(date +%s) - begun))
    first="$(echo "$found" | sed -n 's/^.*\(seed [0-9]* failed: .*\)/\1/p' | head -n 1)"
    if [ -z "$first" ]; then
        echo "$bug: no seed found it: $(echo "$found" | grep -E "failed: |panicked|error" | head -n 1)"
        missed=$((missed + 1))
        continue
    fi
    echo "$bug: found in $took s by $first"
done
if ! run "" "0..200" > "$targets/clean.txt"; then
    echo "without a bug it fails, too:"
    grep failed "$targets/clean.txt" | head -n 5
    missed=$((missed + 1))
fi
echo "$missed bugs missed"
[ "$missed" -eq 0 ]
