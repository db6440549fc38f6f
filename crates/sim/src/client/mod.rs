//! Model clients: what they send (`script`: how, `choice`: what), what they make of answers (`answers`, `expect`), how they
//! begin, end (`session`) and misbehave (`manners`).

mod answers;
mod behaviour;
mod choice;
pub(crate) mod context;
pub(crate) mod expect;
mod heard;
mod login;
pub(crate) mod message;
mod script;
pub(crate) mod session;
mod session_choice;
pub(crate) mod shadow;
mod shadowed;
mod stream;
pub(crate) mod view;
pub(crate) mod wild;
