//! `pgbench -i`: fills pgbench's tables, dropping what has their names. Whether it may is decided elsewhere.

use std::path::Path;
use std::process::Command;

use super::parse::initialised;
use crate::error::Result;
use crate::identity::Identity;
use crate::interrupt::Interrupt;
use crate::process;
use crate::target::Address;

/// Fills the tables at `address`; `watch` gets the part done, between 0 and 1, and pgbench's line.
///
/// # Errors
/// When pgbench does not start or fails, with its last words.
pub fn fill(
    program: &Path,
    address: &Address,
    scale: u32,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(f64, &str),
) -> Result<()> {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C");
    address.equip(&mut command);
    command.args(["-i", "-s", &scale.to_string()]);
    let finished = process::run(command, &Identity::caller(), interrupt, &mut |line| {
        if let Some(done) = initialised(line) {
            watch(done, line);
        }
    })?;
    finished.success("pgbench -i").map(drop)
}
