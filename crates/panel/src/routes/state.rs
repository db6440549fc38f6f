//! What the routes are given: each handler extracts the services that it uses, and no more.
//! Owns the list of services. Never calls one.

use std::sync::Arc;

use axum::extract::FromRef;

use crate::access::Access;
use crate::access::audit_log::AuditLog;
use crate::alerts::AlertRegistry;
use crate::audit_trail::AuditTrail;
use crate::context::PanelContext;
use crate::control_client::ControlClient;
use crate::gauges::Gauges;
use crate::lab::LabRunner;
use crate::live::LiveSampler;
use crate::log_ring::LogReaders;
use crate::metrics::MetricsSource;
use crate::pool_service::PoolService;
use crate::query_trends::QueryTrends;

/// The services, and how a handler gets each by its type.
macro_rules! services {
    ($($service:ident: $kind:ty,)*) => {
        /// Every service that a route may use.
        #[derive(Clone)]
        pub(crate) struct RouteState {
            $(pub(crate) $service: $kind,)*
        }

        $(impl FromRef<RouteState> for $kind {
            fn from_ref(state: &RouteState) -> $kind {
                state.$service.clone()
            }
        })*
    };
}

services! {
    context: PanelContext,
    control_client: Arc<ControlClient>,
    pools: PoolService,
    access: Arc<Access>,
    audit_log: AuditLog,
    audit_trail: Arc<AuditTrail>,
    log: Arc<LogReaders>,
    live: Arc<LiveSampler>,
    query_trends: Arc<QueryTrends>,
    gauges: Arc<Gauges>,
    alerts: Arc<AlertRegistry>,
    metrics: MetricsSource,
    lab: Arc<LabRunner>,
}
