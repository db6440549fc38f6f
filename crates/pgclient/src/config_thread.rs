//! A thread with a runtime of its own, which is told of each new configuration, or whatever else says what it is to do.

use std::io;
use std::thread;

use tokio::runtime;
use tokio::sync::watch;

/// Threads beside it on which keys are derived and names are looked up, which may take long.
const BLOCKING_THREADS: usize = 16;

/// The thread. It ends with the process.
pub struct ConfigThread<Config>(watch::Sender<Config>);

impl<Config: Clone + Send + Sync + 'static> ConfigThread<Config> {
    /// Begins a thread of this name, which runs `main`.
    ///
    /// # Errors
    /// The system has no thread, or nothing that a runtime needs.
    pub fn begin<Main>(
        name: &str,
        config: &Config,
        main: impl FnOnce(watch::Receiver<Config>) -> Main + Send + 'static,
    ) -> io::Result<ConfigThread<Config>>
    where
        Main: Future<Output = ()>,
    {
        let mut builder = runtime::Builder::new_current_thread();
        builder.enable_io().enable_time().thread_name(name).max_blocking_threads(BLOCKING_THREADS);
        let runtime = builder.build()?;
        let (config, configs) = watch::channel(config.clone());
        thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(main(configs)))?;
        Ok(ConfigThread(config))
    }

    /// A new configuration is in force.
    pub fn configure(&self, config: &Config) {
        self.0.send_replace(config.clone());
    }
}
