//! The load generators other than pgbench, and the reader of the raw files of each.
//!
//! Never decides what is run when (`experiment` does), never keeps a password anywhere but in a child's environment.

mod follow;
pub mod jmeter;
pub mod sysbench;
mod timed;

use crate::error::{LabError, Result};
use crate::load::{Asked, Figures, RawFiles};
use crate::pgbench;

/// The figures of a run, from the raw files that `generator` left.
///
/// # Errors
/// [`LabError::Record`] with the name of a file that is gone, cut or not what it should be.
pub fn figures(generator: &str, files: &RawFiles<'_>, asked: &Asked) -> Result<Figures> {
    files.check()?;
    let mut figures = match generator {
        "pgbench" => pgbench::figures(files, asked)?,
        "sysbench" => sysbench::figures(files, asked)?,
        "jmeter" => jmeter::figures(files, asked)?,
        other => return Err(LabError::Peer(format!("no reader for the raw files of {other}"))),
    };
    figures.cpu_us = files.spending()?;
    figures.placement = files.placement()?;
    figures.found_size = files.found_size()?;
    Ok(figures)
}
