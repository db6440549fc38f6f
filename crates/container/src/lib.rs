//! Environment variables, as people give them to the images of PgBouncer that they have (edoburu's and Bitnami's), made a configuration and a
//! user list: a compose file goes on working with another image's name. Names that the two have otherwise than settings stand in tables;
//! each setting is taken by its own name in capitals, with `PGBOUNCER_`, `WEIR_` or nothing before it.
//! Pure: who calls it reads the environment and files, and writes what was made.
#![forbid(unsafe_code)]

mod convert;
mod server;
mod servers;
mod uri;
mod variables;

pub use convert::{Made, convert};
pub use variables::{EnvironmentError, Variables};
