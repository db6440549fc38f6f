//! What the settings say of the store: files are read, and what a pod has is looked up.

use std::net::IpAddr;

use fleetstore::{
    BackendQuery, EtcdOptions, EtcdTls, KubernetesFiles, KubernetesOptions, OptionsError, Store,
};
use settings::{Config, EtcdUrl, FleetStore, Global, KubernetesUrl};

use crate::FleetError;

/// The store of the configuration.
pub(crate) enum StoreOptions {
    Etcd(EtcdOptions),
    Kubernetes(KubernetesOptions),
}

impl StoreOptions {
    /// None if the configuration names no store.
    ///
    /// # Errors
    /// [`FleetError`]: a setting's fault.
    pub(crate) fn read(config: &Config, node: &str) -> Result<Option<StoreOptions>, FleetError> {
        let global = &config.global;
        Ok(match &global.fleet {
            FleetStore::None => None,
            FleetStore::Etcd(url) => Some(StoreOptions::Etcd(etcd(global, url, node)?)),
            FleetStore::Kubernetes(url) => Some(StoreOptions::Kubernetes(kubernetes(global, url, node)?)),
        })
    }

    /// In the tokio runtime that will carry requests out.
    ///
    /// # Errors
    /// [`OptionsError`]: a certificate or key cannot be used.
    pub(crate) fn store(&self, backends: BackendQuery) -> Result<Store, OptionsError> {
        match self {
            StoreOptions::Etcd(options) => Store::etcd(options, backends),
            StoreOptions::Kubernetes(options) => Store::kubernetes(options, backends),
        }
    }
}

fn etcd(global: &Global, url: &EtcdUrl, node: &str) -> Result<EtcdOptions, FleetError> {
    let read = |setting, file: &Option<String>| match named(file) {
        None => Ok(None),
        Some(file) => std::fs::read(&file).map(Some).map_err(|why| FleetError::File(setting, file, why)),
    };
    let ca = read("fleet_tls_ca_file", &global.fleet_tls_ca_file)?;
    let certificate = read("fleet_tls_cert_file", &global.fleet_tls_cert_file)?;
    let key = read("fleet_tls_key_file", &global.fleet_tls_key_file)?;
    let tls = match (ca, certificate, key) {
        (None, None, None) => None,
        (Some(ca), None, None) => Some(EtcdTls { ca, identity: None }),
        (Some(ca), Some(certificate), Some(key)) => Some(EtcdTls { ca, identity: Some((certificate, key)) }),
        _ => return Err(FleetError::HalfIdentity),
    };
    Ok(EtcdOptions {
        url: url.clone(),
        tls,
        node: node.into(),
        lease_s: lease_s(global),
        request_timeout: EtcdOptions::REQUEST_TIMEOUT,
    })
}

fn kubernetes(global: &Global, url: &KubernetesUrl, node: &str) -> Result<KubernetesOptions, FleetError> {
    let identity = match (named(&global.fleet_tls_cert_file), named(&global.fleet_tls_key_file)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        _ => return Err(FleetError::HalfKubernetesIdentity),
    };
    let files = KubernetesFiles {
        ca: named(&global.fleet_tls_ca_file),
        identity,
        token: named(&global.fleet_token_file),
    };
    KubernetesOptions::read(url, files, (node.into(), lease_s(global)), variable).map_err(FleetError::Options)
}

/// Where the other nodes of a fleet reach this one, in a pod of Kubernetes whose API server is the store: its IP address, since others cannot look its host's name up.
#[must_use]
pub fn pod_address(config: &Config) -> Option<IpAddr> {
    match &config.global.fleet {
        FleetStore::Kubernetes(url) if url.api.is_none() => fleetstore::pod_address(variable),
        _ => None,
    }
}

/// Of the environment.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn lease_s(global: &Global) -> u32 {
    u32::try_from(global.fleet_lease_time.as_secs()).unwrap_or(u32::MAX)
}

fn named(file: &Option<String>) -> Option<String> {
    file.clone().filter(|file| !file.is_empty())
}
