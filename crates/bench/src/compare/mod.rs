//! x
use crate::{error::Result, interrupt::Interrupt};
use clap::Args;
#[derive(Clone, Debug, Args)]
pub struct Options {}
pub fn run(_: &Options, _: &Interrupt) -> Result<()> {
    Ok(())
}
