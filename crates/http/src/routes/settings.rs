//! Every setting of `[pgbouncer]`: the rows of the one table, with the values in force.
//! Never changes one.

use axum::{Json, extract};
use serde::Serialize;
use settings::{Effect, GLOBAL, Kind, When};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{May, Read};
use crate::failure::{Failure, FailureBody};
use crate::routes::Routes;
use crate::shared::State;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(settings))
}

/// A setting and its value.
#[derive(Serialize, ToSchema)]
struct Setting {
    name: &'static str,
    /// Where it is written.
    section: &'static str,
    /// In force; null where it is not set and has no default.
    value: Option<String>,
    /// Unless given.
    default: Option<&'static str>,
    /// What a number counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    /// The shape of its values.
    #[serde(rename = "type")]
    kind: String,
    /// What it does.
    doc: &'static str,
    /// RELOAD is enough for a new value.
    reloadable: bool,
    /// When a new value counts: reload, reconnect, restart, or none where the setting does nothing in Weir.
    effect: &'static str,
    /// It is not the default.
    changed: bool,
}

/// All of them.
#[derive(Serialize, ToSchema)]
struct Settings {
    settings: Vec<Setting>,
}

/// The settings of the process, in the order of their names.
#[utoipa::path(get, path = "/api/v1/settings", responses(
    (status = 200, body = Settings), (status = 401, body = FailureBody)))]
async fn settings(
    _: May<Read>,
    extract::State(shared): State,
) -> Result<Json<Settings>, Failure> {
    let table = shared.bridge.show("CONFIG").await?;
    let row = |name: &str, value: Option<&str>| {
        let row = GLOBAL.iter().find(|row| row.about.name == name)?;
        let about = &row.about;
        let value = value.map(str::to_owned);
        Some(Setting {
            name: about.name,
            section: "global",
            changed: value.as_deref().unwrap_or_default() != about.default.unwrap_or_default(),
            value,
            default: about.default,
            unit: unit(about.kind),
            kind: about.kind.to_string(),
            doc: about.doc,
            reloadable: about.when != When::Restart,
            effect: effect(about.when, about.effect),
        })
    };
    let settings = table.iter().filter_map(|shown| row(shown.text("key")?, shown.text("value"))).collect();
    Ok(Json(Settings { settings }))
}

fn unit(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Seconds | Kind::WholeSeconds => Some("s"),
        Kind::Milliseconds => Some("ms"),
        Kind::Bytes => Some("bytes"),
        Kind::Percent => Some("%"),
        _ => None,
    }
}

fn effect(when: When, effect: Effect) -> &'static str {
    match (effect, when) {
        (Effect::Inert(_), _) => "none",
        (Effect::Live, When::Reload) => "reload",
        (Effect::Live, When::Reconnect) => "reconnect",
        (Effect::Live, When::Restart) => "restart",
    }
}
