//! What moves bytes: epoll and io_uring behind one boundary, sockets, signals and helper threads.
//!
//! The driver starts one thread per shard, tells the shard what happened on its sockets ([`shard::Event`]) and does
//! what the shard wants done ([`shard::Action`]). It is the only crate with `unsafe`, confined to `sys`, `library`,
//! `ldap`, `pam`, `uring::ring` and `uring::buffers`. It never looks into the bytes and never decides who may do what.

mod acceptor;
mod auth_backends;
mod clock;
mod conn_move;
mod conn_table;
mod connect;
mod core;
mod engine;
mod entropy;
mod epoll;
mod event_loop;
mod fd_reserve;
mod helpers;
mod ids;
mod inherited;
mod inspect;
mod ldap;
mod library;
mod listen;
mod mailbox;
mod names;
mod options;
mod pam;
pub mod process;
mod process_registry;
mod shard_context;
pub mod signals;
mod sys;
pub mod syslog;
mod takeover;
mod thread_pool;
mod uring;
mod watchdog;

pub use crate::core::{Core, Held, Log, Reports};
pub use engine::{Engine, Plan, ShardArgs, StartFault};
pub use inherited::Inherited;
pub use listen::{ListenFault, Listeners, unix_path};
pub use process_registry::{ProcessRegistry, WantSlots};
pub use takeover::{Predecessor, TakeoverFault, TakeoverImport, TakeoverProgress};
pub use uring::{ReceiveBuffers, RingSize};
