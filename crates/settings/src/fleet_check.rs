//! What `weir check` says of the settings of a fleet's store: those that are missing beside others, and those without effect.

use crate::Global;
use crate::finding::Finding;
use crate::fleet::FleetStore;
use crate::raw_config::{Assignment, Section};

/// Findings at the assignments that they are of.
pub(crate) fn store(global: &Global, assignments: &[Assignment]) -> Vec<Finding> {
    let at = |name: &str| {
        let is_it = |one: &&Assignment| one.section == Section::Pgbouncer && one.key == name;
        assignments.iter().rev().find(is_it).map(|one| &one.at)
    };
    let finding = |(name, text): (&str, &str)| Some(Finding::warning(at(name)?, text.to_owned()));
    findings(global).into_iter().filter_map(finding).collect()
}

/// The setting that a finding is of, and its text.
fn findings(global: &Global) -> Vec<(&'static str, &'static str)> {
    const IDLE_TOKEN: &str = "fleet_token_file has no effect: only fleet = kubernetes has tokens";
    const NO_CA: &str =
        "fleet: an API server that the URL names needs fleet_tls_ca_file: the process does not start without";
    const NO_LOGIN: &str = "fleet: an API server that the URL names needs fleet_token_file, or fleet_tls_cert_file: it refuses others";
    const HALF: &str = "fleet: fleet_tls_cert_file and fleet_tls_key_file need each other: the process does not start with one";
    let is_set = |file: &Option<String>| file.as_deref().is_some_and(|file| !file.is_empty());
    let has_token = is_set(&global.fleet_token_file);
    let (has_cert, has_key) = (is_set(&global.fleet_tls_cert_file), is_set(&global.fleet_tls_key_file));
    let FleetStore::Kubernetes(url) = &global.fleet else {
        return if has_token { vec![("fleet_token_file", IDLE_TOKEN)] } else { Vec::new() };
    };
    let is_outside = url.api.is_some();
    [
        (is_outside && !is_set(&global.fleet_tls_ca_file), NO_CA),
        (is_outside && !has_token && !has_cert, NO_LOGIN),
        (has_cert != has_key, HALF),
    ]
    .into_iter()
    .filter_map(|(is_so, text)| is_so.then_some(("fleet", text)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Codec as _;

    fn texts(settings: &[(&str, &str)]) -> Vec<String> {
        let mut global = Global::default();
        for (name, value) in settings {
            let file = Some((*value).to_owned());
            match *name {
                "fleet" => global.fleet = FleetStore::read(value).expect("a store"),
                "fleet_tls_ca_file" => global.fleet_tls_ca_file = file,
                "fleet_tls_cert_file" => global.fleet_tls_cert_file = file,
                "fleet_tls_key_file" => global.fleet_tls_key_file = file,
                _ => global.fleet_token_file = file,
            }
        }
        findings(&global).into_iter().map(|(name, text)| format!("{name}: {text}")).collect()
    }

    #[test]
    fn what_is_missing_or_has_no_effect_is_reported() {
        let url = ("fleet", "kubernetes://h/n");
        let (ca, token) = (("fleet_tls_ca_file", "f"), ("fleet_token_file", "f"));
        let (cert, key) = (("fleet_tls_cert_file", "f"), ("fleet_tls_key_file", "f"));
        for fine in [&[][..], &[("fleet", "kubernetes")], &[url, ca, token], &[url, ca, cert, key]] {
            assert_eq!(texts(fine), [""; 0], "{fine:?}");
        }
        for (settings, found) in [
            (&[token][..], &["fleet_token_file has no effect"][..]),
            (&[token, ("fleet", "etcd://h/p")], &["fleet_token_file has no effect"]),
            (&[url, token], &["needs fleet_tls_ca_file"]),
            (&[url, ca], &["needs fleet_token_file"]),
            (&[url, ca, cert], &["need each other"]),
            (&[("fleet", "kubernetes"), key], &["need each other"]),
        ] {
            let texts = texts(settings);
            let is_found = texts.iter().zip(found).all(|(text, found)| text.contains(found));
            assert!(texts.len() == found.len() && is_found, "{settings:?}: {texts:?}");
        }
    }
}
