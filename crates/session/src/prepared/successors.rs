//! What becomes of a statement when DDL changes its result or its parameters: it is retired, and those who prepare the same text, or
//! read by no description, get a successor.
//!
//! Owns descriptions, and which statement of a text new clients get. PostgreSQL fixes both at Parse: a client that holds a description
//! keeps its statement, and is refused where a server has another result for it.

use std::borrow::Cow;

use super::{Scope, Statement, StatementId, StatementRegistry};
use crate::Description;
use crate::parse_settings::ParseSettings;

impl StatementRegistry {
    /// Clients that prepare its text under its settings get it, unless they get another one already.
    pub(super) fn publish(&mut self, id: StatementId) {
        let Some(Statement { rest, scope: Scope::Shared(settings), .. }) = self.by_id.get(&id) else {
            return;
        };
        let variants = self.by_rest.entry(rest.clone()).or_default();
        if let Err(at) = variants.binary_search_by_key(&settings.id(), |(settings, _)| *settings) {
            variants.insert(at, (settings.id(), id));
        }
    }

    /// No further client gets it.
    pub(super) fn unpublish(&mut self, id: StatementId) {
        let Some(statement) = self.by_id.get(&id) else { return };
        if let Some(variants) = self.by_rest.get_mut(&statement.rest) {
            variants.retain(|(_, known)| *known != id);
            if variants.is_empty() {
                self.by_rest.remove(&statement.rest);
            }
        }
    }

    /// It is known to be another by now than its clients know: no further client gets it.
    pub(crate) fn retire(&mut self, id: StatementId) {
        self.unpublish(id);
        let Some(statement) = self.by_id.get(&id) else { return };
        if statement.clients > 0 {
            self.retired.insert(id);
        } else {
            self.spare.take(statement.bytes());
            self.by_id.remove(&id);
        }
    }

    /// It was seen to change.
    #[inline]
    pub(crate) fn is_retired(&self, id: StatementId) -> bool {
        !self.retired.is_empty() && self.retired.contains(&id)
    }

    /// What its clients may read and write by, as far as is known.
    pub(crate) fn description(&self, id: StatementId) -> Option<&Description> {
        self.by_id.get(&id).and_then(|statement| statement.description.as_ref())
    }

    /// A server that has just parsed it describes it so. False if that is not what its clients know: it is retired then.
    pub(crate) fn describe(&mut self, id: StatementId, description: &Description) -> bool {
        let is_retired = self.is_retired(id);
        let Some(statement) = self.by_id.get_mut(&id) else { return true };
        match &statement.description {
            None if !is_retired => statement.description = Some(description.clone()),
            Some(known) if known == description => {
                if is_retired && self.is_unpublished(id) {
                    // What was changed has been changed back.
                    self.retired.remove(&id);
                    self.publish(id);
                }
            }
            _ => {
                self.retire(id);
                return false;
            }
        }
        true
    }

    /// Clients that prepare its text would get none yet.
    fn is_unpublished(&self, id: StatementId) -> bool {
        match self.by_id.get(&id) {
            Some(Statement { rest, scope: Scope::Shared(settings), .. }) => {
                self.find(rest, settings).is_none()
            }
            Some(Statement { scope: Scope::Private, .. }) => true,
            _ => false,
        }
    }

    /// Parse's body after the name for a client that has had it parsed before: with the types that its parameters had then.
    pub(crate) fn typed(&self, id: StatementId) -> Option<Cow<'_, [u8]>> {
        let statement = self.by_id.get(&id)?;
        let typed = statement.description.as_ref().and_then(|known| known.typed(&statement.rest));
        Some(typed.map_or(Cow::Borrowed(&statement.rest), Cow::Owned))
    }

    /// The statement of the same text under other settings (None: known only to the server), held for a client that has had this
    /// one parsed before: the types of its parameters are the same, and the description is if the client reads by it.
    pub(crate) fn intern_under(
        &mut self,
        id: StatementId,
        settings: Option<&ParseSettings>,
        is_read_by: bool,
    ) -> Option<StatementId> {
        let raw = self.rest(id).cloned()?;
        let typed = self.typed(id)?.into_owned();
        let known = self.description(id).cloned();
        let fits = |of: &Description| match &known {
            Some(known) if is_read_by => of == known,
            Some(known) => of.has_parameters_of(known),
            None => true,
        };
        // With those that have prepared the text there, if they have found it to be the same.
        let shared = settings.and_then(|settings| self.find(&raw, settings));
        let shared = shared.filter(|other| self.description(*other).is_some_and(fits)).or_else(|| {
            let other = self.find(&typed, settings?)?;
            self.description(other).is_none_or(fits).then_some(other)
        });
        let other =
            shared.unwrap_or_else(|| self.insert(&typed, StatementRegistry::scope_of(&typed, settings)));
        if is_read_by && let Some(statement) = self.by_id.get_mut(&other) {
            statement.description = known;
        }
        self.hold(other);
        Some(other)
    }

    /// The statement that takes its place for a client that need not keep it: of the same text and settings, with this description
    /// where a server has said one. A client that has had it parsed before keeps the types of its parameters (`typed`). None for a
    /// statement whose settings are not known.
    pub(crate) fn successor(
        &mut self,
        id: StatementId,
        description: Option<&Description>,
        typed: bool,
    ) -> Option<StatementId> {
        let scope = self.by_id.get(&id)?.scope.clone();
        let rest = if typed { self.typed(id)? } else { Cow::Borrowed(&*self.by_id.get(&id)?.rest) };
        let rest = rest.into_owned();
        if let Scope::Shared(settings) = &scope
            && let Some(known) = self.find(&rest, settings).filter(|known| *known != id)
        {
            match description {
                Some(description) if !self.describe(known, description) => {} // It has just been retired, too.
                _ => return Some(known),
            }
        }
        if matches!(scope, Scope::Unknown) {
            return None;
        }
        if self.spare.is_too_much() {
            self.forget_spares(); // Not each successor gets a client.
        }
        let new = self.insert(&rest, scope);
        if let Some(statement) = self.by_id.get_mut(&new) {
            statement.description = description.cloned();
        }
        Some(new)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::parse_settings::Catalog;
    use crate::{Parameters, Tracked};

    const TEXT: &[u8] = b"select $1\0\0\0";

    fn described(parameters: &[u32], has_rows: bool) -> Description {
        Description::read(parameters.to_vec(), has_rows.then_some(b"\0\0"), true).unwrap()
    }

    /// A registry, settings, and a statement that a client has.
    fn with_statement() -> (StatementRegistry, ParseSettings, StatementId) {
        let mut registry = StatementRegistry::default();
        let unknown = Parameters::unknown(&Tracked::new([]));
        let settings = registry.settings(None, &unknown, Catalog::default());
        let id = registry.intern(TEXT, Some(&settings));
        (registry, settings, id)
    }

    #[test]
    fn a_statement_has_one_description() {
        let (mut registry, settings, old) = with_statement();
        assert!(registry.describe(old, &described(&[23], true)));
        assert!(registry.describe(old, &described(&[23], true)) && !registry.is_retired(old));
        assert!(!registry.describe(old, &described(&[20], true)) && registry.is_retired(old));
        let new = registry.intern(TEXT, Some(&settings));
        assert_ne!(new, old);
        assert_eq!(registry.description(old), Some(&described(&[23], true)));
        assert_eq!(registry.description(new), None);
        registry.release(old);
        assert!(registry.rest(old).is_none() && !registry.is_retired(old));
    }

    #[test]
    fn one_that_is_as_it_was_is_given_out_again() {
        let (mut registry, settings, id) = with_statement();
        registry.describe(id, &described(&[], true));
        registry.describe(id, &described(&[], false));
        assert!(registry.describe(id, &described(&[], true)));
        assert_eq!((registry.find(TEXT, &settings), registry.is_retired(id)), (Some(id), false));
        // Unless another has taken its place.
        registry.retire(id);
        let new = registry.intern(TEXT, Some(&settings));
        assert!(registry.describe(id, &described(&[], true)));
        assert_eq!((registry.find(TEXT, &settings), registry.is_retired(id)), (Some(new), true));
    }

    #[test]
    fn what_was_refused_before_it_was_described_is_no_clients_description() {
        let (mut registry, _, id) = with_statement();
        registry.retire(id);
        assert!(!registry.describe(id, &described(&[], true)));
        assert_eq!(registry.description(id), None);
    }

    #[test]
    fn a_successor_keeps_the_types_of_parameters() {
        let (mut registry, settings, old) = with_statement();
        registry.describe(old, &described(&[23], true));
        registry.describe(old, &described(&[23], false));
        let new = registry.successor(old, Some(&described(&[23], false)), true).unwrap();
        assert_eq!(&**registry.rest(new).unwrap(), b"select $1\0\0\x01\0\0\0\x17");
        assert_eq!(registry.find(TEXT, &settings), None, "who prepares it now may get other types");
        assert_eq!(registry.successor(old, None, true), Some(new));
        assert_eq!(registry.successor(old, Some(&described(&[23], false)), true), Some(new));
        assert_ne!(registry.successor(old, Some(&described(&[23], true)), true), Some(new));
        let prepared_now = registry.successor(old, Some(&described(&[20], true)), false).unwrap();
        assert_eq!(registry.find(TEXT, &settings), Some(prepared_now));
    }

    #[test]
    fn unused_successors_and_retired_ones_are_forgotten() {
        let (mut registry, settings, mut id) = with_statement();
        for number in 0..10_000 {
            registry.describe(id, &described(&[number], true));
            registry.retire(id);
            registry.successor(id, None, true);
            let next = registry.intern(TEXT, Some(&settings));
            registry.release(id);
            id = next;
        }
        assert!(registry.by_id.len() < 5000 && registry.retired.len() < 2, "{}", registry.by_id.len());
    }
}
