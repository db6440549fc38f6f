//! A client and the server that is lent to it: how they come together, what passes between them, how they part.

pub(crate) mod backpressure;
pub(crate) mod checkout;
pub(crate) mod first_message;
pub(crate) mod parameters;
pub(crate) mod relay;
pub(crate) mod startup_values;
