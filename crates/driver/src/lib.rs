//! What moves bytes: epoll and io_uring behind one boundary, sockets, signals and helper threads.
//!
//! The driver starts one thread per shard, tells the shard what happened on its sockets ([`shard::Event`]) and does
//! what the shard wants done ([`shard::Action`]). It is the only crate with `unsafe`, confined to `sys`, `library`,
//! `ldap`, `pam`, `uring::ring` and `uring::buffers`. It never looks into the bytes and never decides who may do what.

mod authorities;
mod clock;
mod connect;
mod core;
mod crew;
mod directory;
mod door;
mod engine;
mod entropy;
mod epoll;
mod fuse;
mod gate;
mod helpers;
mod inherited;
mod inspect;
mod ldap;
mod library;
mod listen;
mod mailbox;
mod names;
mod options;
mod outside;
mod pam;
mod parcel;
pub mod process;
pub mod signals;
mod succession;
mod sys;
pub mod syslog;
mod uring;

pub use crate::core::{Core, Held};
pub use directory::OneProcess;
pub use engine::{Engine, Log, Plan, Reports, Seat, StartFault};
pub use inherited::Inherited;
pub use listen::{ListenFault, Listeners, unix_path};
pub use succession::{Inheritance, News, Predecessor, TakeoverFault};
pub use uring::{ReceiveBuffers, RingSize};
