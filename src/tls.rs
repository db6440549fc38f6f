//! Says what is wrong with the settings of TLS: before a start, and whenever they change.
//! Owns the log lines. The shards make terms of their own from the same configuration; this never touches a connection.

use settings::Config;
use telemetry::{Level, Record};
use tls::{SetupFault, Terms};

use crate::logging::Logger;

/// The terms that the log was last told about.
pub(crate) struct TlsNews {
    terms: Option<Terms>,
}

impl TlsNews {
    /// The settings to start with.
    ///
    /// # Errors
    /// [`SetupFault`], which was logged: nothing should start.
    pub(crate) fn begin(config: &Config, logger: &Logger) -> Result<TlsNews, SetupFault> {
        let mut news = TlsNews { terms: None };
        news.make(config, logger)?;
        Ok(news)
    }

    /// A new configuration is in force. One that makes no terms leaves the terms before in force, everywhere.
    pub(crate) fn configure(&mut self, config: &Config, logger: &Logger) {
        if self.terms.as_ref().is_some_and(|terms| terms.are_of(config)) {
            return;
        }
        if self.make(config, logger).is_err() {
            let text = "TLS configuration could not be reloaded, keeping old configuration";
            logger.write(&Record::new(Level::Error, text));
        }
    }

    fn make(&mut self, config: &Config, logger: &Logger) -> Result<(), SetupFault> {
        let terms = Terms::new(config).inspect_err(|fault| {
            logger.write(&Record::new(Level::Error, format!("TLS setup failed: {fault}")));
        })?;
        for warning in &terms.warnings {
            logger.write(&Record::new(Level::Warning, warning.clone()));
        }
        self.terms = Some(terms);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::SslMode;

    #[test]
    fn terms_before_stay_where_new_ones_cannot_be_made() {
        let (mut config, logger) = (Config::default(), Logger::new(false));
        let Ok(mut news) = TlsNews::begin(&config, &logger) else { panic!("the defaults make no terms") };
        let before = config.clone();
        config.global.client_tls_sslmode = SslMode::Require;
        news.configure(&config, &logger);
        assert!(news.terms.is_some_and(|terms| terms.are_of(&before)));
        assert!(TlsNews::begin(&config, &logger).is_err());
    }
}
