//! Metrics and traces by OTLP: the one table of `metrics`, sent to a collector every `otlp_interval`, and requests of traces (`spans`).
//!
//! Owns when they are sent. Every export is made of what is true then, and sums go on since the start: so nothing is kept for a
//! collector that is away, and nothing is lost by it. Never listens, and never asks more of the control thread than a
//! scrape of `/metrics` does.

mod backoff;
mod batch;
mod collector;
mod error;
mod spans;
mod start_times;
mod trace_messages;

use std::sync::Arc;
use std::time::Duration;

use settings::{Config, Endpoint, Headers, PemFiles};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::context::{PanelContext, PanelState};
use crate::control_client::ControlClient;
use crate::metrics::MetricsSource;
use crate::time::now_us;
use backoff::ExportBackoff;
use batch::{Batch, OtlpResource};
use collector::Collector;
use error::{ExportError, ExportStatus};
use httpclient::PostError;
use spans::SentSpans;
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
    /// Requests of traces are sent, too.
    traces: bool,
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
            traces: global.otlp_traces,
        })
    }
}

/// Sends metrics where the settings say, until the process ends; then once more.
/// The process began to count at `born_us`, in microseconds since 1970.
pub(crate) async fn run_exporter(
    context: PanelContext,
    control_client: Arc<ControlClient>,
    metrics: MetricsSource,
    born_us: u64,
) {
    let mut panel_state = context.watch();
    let mut span_exporter = SpanExporter::new(context.clone(), control_client);
    let mut exporter = Exporter::new(context, metrics, born_us);
    let config = loop {
        let config = ExportConfig::of(&panel_state.borrow_and_update().config);
        tokio::select! {
            is_exiting = config_changed(&mut panel_state, config.as_ref()) => if is_exiting { break config },
            () = exporter.follow(config.as_ref()) => {}
            () = span_exporter.follow(config.as_ref()) => {}
        }
    };
    if let Some(config) = &config {
        let _ =
            timeout(LAST_EXPORT, async { tokio::join!(exporter.last(config), span_exporter.last(config)) })
                .await;
    }
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
    context: PanelContext,
    metrics: MetricsSource,
    identity: OtlpResource,
    start_times: StartTimes,
    status: ExportStatus,
}

impl Exporter {
    fn new(context: PanelContext, metrics: MetricsSource, born_us: u64) -> Exporter {
        let start_times = StartTimes::new(born_us * 1_000);
        Exporter {
            context,
            metrics,
            identity: OtlpResource::of_this_process(),
            start_times,
            status: ExportStatus::of("metrics"),
        }
    }

    /// Exports at once and then again and again.
    async fn follow(&mut self, config: Option<&ExportConfig>) {
        let Some(config) = config else { return std::future::pending().await };
        self.status = ExportStatus::of("metrics");
        let (collector, mut backoff) = (Collector::new(config), ExportBackoff::default());
        loop {
            let begun = Instant::now();
            let outcome = match &collector {
                Ok(collector) => self.export(collector).await,
                Err(fault) => Err(PostError::TlsSetup(fault.to_string()).into()),
            };
            if let Some(log_record) = self.status.log_record(&outcome, &config.endpoint, Instant::now()) {
                self.context.write(log_record);
            }
            let pause = backoff.after(outcome.as_ref().err(), config.interval);
            sleep_until(begun + pause).await;
        }
    }

    /// Looks at everything and sends it.
    async fn export(&mut self, collector: &Collector) -> Result<(), ExportError> {
        let tables = self.metrics.collect().await.map_err(|_| ExportError::NoData)?;
        let mut batch = Batch::new(&mut self.start_times, now_us() * 1_000);
        self.metrics.write(&tables, &mut batch);
        let requests = batch.finished();
        drop(tables);
        for metrics in requests {
            collector.post(self.identity.request(metrics)).await?;
        }
        Ok(())
    }

    /// The last export. Skipped if the collector was unreachable in the one before.
    async fn last(&mut self, config: &ExportConfig) {
        if let (true, Ok(collector)) = (self.status.is_good(), Collector::new(config)) {
            let _ = self.export(&collector).await;
        }
    }
}

/// Sends requests of traces.
struct SpanExporter {
    context: PanelContext,
    control_client: Arc<ControlClient>,
    identity: OtlpResource,
    sent: SentSpans,
    status: ExportStatus,
}

impl SpanExporter {
    fn new(context: PanelContext, control_client: Arc<ControlClient>) -> SpanExporter {
        SpanExporter {
            context,
            control_client,
            identity: OtlpResource::of_this_process(),
            sent: SentSpans::default(),
            status: ExportStatus::of("traces"),
        }
    }

    /// Exports again and again.
    async fn follow(&mut self, config: Option<&ExportConfig>) {
        let Some(config) = config.filter(|config| config.traces) else { return std::future::pending().await };
        self.status = ExportStatus::of("traces");
        let (collector, mut backoff) = (Collector::of_spans(config), ExportBackoff::default());
        loop {
            let begun = Instant::now();
            let outcome = match &collector {
                Ok(collector) => self.export(collector).await,
                Err(fault) => Err(PostError::TlsSetup(fault.to_string()).into()),
            };
            // Without a span nothing is known of the collector.
            if let Some(outcome) = outcome.transpose() {
                let endpoint = config.endpoint.of_traces();
                if let Some(log_record) = self.status.log_record(&outcome, &endpoint, Instant::now()) {
                    self.context.write(log_record);
                }
                let pause = backoff.after(outcome.as_ref().err(), config.interval.max(spans::INTERVAL));
                let is_refused = outcome.is_err();
                sleep_until(begun + if is_refused { pause } else { spans::INTERVAL }).await;
            } else {
                sleep_until(begun + spans::INTERVAL).await;
            }
        }
    }

    /// Sends what is new; None if nothing is.
    async fn export(&mut self, collector: &Collector) -> Result<Option<()>, ExportError> {
        let table = spans::collect(&self.control_client).await?;
        let requests = self.sent.requests(&table, &self.identity);
        drop(table);
        let is_something = !requests.is_empty();
        for request in requests {
            collector.post_spans(request).await?;
        }
        Ok(is_something.then_some(()))
    }

    /// The last export, as of metrics.
    async fn last(&mut self, config: &ExportConfig) {
        if let (true, true, Ok(collector)) =
            (config.traces, self.status.is_good(), Collector::of_spans(config))
        {
            let _ = self.export(&collector).await;
        }
    }
}
