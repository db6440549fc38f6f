//! Options of a directory as they are said one by one, and which of them go together.
//! Owns that question alone. Never cuts a text into options: that is `words`, and `url` for what says several at once.

use super::url::Url;
use super::{Fault, Filter, Options, Scheme, Scope, Search, Way};

/// Options as they were said, before it is asked whether they go together.
#[derive(Default)]
pub(super) struct Said {
    scheme: Option<Scheme>,
    servers: Vec<String>,
    port: Option<u16>,
    start_tls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    scope: Option<Scope>,
    bind_name: Option<String>,
    bind_password: Option<String>,
    attribute: Option<String>,
    pattern: Option<String>,
}

impl Said {
    pub(super) fn assign(&mut self, name: &str, value: String) -> Result<(), Fault> {
        match name {
            "ldapscheme" => self.scheme = Some(Scheme::read(&value).ok_or(Fault::Scheme(value))?),
            "ldapserver" => self.servers = value.split_ascii_whitespace().map(str::to_owned).collect(),
            "ldapport" => {
                let port = value.parse().ok().filter(|port| *port != 0);
                self.port = Some(port.ok_or(Fault::Port(value))?);
            }
            "ldaptls" => self.start_tls = value == "1",
            "ldapprefix" => self.prefix = Some(value),
            "ldapsuffix" => self.suffix = Some(value),
            "ldapbasedn" => self.base = Some(value),
            "ldapbinddn" => self.bind_name = filled(value),
            super::PASSWORD => self.bind_password = filled(value),
            "ldapsearchattribute" => self.attribute = filled(value),
            "ldapsearchfilter" => self.pattern = filled(value),
            "ldapurl" => self.url(Url::parse(&value)?),
            _ => return Err(Fault::Unknown(name.to_owned())),
        }
        Ok(())
    }

    /// A URL says several things at once. Its scope is said even where it is not written: RFC 4516 means the base alone.
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

    pub(super) fn options(self) -> Result<Options, Fault> {
        let scheme = self.scheme.unwrap_or(Scheme::Ldap);
        let (servers, start_tls) = (self.servers.clone(), self.start_tls);
        let port = self.port.unwrap_or(scheme.port());
        let way = self.way()?;
        let has_domain = matches!(&way, Way::Search(search) if !search.base.is_empty());
        if servers.is_empty() && !has_domain {
            return Err(Fault::NoServer);
        }
        Ok(Options { scheme, servers, port, start_tls, way })
    }

    fn way(self) -> Result<Way, Fault> {
        let binds = self.prefix.is_some() || self.suffix.is_some();
        let searches = self.base.is_some()
            || self.bind_name.is_some()
            || self.bind_password.is_some()
            || self.attribute.is_some()
            || self.pattern.is_some();
        match (binds, self.base) {
            (true, _) if searches => Err(Fault::Mixed),
            (true, _) => Ok(Way::Bind {
                prefix: self.prefix.unwrap_or_default(),
                suffix: self.suffix.unwrap_or_default(),
            }),
            (false, None) => Err(Fault::NoWay),
            (false, Some(base)) => Ok(Way::Search(Search {
                base,
                scope: self.scope.unwrap_or(Scope::Subtree),
                bind_name: self.bind_name.unwrap_or_default(),
                bind_password: self.bind_password.unwrap_or_default(),
                filter: match (self.attribute, self.pattern) {
                    (Some(_), Some(_)) => return Err(Fault::TwoFilters),
                    (None, Some(pattern)) => Filter::Pattern(pattern),
                    (attribute, None) => Filter::Attribute(attribute.unwrap_or_else(|| "uid".to_owned())),
                },
            })),
        }
    }
}

fn filled(value: String) -> Option<String> {
    Some(value).filter(|value| !value.is_empty())
}
