//! Logs errors and warnings of the TLS settings, at start and whenever they change.
//! The shards build their own configuration from the same settings.

use settings::Config;
use telemetry::{Level, Record};
use tls::{SetupFault, TlsConfig};

use crate::logging::Logger;

/// The TLS configuration that was last logged.
pub(crate) struct TlsConfigLog {
    terms: Option<TlsConfig>,
}

impl TlsConfigLog {
    /// The settings to start with.
    ///
    /// # Errors
    /// [`SetupFault`], which was logged: nothing should start.
    pub(crate) fn begin(config: &Config, logger: &Logger) -> Result<TlsConfigLog, SetupFault> {
        let mut news = TlsConfigLog { terms: None };
        news.make(config, logger)?;
        Ok(news)
    }

    /// A new configuration is in force. If its TLS settings are invalid, the previous ones stay in force everywhere.
    pub(crate) fn configure(&mut self, config: &Config, logger: &Logger) {
        if self.terms.as_ref().is_some_and(|terms| terms.is_built_from(config)) {
            return;
        }
        if self.make(config, logger).is_err() {
            let text = "TLS configuration could not be reloaded, keeping old configuration";
            logger.write(&Record::new(Level::Error, text));
        }
    }

    fn make(&mut self, config: &Config, logger: &Logger) -> Result<(), SetupFault> {
        let terms = TlsConfig::new(config).inspect_err(|fault| {
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
        let Ok(mut news) = TlsConfigLog::begin(&config, &logger) else {
            panic!("the defaults make no terms")
        };
        let before = config.clone();
        config.global.client_tls_sslmode = SslMode::Require;
        news.configure(&config, &logger);
        assert!(news.terms.is_some_and(|terms| terms.is_built_from(&before)));
        assert!(TlsConfigLog::begin(&config, &logger).is_err());
    }
}
