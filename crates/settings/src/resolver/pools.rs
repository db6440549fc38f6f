//! The entries of the pools file, resolved after all others: no name may be in two files.

use super::Resolver;
use crate::finding::{Finding, Severity};
use crate::fleet_part::FleetPart;
use crate::raw_config::Pools;
use crate::{Config, Database};
use std::sync::Arc;

/// Resolves until it succeeds, each time without those entries of all nodes of a fleet that were in the way before: a node's own files win.
///
/// # Errors
/// Those of the last time: none of them is about such an entry.
pub(crate) fn leaving_out(
    mut pools: Option<Pools>,
    resolve: impl Fn(Option<Pools>) -> Result<Config, Vec<Finding>>,
) -> Result<Config, Vec<Finding>> {
    let mut refused = Vec::new();
    loop {
        let Some(present) = pools.as_mut().filter(|pools| pools.of_fleet.is_some()) else {
            return resolve(pools);
        };
        match resolve(Some(present.clone())) {
            Err(findings) if present.leave_out(&findings, &mut refused) => {}
            Err(findings) => return Err(findings),
            Ok(config) => return Ok(config.with_fleet_part(present, refused)),
        }
    }
}

impl Config {
    fn with_fleet_part(mut self, pools: &Pools, refused: Vec<Finding>) -> Config {
        let left_out = |finding: &Finding| Finding {
            severity: Severity::Warning,
            message: format!("{}; this pool of the fleet is left out", finding.message),
            ..finding.clone()
        };
        self.warnings.extend(refused.iter().map(left_out));
        let part = pools.of_fleet.clone().map(|(_, part)| part).unwrap_or_default();
        self.fleet_part = Arc::new(FleetPart { refused, ..part });
        self
    }
}

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
        self.config.fleet_part = Arc::default();
    }
}

fn entry<'a>(config: &'a Config, name: &str) -> Option<&'a Arc<Database>> {
    if name == "*" { config.fallback.as_ref() } else { config.databases.get(name) }
}
