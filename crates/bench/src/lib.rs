//! The lab: a private PostgreSQL, a pooler before it, real pgbench against both, and what came of it as a
//! table, JSON and a page. It meets every pooler as a stranger does: by its binary, its file and its port.
//!
//! Owns what it starts (processes by their id, one directory) and leaves none of it behind. Never delays,
//! throttles or favours one of the compared, never runs a server as root, never looks inside a pooler.
#![forbid(unsafe_code)]

pub mod client;
pub mod compare;
pub mod cpu;
pub mod demo;
pub mod error;
pub mod figures;
pub mod identity;
pub mod interrupt;
pub mod lab;
pub mod machine;
pub mod pgbench;
pub mod pooler;
pub mod postgres;
pub mod process;
pub mod screen;
pub mod workplace;
