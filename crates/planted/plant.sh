# Sourced by the canary scripts: plant DIR makes a copy of the sources in $targets/tree with the bugs of DIR/*.patch planted,
# and sets what cargo needs to build them. Each patch adds the decisions of one bug, behind `planted::bug!`; one build holds
# all of them.

plant() {
    tree="$targets/tree"
    mkdir -p "$targets"
    rm -rf "$tree.new"
    mkdir "$tree.new"
    git ls-files -z --cached --others --exclude-standard | xargs -0 tar cf - | tar xf - -C "$tree.new"
    CARGO_TARGET_DIR="$(realpath "$targets")"
    for patch in "$1"/*.patch; do
        # Not a repository of its own: git would leave out what lies below another one's.
        (cd "$tree.new" && GIT_CEILING_DIRECTORIES="$CARGO_TARGET_DIR" git apply "$patch")
    done
    for crate in pool session shard driver fleet; do
        sed -i 's/^\[dependencies\]$/&\nplanted.workspace = true/' "$tree.new/crates/$crate/Cargo.toml"
    done
    rm -rf "$tree"
    mv "$tree.new" "$tree"
    # The flag is for Weir's own crates: others are built as ever.
    printf '#!/bin/sh\nexec "$@" --cfg weir_bugs\n' > "$targets/wrapper"
    chmod +x "$targets/wrapper"
    RUSTC_WORKSPACE_WRAPPER="$CARGO_TARGET_DIR/wrapper"
    export CARGO_TARGET_DIR RUSTC_WORKSPACE_WRAPPER
}
