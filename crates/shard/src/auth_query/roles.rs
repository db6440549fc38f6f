//! Role memberships of a user, where an HBA rule depends on them (`+role`, `samerole`): queried on a server, like secrets.
//!
//! Owns the query and what its rows mean. Where no query can run, a user is a member of no role.

use std::collections::BTreeSet;

use messages::{ServerQuery, ServerQueryRow};
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::auth_query::{AuthQueries, lookup};
use crate::client::login::Purpose;
use crate::core::Core;
use crate::effects::Effect;
use crate::link::client_end;

/// The user's own role and all that it is a member of, however indirect (PostgreSQL's `is_member_of_role_nosuper`: being
/// a superuser makes no membership).
const ROLES: &str = "WITH RECURSIVE held(oid) AS (\
    SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) $1 \
    UNION SELECT roleid FROM pg_catalog.pg_auth_members JOIN held ON member OPERATOR(pg_catalog.=) held.oid) \
    SELECT rolname FROM pg_catalog.pg_roles AS role JOIN held ON role.oid OPERATOR(pg_catalog.=) held.oid";

impl AuthQueries {
    /// A rule hangs on the roles of this client's user.
    pub(crate) fn query_roles(&mut self, core: &mut Core, conn: ConnId) {
        let Some(startup_request) = lookup::startup_request_of(core, conn) else { return };
        match lookup::auth_query_for(core, &startup_request) {
            Ok(Some(query)) if core.administration.is_disabled(&query.database) => {
                let text = format!("authentication database \"{}\" is disabled", query.database);
                client_end::fail_client(core, conn, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, &text);
            }
            Ok(Some(query)) => {
                self.request_query(
                    core,
                    conn,
                    ServerQuery { sql: ROLES.to_owned(), ..query },
                    Purpose::Roles,
                );
            }
            Ok(None) => {
                let text = "no auth_user to ask for roles by: the user counts as a member of none";
                core.log_client(conn, Level::Warning, text);
                core.effects.push(Effect::RolesKnown(conn, BTreeSet::new()));
            }
            Err(fault) => self.lookup_fault(core, conn, &fault),
        }
    }

    /// The server has answered.
    pub(crate) fn roles_found(&mut self, core: &mut Core, conn: ConnId, rows: &[ServerQueryRow]) {
        core.effects.push(Effect::RolesKnown(conn, roles(rows)));
    }
}

/// The names in the one column. A name that is not UTF-8 is no name of a rule either.
fn roles(rows: &[ServerQueryRow]) -> BTreeSet<String> {
    let name = |row: &ServerQueryRow| String::from_utf8(row.first()?.clone()?).ok();
    rows.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_text_count() {
        let rows = [vec![Some(b"alice".to_vec())], vec![None], vec![], vec![Some(vec![0xff])]];
        assert_eq!(roles(&rows), BTreeSet::from(["alice".to_owned()]));
    }
}
