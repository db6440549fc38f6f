//! The questions as PostgreSQL gets them, and what its answers say. Each is bounded in time and in rows.

use std::collections::{BTreeMap, BTreeSet};

use pgclient::question::{SESSION, literal, number, text};
use pgclient::{Account, Connection, Failure, Place, Refusal, Row, System};
use quota::RoleQuestion;
use tls::TlsConfig;

use crate::plan::Ask;

const SIZE: &str = "SELECT pg_database_size(current_database())";

/// A SQLSTATE.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Roles of which more rows are not read.
const MOST_ROWS: usize = 100_000;

/// Tables and materialized views with their indexes and TOAST, and sequences, by their owners.
const OWNERS: &str = "SELECT pg_get_userbyid(relowner), sum(coalesce(pg_total_relation_size(oid), 0)) \
    FROM pg_class WHERE relkind IN ('r', 'm', 'S') GROUP BY 1 LIMIT 100000";

/// The temporary files of sessions of this database by their users. A file has the process id in its name, a parallel worker's its own. `pg_global` has no directory of its own.
const TEMP_FILES: &str = "SELECT usename, sum(size) FROM pg_tablespace t CROSS JOIN LATERAL pg_ls_tmpdir(t.oid) f \
    JOIN pg_stat_activity a ON a.pid = substring(f.name FROM '^pgsql_tmp([0-9]{1,9})[.]')::int \
    WHERE t.spcname <> 'pg_global' AND a.datname = current_database() AND usename IS NOT NULL GROUP BY 1 LIMIT 100000";

/// Whether this user may look into directories, as `pg_ls_tmpdir` does not.
const MAY_LIST: &str = "SELECT 1 WHERE has_function_privilege('pg_ls_dir(text, boolean, boolean)', 'EXECUTE') \
    AND has_function_privilege('pg_stat_file(text, boolean)', 'EXECUTE')";

/// The same of files that the processes of a parallel query share, in a directory for each set of them.
const SHARED_TEMP_FILES: &str = "SELECT usename, sum(s.size) FROM (\
        SELECT 'base/pgsql_tmp' AS dir UNION ALL \
        SELECT 'pg_tblspc/' || t.oid || '/' || v || '/pgsql_tmp' FROM pg_tablespace t \
        CROSS JOIN LATERAL pg_ls_dir('pg_tblspc/' || t.oid, true, false) v \
        WHERE t.spcname NOT IN ('pg_default', 'pg_global') \
        AND v LIKE 'PG\\_' || current_setting('server_version_num')::int / 10000 || '\\_%'\
    ) d CROSS JOIN LATERAL pg_ls_dir(dir, true, false) sets \
    CROSS JOIN LATERAL pg_ls_dir(dir || '/' || sets, true, false) f \
    CROSS JOIN LATERAL pg_stat_file(dir || '/' || sets || '/' || f, true) s \
    JOIN pg_stat_activity a ON a.pid = substring(sets FROM '^pgsql_tmp([0-9]{1,9})[.]')::int \
    WHERE sets ~ '^pgsql_tmp[0-9]{1,9}[.][0-9]+[.](shared)?fileset$' AND NOT s.isdir \
    AND a.datname = current_database() AND usename IS NOT NULL GROUP BY 1 LIMIT 100000";

/// What a database has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) size: Option<u64>,
    pub(crate) owners: Option<BTreeMap<String, u64>>,
    /// Bytes of temporary files by users.
    pub(crate) temp_files: Option<BTreeMap<String, u64>>,
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
    let explain = |failure: Failure| failure.explained(account);
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
            Err(Failure::Refused(refusal)) => answer.unanswered.push(unanswered("its size is", &refusal)),
            Err(failure) => return Err(explain(failure)),
        }
    }
    if ask.owners {
        match connection.ask(OWNERS).await {
            Ok(rows) => answer.owners = Some(by_user(&rows)),
            Err(Failure::Refused(refusal)) => {
                answer.unanswered.push(unanswered("what users own in it is", &refusal));
            }
            Err(failure) => return Err(explain(failure)),
        }
    }
    if ask.temp_files {
        match temp_files(&mut connection).await {
            Ok(files) => answer.temp_files = Some(files),
            Err(Failure::Refused(refusal)) => {
                let advice = match refusal.code.as_str() {
                    INSUFFICIENT_PRIVILEGE => format!("; GRANT pg_monitor TO \"{}\"", account.user),
                    _ => String::new(),
                };
                answer.unanswered.push(unanswered("its temporary files are", &refusal) + &advice);
            }
            Err(failure) => return Err(explain(failure)),
        }
    }
    Ok(answer)
}

/// Bytes by users.
async fn temp_files(connection: &mut Connection) -> Result<BTreeMap<String, u64>, Failure> {
    let mut files = by_user(&connection.ask(TEMP_FILES).await?);
    if !connection.ask(MAY_LIST).await?.is_empty() {
        for (user, bytes) in by_user(&connection.ask(SHARED_TEMP_FILES).await?) {
            *files.entry(user).or_insert(0) += bytes;
        }
    }
    Ok(files)
}

fn by_user(rows: &[Row]) -> BTreeMap<String, u64> {
    rows.iter().filter_map(|row| Some((text(row, 0)?, number(row, 1)?))).collect()
}

fn unanswered(what: &str, refusal: &Refusal) -> String {
    format!("{what} not known: {} ({}); what was known before stays", refusal.message, refusal.code)
}

/// The role itself and all its members, direct and indirect; no row if there is no such role.
fn members_of(role: &str) -> String {
    let role = literal(role);
    format!(
        "WITH RECURSIVE member(oid) AS (SELECT oid FROM pg_roles WHERE rolname = {role} \
         UNION SELECT a.member FROM pg_auth_members a JOIN member m ON a.roleid = m.oid) \
         SELECT r.rolname FROM pg_roles r JOIN member m ON r.oid = m.oid LIMIT {MOST_ROWS}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_string() {
        assert!(members_of("a' OR true --\\").contains("rolname = 'a'' OR true --\\'"));
    }
}
