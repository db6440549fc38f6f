//! The `weir` binary: wiring only.
#![forbid(unsafe_code)]
mod cli;
mod files;
mod generate;
mod life;
mod logging;
fn main() {
    let options = cli::Options::read(std::env::args_os()).unwrap();
    if let Some(document) = options.generate {
        print!("{}", generate::generate(document));
    }
}
