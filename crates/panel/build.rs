//! Puts the control panel that `make panel` has built (web/dist) into the binary: every file, compressed, with its path, in a table that
//! `src/assets.rs` includes. Where it has not been built, the table is empty. Never builds it: that needs Node.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let web = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../web");
    let dist = web.join("dist");
    // Until there is something built, what is watched is where it would appear.
    println!("cargo::rerun-if-changed={}", if dist.is_dir() { &dist } else { &web }.display());
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let mut files = Vec::new();
    if dist.is_dir() {
        collect(&dist, &mut files)?;
    }
    files.sort();
    let mut table = String::from("static ASSETS: &[Asset] = &[\n");
    for (index, file) in files.iter().enumerate() {
        let packed = out.join(format!("asset-{index}.gz"));
        fs::write(&packed, compressed(&fs::read(file)?)?)?;
        let path = file.strip_prefix(&dist).unwrap_or(file).display().to_string();
        let _ = writeln!(
            table,
            "    Asset {{ path: {path:?}, gzip: include_bytes!({:?}) }},",
            packed.display().to_string()
        );
    }
    fs::write(out.join("assets.rs"), table + "];\n")
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { collect(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

fn compressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}
