//! The statements that SQL has prepared in a session under the client's own names, as PostgreSQL's catalog shows them, and what prepares
//! them on another server.
//!
//! Owns which of them can follow their client: PREPARE's own text is sent again, under the settings that it was read by. Those that the
//! protocol has prepared under shared names are [`crate::prepared`]'s.

use std::sync::Arc;

use crate::statement_text::has_clock_literal;

/// How many statements of one session are followed; with more, or with texts of more than 32 KiB together, it keeps the server that has them.
pub(crate) const MOST: usize = 200;

/// The settings that a PREPARE is read by: their values, in an order that is always the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBy(Arc<[Option<Arc<str>>]>);

impl ReadBy {
    pub(crate) fn new(values: impl Iterator<Item = Option<Arc<str>>>) -> ReadBy {
        ReadBy(values.collect())
    }
}

/// One of them.
#[derive(Clone, Debug)]
struct SqlStatement {
    name: Box<str>,
    /// Its PREPARE; None if only the server has it that prepared it.
    text: Option<Arc<str>>,
    read_by: ReadBy,
    /// No other statement has it: one that another client has prepared from the same text is another, and may be older than a change of
    /// its tables.
    number: u64,
}

impl PartialEq for SqlStatement {
    fn eq(&self, other: &SqlStatement) -> bool {
        self.number == other.number && self.name == other.name
    }
}

impl Eq for SqlStatement {}

/// All of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlStatements {
    list: Option<Arc<[SqlStatement]>>,
}

/// A row of the catalog: the name of a statement, and the text if it can be prepared again.
pub(crate) type Found = (String, Option<String>);

/// What gives a server a client's statements.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Query strings, each to be run by itself.
    pub(crate) queries: Vec<String>,
    /// Which statement each of them prepares, if it prepares one.
    pub(crate) prepares: Vec<Option<Box<str>>>,
}

impl SqlStatements {
    fn iter(&self) -> impl Iterator<Item = &SqlStatement> {
        self.list.iter().flat_map(|list| list.iter())
    }

    fn of(list: Vec<SqlStatement>) -> SqlStatements {
        SqlStatements { list: (!list.is_empty()).then(|| list.into()) }
    }

    /// There are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_none()
    }

    /// There are more than the limit.
    pub(crate) fn is_more_than(&self, most: usize) -> bool {
        self.list.as_ref().is_some_and(|list| list.len() > most)
    }

    /// One has this name.
    #[must_use]
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.iter().any(|statement| statement.name.as_bytes() == name)
    }

    /// What the catalog shows of a session that had `self`. A statement is another one than before if its text is, or if it may have been
    /// prepared anew since.
    pub(crate) fn found(
        &self,
        rows: Vec<Found>,
        was_prepared: impl Fn(&str) -> bool,
        read_by: &ReadBy,
        mut next_number: impl FnMut() -> u64,
    ) -> SqlStatements {
        let mut list = Vec::with_capacity(rows.len());
        for (name, text) in rows {
            let known = self.iter().find(|known| *known.name == *name).filter(|_| !was_prepared(&name));
            let is_same =
                |known: &&SqlStatement| known.text.is_none() || known.text.as_deref() == text.as_deref();
            if let Some(before) = known.filter(is_same) {
                list.push(before.clone());
                continue;
            }
            let text = text.filter(|text| can_be_repeated(text, &name)).map(Arc::from);
            let (name, read_by, number) = (name.into(), read_by.clone(), next_number());
            list.push(SqlStatement { name, text, read_by, number });
        }
        SqlStatements::of(list)
    }

    /// All of them can be prepared on another server, with these settings.
    pub(crate) fn can_follow(&self, now: &ReadBy) -> bool {
        self.iter().all(|statement| statement.text.is_some() && statement.read_by == *now)
    }

    /// What gives a server with `now` these.
    pub(crate) fn difference(&self, now: &SqlStatements) -> Difference {
        let mut difference = Difference::default();
        let gone = now.iter().filter(|old| !self.iter().any(|own| own == *old));
        let deallocations: String = gone.map(|old| format!("DEALLOCATE {};", quoted(&old.name))).collect();
        if !deallocations.is_empty() {
            difference.push(deallocations, None);
        }
        for own in self.iter().filter(|own| !now.iter().any(|old| old == *own)) {
            if let Some(text) = &own.text {
                difference.push(text.to_string(), Some(own.name.clone()));
            }
        }
        difference
    }

    /// These, but for those of these names.
    pub(crate) fn without(&self, names: &[Box<str>]) -> SqlStatements {
        if names.is_empty() {
            return self.clone();
        }
        SqlStatements::of(self.iter().filter(|known| !names.contains(&known.name)).cloned().collect())
    }

    /// These and, of `others`, those of these names that are not among them.
    pub(crate) fn with(&self, others: &SqlStatements, names: &[Box<str>]) -> SqlStatements {
        let lacking =
            others.iter().filter(|other| names.contains(&other.name) && !self.has(other.name.as_bytes()));
        let lacking: Vec<SqlStatement> = lacking.cloned().collect();
        if lacking.is_empty() {
            return self.clone();
        }
        SqlStatements::of(self.iter().cloned().chain(lacking).collect())
    }

    /// Number, name and text of each, for another process; without a text if it cannot follow its client.
    pub fn export(&self, now: &ReadBy) -> impl Iterator<Item = (u64, &str, Option<&str>)> {
        self.iter().map(move |statement| {
            let text = statement.text.as_deref().filter(|_| statement.read_by == *now);
            (statement.number, &*statement.name, text)
        })
    }

    /// Those of another process, of a session with these settings.
    #[must_use]
    pub fn import(
        statements: impl IntoIterator<Item = (u64, String, Option<String>)>,
        now: &ReadBy,
    ) -> SqlStatements {
        let list = statements.into_iter().map(|(number, name, text)| SqlStatement {
            name: name.into(),
            text: text.map(Arc::from),
            read_by: now.clone(),
            number,
        });
        SqlStatements::of(list.collect())
    }
}

impl Difference {
    fn push(&mut self, query: String, prepares: Option<Box<str>>) {
        self.queries.push(query);
        self.prepares.push(prepares);
    }
}

/// Sent again, the text prepares what it has prepared: nothing else is in it, and nothing of the time of its PREPARE.
fn can_be_repeated(text: &str, name: &str) -> bool {
    !text.contains('\0') && !has_clock_literal(text.as_bytes()) && sql::is_prepare_of(text.as_bytes(), name)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The query for the rows of [`Found`]: those that Weir has prepared under its own names are not among them.
pub(crate) const QUERY: &str = "(SELECT 'p',pg_catalog.encode(pg_catalog.convert_to(name,'UTF8'),'hex'),\
     CASE WHEN from_sql AND pg_catalog.sum(pg_catalog.octet_length(statement)) OVER () OPERATOR(pg_catalog.<=) 32768 \
     THEN pg_catalog.encode(pg_catalog.convert_to(statement,'UTF8'),'hex') ELSE '' END \
     FROM pg_catalog.pg_prepared_statements \
     WHERE from_sql OR pg_catalog.left(name,10) OPERATOR(pg_catalog.<>) 'PGBOUNCER_'::pg_catalog.text LIMIT 201)";

#[cfg(test)]
mod tests {
    use super::*;

    struct Session {
        read_by: ReadBy,
        statements: SqlStatements,
        last: u64,
    }

    impl Session {
        fn new() -> Session {
            let read_by = ReadBy::new([None].into_iter());
            Session { read_by, statements: SqlStatements::default(), last: 0 }
        }

        /// The catalog shows these, each with its PREPARE; these were prepared.
        fn shows(&mut self, rows: &[(&str, &str)], prepared: &[&str]) -> &SqlStatements {
            let rows =
                rows.iter().map(|(name, text)| ((*name).to_owned(), Some((*text).to_owned()))).collect();
            let last = &mut self.last;
            let was_prepared = |name: &str| prepared.contains(&name);
            self.statements = self.statements.found(rows, was_prepared, &self.read_by, || {
                *last += 1;
                *last
            });
            &self.statements
        }

        fn can_follow(&self) -> bool {
            self.statements.can_follow(&self.read_by)
        }
    }

    const A: (&str, &str) = ("a", "PREPARE a AS SELECT 1");
    const B: (&str, &str) = ("b", "prepare b(int) as select $1;");

    #[test]
    fn a_server_gets_what_differs() {
        let (mut one, mut other) = (Session::new(), Session::new());
        let own = one.shows(&[A, B], &["a", "b"]).clone();
        let now = own.without(&["b".into()]);
        assert_eq!(own.difference(&now).queries, [B.1]);
        assert_eq!(own.difference(&own), Difference::default());
        other.last = 7;
        let others = other.shows(&[A], &["a"]);
        let difference = own.difference(others);
        assert_eq!(
            difference.queries,
            ["DEALLOCATE \"a\";", A.1, B.1],
            "the same text of another client is another statement"
        );
        assert_eq!(difference.prepares, [None, Some("a".into()), Some("b".into())]);
        assert_eq!(SqlStatements::default().difference(&own).queries, ["DEALLOCATE \"a\";DEALLOCATE \"b\";"]);
        assert_eq!(now.with(&own, &["b".into()]), own);
    }

    #[test]
    fn one_that_was_prepared_anew_is_another() {
        let mut session = Session::new();
        let first = session.shows(&[A], &["a"]).clone();
        let both = session.shows(&[A, B], &["b"]).clone();
        assert_eq!(both.without(&["b".into()]), first);
        assert_ne!(session.shows(&[A], &["a"]).iter().next(), first.iter().next());
        assert!(session.shows(&[], &[]).is_empty());
    }

    #[test]
    fn what_cannot_be_repeated_keeps_its_client() {
        for (text, follows) in [
            (A.1, true),
            ("select 1; prepare a as select 1", false),
            ("prepare a as select 'now'::timestamptz", false),
            ("", false),
        ] {
            let mut session = Session::new();
            session.shows(&[("a", text)], &["a"]);
            assert_eq!(session.can_follow(), follows, "{text}");
        }
    }

    #[test]
    fn other_settings_than_it_was_read_by_keep_its_client() {
        let mut session = Session::new();
        session.shows(&[A], &["a"]);
        session.read_by = ReadBy::new([Some(Arc::from("ISO, DMY"))].into_iter());
        assert!(!session.can_follow());
        session.shows(&[A, B], &["b"]);
        assert!(!session.can_follow(), "the older one was read by others");
        session.shows(&[B], &[]);
        assert!(session.can_follow());
    }

    #[test]
    fn another_process_has_the_same() {
        let mut session = Session::new();
        session.shows(&[A, B, ("c", "")], &["a", "b", "c"]);
        let moved = session.statements.export(&session.read_by);
        let moved = moved.map(|(number, name, text)| (number, name.to_owned(), text.map(str::to_owned)));
        let moved = SqlStatements::import(moved.collect::<Vec<_>>(), &session.read_by);
        assert!(moved == session.statements && !moved.can_follow(&session.read_by));
    }
}
