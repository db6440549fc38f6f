//! `-R`: finds the process to take over from.

use std::time::Duration;

use driver::{Predecessor, unix_path};
use settings::Config;
use telemetry::{Level, Record};

use crate::boot::BootError;
use crate::logging::Logger;

/// Lower bound of the timeout for the old process's answers.
const MIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long each process waits for the other before it gives the takeover up.
pub(crate) fn timeout(config: &Config) -> Duration {
    config.global.suspend_timeout.max(MIN_TIMEOUT)
}

/// The running process on the unix socket of this configuration. None if there is none: then one starts as always.
pub(crate) fn predecessor(config: &Config, logger: &Logger) -> Result<Option<Predecessor>, BootError> {
    // Without a unix socket no process can be found: PgBouncer starts then as always, and so does a unit that says -R.
    let path = unix_path(&config.global);
    let find =
        |path: &String| Predecessor::find(path, timeout(config)).map_err(BootError::Takeover).transpose();
    let found = path.as_ref().and_then(find).transpose()?;
    let text = match &found {
        Some(_) => "takeover: the old process is ready to hand over".to_owned(),
        None => "old process not found, try to continue normally".to_owned(),
    };
    logger.write(&Record::new(Level::Log, text));
    Ok(found)
}
