//! SQL as far as a pooler needs it: which statements are the same but for their values, and what a statement may change.
//!
//! Owns a small lexer (PostgreSQL documentation, section "Lexical Structure") and the text that statements have in common.
//! Never parses and never fails: what is not recognised may do anything.
#![forbid(unsafe_code)]

mod cached_reads;
mod fingerprint;
mod hidden;
mod lexer;
mod parameterized;
mod pins;
mod plain;
pub mod probe;
mod read_only;
pub mod routing;
mod settings_set;
mod shape;
mod statement;
mod trace;

pub use cached_reads::{CachedRead, cached_read, has_special_time};
pub use fingerprint::{Fingerprint, TEXT_BYTES};
pub use hidden::{HiddenEffect, JudgedEffect, hidden_effect, judged_effect};
pub use lexer::Backslash;
pub use parameterized::parameterized;
pub use pins::plainly_pins;
pub use plain::plainly_hides_nothing;
pub use read_only::{READ_ONLY_TEXT_BYTES, ReadOnlyText, read_only};
pub use routing::{
    PriorityHint, RouteHint, Routing, RoutingNames, SeenTexts, is_implied_operator, priority_hint,
    route_hint, routing, routing_at_a_glance,
};
pub use settings_set::{SettingsSet, settings_set};
pub use shape::shape;
pub use statement::{
    Access, Changes, Command, ConfigCall, Discarded, FunctionName, Name, Scope, SetCommand, SettingValue,
    Statement, StatementNames, Target, Value, is_deallocate, is_prepare_of, may_name_statements,
    statement_names, statements,
};
pub use trace::{TraceParent, trace_parent};
