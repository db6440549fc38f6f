//! A client and the server that is checked out for it: linking, relaying, releasing.

pub(crate) mod backpressure;
pub(crate) mod checkout;
pub(crate) mod first_message;
pub(crate) mod freed;
pub(crate) mod parameters;
pub(crate) mod relay;
pub(crate) mod shuffle;
pub(crate) mod startup_values;
