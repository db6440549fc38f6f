//! What the command lines of `weir` and `weir-bench` have in common: colours, how help and errors are printed, completions, the manual.
//!
//! Owns no option's meaning and no command.
#![forbid(unsafe_code)]

mod color;
mod completions;
mod manual;
mod paint;
mod show;

pub use color::{ColorOption, ColorWhen};
pub use completions::completions;
pub use manual::{Manual, task_list};
pub use paint::Paint;
pub use show::{STYLES, show};

/// The shells of which there are completions.
pub use clap_complete::Shell;
