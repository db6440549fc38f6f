//! Settings: ONE table of settings from which the ini parser, SHOW CONFIG, SET, the sample file and the
//! manual are made. The language is PgBouncer's ini, its names and its defaults, plus a few of Weir's own.
//! What was said ([`Draft`]) is not what is meant ([`Config`]). Never does I/O (files come through
//! [`Files`]), never keeps a global configuration, never ignores a word that it read.
#![forbid(unsafe_code)]

mod config;
mod database;
mod finding;
mod global;
mod table;
mod user;
mod value;

pub use config::Config;
pub use database::{DATABASE, Database};
pub use finding::{Finding, Origin, Severity};
pub use global::{GLOBAL, Global};
pub use table::{About, Change, Effect, Row, Scope};
pub use user::{USER, User};
pub use value::{AuthType, BadValue, IoDriver, Kind, LoadBalance, PoolMode, Threads};
