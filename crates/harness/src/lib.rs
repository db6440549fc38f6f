//! The developers' harness on top of the lab: the demo, Weir beside PgBouncer, and the full table with its bars.
//! Every subject is started from its binary and a file in the repository, and measured alike.
//!
//! Never delays, throttles or favours one of the compared; what is started is in the lab's hands.
#![forbid(unsafe_code)]

pub mod compare;
pub mod demo;
pub mod fleet;
pub mod full;
pub mod panel;
pub mod programs;
pub mod replicas;
pub mod series;
mod signals;
pub mod template;
