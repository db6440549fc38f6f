//! The lab: a private PostgreSQL, a pooler before it, real pgbench against both. It meets every pooler as a
//! stranger does: by its binary, its file and its port.
//!
//! Owns what it starts (processes by their id, one directory) and leaves none of it behind. Never delays,
//! throttles or favours one of the compared, never runs a server as root, never looks inside a pooler.
#![forbid(unsafe_code)]

pub mod account;
pub mod advisor;
pub mod client;
pub mod command;
pub mod cpu;
pub mod error;
pub mod experiment;
pub mod figures;
pub mod generator;
pub mod identity;
pub mod interrupt;
pub mod interval;
pub mod laboratory;
pub mod listener;
pub mod load;
pub mod machine;
pub mod options;
pub mod pgbench;
pub mod pooler;
pub mod postgres;
pub mod process;
pub mod record;
pub mod report;
pub mod scratch_dir;
pub mod screen;
pub mod target;
pub mod workload;
