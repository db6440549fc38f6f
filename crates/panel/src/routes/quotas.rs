//! Quotas: who has used how much of what they may use; limits looked at, set and removed.
//! Never writes the file: SET QUOTA of the control thread does.

use std::sync::Arc;

use axum::Json;
use axum::extract::{self, Path};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use control::{QUOTAS, QuotaColumn};
use quota::{Measure, Subject, SubjectKind};
use serde::{Deserialize, Serialize};
use settings::quotas_path;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Admin, Authorized, Caller, Read};
use crate::audit_trail::{AuditEntry, AuditKind, AuditTrail};
use crate::context::PanelContext;
use crate::control_client::ControlClient;
use crate::extract::{JsonBody, QueryParameters};
use crate::failure::{Failure, FailureBody};
use crate::gauges::Gauges;
use crate::live::{HistorySeries, TimeSpan};
use crate::quota_listing::{PickedQuotas, QuotaPage, QuotaUnit, QuotaView, QuotasQuery};
use crate::quota_order::{QuotaKey, QuotaLimits};
use crate::routes::Routes;
use crate::routes::live::{HistoryFormat, csv_response};

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(quotas))
        .routes(routes!(own))
        .routes(routes!(usage_history))
        .routes(routes!(defaults))
        .routes(routes!(set_default, remove_default))
        .routes(routes!(set, remove))
}

/// A page of quotas.
#[derive(Serialize, ToSchema)]
struct Quotas {
    quotas: Vec<QuotaView>,
    /// How many rows the filter has.
    total: usize,
    /// `quotas_file`, where changes are written; null where it is not set: then there are no quotas.
    #[schema(required)]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<usize>,
}

/// The quotas of the caller.
#[derive(Serialize, ToSchema)]
struct OwnQuotas {
    /// The caller's name in the panel. Users and tokens of the panel are no users of databases: the quotas are those of the database user with the same name.
    user: String,
    quotas: Vec<QuotaView>,
}

/// Whose usage of what, and of when.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct QuotaHistoryQuery {
    /// The kind of the subject.
    subject: String,
    /// Its name.
    name: String,
    /// Resource and period, as `quotas_file` has them.
    measure: String,
    /// The last seconds, up to 86400 (ten minutes, where nothing is said): in steps of 10 s up to an hour ago, else of five minutes.
    seconds: Option<u64>,
    /// Instead: the first second, since 1970.
    from: Option<u64>,
    /// The last second; else the newest.
    to: Option<u64>,
    /// csv for a table of comma-separated values; so does the header Accept: text/csv.
    #[param(inline)]
    format: Option<HistoryFormat>,
}

/// A limit of those that have no line of their own.
#[derive(Serialize, ToSchema)]
struct DefaultLimit {
    /// The kind of its subjects.
    subject: &'static str,
    /// Resource and period, as `quotas_file` has them.
    measure: String,
    unit: QuotaUnit,
    /// 0 is none.
    soft: u64,
    /// 0 is none.
    hard: u64,
    /// 0 does not end.
    grace_seconds: u64,
}

/// Something that can be limited.
#[derive(Serialize, ToSchema)]
struct QuotaMeasure {
    /// Resource and period, as `quotas_file` has them: `connections`, `queries/day`.
    measure: String,
    unit: QuotaUnit,
}

/// What can be limited, and what is limited by default.
#[derive(Serialize, ToSchema)]
struct QuotaDefaults {
    /// `quotas_file`, where changes are written; null where it is not set.
    #[schema(required)]
    file: Option<String>,
    /// The kinds of subjects.
    subjects: Vec<&'static str>,
    measures: Vec<QuotaMeasure>,
    defaults: Vec<DefaultLimit>,
}

/// Quotas, as SHOW QUOTAS has them.
#[utoipa::path(get, path = "/api/v1/quotas", params(QuotasQuery), responses(
    (status = 200, body = Quotas), (status = 401, body = FailureBody), (status = 422, body = FailureBody)))]
async fn quotas(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(context): extract::State<PanelContext>,
    QueryParameters(wanted): QueryParameters<QuotasQuery>,
) -> Result<Json<Quotas>, Failure> {
    let config = context.config();
    let mut page = QuotaPage::new(&wanted, &config.quotas)?;
    control_client.for_each_row(QUOTAS, |row| page.take(row)).await?;
    let PickedQuotas { rows, next_cursor, total } = page.finish();
    let file = quotas_path(&config.global).map(str::to_owned);
    Ok(Json(Quotas { quotas: rows, total, file, next_cursor }))
}

/// The caller's own usage: that of the database user with the caller's name.
#[utoipa::path(get, path = "/api/v1/quotas/own", operation_id = "own_quotas", responses(
    (status = 200, body = OwnQuotas), (status = 401, body = FailureBody)))]
async fn own(
    Authorized(caller, _): Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(context): extract::State<PanelContext>,
) -> Result<Json<OwnQuotas>, Failure> {
    let (config, mut quotas) = (context.config(), Vec::new());
    let user = SubjectKind::User.word();
    control_client
        .for_each_row(QUOTAS, |row| {
            let is_own = row.text(QuotaColumn::Subject) == Some(user) && row.text(QuotaColumn::Name) == Some(&caller.name);
            quotas.extend(is_own.then(|| QuotaView::of(row, &config.quotas)));
        })
        .await?;
    Ok(Json(OwnQuotas { user: caller.name, quotas }))
}

/// What a subject has used of a resource over time, since the panel was started: `used`, null where that is not known. It is kept of a thousand subjects and
/// resources, those first that are nearest to their limits.
#[utoipa::path(get, path = "/api/v1/quotas/history", operation_id = "quota_history", params(QuotaHistoryQuery), responses(
    (status = 200, body = HistorySeries), (status = 401, body = FailureBody)))]
async fn usage_history(
    _: Authorized<Read>,
    extract::State(gauges): extract::State<Arc<Gauges>>,
    headers: HeaderMap,
    QueryParameters(of): QueryParameters<QuotaHistoryQuery>,
) -> Response {
    let (seconds, from, to) = (of.seconds, of.from, of.to);
    let key = (of.subject, of.name, of.measure);
    let series = gauges.usage(&key, |newest| TimeSpan::asked(seconds, from, to, newest));
    match HistoryFormat::is_csv(of.format, &headers) {
        true => csv_response("weir-quota.csv", series.csv()),
        false => Json(series).into_response(),
    }
}

/// What can be limited, and the limits of those that have no line of their own.
#[utoipa::path(get, path = "/api/v1/quotas/defaults", operation_id = "quota_defaults", responses(
    (status = 200, body = QuotaDefaults), (status = 401, body = FailureBody)))]
async fn defaults(_: Authorized<Read>, extract::State(context): extract::State<PanelContext>) -> Json<QuotaDefaults> {
    let config = context.config();
    let all = SubjectKind::ALL.into_iter().flat_map(|kind| Measure::ALL.into_iter().map(move |measure| (kind, measure)));
    let defaults = all.filter_map(|(kind, measure)| {
        let limit = config.quotas.own_limit(&Subject::default_of(kind), measure)?;
        Some(DefaultLimit {
            subject: kind.word(),
            unit: QuotaUnit::of(&measure.to_string()),
            measure: measure.to_string(),
            soft: limit.soft,
            hard: limit.hard,
            grace_seconds: limit.grace_s,
        })
    });
    let measures = Measure::ALL.into_iter().map(|measure| {
        let measure = measure.to_string();
        QuotaMeasure { unit: QuotaUnit::of(&measure), measure }
    });
    Json(QuotaDefaults {
        file: quotas_path(&config.global).map(str::to_owned),
        subjects: SubjectKind::ALL.into_iter().map(SubjectKind::word).collect(),
        measures: measures.collect(),
        defaults: defaults.collect(),
    })
}

/// Sets the limits of a subject for a resource, in `quotas_file`; they are in force at once.
#[utoipa::path(put, path = "/api/v1/quotas/{subject}/{name}/{measure}", operation_id = "set_quota", request_body = QuotaLimits,
    params(("subject" = String, Path, description = "user, group, database or application_name"), ("name" = String, Path),
        ("measure" = String, Path, description = "resource and period, as `queries/day`, its slash escaped (`%2F`)")),
    responses((status = 204), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn set(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    Path((subject, name, measure)): Path<(String, String, String)>,
    JsonBody(limits): JsonBody<QuotaLimits>,
) -> Result<StatusCode, Failure> {
    let line = QuotaKey::read(&subject, Some(&name), &measure)?.setting(&limits)?;
    change(&control_client, &audit_trail, caller, line).await
}

/// Removes the line of a subject for a resource from `quotas_file`; the default of its kind counts for it then.
#[utoipa::path(delete, path = "/api/v1/quotas/{subject}/{name}/{measure}", operation_id = "remove_quota",
    params(("subject" = String, Path, description = "user, group, database or application_name"), ("name" = String, Path),
        ("measure" = String, Path, description = "resource and period, as `queries/day`, its slash escaped (`%2F`)")),
    responses((status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody),
        (status = 422, body = FailureBody)))]
async fn remove(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    extract::State(context): extract::State<PanelContext>,
    Path((subject, name, measure)): Path<(String, String, String)>,
) -> Result<StatusCode, Failure> {
    let key = QuotaKey::read(&subject, Some(&name), &measure)?;
    change(&control_client, &audit_trail, caller, existing(&context, &key)?).await
}

/// Sets the limits of those of a kind that have no line of their own for a resource.
#[utoipa::path(put, path = "/api/v1/quotas/defaults/{subject}/{measure}", operation_id = "set_quota_default", request_body = QuotaLimits,
    params(("subject" = String, Path, description = "user, group, database or application_name"),
        ("measure" = String, Path, description = "resource and period, as `queries/day`, its slash escaped (`%2F`)")),
    responses((status = 204), (status = 403, body = FailureBody), (status = 409, body = FailureBody), (status = 422, body = FailureBody)))]
async fn set_default(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    Path((subject, measure)): Path<(String, String)>,
    JsonBody(limits): JsonBody<QuotaLimits>,
) -> Result<StatusCode, Failure> {
    let line = QuotaKey::read(&subject, None, &measure)?.setting(&limits)?;
    change(&control_client, &audit_trail, caller, line).await
}

/// Removes the default of a kind of subjects for a resource.
#[utoipa::path(delete, path = "/api/v1/quotas/defaults/{subject}/{measure}", operation_id = "remove_quota_default",
    params(("subject" = String, Path, description = "user, group, database or application_name"),
        ("measure" = String, Path, description = "resource and period, as `queries/day`, its slash escaped (`%2F`)")),
    responses((status = 204), (status = 403, body = FailureBody), (status = 404, body = FailureBody), (status = 409, body = FailureBody),
        (status = 422, body = FailureBody)))]
async fn remove_default(
    Authorized(caller, _): Authorized<Admin>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
    extract::State(audit_trail): extract::State<Arc<AuditTrail>>,
    extract::State(context): extract::State<PanelContext>,
    Path((subject, measure)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    let key = QuotaKey::read(&subject, None, &measure)?;
    change(&control_client, &audit_trail, caller, existing(&context, &key)?).await
}

/// The line that removes a limit which is there.
fn existing(context: &PanelContext, key: &QuotaKey) -> Result<String, Failure> {
    let config = context.config();
    // Without a file the control thread says so.
    let is_there = quotas_path(&config.global).is_none() || config.quotas.own_limit(&key.subject, key.measure).is_some();
    is_there.then(|| key.removal()).ok_or(Failure::NotFound)
}

/// Has a line changed; the audit trail has the line itself beside the request, whose path does not say the limits.
async fn change(control_client: &ControlClient, audit_trail: &AuditTrail, caller: Caller, line: String) -> Result<StatusCode, Failure> {
    let text = format!("SET QUOTA {line}");
    control_client.set_quota(line).await?;
    audit_trail.record(AuditEntry { kind: AuditKind::Edit, user: caller.name, text, ..AuditEntry::default() });
    Ok(StatusCode::NO_CONTENT)
}
