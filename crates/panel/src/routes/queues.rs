//! The subjects of fair queues (`queue = fair`): how many of each wait, and what each has had of the servers' time.
//! Never changes anything.

use std::sync::Arc;

use axum::Json;
use axum::extract;
use control::{QUEUES, QueueColumn};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::control_client::ControlClient;
use crate::extract::QueryParameters;
use crate::failure::Failure;
use crate::routes::Routes;
use crate::table::ViewRow;

/// The most subjects in an answer: those with clients that wait, and with the longest waits, come first.
const MOST: usize = 500;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(queues))
}

/// Which queues.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct QueuesQuery {
    /// Of this entry.
    database: Option<String>,
}

/// A subject of the fair queue of a pool.
#[derive(Serialize, ToSchema)]
struct QueueSubjectView {
    /// The entry.
    database: String,
    /// The user of the pool.
    user: String,
    /// The host of a pool for reads.
    #[schema(required)]
    host: Option<String>,
    /// `user`, `application_name` or `client_addr`.
    queue_by: String,
    subject: String,
    weight: u64,
    /// Clients that wait for a server.
    waiting: u64,
    /// Clients that have one.
    active: u64,
    /// The longest wait so far of a client that waits.
    maxwait_seconds: f64,
    /// How often its clients have had a server.
    turns: u64,
    /// How long in all.
    server_time_seconds: f64,
}

/// Subjects of fair queues that have clients.
#[derive(Serialize, ToSchema)]
struct Queues {
    subjects: Vec<QueueSubjectView>,
    /// How many there are; the answer has the first 500 of them.
    total: usize,
}

/// Subjects of fair queues that have clients, the longest wait first.
#[utoipa::path(get, path = "/api/v1/queues", params(QueuesQuery), responses(
    (status = 200, body = Queues), (status = 401, body = crate::failure::FailureBody)))]
async fn queues(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    QueryParameters(wanted): QueryParameters<QueuesQuery>,
) -> Result<Json<Queues>, Failure> {
    let queues = control_client.show(QUEUES).await?;
    let is_wanted =
        |row: &ViewRow<'_, QueueColumn>| wanted.database.is_none() || wanted.database.as_deref() == row.text(QueueColumn::Database);
    let mut rows: Vec<ViewRow<'_, QueueColumn>> = queues.iter().filter(is_wanted).collect();
    let total = rows.len();
    let rank = |row: &ViewRow<'_, QueueColumn>| {
        [QueueColumn::MaxWaitUs, QueueColumn::Waiting, QueueColumn::ServerTimeUs].map(|column| row.number(column))
    };
    rows.sort_by_key(|row| std::cmp::Reverse(rank(row)));
    Ok(Json(Queues { subjects: rows.into_iter().take(MOST).map(subject).collect(), total }))
}

#[allow(clippy::cast_precision_loss, reason = "microseconds of 285 years are exact")]
fn subject(row: ViewRow<'_, QueueColumn>) -> QueueSubjectView {
    let seconds = |column| row.number(column) as f64 / 1_000_000.0;
    QueueSubjectView {
        database: row.owned(QueueColumn::Database),
        user: row.owned(QueueColumn::User),
        host: row.text(QueueColumn::Host).map(str::to_owned),
        queue_by: row.owned(QueueColumn::QueueBy),
        subject: row.owned(QueueColumn::Subject),
        weight: row.number(QueueColumn::Weight),
        waiting: row.number(QueueColumn::Waiting),
        active: row.number(QueueColumn::Active),
        maxwait_seconds: seconds(QueueColumn::MaxWaitUs),
        turns: row.number(QueueColumn::Turns),
        server_time_seconds: seconds(QueueColumn::ServerTimeUs),
    }
}
