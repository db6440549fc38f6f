//! Clients and server connections, filtered, a page at a time.
//!
//! A page is the first rows by their ids, picked while the slices of the listing arrive: however many connections
//! there are, one page is all that is kept. Never changes one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract;
use axum::Json;
use control::{SHARD_CLIENTS, SHARD_SERVERS, SocketColumn, TypedView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::control_client::ControlClient;
use crate::failure::Failure;
use crate::extract::QueryParameters;
use crate::routes::Routes;
use crate::table::ViewRow;
use crate::time::rfc3339;

/// The page's length where none is asked for, and the longest.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;

/// The furthest page of a sorted listing: rows before it are kept while it is picked.
const MAX_SORTED: usize = 10_000;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(clients)).routes(routes!(servers))
}

/// Which rows, and from where.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ConnectionsQuery {
    /// Of this database.
    database: Option<String>,
    /// Of this user.
    user: Option<String>,
    /// In this state.
    state: Option<String>,
    /// Whose application_name has this in it.
    application: Option<String>,
    /// On this shard.
    shard: Option<u64>,
    /// Pinned for this reason; `any` for whichever.
    pinned: Option<String>,
    /// What the rows are sorted by: `id` (the usual), `wait` (longest first), `application`, `database`, `user`, `state`, `connected`,
    /// `request` (longest ago first), `prepared` (most first) or `shard`; the other way round with a `-` before it.
    sort: Option<String>,
    /// The number of rows, up to 1,000.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<u64>,
}

/// What a client's connection and a server's have alike.
#[derive(Serialize, ToSchema)]
struct ConnectionRow {
    /// The thread on which it lives.
    shard: u64,
    user: String,
    database: String,
    state: String,
    address: String,
    port: u64,
    application_name: String,
    /// RFC 3339.
    connect_time: String,
    /// RFC 3339; of a client's last request, of a server's last assignment.
    request_time: String,
    prepared_statements: u64,
    /// Version and cipher; empty without TLS.
    tls: String,
    /// Why the client keeps its server outside of a request: `session`, `transaction`, `failed_transaction`, `copy`,
    /// `no_sync`, `half_request`, `slow_reader`, `replication` or `unclear`, or what its session holds: `temporary`, `cursor`,
    /// `prepared`, `advisory_lock`, `listen`, `setting`, `sequence`, `library` or `unnamed_statement`; null if it does not.
    #[schema(required)]
    pinned_reason: Option<String>,
    /// RFC 3339; since when the session holds what keeps the client on its server; null if it does not.
    #[schema(required)]
    pinned_since: Option<String>,
}

/// A client's connection.
#[derive(Serialize, ToSchema)]
struct Client {
    /// As SHOW CLIENTS has it.
    id: u64,
    #[serde(flatten)]
    connection: ConnectionRow,
    /// How long it has been waiting for a server.
    wait_seconds: f64,
}

/// A connection to a server.
#[derive(Serialize, ToSchema)]
struct Server {
    /// As SHOW SERVERS has it.
    server_id: u64,
    #[serde(flatten)]
    connection: ConnectionRow,
    /// Process id of the backend.
    remote_pid: u64,
    /// `id` of the client that has it, in hexadecimal; empty if none has.
    link: String,
}

/// A page of clients.
#[derive(Serialize, ToSchema)]
struct Clients {
    clients: Vec<Client>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<u64>,
}

/// A page of server connections.
#[derive(Serialize, ToSchema)]
struct Servers {
    servers: Vec<Server>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<u64>,
}

/// Clients, in the order of their ids or sorted.
#[utoipa::path(get, path = "/api/v1/clients", params(ConnectionsQuery), responses(
    (status = 200, body = Clients), (status = 401, body = crate::failure::FailureBody)))]
async fn clients(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<ConnectionsQuery>,
) -> Result<Json<Clients>, Failure> {
    let (clients, next_cursor) = page(&control_client, SHARD_CLIENTS, &wanted, client).await?;
    Ok(Json(Clients { clients, next_cursor }))
}

/// Server connections, in the order of their ids or sorted.
#[utoipa::path(get, path = "/api/v1/servers", params(ConnectionsQuery), responses(
    (status = 200, body = Servers), (status = 401, body = crate::failure::FailureBody)))]
async fn servers(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<ConnectionsQuery>,
) -> Result<Json<Servers>, Failure> {
    let (servers, next_cursor) = page(&control_client, SHARD_SERVERS, &wanted, server).await?;
    Ok(Json(Servers { servers, next_cursor }))
}

/// The rows of a page, and the cursor of the next if there is one.
async fn page<T>(
    control_client: &ControlClient,
    view: TypedView<SocketColumn>,
    wanted: &ConnectionsQuery,
    made: fn(ViewRow<'_, SocketColumn>) -> T,
) -> Result<(Vec<T>, Option<u64>), Failure> {
    let order = SortOrder::read(wanted.sort.as_deref().unwrap_or_default())?;
    let limit = wanted.limit.unwrap_or(DEFAULT_ROWS).clamp(1, MAX_ROWS);
    // Sorted rows change their places between two pages: a cursor is how many come before.
    let cursor = wanted.cursor.unwrap_or(0);
    let skipped = if order.is_by_id() { 0 } else { usize::try_from(cursor).unwrap_or(MAX_SORTED).min(MAX_SORTED) };
    let mut picked = BTreeMap::new();
    let pick = |row: ViewRow<'_, SocketColumn>| {
        let id = row.number(SocketColumn::Id);
        if (id > cursor || !order.is_by_id()) && wanted.takes(row) {
            picked.insert((order.rank(row), id), made(row));
        }
        if picked.len() > skipped + limit + 1 {
            picked.pop_last();
        }
    };
    control_client.for_each_row(view, pick).await?;
    let is_more = picked.len() > skipped + limit;
    if is_more {
        picked.pop_last();
    }
    let last = picked.last_key_value().map(|((_, id), _)| *id);
    let next_cursor = if order.is_by_id() { last } else { u64::try_from(skipped + limit).ok() };
    Ok((picked.into_values().skip(skipped).collect(), next_cursor.filter(|_| is_more)))
}

/// What rows are sorted by, and whether the other way round.
struct SortOrder {
    column: SocketColumn,
    /// Largest first.
    is_number: bool,
    reversed: bool,
}

/// A row's place in a sorted listing. All ranks of a listing are of one kind.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Forward(u64, String),
    Backward(Reverse<(u64, String)>),
}

impl SortOrder {
    /// Words, the columns of SHOW, and whether the largest number comes first.
    const WORDS: [(&'static str, SocketColumn, bool); 10] = [
        ("id", SocketColumn::Id, false),
        ("wait", SocketColumn::Wait, true),
        ("application", SocketColumn::ApplicationName, false),
        ("database", SocketColumn::Database, false),
        ("user", SocketColumn::User, false),
        ("state", SocketColumn::State, false),
        ("connected", SocketColumn::ConnectTime, false),
        ("request", SocketColumn::RequestTime, false),
        ("prepared", SocketColumn::PreparedStatements, true),
        ("shard", SocketColumn::Shard, false),
    ];

    fn read(text: &str) -> Result<SortOrder, Failure> {
        let (word, reversed) = text.strip_prefix('-').map_or((text, false), |word| (word, true));
        let word = if word.is_empty() { "id" } else { word };
        let found = SortOrder::WORDS.iter().find(|(known, ..)| *known == word);
        let (_, column, is_number) = found.ok_or_else(|| {
            let words: Vec<&str> = SortOrder::WORDS.iter().map(|(word, ..)| *word).collect();
            Failure::invalid("sort", format!("sort is one of {}", words.join(", ")))
        })?;
        Ok(SortOrder { column: *column, is_number: *is_number, reversed })
    }

    fn is_by_id(&self) -> bool {
        self.column == SocketColumn::Id
    }

    fn rank(&self, row: ViewRow<'_, SocketColumn>) -> SortKey {
        if self.is_by_id() {
            return SortKey::Forward(0, String::new());
        }
        let micros = if self.column == SocketColumn::Wait { row.number(SocketColumn::Wait) * 1_000_000 + row.number(SocketColumn::WaitUs) } else { 0 };
        let number = row.number(self.column).max(micros);
        let number = if self.is_number { u64::MAX - number } else { number };
        let text = row.owned(self.column);
        if self.reversed { SortKey::Backward(Reverse((number, text))) } else { SortKey::Forward(number, text) }
    }
}

impl ConnectionsQuery {
    fn takes(&self, row: ViewRow<'_, SocketColumn>) -> bool {
        let is = |wanted: &Option<String>, name| {
            wanted.as_ref().is_none_or(|text| text.is_empty() || row.text(name) == Some(text))
        };
        let named = row.text(SocketColumn::ApplicationName).unwrap_or_default();
        let has_name = self.application.as_ref().is_none_or(|text| named.contains(text.as_str()));
        let is_there = self.shard.is_none_or(|shard| shard == row.number(SocketColumn::Shard));
        let any_pin = self.pinned.as_deref() == Some("any") && pinned(row).is_some();
        let is_pinned_so = any_pin || is(&self.pinned, SocketColumn::Pinned);
        let is_of = is(&self.database, SocketColumn::Database) && is(&self.user, SocketColumn::User) && is(&self.state, SocketColumn::State);
        is_of && has_name && is_there && is_pinned_so
    }
}

fn pinned(row: ViewRow<'_, SocketColumn>) -> Option<&str> {
    row.text(SocketColumn::Pinned).filter(|reason| !reason.is_empty())
}

fn connection(row: ViewRow<'_, SocketColumn>) -> ConnectionRow {
    ConnectionRow {
        shard: row.number(SocketColumn::Shard),
        user: row.owned(SocketColumn::User),
        database: row.owned(SocketColumn::Database),
        state: row.owned(SocketColumn::State),
        address: row.owned(SocketColumn::Addr),
        port: row.number(SocketColumn::Port),
        application_name: row.owned(SocketColumn::ApplicationName),
        connect_time: rfc3339(row.text(SocketColumn::ConnectTime)),
        request_time: rfc3339(row.text(SocketColumn::RequestTime)),
        prepared_statements: row.number(SocketColumn::PreparedStatements),
        tls: row.owned(SocketColumn::Tls),
        pinned_reason: pinned(row).map(str::to_owned),
        pinned_since: row.text(SocketColumn::PinnedSince).map(|since| rfc3339(Some(since))),
    }
}

#[expect(clippy::cast_precision_loss)]
fn client(row: ViewRow<'_, SocketColumn>) -> Client {
    Client {
        id: row.number(SocketColumn::Id),
        connection: connection(row),
        wait_seconds: row.number(SocketColumn::Wait) as f64 + row.number(SocketColumn::WaitUs) as f64 / 1e6,
    }
}

fn server(row: ViewRow<'_, SocketColumn>) -> Server {
    Server {
        server_id: row.number(SocketColumn::Id),
        connection: connection(row),
        remote_pid: row.number(SocketColumn::RemotePid),
        link: row.owned(SocketColumn::Link),
    }
}
