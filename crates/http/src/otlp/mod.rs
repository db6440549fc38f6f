//! Metrics by OTLP: the one table of `metrics`, sent to a collector every `otlp_interval`.
//!
//! Owns when they are sent. Every export is made of what is true then, and sums go on since the start: so nothing is kept for a
//! collector that is away, and nothing is lost by it. Never listens, and never asks more of the control thread than a
//! scrape of `/metrics` does.

mod batch;
mod pace;
pub(crate) mod post;
mod starts;
pub(crate) mod trouble;

use std::sync::Arc;
use std::time::Duration;

use settings::{Config, Endpoint, Headers, PemFiles};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::metrics;
use crate::shared::{Shared, Situation};
use crate::time::now_us;
use batch::{Batch, Identity};
use pace::Pace;
use post::Way;
use starts::Starts;
use trouble::{Standing, Trouble};

/// What the last export, when the process ends, may take.
pub const LAST_EXPORT: Duration = Duration::from_secs(1);

/// Where metrics are to go, and how.
#[derive(Clone, PartialEq)]
struct Wish {
    endpoint: Endpoint,
    headers: Headers,
    interval: Duration,
    roots: PemFiles,
}

impl Wish {
    /// None where nothing is to be sent.
    fn of(config: &Config) -> Option<Wish> {
        let global = &config.global;
        Some(Wish {
            endpoint: global.otlp_endpoint.clone()?,
            headers: global.otlp_headers.clone(),
            interval: global.otlp_interval,
            roots: config.tls_files.collector.clone(),
        })
    }
}

/// Sends metrics where the settings say, until the process ends; then once more.
pub(crate) async fn keep_exporting(shared: Arc<Shared>) {
    let mut situation = shared.situation.clone();
    let mut exporter = Exporter::new(Arc::clone(&shared));
    let wish = loop {
        let wish = Wish::of(&situation.borrow_and_update().config);
        tokio::select! {
            is_over = other_wish(&mut situation, wish.as_ref()) => if is_over { break wish },
            () = exporter.follow(wish.as_ref()) => {}
        }
    };
    if let Some(wish) = &wish {
        exporter.last(wish).await;
    }
    shared.has_exported();
}

/// Waits for other settings, or for the end of the process: true.
async fn other_wish(situation: &mut watch::Receiver<Situation>, wish: Option<&Wish>) -> bool {
    loop {
        let now = situation.borrow_and_update().clone();
        if now.is_over {
            return true;
        }
        if Wish::of(&now.config).as_ref() != wish {
            return false;
        }
        if situation.changed().await.is_err() {
            return true;
        }
    }
}

struct Exporter {
    shared: Arc<Shared>,
    identity: Identity,
    starts: Starts,
    standing: Standing,
}

impl Exporter {
    fn new(shared: Arc<Shared>) -> Exporter {
        let starts = Starts::new(shared.born_us * 1_000);
        Exporter { shared, identity: Identity::of_this_process(), starts, standing: Standing::default() }
    }

    /// Exports at once and then again and again.
    async fn follow(&mut self, wish: Option<&Wish>) {
        let Some(wish) = wish else { return std::future::pending().await };
        self.standing = Standing::default();
        let (way, mut pace) = (Way::new(wish), Pace::default());
        loop {
            let begun = Instant::now();
            let outcome = match &way {
                Ok(way) => self.export(way).await,
                Err(fault) => Err(Trouble::Terms(fault.to_string())),
            };
            if let Some(news) = self.standing.news(&outcome, &wish.endpoint, Instant::now()) {
                (self.shared.log)(news);
            }
            let pause = pace.after(outcome.as_ref().err(), wish.interval);
            sleep_until(begun + pause).await;
        }
    }

    /// Looks at everything and sends it.
    async fn export(&mut self, way: &Way) -> Result<(), Trouble> {
        let looked = metrics::look(&self.shared).await.map_err(|_| Trouble::NoFigures)?;
        let mut batch = Batch::new(&mut self.starts, now_us() * 1_000);
        looked.write(&mut batch, &self.shared.config(), self.shared.version);
        let requests = batch.finished();
        drop(looked);
        for metrics in requests {
            way.post(self.identity.request(metrics)).await?;
        }
        Ok(())
    }

    /// The last figures. Who was not there the last time is not waited for.
    async fn last(&mut self, wish: &Wish) {
        if let (true, Ok(way)) = (self.standing.is_good(), Way::new(wish)) {
            let _ = timeout(LAST_EXPORT, self.export(&way)).await;
        }
    }
}
