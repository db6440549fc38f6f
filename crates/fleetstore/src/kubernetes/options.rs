//! What settings say of the store in the API server of Kubernetes, and what a pod has.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fleet::NodeId;
use settings::{KubernetesUrl, PemFiles, StoreEndpoint};
use tls::kubernetes_tls_config;
use tokio_rustls::rustls::ClientConfig;

use crate::etcd::OptionsError;

/// Where a kubelet puts the files of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The store, and who uses it.
#[derive(Clone)]
pub struct KubernetesOptions {
    /// The API server.
    pub endpoint: StoreEndpoint,
    /// In which all Leases and ConfigMaps of the fleet are.
    pub namespace: String,
    /// The fleet's.
    pub name: String,
    /// The roots by which the API server is checked (`fleet_tls_ca_file`), and what it is shown (`fleet_tls_cert_file`, `fleet_tls_key_file`).
    pub files: PemFiles,
    /// The file with the token (`fleet_token_file`); None where a certificate stands for it.
    pub token: Option<PathBuf>,
    /// `fleet_node`.
    pub node: NodeId,
    /// Seconds that a Lease lasts. At least 1.
    pub lease_s: u32,
    /// For the answer to any request but a watch.
    pub request_timeout: Duration,
}

/// Files that settings name, if they do.
#[derive(Clone, Debug, Default)]
pub struct KubernetesFiles {
    /// `fleet_tls_ca_file`.
    pub ca: Option<String>,
    /// `fleet_tls_cert_file` and `fleet_tls_key_file`.
    pub identity: Option<(String, String)>,
    /// `fleet_token_file`.
    pub token: Option<String>,
}

impl KubernetesOptions {
    /// The timeout where no setting says otherwise.
    pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

    /// What settings leave out is the pod's: `variable` is a variable of its environment.
    ///
    /// # Errors
    /// [`OptionsError`]: a file cannot be read, or the process is in no pod, and settings do not say what it would have.
    pub fn read(
        url: &KubernetesUrl,
        files: KubernetesFiles,
        (node, lease_s): (NodeId, u32),
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<KubernetesOptions, OptionsError> {
        let is_pod = url.api.is_none();
        let own = |name: &str| is_pod.then(|| format!("{SERVICE_ACCOUNT}/{name}"));
        let endpoint = match &url.api {
            Some(api) => api.clone(),
            None => pods_endpoint(variable)?,
        };
        let ca = files.ca.or_else(|| own("ca.crt")).ok_or_else(|| {
            OptionsError::Ca(
                "an API server that fleet names needs a file with its CA's certificate".to_owned(),
            )
        })?;
        let namespace = match (&url.namespace, own("namespace")) {
            (Some(namespace), _) => namespace.clone(),
            (None, Some(file)) => {
                let bytes = bytes(&file).map_err(|why| OptionsError::Host(format!("no namespace: {why}")))?;
                String::from_utf8_lossy(&bytes).trim().to_owned()
            }
            (None, None) => return Err(OptionsError::Host("a namespace is missing".to_owned())),
        };
        let pem = |file: &String| Some(bytes(file).map(Arc::from));
        let (cert, key) = match &files.identity {
            Some((cert, key)) => (pem(cert), pem(key)),
            None => (None, None),
        };
        let has_identity = files.identity.is_some();
        let token = files.token.or_else(|| own("token").filter(|_| !has_identity)).map(PathBuf::from);
        if token.is_none() && !has_identity {
            let why = "an API server that fleet names needs fleet_token_file, or fleet_tls_cert_file";
            return Err(OptionsError::Host(why.to_owned()));
        }
        let options = KubernetesOptions {
            endpoint,
            namespace,
            name: url.name.clone(),
            files: PemFiles { ca: pem(&ca), ca_is_systems: false, cert, key },
            token,
            node,
            lease_s: lease_s.max(1),
            request_timeout: KubernetesOptions::REQUEST_TIMEOUT,
        };
        options.tls().map(|_| options)
    }

    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, OptionsError> {
        kubernetes_tls_config(&self.files).map_err(|why| OptionsError::Tls(why.to_string()))
    }
}

/// The address by which this process reaches the API server of the cluster that it is in a pod of: the pod's own, or its host's. None outside of pods.
#[must_use]
pub fn pod_address(variable: impl Fn(&str) -> Option<String>) -> Option<IpAddr> {
    let StoreEndpoint { host, port } = pods_endpoint(variable).ok()?;
    let api: IpAddr = host.parse().ok()?;
    let any: IpAddr = if api.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Sends nothing: the kernel says which of its addresses it would send from.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((api, port)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The API server of the cluster, by what a kubelet puts into the environment of each container.
fn pods_endpoint(variable: impl Fn(&str) -> Option<String>) -> Result<StoreEndpoint, OptionsError> {
    let host =
        variable("KUBERNETES_SERVICE_HOST").filter(|host| host.parse::<IpAddr>().is_ok() || is_name(host));
    let port = variable("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse().ok());
    match (host, port) {
        (Some(host), Some(port)) => Ok(StoreEndpoint { host, port }),
        _ => Err(OptionsError::Host(
            "this process is in no pod of Kubernetes (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set): use kubernetes://HOST[:PORT]/NAMESPACE".to_owned(),
        )),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn bytes(file: &str) -> Result<Vec<u8>, String> {
    std::fs::read(Path::new(file)).map_err(|why| format!("cannot read \"{file}\": {why}"))
}

impl fmt::Debug for KubernetesOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KubernetesOptions({}, {}/{}, {})", self.endpoint, self.namespace, self.name, self.node)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(url: &str, files: KubernetesFiles, env: &[(&str, &str)]) -> String {
        let url = KubernetesUrl::parse(url).unwrap().unwrap();
        let variable =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        match KubernetesOptions::read(&url, files, ("a".into(), 3), variable) {
            Ok(options) => format!("{options:?}"),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = KubernetesFiles::default;
        let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("KUBERNETES_SERVICE_PORT", "443")];
        let outside = read("kubernetes", none(), &[]);
        assert!(outside.contains("fleet: this process is in no pod"), "{outside}");
        let half = read("kubernetes", none(), &pod[..1]);
        assert!(half.contains("fleet: this process is in no pod"), "{half}");
        let without_account = read("kubernetes:///", none(), &pod);
        assert!(without_account.contains("cannot read \"/var/run/secrets/"), "{without_account}");
        let without_ca = read("kubernetes://h/n", none(), &pod);
        assert!(without_ca.starts_with("fleet_tls_ca_file: an API server"), "{without_ca}");
        let ca = || Some("/nowhere".to_owned());
        let without_login = read("kubernetes://h/n", KubernetesFiles { ca: ca(), ..none() }, &[]);
        assert!(without_login.contains("needs fleet_token_file"), "{without_login}");
        let files = KubernetesFiles { ca: ca(), token: ca(), ..none() };
        let unreadable = read("kubernetes://h/n", files, &[]);
        assert!(unreadable.starts_with("fleet_tls_ca_file: cannot read \"/nowhere\""), "{unreadable}");
    }

    #[test]
    fn a_pods_address_may_be_an_ipv6_address() {
        let endpoint = |host: &str| {
            let host = host.to_owned();
            pods_endpoint(move |name| {
                Some(if name.ends_with("HOST") { host.clone() } else { "6443".to_owned() })
            })
        };
        assert_eq!(endpoint("fd00::1").unwrap().to_string(), "[fd00::1]:6443");
        assert_eq!(endpoint("api.example").unwrap().to_string(), "api.example:6443");
        assert!(endpoint("a b").is_err());
    }

    #[test]
    fn a_pod_knows_the_address_from_which_it_reaches_the_api_server() {
        let address = |host: &str| {
            let host = host.to_owned();
            pod_address(move |name| {
                Some(if name.ends_with("HOST") { host.clone() } else { "443".to_owned() })
            })
        };
        assert_eq!(address("127.0.0.9"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!((address("api.example"), pod_address(|_| None)), (None, None));
    }
}
