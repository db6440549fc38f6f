//! From pgpool-II to Weir: reads pgpool.conf, pool_hba.conf and pool_passwd and makes a weir.ini, rules and a user list of them, with a list of
//! what became of each setting. One table says that of every setting ([`TABLE`]); docs/pgpool.md is made from it.
//! Does no I/O (files come through `settings::Files`), and gives out no weir.ini that the settings' own checking refuses.
#![forbid(unsafe_code)]

mod cluster;
mod conf;
mod convert;
mod draft;
mod fate;
mod page;
pub mod probe;
mod report;
mod rules;
mod secrets;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use conf::{Assignment, Conf};
pub use convert::{ImportError, Imported, Request, Users, convert, uses_rules};
pub use fate::{Numbered, Party, Setting, Verdict};
pub use page::page;
pub use rules::{Rules, rules};
pub use secrets::{Secrets, userlist};
pub use table::{Group, TABLE};
