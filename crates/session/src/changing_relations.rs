//! Tables and views whose use may change the session (`session_state = virtual`): by triggers, rules, defaults and policies that call functions; also
//! functions that do so and that a text may call as if they were columns.
//!
//! Owns the query that asks PostgreSQL's catalog for them, and whether a text names one. What functions change that a text calls with
//! parentheses is the `sql` crate's.

use std::collections::HashSet;

use crate::internal_result::Row;

/// More of them are not told apart: any text may name one.
const MAX_RELATIONS: usize = 4000;

/// PostgreSQL's NAMEDATALEN less its end.
const NAME_BYTES: usize = 63;

/// Precedes [`query`] in its transaction: with JIT, compiling it takes much longer than running it. It locks the views and tables that functions
/// with parsed bodies name, and gives up before PostgreSQL looks for a deadlock: a client that is changing the schema goes first.
pub const BEFORE_QUERY: &str = "SET LOCAL jit = off; SET LOCAL lock_timeout = '100ms'";

/// The names of these tables, views and functions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangingRelations {
    /// In lower case, of ASCII letters, digits and `_`.
    plain: HashSet<Box<[u8]>>,
    /// Others are in the text if their bytes are.
    others: Vec<Box<[u8]>>,
    /// Any text may name one.
    is_any: bool,
}

/// Words in the code of a function that may change the session, or that hide what it runs.
const CHANGING_WORDS: &str = r"\m(set_config|setseed|pg_(try_)?advisory_(un)?lock\w*|dblink\w*|query_to_xml\w*|cursor_to_xml|execute|call|listen|unlisten|load|discard|prepare|deallocate|temp|temporary|pg_temp\w*|hold)\M|(^|;|>>|\m(begin|then|else|loop|atomic)\M)\s*(set|reset)\M";

/// The query for their names. A function changes the session if its code shows that it may, or cannot be read and is volatile, or names a
/// function or a relation that does; a relation does if its triggers, rules, defaults, checks or policies do, or those of its partitions, of the views below it or of
/// tables that refer to it.
#[must_use]
pub fn query() -> String {
    const CODE: &str = "SELECT p.oid,pg_catalog.lower(p.proname::pg_catalog.text COLLATE \"C\"),\
        l.lanname OPERATOR(pg_catalog.=) ANY(ARRAY['sql','plpgsql']::pg_catalog.name[]),\
        l.lanname OPERATOR(pg_catalog.=) ANY(ARRAY['internal','c']::pg_catalog.name[]) AND p.provolatile OPERATOR(pg_catalog.<>) 'v',\
        pg_catalog.lower(CASE WHEN p.prosrc OPERATOR(pg_catalog.=) '' THEN pg_catalog.pg_get_functiondef(p.oid) ELSE p.prosrc END) \
        FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang \
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
        WHERE n.nspname OPERATOR(pg_catalog.<>) ALL(ARRAY['pg_catalog','information_schema']::pg_catalog.name[]) \
        AND p.prokind OPERATOR(pg_catalog.<>) 'a'";
    /// What each use of a function or relation by another relation is found by: its part of pg_depend, and that catalog's relation.
    const USES: &str = "SELECT 'f',tgfoid,tgrelid FROM pg_catalog.pg_trigger WHERE NOT tgisinternal \
        UNION ALL SELECT CASE WHEN d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass THEN 'f' ELSE 'r' END,d.refobjid,r.ev_class \
        FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND r.oid OPERATOR(pg_catalog.=) d.objid \
        WHERE d.refobjid OPERATOR(pg_catalog.<>) r.ev_class \
        UNION ALL SELECT 'f',d.refobjid,a.adrelid FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_attrdef a \
        ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND a.oid OPERATOR(pg_catalog.=) d.objid \
        UNION ALL SELECT 'f',d.refobjid,c.conrelid FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_constraint c \
        ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_constraint'::pg_catalog.regclass AND c.oid OPERATOR(pg_catalog.=) d.objid \
        UNION ALL SELECT 'f',d.refobjid,o.polrelid FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_policy o \
        ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_policy'::pg_catalog.regclass AND o.oid OPERATOR(pg_catalog.=) d.objid \
        UNION ALL SELECT 'r',inhrelid,inhparent FROM pg_catalog.pg_inherits \
        UNION ALL SELECT 'r',conrelid,confrelid FROM pg_catalog.pg_constraint WHERE contype OPERATOR(pg_catalog.=) 'f'";
    /// PostgreSQL's own functions leave no trace in pg_depend: what calls them is looked at, as it is stored. To deparse it would lock tables and
    /// views, and a client's LOCK TABLE … NOWAIT or schema change would meet that.
    const TREES: &str = "SELECT ev_class,pg_catalog.concat(ev_qual,ev_action) FROM pg_catalog.pg_rewrite WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid \
        UNION ALL SELECT adrelid,adbin::pg_catalog.text FROM pg_catalog.pg_attrdef \
        UNION ALL SELECT polrelid,pg_catalog.concat(polqual,polwithcheck) FROM pg_catalog.pg_policy";
    /// A call of one of them there.
    const CALL: &str = "SELECT pg_catalog.concat(':funcid (',pg_catalog.string_agg(oid::pg_catalog.text,'|'),') ') FROM pg_catalog.pg_proc \
        WHERE oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid \
        AND proname OPERATOR(pg_catalog.~) '^(set_config|setseed|pg_(try_)?advisory_(un)?lock)'";
    /// Its rule for UPDATE sets parameters. The `sql` crate tells texts that update it by name; this is for the views above it.
    const SETTINGS: &str = "'pg_catalog.pg_settings'::pg_catalog.regclass::pg_catalog.oid";
    /// It may be called without parentheses, as if it were a column (PostgreSQL: SQL Functions on Composite Types).
    const AS_COLUMN: &str = "SELECT FROM pg_catalog.pg_proc p WHERE p.oid OPERATOR(pg_catalog.=) c.oid AND p.pronargs OPERATOR(pg_catalog.>) 0 \
        AND p.pronargs OPERATOR(pg_catalog.-) p.pronargdefaults OPERATOR(pg_catalog.<=) 1 AND p.prokind OPERATOR(pg_catalog.<>) 'p'";
    format!(
        "WITH RECURSIVE code(oid,name,is_read,is_pure,body) AS MATERIALIZED({CODE}),\
         uses(kind,used,relation) AS MATERIALIZED({USES}),trees(relation,tree) AS MATERIALIZED({TREES}),\
         changing(kind,oid,name) AS((SELECT 'f',oid,name FROM code WHERE NOT is_pure AND (NOT is_read OR \
         pg_catalog.regexp_replace(body,'/[*].*?[*]/|--[^\\n]*',' ','g') OPERATOR(pg_catalog.~) '{CHANGING_WORDS}') \
         UNION ALL SELECT 'r',k.oid,pg_catalog.lower(k.relname::pg_catalog.text COLLATE \"C\") FROM trees t JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) t.relation \
         WHERE t.tree OPERATOR(pg_catalog.~) ({CALL}) \
         UNION ALL SELECT 'r',{SETTINGS},'pg_settings') \
         UNION SELECT x.kind,x.oid,x.name FROM changing b,LATERAL(SELECT 'f' AS kind,c.oid,c.name FROM code c \
         WHERE c.is_read AND pg_catalog.strpos(c.body,b.name) OPERATOR(pg_catalog.>) 0 \
         UNION ALL SELECT 'r',u.relation,pg_catalog.lower(k.relname::pg_catalog.text COLLATE \"C\") FROM uses u JOIN pg_catalog.pg_class k ON k.oid OPERATOR(pg_catalog.=) u.relation \
         WHERE u.kind OPERATOR(pg_catalog.=) b.kind AND u.used OPERATOR(pg_catalog.=) b.oid) x) \
         SELECT DISTINCT pg_catalog.encode(pg_catalog.convert_to(name,'UTF8'),'hex') FROM changing c \
         WHERE kind OPERATOR(pg_catalog.=) 'r' AND oid OPERATOR(pg_catalog.<>) {SETTINGS} \
         OR kind OPERATOR(pg_catalog.=) 'f' AND EXISTS({AS_COLUMN}) LIMIT {}",
        MAX_RELATIONS + 1
    )
}

impl ChangingRelations {
    /// Any text may name one: it is not known yet which there are.
    #[must_use]
    pub fn any() -> ChangingRelations {
        ChangingRelations { is_any: true, ..ChangingRelations::default() }
    }

    /// Reads the answer to [`query`]. None if there are no such relations.
    #[must_use]
    pub fn read(rows: Vec<Row>) -> Option<ChangingRelations> {
        let mut found =
            ChangingRelations { is_any: rows.len() > MAX_RELATIONS, ..ChangingRelations::default() };
        for row in &rows {
            match row.first().and_then(Option::as_deref).and_then(crate::reported::from_hex) {
                Some(name) if name.iter().all(is_part_of_name) => drop(found.plain.insert(name.into())),
                Some(name) => found.others.push(name.into()),
                None => found.is_any = true,
            }
        }
        (!rows.is_empty()).then_some(found)
    }

    /// This text, up to a NUL, may name one of them. Words in strings and comments count, too.
    #[must_use]
    pub fn are_named(&self, text: &[u8]) -> bool {
        if self.is_any {
            return true;
        }
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        // Names with escapes: U&"...".
        let has_escapes = || text.windows(2).any(|pair| pair == b"&\"");
        text.split(|byte| !is_part_of_name(byte)).any(|word| self.has_plain(word))
            || has_escapes()
            || !self.others.is_empty() && self.has_other(text)
    }

    /// This word is a name of a relation. PostgreSQL cuts longer names.
    fn has_plain(&self, word: &[u8]) -> bool {
        let word = &word[..word.len().min(NAME_BYTES)];
        let mut lower = [0; NAME_BYTES];
        lower[..word.len()].copy_from_slice(word);
        lower.make_ascii_lowercase();
        self.plain.contains(&lower[..word.len()])
    }

    /// One of the other names stands in the text, or may stand there in another encoding.
    fn has_other(&self, text: &[u8]) -> bool {
        let lower = text.to_ascii_lowercase();
        let stands_there = |name: &[u8]| lower.windows(name.len()).any(|part| part == name);
        self.others.iter().any(|name| stands_there(name)) || std::str::from_utf8(text).is_err()
    }
}

fn is_part_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relations(names: &[&str]) -> Option<ChangingRelations> {
        let hex = |name: &&str| name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        ChangingRelations::read(names.iter().map(|name| vec![Some(hex(name).into_bytes())]).collect())
    }

    #[test]
    fn a_text_names_a_relation_in_whatever_case_and_quotes() {
        let relations = relations(&["audited", "odd name", "\u{fc}ber"]).expect("three");
        for text in [
            "insert into Audited values (1)",
            "select * from x.\"audited\"\0",
            "update \"Odd Name\" set a = 1",
            "table \u{fc}ber",
            "select * from U&\"\\0061udited\"",
            "select '\u{e4}' from \u{fc}ber",
        ] {
            assert!(relations.are_named(text.as_bytes()), "{text}");
        }
        for text in ["select * from audited_not", "select 1", "select 1\0audited", "table uber"] {
            assert!(!relations.are_named(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_longer_name_is_cut_as_postgresql_cuts_it() {
        let name = "a".repeat(NAME_BYTES);
        let relations = relations(&[&name]).expect("one");
        assert!(relations.are_named(format!("table {name}b").as_bytes()));
        assert!(!relations.are_named(format!("table {}", &name[1..]).as_bytes()));
    }

    /// The planner may otherwise put them into the inner side of a join with pg_class, and read each rule once per table.
    #[test]
    fn what_the_catalog_has_is_read_once() {
        let query = query();
        for name in
            ["code(oid,name,is_read,is_pure,body)", "uses(kind,used,relation)", "trees(relation,tree)"]
        {
            assert!(query.contains(&format!("{name} AS MATERIALIZED(")), "{name}");
        }
    }

    #[test]
    fn none_is_none_and_too_many_are_any() {
        assert_eq!(relations(&[]), None);
        let many: Vec<String> = (0..=MAX_RELATIONS).map(|number| format!("r{number}")).collect();
        let many = relations(&many.iter().map(String::as_str).collect::<Vec<_>>()).expect("many");
        assert!(many.are_named(b"select 1"));
        assert!(ChangingRelations::read(vec![vec![None]]).expect("no name").are_named(b"select 1"));
    }
}
