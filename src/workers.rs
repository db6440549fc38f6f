//! The shards' threads as the control loop sees them: passes its outputs to the engine.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use control::{Input, TakeoverEvent};
use driver::{Engine, TakeoverProgress};
use messages::{Command, Listing, ShardId, Subject};

use crate::control_loop::Shards;

/// How long threads may take to end before the process ends without them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The shards' threads, and the way in which others tell the control thread.
pub(crate) struct Workers {
    pub(crate) engine: Engine,
    pub(crate) inputs: Sender<Input>,
}

impl Shards for Workers {
    fn send(&self, shard: ShardId, command: Command) {
        self.engine.command(shard, command);
    }

    fn close_tcp(&self) {
        self.engine.close_tcp_listeners();
    }

    fn inspect(&self, subject: Subject) -> Listing {
        self.engine.inspect(subject)
    }

    fn hand_over(
        &self,
        line: &str,
        note: String,
        panel: Option<OwnedFd>,
        timeout: Duration,
    ) -> io::Result<()> {
        let inputs = self.inputs.clone();
        let news = move |news| drop(inputs.send(Input::Takeover(outcome(news))));
        self.engine.hand_over(line, note, panel, timeout, news)
    }

    fn cancel_at_predecessor(&self, key: &[u8]) {
        self.engine.cancel_at_predecessor(key);
    }

    fn resume_predecessor(&self, database: Option<&str>) {
        self.engine.resume_predecessor(database);
    }
}

fn outcome(news: TakeoverProgress) -> TakeoverEvent {
    match news {
        TakeoverProgress::Begun => TakeoverEvent::Begun,
        TakeoverProgress::Failed(why) => TakeoverEvent::Failed(why),
        TakeoverProgress::Orphaned => TakeoverEvent::Orphaned,
        TakeoverProgress::Resumed { database } => TakeoverEvent::Resumed { database },
        TakeoverProgress::Over => TakeoverEvent::Over,
    }
}

/// Stops the threads after they have sent their pending output; a thread that hangs does not delay the exit.
pub(crate) fn stop(engine: Engine) {
    let (done, is_done) = channel();
    let flush_metrics = thread::spawn(move || {
        engine.join();
        let _ = done.send(());
    });
    let _ = is_done.recv_timeout(SHUTDOWN_TIMEOUT);
    drop(flush_metrics);
}
