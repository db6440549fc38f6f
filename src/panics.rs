//! A panic ends the process, except on the panel's threads.
//! Catches none: a panic of the panel unwinds to the supervisors of its tasks and its thread.

use std::sync::Arc;
use std::{panic, process, thread};

use telemetry::{Level, Record};

use crate::logging::Logger;

/// Installs a hook that logs each panic and, except for the panel's threads, ends the process.
pub(crate) fn abort_on_panic(logger: &Arc<Logger>) {
    let logger = Arc::clone(logger);
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let thread = thread::current();
        // What the file of usage does to its library costs that file (`usage::store`).
        let is_panels = panel::count_panic(&thread) || thread.name() == Some(usage::THREAD);
        let level = if is_panels { Level::Error } else { Level::Fatal };
        let name = thread.name().unwrap_or("a thread");
        logger.write(&Record::new(level, format!("bug in {name}: {panic}")));
        before(panic);
        if !is_panels {
            process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// Names the thread that is to break, in a process that does nothing else.
    const PANICS: &str = "WEIR_TEST_BREAKS";

    #[test]
    fn a_panic_ends_the_process_unless_it_is_the_panels() {
        if let Ok(name) = std::env::var(PANICS) {
            abort_on_panic(&Arc::new(Logger::new(true)));
            let thread = thread::Builder::new().name(name).spawn(|| panic!("a bug"));
            assert!(thread.unwrap().join().is_err());
            return;
        }
        let broken = |thread: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "panics::tests::a_panic_ends_the_process_unless_it_is_the_panels"]);
            command.env(PANICS, thread).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
        };
        for of_the_panel in ["weir-panel", "weir-lab"] {
            assert!(broken(of_the_panel).success(), "{of_the_panel}");
        }
        for other in ["weir-shard-0", "main", "weir-signals"] {
            assert!(broken(other).signal().is_some(), "{other}");
        }
    }
}
