//! Model clients: what they send (`script`), what they must be answered (`expect`), how they behave (`session`).

pub(crate) mod expect;
pub(crate) mod script;
pub(crate) mod session;
pub(crate) mod view;
