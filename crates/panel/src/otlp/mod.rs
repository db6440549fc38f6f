//! Metrics by OTLP: the one table of `metrics`, sent to a collector every `otlp_interval`.
//!
//! Owns when they are sent. Every export is made of what is true then, and sums go on since the start: so nothing is kept for a
//! collector that is away, and nothing is lost by it. Never listens, and never asks more of the control thread than a
//! scrape of `/metrics` does.

mod backoff;
mod batch;
pub(crate) mod error;
pub(crate) mod post;
mod start_times;

use std::sync::Arc;
use std::time::Duration;

use settings::{Config, Endpoint, Headers, PemFiles};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::metrics;
use crate::shared::{PanelState, Shared};
use crate::time::now_us;
use backoff::ExportBackoff;
use batch::{Batch, OtlpResource};
use error::{ExportError, ExportStatus};
use post::HttpTarget;
use start_times::StartTimes;

/// What the last export, when the process ends, may take.
pub const LAST_EXPORT: Duration = Duration::from_secs(1);

/// Where metrics are to go, and how.
#[derive(Clone, PartialEq)]
struct ExportConfig {
    endpoint: Endpoint,
    headers: Headers,
    interval: Duration,
    roots: PemFiles,
}

impl ExportConfig {
    /// None where nothing is to be sent.
    fn of(config: &Config) -> Option<ExportConfig> {
        let global = &config.global;
        Some(ExportConfig {
            endpoint: global.otlp_endpoint.clone()?,
            headers: global.otlp_headers.clone(),
            interval: global.otlp_interval,
            roots: config.tls_files.collector.clone(),
        })
    }
}

/// Sends metrics where the settings say, until the process ends; then once more.
pub(crate) async fn run_exporter(shared: Arc<Shared>) {
    let mut panel_state = shared.panel_state.clone();
    let mut exporter = Exporter::new(Arc::clone(&shared));
    let config = loop {
        let config = ExportConfig::of(&panel_state.borrow_and_update().config);
        tokio::select! {
            is_exiting = config_changed(&mut panel_state, config.as_ref()) => if is_exiting { break config },
            () = exporter.follow(config.as_ref()) => {}
        }
    };
    if let Some(config) = &config {
        exporter.last(config).await;
    }
    shared.has_exported();
}

/// Waits for other settings, or for the end of the process: true.
async fn config_changed(
    panel_state: &mut watch::Receiver<PanelState>,
    config: Option<&ExportConfig>,
) -> bool {
    loop {
        let now = panel_state.borrow_and_update().clone();
        if now.is_exiting {
            return true;
        }
        if ExportConfig::of(&now.config).as_ref() != config {
            return false;
        }
        if panel_state.changed().await.is_err() {
            return true;
        }
    }
}

struct Exporter {
    shared: Arc<Shared>,
    identity: OtlpResource,
    start_times: StartTimes,
    status: ExportStatus,
}

impl Exporter {
    fn new(shared: Arc<Shared>) -> Exporter {
        let start_times = StartTimes::new(shared.born_us * 1_000);
        Exporter {
            shared,
            identity: OtlpResource::of_this_process(),
            start_times,
            status: ExportStatus::default(),
        }
    }

    /// Exports at once and then again and again.
    async fn follow(&mut self, config: Option<&ExportConfig>) {
        let Some(config) = config else { return std::future::pending().await };
        self.status = ExportStatus::default();
        let (target, mut backoff) = (HttpTarget::new(config), ExportBackoff::default());
        loop {
            let begun = Instant::now();
            let outcome = match &target {
                Ok(target) => self.export(target).await,
                Err(fault) => Err(ExportError::TlsSetup(fault.to_string())),
            };
            if let Some(log_record) = self.status.log_record(&outcome, &config.endpoint, Instant::now()) {
                (self.shared.log)(log_record);
            }
            let pause = backoff.after(outcome.as_ref().err(), config.interval);
            sleep_until(begun + pause).await;
        }
    }

    /// Looks at everything and sends it.
    async fn export(&mut self, target: &HttpTarget) -> Result<(), ExportError> {
        let tables = metrics::collect(&self.shared).await.map_err(|_| ExportError::NoData)?;
        let mut batch = Batch::new(&mut self.start_times, now_us() * 1_000);
        tables.write(&mut batch, &self.shared.config(), self.shared.version);
        let requests = batch.finished();
        drop(tables);
        for metrics in requests {
            target.post(self.identity.request(metrics)).await?;
        }
        Ok(())
    }

    /// The last export. Skipped if the collector was unreachable in the one before.
    async fn last(&mut self, config: &ExportConfig) {
        if let (true, Ok(target)) = (self.status.is_good(), HttpTarget::new(config)) {
            let _ = timeout(LAST_EXPORT, self.export(&target)).await;
        }
    }
}
