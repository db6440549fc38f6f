//! The authentication method of a client: by `auth_type`, or the HBA rule that matches its connection.
//! Owns the choice, and the errors for clients that no rule admits. Never carries a method out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use auth::{AuthBackend, CertificateFault, CheckResult, ClientFault, Fault, Method, TaskResult, hba};
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
use crate::login::Logins;
use crate::{ConnId, Peer};

impl Logins {
    /// Refuses a client with PgBouncer's text, and PostgreSQL's sentence as the detail.
    pub(crate) fn refuse(&mut self, core: &mut Core, conn: ConnId, refusal: Refusal) {
        let address = address(core, conn);
        let encryption = if is_encrypted(core, conn) { "SSL encryption" } else { "no encryption" };
        let Some(client) = core.client(conn) else { return };
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
            Refusal::NoDirectory => return self.login_refused(core, conn, ClientFault::Ldap.into()),
            Refusal::NoRule => {
                ("no authentication method is found", format!("no pg_hba.conf entry for {from}{who}"))
            }
            Refusal::Rejected => {
                ("login rejected", format!("pg_hba.conf rejects {replication}connection for {who}"))
            }
        };
        client_end::log_client_disconnect(core, conn, text);
        if core.config.global.log_pooler_errors {
            core.log_client(conn, Level::Warning, &format!("pooler error: {text} ({detail})"));
        }
        let code = sqlstate::INVALID_AUTHORIZATION;
        core.count_error(conn, code);
        core.outbox.write(conn, |out| encode::error_with_detail(out, "FATAL", code, text, &detail));
        client_end::dismiss_client(core, conn);
    }
}

/// The requirement for this client, whose startup packet was read; `roles` are those of its user, if they are known.
pub(crate) fn auth_requirement(
    core: &mut Core,
    conn: ConnId,
    startup_request: &StartupRequest,
    roles: Option<&BTreeSet<String>>,
) -> AuthRequirement {
    let method = match core.config.global.auth_type {
        AuthType::Any => Method::Any,
        AuthType::Trust => Method::Trust,
        AuthType::Plain => Method::Plain,
        AuthType::Md5 => Method::Md5,
        AuthType::ScramSha256 => Method::Scram,
        AuthType::Cert => return AuthRequirement::Certificate(None),
        AuthType::Peer => return AuthRequirement::Peer(None),
        AuthType::Hba => return rule_requirement(core, conn, startup_request, roles),
        AuthType::Ldap => {
            let rule = core.config.global.auth_ldap_options.clone();
            return by_directory(core, conn, &rule);
        }
        AuthType::Pam => return AuthRequirement::External(AuthBackend::Pam),
    };
    AuthRequirement::Exchange(method)
}

fn rule_requirement(
    core: &mut Core,
    conn: ConnId,
    startup_request: &StartupRequest,
    roles: Option<&BTreeSet<String>>,
) -> AuthRequirement {
    let approach = hba::ConnectionInfo {
        address: address(core, conn),
        encrypted: is_encrypted(core, conn),
        physical_replication: is_physical(startup_request),
        database: &startup_request.database,
        user: &startup_request.user,
        roles,
    };
    let rule = match hba::rule(&core.config.hba, &approach) {
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
            by_directory(core, conn, &rule)
        }
        RuleMethod::Reject => AuthRequirement::Refusal(Refusal::Rejected),
    };
    let text = format!("HBA Line {line} is matched");
    core.log_client(conn, Level::Noise, &text);
    requirement
}

/// Why the rules let a client in no longer, as far as they do not hang on the roles of its user.
pub(crate) fn refusal_by_rule(
    core: &mut Core,
    conn: ConnId,
    startup_request: &StartupRequest,
) -> Option<Refusal> {
    let approach = hba::ConnectionInfo {
        address: address(core, conn),
        encrypted: is_encrypted(core, conn),
        physical_replication: is_physical(startup_request),
        database: &startup_request.database,
        user: &startup_request.user,
        roles: None,
    };
    match hba::rule(&core.config.hba, &approach) {
        hba::RuleLookup::Rule(rule) => matches!(rule.method, RuleMethod::Reject).then_some(Refusal::Rejected),
        hba::RuleLookup::Nothing => Some(Refusal::NoRule),
        hba::RuleLookup::NeedsRoles => None,
    }
}

/// Invalid options admit no client.
fn by_directory(core: &mut Core, conn: ConnId, rule: &ldap::LdapRule) -> AuthRequirement {
    match rule.options() {
        Ok(options) => AuthRequirement::External(AuthBackend::Ldap(Arc::clone(options))),
        Err(fault) => {
            core.log_client(conn, Level::Warning, &fault.to_string());
            AuthRequirement::Refusal(Refusal::NoDirectory)
        }
    }
}

fn is_encrypted(core: &mut Core, conn: ConnId) -> bool {
    core.client(conn).is_some_and(|client| client.tls.is_some())
}

/// Where a TCP client is; None for a unix socket.
fn address(core: &mut Core, conn: ConnId) -> Option<IpAddr> {
    match core.client(conn)?.peer {
        Peer::Inet { remote, .. } => Some(remote.ip()),
        Peer::Unix { .. } => None,
    }
}

/// What the log says of a failed proof, where that is more than the client hears: PgBouncer's words.
pub(crate) fn refusal_detail(core: &mut Core, conn: ConnId, fault: Fault) -> Option<String> {
    let map = match &core.client(conn)?.phase {
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

/// Physical replication: of the whole cluster, so that no database matches.
fn is_physical(startup_request: &StartupRequest) -> bool {
    startup_request.replication.as_ref().is_some_and(|wanted| wanted.kind == Kind::Physical)
}

/// Where a client is, for the records of others.
pub(crate) fn remote(peer: Peer) -> String {
    match peer {
        Peer::Inet { remote, .. } => remote.ip().to_string(),
        Peer::Unix { .. } => "unix".to_owned(),
    }
}

/// Their reasons are for the log alone: a client must not learn whether the name or the password was wrong.
pub(crate) fn log_verdict(core: &mut Core, conn: ConnId, answer: &TaskResult) {
    if let TaskResult::Checked(CheckResult::Refused(reason)) = answer {
        core.log_client(conn, Level::Warning, reason);
    }
}
