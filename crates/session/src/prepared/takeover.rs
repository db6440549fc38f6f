//! Statements that come from another process (`-R`), and what is sent of each.
//!
//! Owns how a scope is written. A statement keeps its number, because that is its name on the servers.

use super::{Scope, StatementId, StatementRegistry};
use crate::parse_settings::Catalog;
use crate::{Description, Tracked};

/// What another process sends of a statement.
#[derive(Clone, Debug)]
pub struct ImportedStatement {
    /// Which clients it may serve.
    pub scope: Scope,
    /// No client is to get it that has not got it.
    pub retired: bool,
    /// What its clients may read and write by.
    pub description: Option<Description>,
}

impl Default for ImportedStatement {
    fn default() -> ImportedStatement {
        ImportedStatement { scope: Scope::Unknown, retired: false, description: None }
    }
}

impl StatementRegistry {
    /// Numbers statements from here on, so that no other shard and no earlier process has used a number.
    pub fn number_from(&mut self, base: StatementId) {
        self.last_id = self.last_id.max(base);
    }

    /// A client or server that came from another process has this statement under this number. The number that it has here.
    pub fn import(&mut self, id: StatementId, rest: &[u8], imported: ImportedStatement) -> StatementId {
        if self.by_id.contains_key(&id) {
            return id;
        }
        if let (Scope::Shared(settings), false) = (&imported.scope, imported.retired)
            && let Some(known) = self.find(rest, settings)
            && (self.description(known) == imported.description.as_ref() || imported.description.is_none())
        {
            return known;
        }
        self.insert_as(id, rest, imported.scope);
        if let Some(statement) = self.by_id.get_mut(&id) {
            statement.description = imported.description;
        }
        if imported.retired {
            self.unpublish(id);
            self.retired.insert(id);
        }
        id
    }

    /// Its scope, as another process reads it with [`StatementRegistry::read_scope`]. An older one takes that of a retired statement for
    /// unknown.
    #[must_use]
    pub fn write_scope(&self, id: StatementId, tracked: &Tracked) -> Vec<u8> {
        let shared = if self.is_retired(id) { b"r" } else { b"s" };
        match self.by_id.get(&id).map(|statement| &statement.scope) {
            Some(Scope::Shared(settings)) => [shared, &self.settings.write(settings, tracked)[..]].concat(),
            Some(Scope::Private) => b"p".to_vec(),
            Some(Scope::Unknown) | None => Vec::new(),
        }
    }

    /// A scope that another process has written, of a statement of this pool.
    pub fn read_scope(&mut self, bytes: &[u8], tracked: &Tracked, catalog: Catalog) -> ImportedStatement {
        let scope = match bytes {
            [b's' | b'r', settings @ ..] => {
                self.settings.read(settings, tracked, catalog).map_or(Scope::Unknown, Scope::Shared)
            }
            b"p" => Scope::Private,
            _ => Scope::Unknown,
        };
        ImportedStatement { scope, retired: bytes.first() == Some(&b'r'), description: None }
    }

    /// Its description, as [`Description::from_bytes`] reads it; empty if it is not known.
    #[must_use]
    pub fn write_description(&self, id: StatementId) -> Vec<u8> {
        self.description(id).map(Description::to_bytes).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Parameters;

    fn shared(settings: &crate::ParseSettings) -> ImportedStatement {
        ImportedStatement { scope: Scope::Shared(settings.clone()), ..ImportedStatement::default() }
    }

    #[test]
    fn what_another_process_prepared_keeps_its_number() {
        let tracked = Tracked::new([]);
        let mut registry = StatementRegistry::new(&tracked);
        let mut parameters = Parameters::unknown(&tracked);
        let settings = registry.settings(None, &parameters, Catalog::default());
        parameters.set(tracked.position(b"DateStyle").unwrap(), "ISO, DMY");
        let other = registry.settings(None, &parameters, Catalog::default());
        registry.number_from(1 << 40);
        assert_eq!(registry.import(7, b"x", shared(&settings)), 7);
        assert_eq!(registry.import(8, b"x", shared(&settings)), 7);
        assert_eq!(registry.intern(b"x", Some(&settings)), 7);
        assert_eq!(registry.intern(b"x", Some(&other)), (1 << 40) + 1);
        assert_eq!(registry.import(9, b"z", ImportedStatement::default()), 9);
        assert!(!registry.may_be_parsed(9, Some(&settings)));
        assert_ne!(registry.intern(b"z", Some(&settings)), 9);
    }

    #[test]
    fn what_another_process_knows_of_descriptions_comes_along() {
        let (tracked, here) = (Tracked::new([]), Catalog::default());
        let mut old = StatementRegistry::new(&tracked);
        let settings = old.settings(None, &Parameters::unknown(&tracked), here);
        let description = Description::read(vec![23], None, true).unwrap();
        let id = old.intern(b"x\0\0\0", Some(&settings));
        old.describe(id, &description);
        let mut new = StatementRegistry::new(&tracked);
        for retired in [false, true] {
            if retired {
                old.retire(id);
            }
            let mut imported = new.read_scope(&old.write_scope(id, &tracked), &tracked, here);
            imported.description = Description::from_bytes(&old.write_description(id));
            let came = new.import(id + u64::from(retired), b"x\0\0\0", imported);
            new.hold(came);
            assert_eq!((came, new.is_retired(came)), (id + u64::from(retired), retired));
            assert_eq!(new.description(came), Some(&description));
        }
        let settings = new.settings(None, &Parameters::unknown(&tracked), here);
        assert_eq!(new.find(b"x\0\0\0", &settings), Some(id), "who prepares it now gets the other one");
        // Another shard's statement of the same text, for those with another description.
        let other = Description::read(vec![20], None, true);
        let imported = ImportedStatement { description: other.clone(), ..shared(&settings) };
        assert_eq!(new.import(50, b"x\0\0\0", imported), 50);
        assert_eq!(new.description(50), other.as_ref());
    }
}
