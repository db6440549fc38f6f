//! OpenSSL's cipher lists, as far as rustls has such ciphers.
//!
//! Owns OpenSSL's names and keywords. Ciphers that rustls lacks are reported, never silently dropped; an empty result is
//! an error.

use rustls::crypto::ring::cipher_suite as has;
use rustls::{CipherSuite, SupportedCipherSuite};

use crate::SetupFault;

/// A suite of TLS 1.2 with OpenSSL's name and the keywords that mean it.
struct Suite {
    suite: SupportedCipherSuite,
    name: &'static str,
    keywords: &'static [&'static str],
}

/// Keywords that mean every suite that rustls has.
const ALL: &[&str] = &[
    "ALL", "DEFAULT", "HIGH", "SECURE", "NORMAL", "COMPAT", "LEGACY", "INSECURE", "FAST", "ECDHE", "EECDH",
    "KECDHE", "KEECDH", "ECDH", "TLSV1.2", "FIPS",
];

/// In the order of preference of `default`.
const TLS12: &[Suite] = &[
    Suite {
        suite: has::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        keywords: &["ECDSA", "AECDSA", "AES", "AES256", "AESGCM", "SUITEB128", "SUITEB192"],
    },
    Suite {
        suite: has::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        keywords: &["ARSA", "AES", "AES256", "AESGCM"],
    },
    Suite {
        suite: has::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        keywords: &["ECDSA", "AECDSA", "CHACHA20"],
    },
    Suite {
        suite: has::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        keywords: &["ARSA", "CHACHA20"],
    },
    Suite {
        suite: has::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        keywords: &["ECDSA", "AECDSA", "AES", "AES128", "AESGCM", "SUITEB128", "SUITEB128ONLY"],
    },
    Suite {
        suite: has::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        keywords: &["ARSA", "AES", "AES128", "AESGCM"],
    },
];

const TLS13: &[(SupportedCipherSuite, &str)] = &[
    (has::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
    (has::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
    (has::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
];

/// TLS 1.3 suites that OpenSSL has and rustls has not.
const TLS13_UNSUPPORTED: &[&str] = &["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"];

/// Keywords of OpenSSL that match only ciphers rustls lacks.
const UNSUPPORTED: &[&str] = &[
    "ADH",
    "ADSS",
    "AECDH",
    "AESCCM",
    "AESCCM8",
    "ANULL",
    "APSK",
    "ARIA",
    "ARIA128",
    "ARIA256",
    "CAMELLIA",
    "CAMELLIA128",
    "CAMELLIA256",
    "CBC",
    "COMPLEMENTOFALL",
    "COMPLEMENTOFDEFAULT",
    "DES",
    "3DES",
    "DH",
    "DHE",
    "DSS",
    "EDH",
    "ENULL",
    "EXP",
    "EXPORT",
    "GOST",
    "IDEA",
    "KDHE",
    "KDHEPSK",
    "KECDHEPSK",
    "KEDH",
    "KPSK",
    "KRSA",
    "KRSAPSK",
    "KSRP",
    "LOW",
    "MD5",
    "MEDIUM",
    "NULL",
    "PSK",
    "RC2",
    "RC4",
    "RSA",
    "SEED",
    "SHA",
    "SHA1",
    "SHA256",
    "SHA384",
    "SRP",
    "SSLV3",
    "TLSV1",
    "TLSV1.0",
];

/// Parts of OpenSSL's cipher names: a name made of them is an unsupported cipher, any other is invalid.
const NAME_PARTS: &[&str] = &[
    "ECDHE",
    "ECDSA",
    "DHE",
    "RSA",
    "DSS",
    "PSK",
    "SRP",
    "ADH",
    "AECDH",
    "NULL",
    "AES128",
    "AES256",
    "GCM",
    "CCM",
    "CCM8",
    "CAMELLIA128",
    "CAMELLIA256",
    "ARIA128",
    "ARIA256",
    "CHACHA20",
    "POLY1305",
    "DES",
    "CBC",
    "CBC3",
    "RC4",
    "SEED",
    "IDEA",
    "SHA",
    "SHA256",
    "SHA384",
    "MD5",
    "AES",
    "128",
    "256",
    "3DES",
    "EDE",
    "EXP",
    "EDH",
];

/// A parsed cipher list.
#[derive(Clone, Debug, Default)]
pub(crate) struct CipherList {
    /// In the order of preference.
    pub(crate) suites: Vec<SupportedCipherSuite>,
    /// Entries that rustls does not support.
    pub(crate) unsupported: Vec<String>,
}

/// Reads `client_tls_ciphers` or `server_tls_ciphers`, which is about TLS 1.2. May leave no suite at all, where the list
/// names only what rustls lacks.
///
/// # Errors
/// [`SetupFault::Ciphers`] if no word of it is known to OpenSSL either.
pub(crate) fn tls12(list: &str) -> Result<CipherList, SetupFault> {
    let mut chosen = CipherList::default();
    let (mut picked, mut banned): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut known = list.trim().is_empty();
    let list = if known { "default" } else { list };
    for word in list.split([':', ',', ' ', ';']).map(str::trim).filter(|word| !word.is_empty()) {
        if word.starts_with('@') {
            continue; // @STRENGTH and @SECLEVEL=n: all that rustls has is strong.
        }
        let sign = word.chars().next().filter(|first| "!-+".contains(*first));
        let bare = word.trim_start_matches(['!', '-', '+']);
        let meant = expand(bare);
        let is_lacking = meant.is_empty() && is_openssl_name(bare);
        known |= !meant.is_empty() || is_lacking;
        match sign {
            Some('!') => {
                picked.retain(|index| !meant.contains(index));
                banned.extend(meant);
            }
            Some('-') => picked.retain(|index| !meant.contains(index)),
            Some('+') => {
                let (last, first): (Vec<usize>, Vec<usize>) =
                    picked.iter().partition(|index| meant.contains(index));
                picked = [first, last].concat();
            }
            _ if meant.is_empty() => chosen.unsupported.push(bare.to_owned()),
            _ => {
                let new = meant.iter().filter(|index| !banned.contains(index) && !picked.contains(index));
                let new: Vec<usize> = new.copied().collect();
                picked.extend(new);
            }
        }
    }
    if !known {
        return Err(SetupFault::Ciphers(list.to_owned()));
    }
    if list.eq_ignore_ascii_case("fast") {
        picked.sort_by_key(|index| !TLS12[*index].keywords.contains(&"AES128"));
    }
    chosen.suites = picked.into_iter().map(|index| TLS12[index].suite).collect();
    Ok(chosen)
}

/// Reads `client_tls13_ciphers` or `server_tls13_ciphers`; nothing said is all.
///
/// # Errors
/// [`SetupFault::Ciphers13`] for a word that is no suite, or if nothing is left.
pub(crate) fn tls13(list: Option<&str>) -> Result<CipherList, SetupFault> {
    let list = list.map(str::trim).filter(|list| !list.is_empty());
    let Some(list) = list else {
        return Ok(CipherList {
            suites: TLS13.iter().map(|(suite, _)| *suite).collect(),
            unsupported: Vec::new(),
        });
    };
    let mut chosen = CipherList::default();
    for word in list.split([':', ',', ' ']).map(str::trim).filter(|word| !word.is_empty()) {
        match TLS13.iter().find(|(_, name)| *name == word) {
            Some((suite, _)) => chosen.suites.push(*suite),
            None if TLS13_UNSUPPORTED.contains(&word) => chosen.unsupported.push(word.to_owned()),
            None => return Err(SetupFault::Ciphers13(word.to_owned())),
        }
    }
    if chosen.suites.is_empty() { Err(SetupFault::Ciphers13(list.to_owned())) } else { Ok(chosen) }
}

/// OpenSSL's name of a suite.
pub(crate) fn name(suite: CipherSuite) -> &'static str {
    let tls12 = TLS12.iter().map(|one| (one.suite.suite(), one.name));
    let tls13 = TLS13.iter().map(|(one, name)| (one.suite(), *name));
    tls13.chain(tls12).find(|(one, _)| *one == suite).map_or("unknown", |(_, name)| name)
}

/// The suites that a word means: a name, a keyword, or keywords with `+` between them.
fn expand(word: &str) -> Vec<usize> {
    let word = word.to_ascii_uppercase();
    let is_meant = |suite: &Suite| {
        suite.name == word
            || word.split('+').all(|keyword| ALL.contains(&keyword) || suite.keywords.contains(&keyword))
    };
    TLS12.iter().enumerate().filter(|(_, suite)| is_meant(suite)).map(|(index, _)| index).collect()
}

/// OpenSSL knows this word, though nothing here is meant by it.
fn is_openssl_name(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    let is_keyword = |keyword: &str| {
        ALL.contains(&keyword)
            || UNSUPPORTED.contains(&keyword)
            || TLS12.iter().any(|suite| suite.keywords.contains(&keyword))
    };
    let is_tls13 = TLS13.iter().any(|(_, name)| *name == word) || TLS13_UNSUPPORTED.contains(&&*word);
    is_tls13
        || word.split('+').all(is_keyword)
        || word.contains('-') && word.split('-').all(|piece| NAME_PARTS.contains(&piece))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        tls12(list).unwrap().suites.iter().map(|suite| name(suite.suite())).collect()
    }

    #[test]
    fn keywords_mean_what_openssl_means() {
        assert_eq!(names("default").len(), 6);
        assert_eq!(names("").len(), 6);
        assert_eq!(names("HIGH:MEDIUM:+3DES:!aNULL").len(), 6);
        assert_eq!(
            names("ECDHE+AESGCM+aRSA"),
            ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256"), ["ECDHE-RSA-AES128-GCM-SHA256"]);
        assert_eq!(names("CHACHA20:!aECDSA"), ["ECDHE-RSA-CHACHA20-POLY1305"]);
        assert_eq!(names("ALL:!AES:-ECDSA"), ["ECDHE-RSA-CHACHA20-POLY1305"]);
        assert_eq!(names("ALL:+AES256:@STRENGTH").last(), Some(&"ECDHE-RSA-AES256-GCM-SHA384"));
        assert!(names("fast")[0].contains("AES128"));
    }

    #[test]
    fn what_rustls_lacks_is_told() {
        let chosen = tls12("AES128-SHA:ECDHE-RSA-AES256-GCM-SHA384:DHE+AES").unwrap();
        assert_eq!(chosen.unsupported, ["AES128-SHA", "DHE+AES"]);
        assert_eq!(chosen.suites.len(), 1);
        assert!(tls12("AES256-SHA").unwrap().suites.is_empty());
        assert_eq!(tls12("nonsense").unwrap_err(), SetupFault::Ciphers("nonsense".to_owned()));
    }

    #[test]
    fn suites_of_1_3_have_names_only() {
        assert_eq!(tls13(None).unwrap().suites.len(), 3);
        let chosen = tls13(Some("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256")).unwrap();
        assert_eq!(name(chosen.suites[0].suite()), "TLS_CHACHA20_POLY1305_SHA256");
        assert_eq!(chosen.unsupported, ["TLS_AES_128_CCM_SHA256"]);
        for bad in ["HIGH", "TLS_AES_128_CCM_SHA256", "TLS_AES_256_GCM_SHA384:x"] {
            let fault = tls13(Some(bad)).unwrap_err().to_string();
            assert!(fault.starts_with("failed to set the TLSv1.3 cipher suites"), "{fault}");
        }
    }
}
