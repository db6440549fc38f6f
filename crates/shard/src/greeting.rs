//! The greeting of a client after its login: the parameters that its servers report, and those of Weir itself.
//!
//! Owns PgBouncer 1.26's parameters, by which a driver detects a pooler and its capabilities, the administrator's
//! message, and the last greeting of each pool: most clients of a pool get the same. Never decides when it is sent.

use session::{Parameters, ServerInfo, Tracked};
use settings::{Global, PoolMode};
use wire::backend::Status;
use wire::encode;

use crate::cancel_key::Key;

/// The value of `pgbouncer.version`: the PgBouncer that Weir replaces.
const PGBOUNCER_VERSION: &str = "1.25.2";

/// What the servers of a pool reported at login.
pub(crate) struct ServerGreeting {
    pub(crate) info: ServerInfo,
    last: Option<Last>,
}

/// A greeting, and all that it was made of beside the [`ServerInfo`].
struct Last {
    asked: Parameters,
    default_params: Parameters,
    mode: PoolMode,
    max_prepared_statements: u32,
    greeting: ClientGreeting,
}

impl ServerGreeting {
    /// Without a cached greeting.
    pub(crate) fn new(info: ServerInfo) -> Box<ServerGreeting> {
        Box::new(ServerGreeting { info, last: None })
    }

    /// The greeting of a client that asked for these parameters. The others have the server's defaults.
    pub(crate) fn greeting(
        &mut self,
        asked: &Parameters,
        default_params: &Parameters,
        tracked: &Tracked,
        pooler: &PoolerInfo<'_>,
    ) -> &ClientGreeting {
        let (mode, max_prepared_statements) = (pooler.mode, pooler.global.max_prepared_statements);
        let is_same = |last: &Last| {
            last.default_params.shared_with(default_params)
                && (last.mode, last.max_prepared_statements) == (mode, max_prepared_statements)
                && last.asked.same(asked)
        };
        let kept = self.last.take_if(|last| is_same(last));
        let last = kept.unwrap_or_else(|| Last {
            asked: asked.clone(),
            default_params: default_params.clone(),
            mode,
            max_prepared_statements,
            greeting: ClientGreeting::new(&self.info, default_params.overlaid_by(asked), tracked, pooler),
        });
        &self.last.insert(last).greeting
    }
}

/// The greeting of clients with these parameters, without the cancel key.
pub(crate) struct ClientGreeting {
    pub(crate) parameters: Parameters,
    text: Vec<u8>,
}

impl ClientGreeting {
    /// The greeting for these parameters by servers that report this.
    pub(crate) fn new(
        info: &ServerInfo,
        parameters: Parameters,
        tracked: &Tracked,
        pooler: &PoolerInfo<'_>,
    ) -> ClientGreeting {
        let mut text = Vec::new();
        encode::authentication_ok(&mut text);
        for (name, value) in &info.parameters {
            let own = tracked.position(name).and_then(|position| parameters.text(position));
            encode::parameter_status(&mut text, name, own.map_or(value, |own| own.as_bytes()));
        }
        pooler.report(&mut text);
        ClientGreeting { parameters, text }
    }

    /// AuthenticationOk, the parameters, the cancel key, the administrator's message, ReadyForQuery.
    pub(crate) fn write(&self, out: &mut Vec<u8>, key: &Key, pooler: &PoolerInfo<'_>) {
        out.extend_from_slice(&self.text);
        encode::key_data(out, key.process_id(), key.secret());
        pooler.notify(out);
        encode::ready(out, Status::Idle);
    }
}

/// What a greeting reports of the pooler.
pub(crate) struct PoolerInfo<'a> {
    pub(crate) global: &'a Global,
    /// The pool's.
    pub(crate) mode: PoolMode,
}

impl PoolerInfo<'_> {
    /// ParameterStatus of the pooler's own.
    pub(crate) fn report(&self, out: &mut Vec<u8>) {
        let mode = match self.mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
            PoolMode::Statement => "statement",
        };
        let statements = self.global.max_prepared_statements.to_string();
        let values = [
            ("pgbouncer.version", PGBOUNCER_VERSION),
            ("pgbouncer.pool_mode", mode),
            ("pgbouncer.max_prepared_statements", &statements),
        ];
        for (name, value) in values {
            encode::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
    }

    /// `login_notify_message`, as a notice.
    pub(crate) fn notify(&self, out: &mut Vec<u8>) {
        if let Some(message) = &self.global.login_notify_message {
            encode::notice(out, "NOTICE", "00000", message);
        }
    }
}
