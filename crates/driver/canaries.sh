#!/bin/sh
# Proves the model test of the event loops: one build holds all planted bugs (crates/planted); with each of the loops' own
# switched on, the test must fail, and with none it must pass. Usage: crates/driver/canaries.sh [BUG...]
set -eu
cd "$(dirname "$0")/../.."

seeds="${WEIR_LOOP_SEEDS:-0..2000}"
targets="${CANARY_TARGET_DIR:-${CARGO_TARGET_DIR:-target}/canaries}"
mkdir -p "$targets"
printf '#!/bin/sh\nexec "$@" --cfg weir_bugs\n' > "$targets/wrapper"
chmod +x "$targets/wrapper"

model() {
    CARGO_TARGET_DIR="$targets" RUSTC_WORKSPACE_WRAPPER="$(realpath "$targets/wrapper")" cargo test --quiet -p weir-driver --test model "$@"
}

# run BUG FIRST..END: prints what the test says.
run() {
    WEIR_LOOP_BUG="$1" WEIR_LOOP_SEEDS="$2" model both_loops_tell_a_shard_the_same 2>&1
}

model --no-run

missed=0
for bug in ${*:-$(sed -n 's/^    "\(loop_[a-z_]*\)",$/\1/p' crates/planted/src/lib.rs)}; do
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
