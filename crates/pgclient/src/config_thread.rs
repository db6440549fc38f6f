//! A thread with a runtime of its own, which is told of each new configuration.

use std::io;
use std::sync::Arc;
use std::thread;

use settings::Config;
use tokio::runtime;
use tokio::sync::watch;

/// Threads beside it on which keys are derived and names are looked up.
const BLOCKING_THREADS: usize = 4;

/// The thread. It ends with the process.
pub struct ConfigThread(watch::Sender<Arc<Config>>);

impl ConfigThread {
    /// Begins a thread of this name, which runs `main`.
    ///
    /// # Errors
    /// The system has no thread, or nothing that a runtime needs.
    pub fn begin<Main>(
        name: &str,
        config: &Arc<Config>,
        main: impl FnOnce(watch::Receiver<Arc<Config>>) -> Main + Send + 'static,
    ) -> io::Result<ConfigThread>
    where
        Main: Future<Output = ()>,
    {
        let mut builder = runtime::Builder::new_current_thread();
        builder.enable_io().enable_time().thread_name(name).max_blocking_threads(BLOCKING_THREADS);
        let runtime = builder.build()?;
        let (config, configs) = watch::channel(Arc::clone(config));
        thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(main(configs)))?;
        Ok(ConfigThread(config))
    }

    /// A new configuration is in force.
    pub fn configure(&self, config: &Arc<Config>) {
        self.0.send_replace(Arc::clone(config));
    }
}
