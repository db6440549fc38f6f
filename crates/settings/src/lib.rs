//! Settings: one table of settings that the ini parser, SHOW CONFIG, SET, the sample file and the manual are generated
//! from. The syntax, names and defaults are PgBouncer's, plus a few settings of Weir's own. [`RawConfig`] is the unparsed
//! file, [`Config`] the validated settings. Does no I/O (files come through [`Files`]) and keeps no global state.
#![forbid(unsafe_code)]

mod check;
mod choice;
mod codec;
mod collector;
mod config;
mod connstr;
mod database;
mod diff;
mod etcd_url;
mod files;
mod finding;
mod fleet;
mod fleet_check;
mod fleet_part;
mod fleet_peers;
mod fleet_pools;
mod fleet_store_error;
mod global;
mod guarantees;
pub mod hba;
mod host_change;
pub mod ident;
mod identifier;
mod ini;
mod kubernetes_url;
pub mod ldap;
mod manual;
mod members;
mod network;
mod peer;
mod peer_group;
mod per_host;
mod percent;
mod pool_size;
mod pools;
mod pools_text;
pub mod probe;
mod queue_weights;
mod quotas_file;
mod raw_config;
mod replica_lag;
mod resolver;
mod show;
mod size;
mod store_endpoint;
mod table;
mod tls_files;
mod tokens;
mod topology;
mod user;
mod userlist;
mod value;

pub use check::{CheckReport, check, idle_settings};
pub use choice::{
    AuthType, ConnectionSharing, IoDriver, LoadBalance, PinAction, PoolMode, Priority, QueueBy, QueueOrder,
    QueuePriority, ReadAfterWrite, ReadConsistency, SessionState, SslMode, SyslogFacility,
    TargetSessionAttrs, Threads,
};
pub use collector::{Endpoint, Headers, Webhook};
pub use config::Config;
pub use database::{DATABASE, Database};
pub use diff::{Change, changes};
pub use etcd_url::{EtcdUrl, EtcdUrlError, EtcdUser};
pub use files::Files;
pub use finding::{Finding, Origin, Severity};
pub use fleet::{END_CLIENTS, FleetLimits, FleetStore, is_node_id};
pub use fleet_part::{FleetHolds, FleetPart, MOST_REVISION, digest};
pub use fleet_peers::{FleetPeer, FleetPeers};
pub use fleet_store_error::FleetStoreError;
pub use global::{GLOBAL, Global};
pub use host_change::HostChange;
pub use identifier::truncate_identifier;
pub use kubernetes_url::{KubernetesUrl, KubernetesUrlError};
pub use manual::{manual_rows, sample_ini};
pub use peer::{PEER, Peer};
pub use peer_group::PeerGroup;
pub use per_host::{PerHost, Ports, Weights};
pub use percent::percent_decode;
pub use pool_size::{PoolSize, SizeBounds};
pub use pools::{read_pools, with_pools};
pub use pools_text::{LineChange, PoolsText};
pub use queue_weights::QueueWeights;
pub use quotas_file::{quotas_path, read_quotas};
pub use raw_config::RawConfig;
pub use replica_lag::ReplicaLag;
pub use resolver::{left_settings, load, read_rules, reload};
pub use show::{SetError, ShowRow, set, show, shown_value};
pub use store_endpoint::{EndpointError, StoreEndpoint};
pub use table::{Compat, Effect, Row, Scope, SettingInfo, TakesEffect};
pub use tls_files::{Pem, PemFiles, TlsFiles};
pub use topology::{Member, Members, PatroniUrl, PatroniUrls, Topology};
pub use user::{USER, User};
pub use userlist::{USER_BYTES, Userlist};
pub use value::{BadValue, ValueKind};
