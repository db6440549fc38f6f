//! Tells alerts to a webhook: each is posted as JSON, one after the other, and tried again for a while.
//! Owns how often. Never lets what raises alerts wait.

use std::sync::Arc;
use std::time::Duration;

use settings::{Config, Headers};
use telemetry::{Level, printable};
use tokio::time::sleep;

use super::Alert;
use crate::otlp::post::Way;
use crate::shared::Shared;

/// How often one alert is tried.
const TRIES: u32 = 6;

/// The pause before the second try; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// A server that wants to be left alone for longer is believed for so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Tells alerts as they come, until it is dropped.
pub(crate) async fn keep_telling(shared: Arc<Shared>) {
    loop {
        let alert = shared.alerts.untold().await;
        tell(&shared, &alert).await;
    }
}

async fn tell(shared: &Shared, alert: &Alert) {
    let body = serde_json::to_vec(alert).unwrap_or_default();
    for failed in 0..TRIES {
        // The settings as they are now: a hook that was mended is used at once.
        let config = shared.config();
        let Some(hook) = config.global.alert_webhook.as_ref() else { return };
        let outcome = match way(&config) {
            Some(Ok(way)) => way.send(body.clone()).await,
            Some(Err(why)) => Err(crate::otlp::trouble::Trouble::Terms(why)),
            None => return,
        };
        let Err(trouble) = outcome else { return };
        let pause = PAUSE.saturating_mul(1 << failed);
        let pause = trouble.retry_after().map_or(pause, |wanted| wanted.clamp(pause, LONGEST_PAUSE));
        let is_last = failed + 1 == TRIES || !trouble.may_pass();
        if failed == 0 || is_last {
            let end = if is_last { "given up" } else { "trying again" };
            let (to, why) = (hook.endpoint.authority(), printable(&trouble.to_string()));
            shared.log(Level::Warning, format!("panel: alert not posted to {to}: {why}; {end}"));
        }
        if is_last {
            return;
        }
        sleep(pause).await;
    }
}

fn way(config: &Config) -> Option<Result<Way, String>> {
    let endpoint = &config.global.alert_webhook.as_ref()?.endpoint;
    let way = Way::to(endpoint, &Headers::default(), "application/json", &config.tls_files.collector);
    Some(way.map_err(|why| why.to_string()))
}
