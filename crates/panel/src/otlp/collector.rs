//! The collector: where it is, and what its answer means (OTLP specification, "OTLP/HTTP").
//! Never sends anything twice.

use axum::body::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message as _;
use settings::Endpoint;
use tls::SetupFault;

use super::error::ExportError;
use super::{ExportConfig, spans};
use httpclient::HttpTarget;

/// A collector that metrics are sent to.
pub(super) struct Collector(HttpTarget);

impl Collector {
    /// The one that the settings name.
    ///
    /// # Errors
    /// [`SetupFault`]: there are no roots to check its certificate by.
    pub(super) fn new(config: &ExportConfig) -> Result<Collector, SetupFault> {
        Collector::at(&config.endpoint, config)
    }

    /// The same for spans.
    ///
    /// # Errors
    /// [`SetupFault`], likewise.
    pub(super) fn of_spans(config: &ExportConfig) -> Result<Collector, SetupFault> {
        Collector::at(&config.endpoint.of_traces(), config)
    }

    fn at(endpoint: &Endpoint, config: &ExportConfig) -> Result<Collector, SetupFault> {
        HttpTarget::to(endpoint, &config.headers, "application/x-protobuf", &config.roots).map(Collector)
    }

    /// Sends the bytes of a request.
    ///
    /// # Errors
    /// [`ExportError`]: they have not arrived, or not all of them.
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<(), ExportError> {
        check_response(self.0.send(body).await?)
    }

    /// Sends the bytes of a request with spans.
    ///
    /// # Errors
    /// [`ExportError`]: they have not arrived, or not all of them.
    pub(super) async fn post_spans(&self, body: Vec<u8>) -> Result<(), ExportError> {
        spans::check_response(self.0.send(body).await?)
    }
}

/// What a collector's answer means.
fn check_response(body: Bytes) -> Result<(), ExportError> {
    let told = ExportMetricsServiceResponse::decode(body).map_err(|_| ExportError::NotOtlp)?;
    match told.partial_success {
        Some(partial) if partial.rejected_data_points != 0 => Err(ExportError::Partial {
            rejected: partial.rejected_data_points,
            of: "data points",
            message: partial.error_message,
        }),
        _ => Ok(()),
    }
}
