//! The authentication method of a client: by `auth_type`, or the HBA rule that matches its connection.
//! Owns the choice, and the errors for clients that no rule admits. Never carries a method out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use auth::{AuthBackend, CertificateFault, ClientFault, Fault, Method, hba};
use session::StartupRequest;
use session::replication::Kind;
use settings::hba::RuleMethod;
use settings::{AuthType, ldap};
use telemetry::Level;
use wire::{encode, sqlstate};

use crate::client::Phase;
use crate::client::login::{AuthRequirement, Refusal};
use crate::core::Core;
use crate::link::client_end;
use crate::state::ShardState;
use crate::{ConnId, Peer};

impl ShardState {
    /// Refuses a client with PgBouncer's text, and PostgreSQL's sentence as the detail.
    pub(crate) fn refuse(&mut self, conn: ConnId, refusal: Refusal) {
        let address = self.core.address(conn);
        let encryption = if self.core.is_encrypted(conn) { "SSL encryption" } else { "no encryption" };
        let Some(client) = self.core.client(conn) else { return };
        let Phase::Login(login) = &client.phase else { return };
        let host = address.map_or_else(|| "[local]".to_owned(), |address| address.to_string());
        let (database, user) = (&login.startup_request.database, &login.startup_request.user);
        let (who, from, replication) = if is_physical(&login.startup_request) {
            (
                format!("host \"{host}\", user \"{user}\", {encryption}"),
                "replication connection from ",
                "replication ",
            )
        } else {
            (format!("host \"{host}\", user \"{user}\", database \"{database}\", {encryption}"), "", "")
        };
        let (text, detail) = match refusal {
            Refusal::NoDirectory => return self.login_refused(conn, ClientFault::Ldap.into()),
            Refusal::NoRule => {
                ("no authentication method is found", format!("no pg_hba.conf entry for {from}{who}"))
            }
            Refusal::Rejected => {
                ("login rejected", format!("pg_hba.conf rejects {replication}connection for {who}"))
            }
        };
        client_end::log_client_disconnect(&mut self.core, conn, text);
        if self.core.config.global.log_pooler_errors {
            self.core.log_client(conn, Level::Warning, &format!("pooler error: {text} ({detail})"));
        }
        let code = sqlstate::INVALID_AUTHORIZATION;
        self.core.count_error(conn, code);
        self.core.outbox.write(conn, |out| encode::error_with_detail(out, "FATAL", code, text, &detail));
        client_end::dismiss_client(&mut self.core, conn);
    }
}

impl Core {
    /// The requirement for this client, whose startup packet was read; `roles` are those of its user, if they are known.
    pub(crate) fn auth_requirement(
        &mut self,
        conn: ConnId,
        startup_request: &StartupRequest,
        roles: Option<&BTreeSet<String>>,
    ) -> AuthRequirement {
        let method = match self.config.global.auth_type {
            AuthType::Any => Method::Any,
            AuthType::Trust => Method::Trust,
            AuthType::Plain => Method::Plain,
            AuthType::Md5 => Method::Md5,
            AuthType::ScramSha256 => Method::Scram,
            AuthType::Cert => return AuthRequirement::Certificate(None),
            AuthType::Peer => return AuthRequirement::Peer(None),
            AuthType::Hba => return self.rule_requirement(conn, startup_request, roles),
            AuthType::Ldap => {
                let rule = self.config.global.auth_ldap_options.clone();
                return self.by_directory(conn, &rule);
            }
            AuthType::Pam => return AuthRequirement::External(AuthBackend::Pam),
        };
        AuthRequirement::Exchange(method)
    }

    fn rule_requirement(
        &mut self,
        conn: ConnId,
        startup_request: &StartupRequest,
        roles: Option<&BTreeSet<String>>,
    ) -> AuthRequirement {
        let approach = hba::ConnectionInfo {
            address: self.address(conn),
            encrypted: self.is_encrypted(conn),
            physical_replication: is_physical(startup_request),
            database: &startup_request.database,
            user: &startup_request.user,
            roles,
        };
        let rule = match hba::rule(&self.config.hba, &approach) {
            hba::RuleLookup::Rule(rule) => rule,
            hba::RuleLookup::Nothing => return AuthRequirement::Refusal(Refusal::NoRule),
            hba::RuleLookup::NeedsRoles => return AuthRequirement::Roles,
        };
        let line = rule.line;
        let requirement = match &rule.method {
            RuleMethod::Trust => AuthRequirement::Exchange(Method::Trust),
            RuleMethod::Plain => AuthRequirement::Exchange(Method::Plain),
            RuleMethod::Md5 => AuthRequirement::Exchange(Method::Md5),
            RuleMethod::Scram => AuthRequirement::Exchange(Method::Scram),
            RuleMethod::Peer => AuthRequirement::Peer(rule.map.clone()),
            RuleMethod::Cert => AuthRequirement::Certificate(rule.map.clone()),
            RuleMethod::Ldap(rule) => {
                let rule = rule.clone();
                self.by_directory(conn, &rule)
            }
            RuleMethod::Reject => AuthRequirement::Refusal(Refusal::Rejected),
        };
        let text = format!("HBA Line {line} is matched");
        self.log_client(conn, Level::Noise, &text);
        requirement
    }

    /// Why the rules let a client in no longer, as far as they do not hang on the roles of its user.
    pub(crate) fn refusal_by_rule(
        &mut self,
        conn: ConnId,
        startup_request: &StartupRequest,
    ) -> Option<Refusal> {
        let approach = hba::ConnectionInfo {
            address: self.address(conn),
            encrypted: self.is_encrypted(conn),
            physical_replication: is_physical(startup_request),
            database: &startup_request.database,
            user: &startup_request.user,
            roles: None,
        };
        match hba::rule(&self.config.hba, &approach) {
            hba::RuleLookup::Rule(rule) => {
                matches!(rule.method, RuleMethod::Reject).then_some(Refusal::Rejected)
            }
            hba::RuleLookup::Nothing => Some(Refusal::NoRule),
            hba::RuleLookup::NeedsRoles => None,
        }
    }

    /// Invalid options admit no client.
    fn by_directory(&mut self, conn: ConnId, rule: &ldap::LdapRule) -> AuthRequirement {
        match rule.options() {
            Ok(options) => AuthRequirement::External(AuthBackend::Ldap(Arc::clone(options))),
            Err(fault) => {
                self.log_client(conn, Level::Warning, &fault.to_string());
                AuthRequirement::Refusal(Refusal::NoDirectory)
            }
        }
    }

    fn is_encrypted(&mut self, conn: ConnId) -> bool {
        self.client(conn).is_some_and(|client| client.tls.is_some())
    }

    /// Where a TCP client is; None for a unix socket.
    pub(crate) fn address(&mut self, conn: ConnId) -> Option<IpAddr> {
        match self.client(conn)?.peer {
            Peer::Inet { remote, .. } => Some(remote.ip()),
            Peer::Unix { .. } => None,
        }
    }

    /// What the log says of a failed proof, where that is more than the client hears: PgBouncer's words.
    pub(crate) fn refusal_detail(&mut self, conn: ConnId, fault: Fault) -> Option<String> {
        let map = match &self.client(conn)?.phase {
            Phase::Login(login) => login.map.as_ref().map(|map| map.name.as_str()).unwrap_or_default(),
            _ => "",
        };
        match fault {
            Fault::Client(ClientFault::PeerMap) => Some(format!("ident map {map} cannot be matched")),
            Fault::Client(ClientFault::Certificate(CertificateFault::Map)) => {
                Some(format!("ident map: {map} does not have a match"))
            }
            _ => fault.detail().map(str::to_owned),
        }
    }
}

/// Physical replication: of the whole cluster, so that no database matches.
fn is_physical(startup_request: &StartupRequest) -> bool {
    startup_request.replication.as_ref().is_some_and(|wanted| wanted.kind == Kind::Physical)
}
