//! Under which settings the server parses what is sent now.
//!
//! Owns when they are known: a command that changes them is reported with the next ReadyForQuery. In its own segment nothing is known,
//! behind that its answer is waited for. Which parameters these are is [`crate::parse_settings`]'s.

use crate::parse_settings::SettingsId;
use crate::reply_queue::transaction::TransactionStatus;
use crate::statement_text::Effects;
use crate::{Catalog, Parameters, ParseSettings, ReplyQueue, StatementRegistry};

/// What is known of the settings under which the server will parse what is sent now.
pub(crate) enum InForce {
    /// They are these; None if only the server knows them.
    Settings(Option<ParseSettings>),
    /// An answer that will tell has not come.
    Unanswered,
}

/// The settings of one server.
#[derive(Debug, Default)]
pub(crate) struct SettingsInForce {
    /// Where names in a text are looked up.
    catalog: Catalog,
    /// The settings that these parameters are, when it was looked at last.
    known: Option<(Parameters, ParseSettings)>,
    /// The last segment in which settings may have been changed, until it is answered.
    changed_in: Option<u64>,
}

impl SettingsInForce {
    pub(crate) fn of(catalog: Catalog) -> SettingsInForce {
        SettingsInForce { catalog, ..SettingsInForce::default() }
    }

    pub(crate) fn catalog(&self) -> Catalog {
        self.catalog
    }

    /// What is sent in this segment may change settings.
    pub(crate) fn note_change(&mut self, segment: u64) {
        self.changed_in = Some(segment);
    }

    /// The number of the settings in force, if nothing has changed since they were looked at last.
    #[inline(always)]
    pub(crate) fn known_id(&self, parameters: &Parameters, segment: Effects) -> Option<SettingsId> {
        match &self.known {
            Some((of, known))
                if of.shared_with(parameters)
                    && self.changed_in.is_none()
                    && !segment.any(Effects::UNSEEN) =>
            {
                Some(known.id())
            }
            _ => None,
        }
    }

    /// The settings under which the server will parse what is sent now, behind what was done in this segment.
    pub(crate) fn in_force(
        &mut self,
        transaction: TransactionStatus,
        replies: &ReplyQueue,
        segment: Effects,
        parameters: &Parameters,
        registry: &mut StatementRegistry,
    ) -> InForce {
        if let Some(changed_in) = self.changed_in {
            if transaction.current().is_some() || changed_in < replies.answering_segment() {
                self.changed_in = None;
            } else if changed_in == replies.segment() {
                return InForce::Settings(None);
            } else {
                return InForce::Unanswered;
            }
        }
        // A setting that is set and restored within the segment is never reported.
        if segment.any(Effects::UNSEEN) {
            return InForce::Settings(None);
        }
        let known = match self.known.take() {
            Some((of, settings)) if of.shared_with(parameters) => settings,
            older => {
                registry.settings(older.as_ref().map(|(_, settings)| settings), parameters, self.catalog)
            }
        };
        self.known = Some((parameters.clone(), known.clone()));
        InForce::Settings(Some(known))
    }
}

#[cfg(test)]
mod tests {
    use wire::backend::Status;

    use super::*;
    use crate::{PendingReply, Tracked};

    #[test]
    fn a_change_is_unknown_in_its_segment_awaited_behind_it_and_known_once_answered() {
        let tracked = Tracked::new([]);
        let (parameters, mut registry) = (Parameters::unknown(&tracked), StatementRegistry::new(&tracked));
        let mut transaction = TransactionStatus::new(Status::Idle);
        let (mut replies, mut settings) = (ReplyQueue::default(), SettingsInForce::default());
        let mut now = |settings: &mut SettingsInForce, transaction, replies: &ReplyQueue, segment| {
            settings.in_force(transaction, replies, segment, &parameters, &mut registry)
        };
        assert!(matches!(
            now(&mut settings, transaction, &replies, Effects::NONE),
            InForce::Settings(Some(_))
        ));
        assert!(settings.known_id(&parameters, Effects::NONE).is_some());
        assert!(settings.known_id(&parameters, Effects::UNSEEN).is_none());
        settings.note_change(replies.segment());
        replies.push(PendingReply::Execute, transaction.asked());
        assert!(settings.known_id(&parameters, Effects::NONE).is_none());
        assert!(matches!(now(&mut settings, transaction, &replies, Effects::NONE), InForce::Settings(None)));
        replies.push(PendingReply::Sync, transaction.asked());
        assert!(matches!(now(&mut settings, transaction, &replies, Effects::NONE), InForce::Unanswered));
        replies.pop();
        replies.pop();
        let unseen = now(&mut settings, transaction, &replies, Effects::UNSEEN);
        assert!(matches!(unseen, InForce::Settings(None)));
        assert!(matches!(
            now(&mut settings, transaction, &replies, Effects::NONE),
            InForce::Settings(Some(_))
        ));
    }
}
