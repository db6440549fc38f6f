//! The collector: where it is, and what its answer means (OTLP specification, "OTLP/HTTP").
//! Never sends anything twice.

use axum::body::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message as _;
use tls::SetupFault;

use super::ExportConfig;
use super::error::ExportError;
use httpclient::HttpTarget;

/// A collector that metrics are sent to.
pub(super) struct Collector(HttpTarget);

impl Collector {
    /// The one that the settings name.
    ///
    /// # Errors
    /// [`SetupFault`]: there are no roots to check its certificate by.
    pub(super) fn new(config: &ExportConfig) -> Result<Collector, SetupFault> {
        HttpTarget::to(&config.endpoint, &config.headers, "application/x-protobuf", &config.roots)
            .map(Collector)
    }

    /// Sends the bytes of a request.
    ///
    /// # Errors
    /// [`ExportError`]: they have not arrived, or not all of them.
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<(), ExportError> {
        check_response(self.0.send(body).await?)
    }
}

/// What a collector's answer means.
fn check_response(body: Bytes) -> Result<(), ExportError> {
    let told = ExportMetricsServiceResponse::decode(body).map_err(|_| ExportError::NotOtlp)?;
    match told.partial_success {
        Some(partial) if partial.rejected_data_points != 0 => Err(ExportError::Partial {
            rejected: partial.rejected_data_points,
            message: partial.error_message,
        }),
        _ => Ok(()),
    }
}
