//! Every setting of `[pgbouncer]`: the rows of the one table, with the values in force.
//! Never changes one.

use std::sync::Arc;

use axum::{Json, extract};
use control::{CONFIG, ConfigColumn, pool_settings};
use serde::Serialize;
use settings::{Effect, GLOBAL, ValueKind, TakesEffect};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Authorized, Read};
use crate::control_client::ControlClient;
use crate::failure::{Failure, FailureBody};
use crate::routes::Routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(settings)).routes(routes!(of_pools))
}

/// A setting and its value.
#[derive(Serialize, ToSchema)]
struct Setting {
    name: &'static str,
    /// Where it is written.
    section: &'static str,
    /// In force; null where it is not set and has no default.
    #[schema(required)]
    value: Option<String>,
    /// Unless given.
    #[schema(required)]
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
    effect: EffectName,
    /// It is not the default.
    changed: bool,
}

/// When a new value takes effect.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum EffectName {
    Reload,
    Reconnect,
    Restart,
    /// The setting is accepted and does nothing in Weir.
    None,
}

/// All settings.
#[derive(Serialize, ToSchema)]
struct Settings {
    settings: Vec<Setting>,
}

/// A key of an entry of `[databases]` that a pool may be given here.
#[derive(Serialize, ToSchema)]
struct PoolSetting {
    name: &'static str,
    /// Unless given.
    #[schema(required)]
    default: Option<&'static str>,
    /// What a number counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    /// The shape of its values.
    #[serde(rename = "type")]
    kind: String,
    /// Its values, where it is one of a few words.
    choices: &'static [&'static str],
    /// What it does.
    doc: &'static str,
    /// reload: it counts at once. reconnect: server connections are opened anew.
    effect: EffectName,
}

/// All of them.
#[derive(Serialize, ToSchema)]
struct PoolSettings {
    settings: Vec<PoolSetting>,
}

/// What a pool may be given beside its database, user, mode and size, in the order of the manual.
#[utoipa::path(get, path = "/api/v1/settings/pools", operation_id = "pool_settings", responses(
    (status = 200, body = PoolSettings), (status = 401, body = FailureBody)))]
async fn of_pools(_: Authorized<Read>) -> Json<PoolSettings> {
    let settings = pool_settings().map(|info| PoolSetting {
        name: info.name,
        default: info.default,
        unit: unit(info.kind),
        kind: info.kind.to_string(),
        choices: match info.kind {
            ValueKind::Choice(words) => words,
            ValueKind::Boolean => &["0", "1"],
            _ => &[],
        },
        doc: info.doc,
        effect: effect(info.when, info.effect),
    });
    Json(PoolSettings { settings: settings.collect() })
}

/// The settings of the process, in the order of their names.
#[utoipa::path(get, path = "/api/v1/settings", responses(
    (status = 200, body = Settings), (status = 401, body = FailureBody)))]
async fn settings(
    _: Authorized<Read>,
    extract::State(control_client): extract::State<Arc<ControlClient>>,
) -> Result<Json<Settings>, Failure> {
    let table = control_client.show(CONFIG).await?;
    let row = |name: &str, value: Option<&str>| {
        let row = GLOBAL.iter().find(|row| row.info.name == name)?;
        let info = &row.info;
        let value = value.map(str::to_owned);
        Some(Setting {
            name: info.name,
            section: "global",
            changed: value.as_deref().unwrap_or_default() != info.default.unwrap_or_default(),
            value,
            default: info.default,
            unit: unit(info.kind),
            kind: info.kind.to_string(),
            doc: info.doc,
            reloadable: info.when != TakesEffect::Restart,
            effect: effect(info.when, info.effect),
        })
    };
    let settings = table.iter().filter_map(|shown| row(shown.text(ConfigColumn::Key)?, shown.text(ConfigColumn::Value))).collect();
    Ok(Json(Settings { settings }))
}

fn unit(kind: ValueKind) -> Option<&'static str> {
    match kind {
        ValueKind::Seconds | ValueKind::WholeSeconds => Some("s"),
        ValueKind::Milliseconds => Some("ms"),
        ValueKind::Bytes => Some("bytes"),
        ValueKind::Percent => Some("%"),
        _ => None,
    }
}

fn effect(when: TakesEffect, effect: Effect) -> EffectName {
    match (effect, when) {
        (Effect::Inert(_), _) => EffectName::None,
        (Effect::Live, TakesEffect::Reload) => EffectName::Reload,
        (Effect::Live, TakesEffect::Reconnect) => EffectName::Reconnect,
        (Effect::Live, TakesEffect::Restart) => EffectName::Restart,
    }
}
