//! Posts alerts to a webhook as JSON, one after the other, with retries.
//! Owns how often. Never lets what raises alerts wait.

use std::sync::Arc;
use std::time::Duration;

use settings::{Config, Headers};
use telemetry::{Level, printable};
use tokio::time::sleep;

use super::{Alert, AlertRegistry};
use crate::context::PanelContext;
use httpclient::{HttpTarget, PostError};

/// How often one alert is tried.
const MAX_ATTEMPTS: u32 = 6;

/// The pause before the second try; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// A server that wants to be left alone for longer is believed for so long.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Posts alerts until it is dropped.
pub(crate) async fn run_webhook(context: PanelContext, alerts: Arc<AlertRegistry>) {
    loop {
        let alert = alerts.next_unsent().await;
        send(&context, &alert).await;
    }
}

async fn send(context: &PanelContext, alert: &Alert) {
    let body = serde_json::to_vec(alert).unwrap_or_default();
    for failed in 0..MAX_ATTEMPTS {
        // The settings as they are now: a hook that was mended is used at once.
        let config = context.config();
        let Some(hook) = config.global.alert_webhook.as_ref() else { return };
        let outcome = match target(&config) {
            Some(Ok(target)) => target.send(body.clone()).await,
            Some(Err(why)) => Err(PostError::TlsSetup(why)),
            None => return,
        };
        let Err(error) = outcome else { return };
        let pause = FIRST_PAUSE.saturating_mul(1 << failed);
        let pause = error.retry_after().map_or(pause, |wanted| wanted.clamp(pause, MAX_PAUSE));
        let is_last = failed + 1 == MAX_ATTEMPTS || !error.is_retryable();
        if failed == 0 || is_last {
            let end = if is_last { "given up" } else { "trying again" };
            let (to, why) = (hook.endpoint.authority(), printable(&error.to_string()));
            context.log(Level::Warning, format!("panel: alert not posted to {to}: {why}; {end}"));
        }
        if is_last {
            return;
        }
        sleep(pause).await;
    }
}

fn target(config: &Config) -> Option<Result<HttpTarget, String>> {
    let endpoint = &config.global.alert_webhook.as_ref()?.endpoint;
    let target =
        HttpTarget::to(endpoint, &Headers::default(), "application/json", &config.tls_files.collector);
    Some(target.map_err(|why| why.to_string()))
}
