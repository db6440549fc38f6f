//! What becomes of a setting of pgpool-II: [`Fate`] as the table has it, [`Verdict`] as it is in this version of Weir.
//! Owns the rule that a setting that Weir does not have yet is not supported. Knows no setting of pgpool-II.

/// Whether a setting's name ends in the number of a node (`backend_port0`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Numbered {
    /// It has no number.
    No,
    /// It always has one.
    Only,
    /// Without a number it is for all nodes, with one for that node.
    Also,
}

/// Who does what pgpool-II did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The server itself.
    PostgreSql,
    /// A manager of failovers.
    Patroni,
    /// What moves an address between machines.
    Keepalived,
    /// What rotates log files.
    Logrotate,
}

impl Party {
    /// Its name in lists and in the document.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Party::PostgreSql => "PostgreSQL",
            Party::Patroni => "Patroni",
            Party::Keepalived => "keepalived",
            Party::Logrotate => "logrotate",
        }
    }
}

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Settings of Weir take its place; how it is converted.
    Equivalent { settings: &'static [&'static str], how: &'static str },
    /// As `Equivalent` in a version of Weir that has these settings; what there is until then.
    Once { settings: &'static [&'static str], how: &'static str, until: &'static str },
    /// Another program does it.
    Elsewhere(Party, &'static str),
    /// Nothing does it.
    NotSupported(&'static str),
    /// Nothing has to.
    NotNeeded(&'static str),
}

/// [`Fate`] in this version of Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Settings of Weir take its place.
    Equivalent {
        /// Their names.
        settings: &'static [&'static str],
        /// How the value is converted.
        how: &'static str,
    },
    /// Another program does it: who, and how.
    Elsewhere(Party, &'static str),
    /// Nothing does it.
    NotSupported(&'static str),
    /// Nothing has to.
    NotNeeded(&'static str),
}

impl Verdict {
    /// The sentence about it.
    #[must_use]
    pub fn sentence(&self) -> &'static str {
        match self {
            Verdict::Equivalent { how: sentence, .. }
            | Verdict::Elsewhere(_, sentence)
            | Verdict::NotSupported(sentence)
            | Verdict::NotNeeded(sentence) => sentence,
        }
    }
}

/// A setting of pgpool-II.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, without a number.
    pub name: &'static str,
    /// Whether its name ends in a number.
    pub numbered: Numbered,
    pub(crate) fate: Fate,
}

impl Setting {
    /// What becomes of it in this version of Weir.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict_with(is_known)
    }

    /// [`Setting::verdict`] in a version that has these settings.
    pub(crate) fn verdict_with(&self, is_known: impl Fn(&str) -> bool) -> Verdict {
        match &self.fate {
            Fate::Equivalent { settings, how } => Verdict::Equivalent { settings, how },
            Fate::Once { settings, how, .. } if settings.iter().all(|name| is_known(name)) => {
                Verdict::Equivalent { settings, how }
            }
            Fate::Once { until, .. } => Verdict::NotSupported(until),
            Fate::Elsewhere(party, sentence) => Verdict::Elsewhere(*party, sentence),
            Fate::NotSupported(sentence) => Verdict::NotSupported(sentence),
            Fate::NotNeeded(sentence) => Verdict::NotNeeded(sentence),
        }
    }

    /// The name as a document writes it: `backend_portN`, `health_check_period[N]`.
    #[must_use]
    pub fn spelled(&self) -> String {
        let number = match self.numbered {
            Numbered::No => "",
            Numbered::Only => "N",
            Numbered::Also => "[N]",
        };
        format!("{}{number}", self.name)
    }
}

/// This version of Weir has a setting of this name, in whichever section.
pub(crate) fn is_known(name: &str) -> bool {
    settings::manual_rows().iter().any(|info| info.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_weir_does_not_have_yet_is_not_supported() {
        let fate = Fate::Once { settings: &["read_write_split"], how: "Split.", until: "Not split." };
        let setting = Setting { name: "load_balance_mode", numbered: Numbered::No, fate };
        assert_eq!(setting.verdict_with(|_| false), Verdict::NotSupported("Not split."));
        let known = setting.verdict_with(|name| name == "read_write_split");
        assert_eq!(known, Verdict::Equivalent { settings: &["read_write_split"], how: "Split." });
        assert!(is_known("pool_mode") && !is_known("no_such_setting"));
    }
}
