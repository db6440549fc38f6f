//! The questions as PostgreSQL gets them, and what its answers say. Each is bounded in time and in rows.

use std::collections::{BTreeMap, BTreeSet};

use pgclient::{Account, Connection, Failure, Place, Refusal, System};
use quota::RoleQuestion;
use tls::TlsConfig;

use crate::plan::Ask;

/// Names are those of pg_catalog, nothing is written, and nothing waits for long: neither for a lock nor for a large catalog.
const SESSION: &str = "SET search_path = pg_catalog, pg_temp; SET default_transaction_read_only = on; \
    SET standard_conforming_strings = on; SET statement_timeout = '10s'; SET lock_timeout = '2s'; SET jit = off";

const SIZE: &str = "SELECT pg_database_size(current_database())";

/// Roles of which more rows are not read.
const MOST_ROWS: usize = 100_000;

/// Tables and materialized views with their indexes and TOAST, and sequences, by their owners.
const OWNERS: &str = "SELECT pg_get_userbyid(relowner), sum(coalesce(pg_total_relation_size(oid), 0)) \
    FROM pg_class WHERE relkind IN ('r', 'm', 'S') GROUP BY 1 LIMIT 100000";

/// What a database has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) size: Option<u64>,
    pub(crate) owners: Option<BTreeMap<String, u64>>,
    /// None of a role that does not exist.
    pub(crate) members: BTreeMap<RoleQuestion, Option<BTreeSet<Box<str>>>>,
    /// Questions that were not answered, while others were.
    pub(crate) unanswered: Vec<String>,
}

/// Asks one server everything. What it refuses to say of sizes does not keep the members of roles from being known.
///
/// # Errors
/// It cannot be asked.
pub(crate) async fn ask(
    ask: &Ask,
    account: &Account,
    place: &Place,
    tls: &TlsConfig,
    system: System,
) -> Result<Answer, String> {
    let explain = |failure: Failure| explained(&failure, account);
    let mut connection = Connection::open(account, place, tls, (system, false)).await.map_err(explain)?;
    connection.ask(SESSION).await.map_err(explain)?;
    let mut answer = Answer::default();
    for role in &ask.roles {
        let rows = connection.ask(&members_of(&role.question.role)).await.map_err(explain)?;
        if rows.len() >= MOST_ROWS {
            answer
                .unanswered
                .push(format!("{}: role {} has too many members", role.line, role.question.role));
            continue;
        }
        let is_name = |name: &String| !name.is_empty() && !name.contains(char::is_control);
        let names: BTreeSet<Box<str>> =
            rows.iter().filter_map(|row| text(row, 0)).filter(is_name).map(String::into_boxed_str).collect();
        answer.members.insert(role.question.clone(), (!rows.is_empty()).then_some(names));
    }
    if ask.size {
        match connection.ask(SIZE).await {
            Ok(rows) => answer.size = rows.first().and_then(|row| number(row, 0)),
            Err(Failure::Refused(refusal)) => answer.unanswered.push(unanswered("its size", &refusal)),
            Err(failure) => return Err(explain(failure)),
        }
    }
    if ask.owners {
        match connection.ask(OWNERS).await {
            Ok(rows) => {
                let owned = rows.iter().filter_map(|row| Some((text(row, 0)?, number(row, 1)?)));
                answer.owners = Some(owned.collect());
            }
            Err(Failure::Refused(refusal)) => {
                answer.unanswered.push(unanswered("what users own in it", &refusal));
            }
            Err(failure) => return Err(explain(failure)),
        }
    }
    Ok(answer)
}

fn unanswered(what: &str, refusal: &Refusal) -> String {
    format!("{what} is not known: {} ({}); what was known before stays", refusal.message, refusal.code)
}

fn text(row: &[Option<Vec<u8>>], column: usize) -> Option<String> {
    String::from_utf8(row.get(column)?.clone()?).ok()
}

fn number(row: &[Option<Vec<u8>>], column: usize) -> Option<u64> {
    text(row, column)?.parse().ok()
}

/// The role itself and all its members, direct and indirect; no row if there is no such role.
fn members_of(role: &str) -> String {
    let role = role.replace('\'', "''");
    format!(
        "WITH RECURSIVE member(oid) AS (SELECT oid FROM pg_roles WHERE rolname = '{role}' \
         UNION SELECT a.member FROM pg_auth_members a JOIN member m ON a.roleid = m.oid) \
         SELECT r.rolname FROM pg_roles r JOIN member m ON r.oid = m.oid LIMIT {MOST_ROWS}"
    )
}

/// The words for the log.
fn explained(failure: &Failure, account: &Account) -> String {
    let advice = match failure {
        Failure::Refused(Refusal { code, .. }) => match code.as_str() {
            "28P01" | "28000" => {
                format!("; check the password of \"{}\" in auth_file, and pg_hba.conf", account.user)
            }
            "42501" => format!("; GRANT CONNECT to \"{}\"", account.user),
            "53300" => "; raise max_connections".to_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    format!("{failure}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_string() {
        assert!(members_of("a' OR true --\\").contains("rolname = 'a'' OR true --\\'"));
    }
}
