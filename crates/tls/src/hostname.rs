//! Host name verification by libpq's rules (fe-secure-common.c), common name included.
//!
//! Owns matching of names, wildcards and addresses. Never looks at who signed.

use std::net::IpAddr;

use crate::Certificate;

/// Whether the certificate is valid for `host`, a name or an address as configured.
pub(crate) fn matches(certificate: &Certificate, host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    let names = &certificate.names;
    if names.dns.iter().any(|pattern| matches_name(pattern, host, address.is_some())) {
        return true;
    }
    if address.is_some_and(|address| names.addresses.contains(&address)) {
        return true;
    }
    // Alternative names of the host's kind take precedence; without any, the common name is used.
    let has_own_kind = if address.is_some() { !names.addresses.is_empty() } else { !names.dns.is_empty() };
    let common_name = certificate.common_name.as_deref().filter(|_| !has_own_kind);
    common_name.is_some_and(|pattern| matches_name(pattern, host, address.is_some()))
}

/// `*.example.org` matches exactly one label; addresses match only exactly.
fn matches_name(pattern: &str, host: &str, is_address: bool) -> bool {
    let (pattern, host) = (pattern.trim_end_matches('.'), host.trim_end_matches('.'));
    if pattern.is_empty() || pattern.contains('\0') {
        return false;
    }
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(suffix) = pattern.strip_prefix("*.").filter(|_| !is_address) else { return false };
    let Some((label, rest)) = host.split_once('.') else { return false };
    !label.is_empty() && !suffix.is_empty() && rest.eq_ignore_ascii_case(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_one_label() {
        for (pattern, host, fits) in [
            ("db.example.org", "DB.example.org", true),
            ("*.example.org", "db.example.org", true),
            ("*.example.org", "a.db.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("d*.example.org", "db.example.org", false),
            ("*", "localhost", false),
            ("*.0.0.1", "127.0.0.1", false),
            ("", "", false),
        ] {
            let is_address = host.parse::<IpAddr>().is_ok();
            assert_eq!(matches_name(pattern, host, is_address), fits, "{pattern} {host}");
        }
    }
}
