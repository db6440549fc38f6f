//! A store in the API server of Kubernetes: `kubernetes`, or `kubernetes://[HOST[:PORT]]/[NAMESPACE[/NAME]]`.
//!
//! Owns the spelling. What is left out is what a pod has: the API server of its cluster, and its own namespace.

use std::fmt;

use crate::store_endpoint::{EndpointError, StoreEndpoint};

const WORD: &str = "kubernetes";
const SCHEME: &str = "kubernetes://";

/// The port of HTTPS.
const DEFAULT_PORT: u16 = 443;

/// The name of a fleet where none is given.
const DEFAULT_NAME: &str = "weir";

/// The longest label of DNS (RFC 1123), and the longest value of a label of Kubernetes.
const MAX_LABEL_BYTES: usize = 63;

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesUrl {
    /// None: that of the cluster of which this process is in a pod.
    pub api: Option<StoreEndpoint>,
    /// None: the pod's own. A label of DNS.
    pub namespace: Option<String>,
    /// The fleet's: what its objects begin with and are labelled by. A label of DNS.
    pub name: String,
}

/// What is wrong with a URL: the setting's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesUrlError {
    /// A host or a port that is none.
    Endpoint(EndpointError),
    /// A namespace or name that is no label of DNS.
    Label(String),
    /// More than a namespace and a name.
    Behind,
    /// There is a host, but no namespace: it is no pod's.
    NoNamespace,
}

impl KubernetesUrl {
    /// Reads the setting; None of what does not begin as such a URL does.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<KubernetesUrl, KubernetesUrlError>> {
        if text.eq_ignore_ascii_case(WORD) {
            return Some(Ok(KubernetesUrl { api: None, namespace: None, name: DEFAULT_NAME.to_owned() }));
        }
        text.strip_prefix(SCHEME).map(parse)
    }
}

fn parse(rest: &str) -> Result<KubernetesUrl, KubernetesUrlError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let api = (!authority.is_empty())
        .then(|| StoreEndpoint::parse(authority, DEFAULT_PORT))
        .transpose()
        .map_err(KubernetesUrlError::Endpoint)?;
    let mut parts = path.strip_suffix('/').unwrap_or(path).split('/');
    let namespace = parts.next().filter(|part| !part.is_empty()).map(label).transpose()?;
    let name = parts.next().map_or_else(|| Ok(DEFAULT_NAME.to_owned()), label)?;
    match (parts.next(), &api, &namespace) {
        (Some(_), ..) => Err(KubernetesUrlError::Behind),
        (None, Some(_), None) => Err(KubernetesUrlError::NoNamespace),
        _ => Ok(KubernetesUrl { api, namespace, name }),
    }
}

fn label(text: &str) -> Result<String, KubernetesUrlError> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = (1..=MAX_LABEL_BYTES).contains(&text.len())
        && text.bytes().all(|byte| is_inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(is_inner)
        && text.bytes().last().is_some_and(is_inner);
    if is_label { Ok(text.to_owned()) } else { Err(KubernetesUrlError::Label(text.to_owned())) }
}

impl fmt::Display for KubernetesUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KubernetesUrl { api, namespace, name } = self;
        let has_name = name != DEFAULT_NAME;
        match (api, namespace) {
            (None, None) if !has_name => return out.write_str(WORD),
            (Some(api), _) => write!(out, "{SCHEME}{api}/")?,
            (None, _) => write!(out, "{SCHEME}/")?,
        }
        out.write_str(namespace.as_deref().unwrap_or_default())?;
        if has_name { write!(out, "/{name}") } else { Ok(()) }
    }
}

impl fmt::Display for KubernetesUrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KubernetesUrlError::Endpoint(why) => why.fmt(out),
            KubernetesUrlError::Label(text) => write!(
                out,
                "\"{}\" is no name of Kubernetes: 63 lower-case letters, digits and hyphens at most",
                text.escape_debug()
            ),
            KubernetesUrlError::Behind => out.write_str(
                "there is something behind the name: kubernetes://[HOST[:PORT]]/[NAMESPACE[/NAME]]",
            ),
            KubernetesUrlError::NoNamespace => {
                out.write_str("a namespace is missing: kubernetes://HOST[:PORT]/NAMESPACE[/NAME]")
            }
        }
    }
}

impl std::error::Error for KubernetesUrlError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> KubernetesUrl {
        KubernetesUrl::parse(text).unwrap().unwrap()
    }

    #[test]
    fn what_is_left_out_is_the_pods() {
        for (text, api, namespace, name) in [
            ("kubernetes", "", "", "weir"),
            ("Kubernetes", "", "", "weir"),
            ("kubernetes:///", "", "", "weir"),
            ("kubernetes:///db", "", "db", "weir"),
            ("kubernetes:///db/main-2/", "", "db", "main-2"),
            ("kubernetes:////main", "", "", "main"),
            ("kubernetes://api.example:6443/db", "api.example:6443", "db", "weir"),
            ("kubernetes://[::1]/db/main", "[::1]:443", "db", "main"),
        ] {
            let url = read(text);
            let api_shown = url.api.as_ref().map(ToString::to_string).unwrap_or_default();
            let found = (&*api_shown, url.namespace.as_deref().unwrap_or_default(), &*url.name);
            assert_eq!(found, (api, namespace, name), "{text}");
            assert_eq!(read(&url.to_string()), url, "{url}");
        }
        assert!(
            KubernetesUrl::parse("etcd://h/p").is_none() && KubernetesUrl::parse("kubernetes:/").is_none()
        );
    }

    #[test]
    fn each_error_names_what_is_wrong() {
        let long = format!("kubernetes:///{}", "x".repeat(64));
        for (text, why) in [
            ("kubernetes://h/", "a namespace is missing"),
            ("kubernetes://h", "a namespace is missing"),
            ("kubernetes://:1/n", "a host is missing"),
            ("kubernetes://h:0/n", "has a port"),
            ("kubernetes://u@h/n", "is no host"),
            ("kubernetes:///a/b/c", "behind the name"),
            ("kubernetes:///A", "\"A\" is no name"),
            ("kubernetes:///a.b", "is no name"),
            ("kubernetes:///-a", "is no name"),
            ("kubernetes:///a-", "is no name"),
            ("kubernetes:///a//", "is no name"),
            (&long, "is no name"),
        ] {
            let text = KubernetesUrl::parse(text).unwrap().map_err(|why| why.to_string());
            assert!(text.as_ref().is_err_and(|text| text.contains(why)), "{text:?}");
        }
    }
}
