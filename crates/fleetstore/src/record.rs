//! A node's record as a store keeps it.
