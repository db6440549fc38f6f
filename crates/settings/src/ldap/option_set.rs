//! LDAP options as assigned one by one, and which of them may be combined.
//! `pairs` splits the text into options, `url` parses the one that sets several at once.

use super::url::Url;
use super::{BindMethod, Filter, Options, OptionsError, Scheme, Search, SearchScope};

/// Options as assigned, before their combination is checked.
#[derive(Default)]
pub(super) struct OptionSet {
    scheme: Option<Scheme>,
    servers: Vec<String>,
    port: Option<u16>,
    start_tls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    scope: Option<SearchScope>,
    bind_name: Option<String>,
    bind_password: Option<String>,
    attribute: Option<String>,
    pattern: Option<String>,
}

impl OptionSet {
    pub(super) fn assign(&mut self, name: &str, value: String) -> Result<(), OptionsError> {
        match name {
            "ldapscheme" => self.scheme = Some(Scheme::read(&value).ok_or(OptionsError::Scheme(value))?),
            "ldapserver" => self.servers = value.split_ascii_whitespace().map(str::to_owned).collect(),
            "ldapport" => {
                let port = value.parse().ok().filter(|port| *port != 0);
                self.port = Some(port.ok_or(OptionsError::Port(value))?);
            }
            "ldaptls" => self.start_tls = value == "1",
            "ldapprefix" => self.prefix = Some(value),
            "ldapsuffix" => self.suffix = Some(value),
            "ldapbasedn" => self.base = Some(value),
            "ldapbinddn" => self.bind_name = non_empty(value),
            super::PASSWORD => self.bind_password = non_empty(value),
            "ldapsearchattribute" => self.attribute = non_empty(value),
            "ldapsearchfilter" => self.pattern = non_empty(value),
            "ldapurl" => self.url(Url::parse(&value)?),
            _ => return Err(OptionsError::Unknown(name.to_owned())),
        }
        Ok(())
    }

    /// A URL sets several options at once. Its scope is set even where it is not written: RFC 4516 defaults to base.
    fn url(&mut self, url: Url) {
        self.scheme = Some(url.scheme);
        self.port = Some(url.port.unwrap_or(url.scheme.port()));
        self.base = Some(url.base);
        self.scope = Some(url.scope);
        if let Some(host) = url.host {
            self.servers = vec![host];
        }
        self.attribute = url.attribute.or(self.attribute.take());
        self.pattern = url.filter.or(self.pattern.take());
    }

    pub(super) fn options(self) -> Result<Options, OptionsError> {
        let scheme = self.scheme.unwrap_or(Scheme::Ldap);
        let (servers, start_tls) = (self.servers.clone(), self.start_tls);
        let port = self.port.unwrap_or(scheme.port());
        let way = self.way()?;
        let has_domain = matches!(&way, BindMethod::Search(search) if !search.base.is_empty());
        if servers.is_empty() && !has_domain {
            return Err(OptionsError::NoServer);
        }
        Ok(Options { scheme, servers, port, start_tls, way })
    }

    fn way(self) -> Result<BindMethod, OptionsError> {
        let binds = self.prefix.is_some() || self.suffix.is_some();
        let searches = self.base.is_some()
            || self.bind_name.is_some()
            || self.bind_password.is_some()
            || self.attribute.is_some()
            || self.pattern.is_some();
        match (binds, self.base) {
            (true, _) if searches => Err(OptionsError::Mixed),
            (true, _) => Ok(BindMethod::Bind {
                prefix: self.prefix.unwrap_or_default(),
                suffix: self.suffix.unwrap_or_default(),
            }),
            (false, None) => Err(OptionsError::NoBindMethod),
            (false, Some(base)) => Ok(BindMethod::Search(Search {
                base,
                scope: self.scope.unwrap_or(SearchScope::Subtree),
                bind_name: self.bind_name.unwrap_or_default(),
                bind_password: self.bind_password.unwrap_or_default(),
                filter: match (self.attribute, self.pattern) {
                    (Some(_), Some(_)) => return Err(OptionsError::TwoFilters),
                    (None, Some(pattern)) => Filter::Pattern(pattern),
                    (attribute, None) => Filter::Attribute(attribute.unwrap_or_else(|| "uid".to_owned())),
                },
            })),
        }
    }
}

fn non_empty(value: String) -> Option<String> {
    Some(value).filter(|value| !value.is_empty())
}
