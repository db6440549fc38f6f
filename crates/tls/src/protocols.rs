//! `client_tls_protocols` and `server_tls_protocols`: lists of versions as PgBouncer writes them.
//!
//! Owns the keywords. rustls has no TLS below 1.2: such versions are skipped with a warning.

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::SetupFault;

/// Enabled versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protocols {
    pub(crate) tls12: bool,
    pub(crate) tls13: bool,
    /// 1.0 or 1.1 was asked for by its name.
    pub(crate) old_named: bool,
}

const OLD: u8 = 0b0011;
const V12: u8 = 0b0100;
const V13: u8 = 0b1000;

impl Protocols {
    /// Reads `secure`, `all`, `tlsv1.2,tlsv1.3`, `all,!tlsv1.3`…
    ///
    /// # Errors
    /// [`SetupFault::Protocols`] for an unknown word, or if nothing is left that can be had.
    pub(crate) fn read(text: &str) -> Result<Protocols, SetupFault> {
        let bad = || SetupFault::Protocols(text.to_owned());
        let (mut bits, mut old_named) = (0, false);
        let words = text.split([',', ':']).map(str::trim).filter(|word| !word.is_empty());
        for (index, word) in words.enumerate() {
            let (negated, word) = word.strip_prefix('!').map_or((false, word), |word| (true, word));
            let meant = match word.to_ascii_lowercase().as_str() {
                "all" | "legacy" => OLD | V12 | V13,
                "default" | "secure" => V12 | V13,
                "tlsv1" => OLD | V12 | V13,
                "tlsv1.0" => 0b0001,
                "tlsv1.1" => 0b0010,
                "tlsv1.2" => V12,
                "tlsv1.3" => V13,
                _ => return Err(bad()),
            };
            old_named |= meant & !OLD == 0 && !negated;
            if negated {
                // A list that begins with an exclusion starts from all.
                bits = if index == 0 { OLD | V12 | V13 } else { bits } & !meant;
            } else {
                bits |= meant;
            }
        }
        if text.trim().is_empty() {
            bits = V12 | V13;
        }
        let protocols = Protocols { tls12: bits & V12 != 0, tls13: bits & V13 != 0, old_named };
        if protocols.tls12 || protocols.tls13 { Ok(protocols) } else { Err(bad()) }
    }

    /// As rustls expects them.
    pub(crate) fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        let wanted = [(self.tls13, &TLS13), (self.tls12, &TLS12)];
        wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, version)| version).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(bool, bool)> {
        Protocols::read(text).ok().map(|protocols| (protocols.tls12, protocols.tls13))
    }

    #[test]
    fn lists_as_pgbouncer_reads_them() {
        for text in ["secure", "all", "legacy", "default", "", "TLSv1.2, tlsv1.3", "tlsv1"] {
            assert_eq!(read(text), Some((true, true)), "{text}");
        }
        assert_eq!(read("tlsv1.2"), Some((true, false)));
        assert_eq!(read("tlsv1.0:tlsv1.3"), Some((false, true)));
        assert_eq!(read("all,!tlsv1.2"), Some((false, true)));
        assert_eq!(read("!tlsv1.3"), Some((true, false)));
        for text in ["sslv3", "tlsv1.0", "tlsv1.1,tlsv1.0", "!all", "tlsv1.2,!tlsv1.2"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn old_versions_are_noticed_only_by_name() {
        assert_eq!(Protocols::read("tlsv1.1,tlsv1.2").map(|it| it.old_named), Ok(true));
        assert_eq!(Protocols::read("all").map(|it| it.old_named), Ok(false));
    }
}
