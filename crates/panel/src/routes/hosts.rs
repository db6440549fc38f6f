//! The hosts of entries whose reads go to standbys (`read_write_split`), and what each entry is in.
//! Never changes anything.

use std::sync::Arc;

use axum::Json;
use axum::extract;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use control::{CLUSTERS, ClusterColumn, HOSTS, HostColumn};
use serde::{Deserialize, Serialize};
use settings::Config;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::audit_trail::{AuditTrail, Mark};
use crate::context::PanelContext;
use crate::control_client::ControlClient;
use crate::extract::QueryParameters;
use crate::failure::{Failure, FailureBody};
use crate::live::{HostSeries, LiveSampler, TimeSpan, is_lagging};
use crate::routes::Routes;
use crate::routes::live::{HistoryFormat, csv_response};
use crate::table::ViewRow;
use crate::time::rfc3339;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(hosts)).routes(routes!(host_history))
}

/// Which hosts.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HostsQuery {
    /// Of this entry.
    database: Option<String>,
}

/// A host of an entry.
#[derive(Serialize, ToSchema)]
struct HostView {
    /// The entry.
    database: String,
    host: String,
    port: u64,
    /// `primary`, `standby`, `down`, `detached`, `noloadbalance` or `unknown`.
    state: String,
    /// DETACH is in force.
    detached: bool,
    /// It is a standby that is further behind than `max_replica_lag`: it gets no reads.
    lagging: bool,
    /// RFC 3339; since when it is in that state. Null while that is not known.
    #[schema(required)]
    since: Option<String>,
    #[schema(required)]
    timeline: Option<u64>,
    /// The position that a standby has replayed, or the last known of the primary, as PostgreSQL writes it.
    #[schema(required)]
    replay_lsn: Option<String>,
    /// How far a standby is behind.
    #[schema(required)]
    lag_bytes: Option<u64>,
    #[schema(required)]
    lag_seconds: Option<f64>,
    /// Requests that were sent there because they read.
    reads: u64,
    servers_active: u64,
    servers_idle: u64,
    servers_login: u64,
    /// Why it cannot be logged in to, or was not the last time.
    #[schema(required)]
    last_error: Option<String>,
}

/// What an entry is in.
#[derive(Serialize, ToSchema)]
struct HostsSummary {
    /// The entry.
    database: String,
    /// Its reads go to standbys: hosts can be detached, and their reads and connections are counted.
    read_write_split: bool,
    /// Standbys that may serve reads.
    standbys: u64,
    /// Host and port.
    #[schema(required)]
    primary: Option<String>,
    /// `ok`, `no primary`, `no standby`, `two primaries`, `unknown` or `not watched`.
    state: String,
    /// What to do about it.
    detail: String,
    /// Where the knowledge of its servers comes from: `probe` or `patroni`.
    topology: String,
    /// Of `patroni`: `ok`, `waiting`, `unreachable`, `untrusted`, `invalid`, `no leader`, `leader is a standby` or `other hosts`.
    #[schema(required)]
    topology_state: Option<String>,
    /// What to do about it.
    #[schema(required)]
    topology_detail: Option<String>,
}

/// Entries and their hosts.
#[derive(Serialize, ToSchema)]
struct Hosts {
    entries: Vec<HostsSummary>,
    hosts: Vec<HostView>,
}

/// Entries of whose hosts some are primaries or standbys, and their hosts.
#[utoipa::path(get, path = "/api/v1/hosts", params(HostsQuery), responses(
    (status = 200, body = Hosts), (status = 401, body = crate::failure::FailureBody)))]
async fn hosts(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(context): extract::State<PanelContext>,
    QueryParameters(wanted): QueryParameters<HostsQuery>,
) -> Result<Json<Hosts>, Failure> {
    let (hosts, entries) = tokio::try_join!(control_client.show(HOSTS), control_client.show(CLUSTERS))?;
    let config = context.config();
    let is_wanted = |database: &str| wanted.database.as_deref().is_none_or(|wanted| wanted == database);
    Ok(Json(Hosts {
        entries: entries.iter().map(|row| summary(row, &config)).filter(|entry| is_wanted(&entry.database)).collect(),
        hosts: hosts.iter().map(|row| host(row, &config)).filter(|host| is_wanted(&host.database)).collect(),
    }))
}

/// Of which hosts and which time.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HostHistoryQuery {
    /// Of this entry.
    database: String,
    /// How much of the series, up to 86400: in steps of 1 s up to ten minutes ago, of 10 s up to two hours ago, else of a minute.
    seconds: Option<u64>,
    /// Instead: the first second, since 1970.
    from: Option<u64>,
    /// The last second; else the newest.
    to: Option<u64>,
    /// csv for a table of comma-separated values; so does the header Accept: text/csv.
    #[param(inline)]
    format: Option<HistoryFormat>,
}

/// The past of an entry's hosts and what was done meanwhile.
#[derive(Serialize, ToSchema)]
struct HostsHistory {
    #[serde(flatten)]
    series: HostSeries,
    /// What changed something: edits, commands, reloads, starts and takeovers.
    marks: Vec<Mark>,
}

/// How far the hosts of an entry were behind, for a chart, and when their states and timelines changed.
#[utoipa::path(get, path = "/api/v1/hosts/history", params(HostHistoryQuery), responses(
    (status = 200, body = HostsHistory), (status = 401, body = FailureBody)))]
async fn host_history(
    _: Authorized<Read>,
    extract::State(sampler): extract::State<Arc<LiveSampler>>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    headers: HeaderMap,
    QueryParameters(of): QueryParameters<HostHistoryQuery>,
) -> Response {
    let span = TimeSpan::asked(of.seconds, of.from, of.to, sampler.newest());
    let series = sampler.host_series(&of.database, span);
    if HistoryFormat::is_csv(of.format, &headers) {
        return csv_response("weir-hosts.csv", series.csv());
    }
    let marks = audit_trail.marks(Some(&of.database), series.from, span.to);
    Json(HostsHistory { series, marks }).into_response()
}

fn summary(row: ViewRow<'_, ClusterColumn>, config: &Config) -> HostsSummary {
    let database = row.owned(ClusterColumn::Database);
    HostsSummary {
        read_write_split: config.database(&database).is_some_and(|entry| entry.read_write_split),
        database,
        standbys: row.number(ClusterColumn::Standbys),
        primary: row.text(ClusterColumn::Primary).map(str::to_owned),
        state: row.owned(ClusterColumn::State),
        detail: row.owned(ClusterColumn::Detail),
        topology: row.owned(ClusterColumn::Topology),
        topology_state: row.text(ClusterColumn::TopologyState).map(str::to_owned),
        topology_detail: row.text(ClusterColumn::TopologyDetail).map(str::to_owned),
    }
}

fn host(row: ViewRow<'_, HostColumn>, config: &Config) -> HostView {
    let number = |column| (!row.is_null(column)).then(|| row.number(column));
    let milliseconds = number(HostColumn::LagMs).and_then(|ms| u32::try_from(ms).ok());
    HostView {
        database: row.owned(HostColumn::Database),
        host: row.owned(HostColumn::Host),
        port: row.number(HostColumn::Port),
        state: row.owned(HostColumn::State),
        detached: row.number(HostColumn::Detached) > 0,
        lagging: is_lagging(row, config),
        since: row.text(HostColumn::Since).map(|since| rfc3339(Some(since))),
        timeline: number(HostColumn::Timeline),
        replay_lsn: row.text(HostColumn::ReplayLsn).map(str::to_owned),
        lag_bytes: number(HostColumn::LagBytes),
        lag_seconds: milliseconds.map(|ms| f64::from(ms) / 1_000.0),
        reads: row.number(HostColumn::Reads),
        servers_active: row.number(HostColumn::ServerActive),
        servers_idle: row.number(HostColumn::ServerIdle),
        servers_login: row.number(HostColumn::ServerLogin),
        last_error: row.text(HostColumn::LastError).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use messages::Cell;

    use super::*;
    use crate::table::rows_of;

    #[test]
    fn what_is_not_known_is_null() {
        let unknown: &[_] = &[(HostColumn::Host, Cell::from("a")), (HostColumn::State, Cell::from("unknown"))];
        let standby: &[_] = &[
            (HostColumn::Host, Cell::from("b")),
            (HostColumn::Since, Cell::from("2000-02-29 00:00:00 UTC")),
            (HostColumn::LagMs, Cell::Number(1_500)),
            (HostColumn::LagBytes, Cell::Number(0)),
            (HostColumn::Detached, Cell::Number(1)),
        ];
        let table = rows_of(&[unknown, standby]);
        let hosts: Vec<HostView> = table.iter().map(|row| host(row, &Config::default())).collect();
        assert_eq!((hosts[0].lag_bytes, hosts[0].lag_seconds, &hosts[0].since), (None, None, &None));
        assert_eq!((hosts[1].lag_bytes, hosts[1].lag_seconds), (Some(0), Some(1.5)));
        assert_eq!(hosts[1].since.as_deref(), Some("2000-02-29T00:00:00Z"));
        assert!(hosts[1].detached && !hosts[0].detached);
    }
}
