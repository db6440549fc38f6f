//! The protocol state of one client's and one server's connection, and which replies are still owed.
//!
//! Owns the protocol states of both sides as pure values: where a frame ends, which replies a server still owes,
//! prepared statements under two names, tracked parameters, logins. Never knows the pool, the clock or a socket.
#![forbid(unsafe_code)]

pub mod analyses;
mod cached_request;
pub mod changing_relations;
mod client_statements;
pub mod description;
mod encodings;
pub mod fault;
mod first_answer;
pub mod internal_result;
mod learned_settings;
pub mod listening;
pub mod options;
pub mod parameters;
pub mod parse_settings;
mod pin_reason;
mod pinning_request;
pub mod prepared;
pub mod probe;
mod refused_request;
mod replay;
pub mod replication;
pub mod reply;
mod reply_queue;
mod reported;
pub mod request;
mod request_routing;
pub mod resets;
pub mod routing_catalog;
pub mod server_identity;
pub mod server_login;
pub mod server_position;
pub mod server_protocol;
pub mod server_statements;
mod session_settings;
mod session_state;
mod sql_statements;
pub mod startup_request;
mod statement_guard;
mod statement_text;
mod transaction_control;

pub use cached_request::{AnswerEnd, CachedRequest, answer_end};
pub use client_statements::{ClientStatements, Lookup};
pub use description::Description;
pub use fault::{ClientFault, ServerFault};
pub use first_answer::{AfterRefusal, Cause, FirstAnswer, Refusal};
pub use internal_result::{InternalResult, Row};
pub use learned_settings::LearnedSettings;
pub use listening::Listening;
pub use parameters::{Parameters, Tracked};
pub use parse_settings::{Catalog, ParseSettings};
pub use pinning_request::{asks_for_sequence_values, request_pins, request_priority, request_selects};
pub use prepared::{ImportedStatement, Scope, StatementId, StatementRegistry};
pub use refused_request::{RefusedAnswer, RefusedMessage, RefusedRequest};
pub use replication::Replication;
pub use reply::{ErrorSeen, ReplyContext, ReplyOutcome};
pub(crate) use reply_queue::{PendingReply, Reader, ReplyQueue};
pub use request::{ClientStream, FirstMessage, RequestContext, RequestOutcome, first_message};
pub use request_routing::{
    JudgedRequest, RequestRouting, TextJudge, TextRouting, has_flush, request_end, request_routing,
};
pub use resets::Reset;
pub use server_identity::ServerIdentity;
pub use server_login::{LoginContext, LoginStep, ServerInfo, ServerLogin};
pub use server_position::ServerPosition;
pub use server_protocol::{Boundary, DISCARD_SEQUENCES, ServerProtocol};
pub use server_statements::ServerStatements;
pub use session_settings::SessionSettings;
pub use session_state::{Channels, Kinds, Pin, Pins, SessionState};
pub use sql_statements::{ReadBy, SqlStatements};
pub use startup_request::StartupRequest;
pub use statement_guard::{GuardMode, StatementGuard};
pub use transaction_control::TransactionControl;

/// Where a step's bytes go. The caller knows the sockets; a step only names the side.
///
/// What is forwarded and what is written to one side keeps its order.
pub trait Output {
    /// Sends `input[start..end]` on, unchanged, to the other side.
    fn forward(&mut self, input: &[u8], start: usize, end: usize);
    /// Appends a message of Weir's own for the client.
    fn to_client(&mut self, write: impl FnOnce(&mut Vec<u8>));
    /// Appends a message of Weir's own for the server, behind a whole message.
    fn to_server(&mut self, at: Boundary, write: impl FnOnce(&mut Vec<u8>));
}
