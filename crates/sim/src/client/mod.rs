//! Model clients: what they send (`script`: how, `choice`: what), what they make of answers (`answers`, `expect`), how they
//! begin, end (`session`) and misbehave (`manners`).

mod answers;
mod choice;
pub(crate) mod expect;
mod login;
mod manners;
pub(crate) mod message;
pub(crate) mod scene;
mod script;
pub(crate) mod session;
pub(crate) mod shadow;
mod shadowed;
mod stream;
pub(crate) mod view;
pub(crate) mod wild;
