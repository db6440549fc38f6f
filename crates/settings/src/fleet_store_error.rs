//! What is wrong with the store of a fleet as it is set.

use std::fmt;

use crate::etcd_url::EtcdUrlError;
use crate::kubernetes_url::KubernetesUrlError;

/// What is wrong with a store: the setting's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetStoreError {
    /// Of etcd's URL, or of what is the URL of no store.
    Etcd(EtcdUrlError),
    /// Of the URL of an API server of Kubernetes.
    Kubernetes(KubernetesUrlError),
}

impl fmt::Display for FleetStoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FleetStoreError::Etcd(why) => why.fmt(out),
            FleetStoreError::Kubernetes(why) => why.fmt(out),
        }
    }
}
