//! The shards' threads as the control thread's loop has them: what it wants done is told to the engine.
//! Never decides anything.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use control::{Input, Succession};
use driver::{Engine, News};
use messages::{Command, Listing, ShardId, Subject};

use crate::life::Crew;

/// How long threads may take to end before the process ends without them.
const FAREWELL: Duration = Duration::from_secs(2);

/// The shards' threads, and the way in which others tell the control thread.
pub(crate) struct Workers {
    pub(crate) engine: Engine,
    pub(crate) inputs: Sender<Input>,
}

impl Crew for Workers {
    fn tell(&self, shard: ShardId, command: Command) {
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
        patience: Duration,
    ) -> io::Result<()> {
        let inputs = self.inputs.clone();
        let news = move |news| drop(inputs.send(Input::Succession(outcome(news))));
        self.engine.hand_over(line, note, panel, patience, news)
    }

    fn cancel_at_predecessor(&self, key: &[u8]) {
        self.engine.cancel_at_predecessor(key);
    }

    fn resume_predecessor(&self, database: Option<&str>) {
        self.engine.resume_predecessor(database);
    }
}

fn outcome(news: News) -> Succession {
    match news {
        News::Begun => Succession::Begun,
        News::Failed(why) => Succession::Failed(why),
        News::Orphaned => Succession::Orphaned,
        News::Resumed { database } => Succession::Resumed { database },
        News::Over => Succession::Over,
    }
}

/// Lets the threads send what they were told last and end; a thread that hangs does not keep the process.
pub(crate) fn dismiss(engine: Engine) {
    let (done, is_done) = channel();
    let farewell = thread::spawn(move || {
        engine.join();
        let _ = done.send(());
    });
    let _ = is_done.recv_timeout(FAREWELL);
    drop(farewell);
}
