//! Has the linker compress what backtraces read (zlib, which Rust's own reader knows): uncompressed, the lines of the code are
//! larger than the code. Of a release only: nobody keeps the others.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
