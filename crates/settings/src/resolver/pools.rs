//! The entries of the pools file, resolved after all others: no name may be in two files.

use super::Resolver;
use crate::finding::Finding;
use crate::raw_config::Pools;
use crate::{Config, Database};
use std::sync::Arc;

impl Resolver {
    /// Adds the entries of the pools file.
    pub(crate) fn add_pools(&mut self, pools: Pools) {
        self.findings.extend(pools.findings);
        for assignment in &pools.assignments {
            match entry(&self.config, &assignment.key) {
                Some(other) => {
                    let (name, origin) = (&assignment.key, &other.at);
                    let message =
                        format!("database \"{name}\" is defined in {}:{} too", origin.file, origin.line);
                    self.findings.push(Finding::error(&assignment.at, message));
                }
                None => self.apply(assignment),
            }
        }
        self.config.pools_from = Some(pools.file);
    }
}

fn entry<'a>(config: &'a Config, name: &str) -> Option<&'a Arc<Database>> {
    if name == "*" { config.fallback.as_ref() } else { config.databases.get(name) }
}
