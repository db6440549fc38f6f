#!/bin/sh
# Proves the simulator: builds the shard with each planted bug and shows that seeds find it within a minute, then that
# the same seeds find nothing in the clean build. Usage: crates/sim/canaries.sh [BUG...]
set -eu
cd "$(dirname "$0")/../.."

bugs="${*:-release_at_first_ready stray_reply_after_cancel half_request_left parse_cached_early limit_off_by_one waiter_lost spoilt_plan_told replay_overtakes key_ignores_settings own_server_lent asked_as_clients_left_it answer_for_another reset_overtaken}"
seeds=100000
seconds=60
targets="${CANARY_TARGET_DIR:-${CARGO_TARGET_DIR:-target}/canaries}"

# Optimised, but without the slow link of a release.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0

# build NAME FLAGS: prints the binary. The flags are for our own crates: those of others are built once for all bugs.
build() {
    wrapper="$targets/wrappers/$1"
    mkdir -p "$targets/wrappers" "$targets/bugs"
    printf '#!/bin/sh\nexec "$@" %s\n' "$2" > "$wrapper"
    chmod +x "$wrapper"
    CARGO_TARGET_DIR="$targets" RUSTC_WORKSPACE_WRAPPER="$wrapper" cargo build --quiet --release -p weir-sim
    cp -f "$targets/release/weir-sim" "$targets/bugs/$1"
    echo "$targets/bugs/$1"
}

clean="$(build clean "")"
missed=0
for bug in $bugs; do
    if ! grep -rqs "weir_bug = \"$bug\"" crates/*/src; then
        echo "$bug: is planted nowhere"
        missed=$((missed + 1))
        continue
    fi
    planted="$(build "$bug" "--cfg 'weir_bug=\"$bug\"'")"
    begun="$(date +%s)"
    if found="$("$planted" --seeds "$seeds" --seconds "$seconds" --first)"; then
        echo "$bug: NOT found in $seconds s"
        missed=$((missed + 1))
        continue
    fi
    took=$(($(date +%s) - begun))
    seed="$(echo "$found" | sed -n 's/^seed \([0-9]*\) failed: .*/\1/p' | head -n 1)"
    echo "$bug: found in $took s by seed $seed: $(echo "$found" | sed -n 's/^seed [0-9]* failed: //p' | head -n 1)"
    if ! "$clean" --seeds "$((seed + 1))" > "$targets/clean.txt"; then
        echo "$bug: but the clean build fails, too:"
        grep failed "$targets/clean.txt" | head -n 5
        missed=$((missed + 1))
    fi
done
echo "$missed bugs missed"
[ "$missed" -eq 0 ]
