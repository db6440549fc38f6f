//! What a panic costs: the process, for half a pooler is worse than none; on the panel's threads, no more than they.
//! Never catches one: a panic of the panel's unwinds to those who run its tasks and its thread.

use std::sync::Arc;
use std::{panic, process, thread};

use telemetry::{Level, Record};

use crate::logging::Logger;

/// From now on each panic's place and words go to the log, and whoever's it is, the panel's excepted, the process ends.
pub(crate) fn end_the_process(logger: &Arc<Logger>) {
    let logger = Arc::clone(logger);
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let thread = thread::current();
        let is_panels = http::count_panic(&thread);
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
    const BREAKS: &str = "WEIR_TEST_BREAKS";

    #[test]
    fn a_panic_ends_the_process_unless_it_is_the_panels() {
        if let Ok(name) = std::env::var(BREAKS) {
            end_the_process(&Arc::new(Logger::new(true)));
            let thread = thread::Builder::new().name(name).spawn(|| panic!("a bug"));
            assert!(thread.unwrap().join().is_err());
            return;
        }
        let broken = |thread: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "panics::tests::a_panic_ends_the_process_unless_it_is_the_panels"]);
            command.env(BREAKS, thread).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
        };
        for of_the_panel in ["weir-http", "weir-lab"] {
            assert!(broken(of_the_panel).success(), "{of_the_panel}");
        }
        for other in ["weir-shard-0", "main", "weir-signals"] {
            assert!(broken(other).signal().is_some(), "{other}");
        }
    }
}
