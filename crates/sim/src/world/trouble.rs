//! What goes wrong, when its time has come, and the end of it.

use std::sync::Arc;
use std::time::Duration;

use mail::{Command, RequestId};

use super::{Era, Owner, What, World};
use crate::network::{Ending, LinkId};
use crate::pooler::Pooler;
use crate::swarm::Fault;

impl<P: Pooler> World<P> {
    /// A fault happens, and its next occurrence is planned. A mean of 0 ends what an earlier occurrence began.
    pub(super) fn trouble(&mut self, fault: Fault, mean_us: u64) {
        if self.era != Era::Chaos {
            return;
        }
        if mean_us > 0 {
            let next = self.prng.below(mean_us * 2) + 1;
            self.clock.after(next, What::Trouble(fault, mean_us));
        }
        if self.trace.keeps_lines() {
            self.say(format_args!("trouble: {fault:?}"));
        }
        let now_us = self.clock.now_us();
        let while_us = self.prng.log_between(1_000, 300_000);
        match fault {
            Fault::CutClient => self.cut(|owner| matches!(owner, Owner::Client(_))),
            Fault::CutServer => self.cut(|owner| matches!(owner, Owner::Backend(_))),
            Fault::Terminate => {
                if let Some(number) = self.cluster.terminate_one() {
                    self.drive_backend(number);
                }
            }
            Fault::Crash => {
                for number in self.cluster.crash(now_us) {
                    self.drive_backend(number);
                }
            }
            Fault::Refuse => self.cluster.refuse_until(now_us + while_us),
            Fault::Blackhole => self.cluster.be_silent_until(now_us + while_us),
            Fault::WallJump => {
                let hours = i64::try_from(self.prng.below(4)).unwrap_or(0) - 2;
                self.clock.set_wall_by(hours * 3_600_000_000);
            }
            Fault::Pause if self.paused => self.resume(),
            Fault::Pause if mean_us == 0 => (),
            Fault::Pause => {
                self.paused = true;
                self.pauses += 1;
                self.command(&if self.pauses % 2 == 1 {
                    Command::Pause { request: RequestId(1), database: None }
                } else {
                    Command::Suspend { request: RequestId(1) }
                });
            }
            Fault::Reconnect => self.command(&Command::Reconnect { database: None }),
            Fault::Resize => {
                let mut config = (*self.config).clone();
                let most = u64::from(self.swarm.pooling.pool_size);
                config.global.default_pool_size = u32::try_from(self.prng.between(1, most)).unwrap_or(1);
                self.command(&Command::Configure(Arc::new(config)));
            }
        }
    }

    /// The faults are over: whatever is half done is undone, and sessions end one after another.
    pub(super) fn heal(&mut self) {
        if self.era != Era::Chaos {
            return;
        }
        self.say(format_args!("the faults are over"));
        self.era = Era::Healing;
        let now_us = self.clock.now_us();
        self.cluster.heal(now_us);
        self.network.heal();
        if self.paused {
            self.resume();
        }
        let mut config = (*self.config).clone();
        // Whoever waits must be served, not sent away: from now on there is time enough.
        config.global.query_wait_timeout = Duration::from_secs(120);
        config.global.query_timeout = Duration::ZERO;
        config.global.idle_transaction_timeout = Duration::ZERO;
        config.global.client_idle_timeout = Duration::ZERO;
        self.command(&Command::Configure(Arc::new(config)));
        self.calm_clients();
        let open: Vec<u32> = self.slots.iter().flatten().copied().collect();
        for number in open {
            self.client_acts(number);
        }
    }

    fn resume(&mut self) {
        self.paused = false;
        self.command(&Command::Resume { database: None });
    }

    /// The network breaks one of the connections whose end is of a kind.
    fn cut(&mut self, kind: impl Fn(Owner) -> bool) {
        let found: Vec<(usize, Owner)> = self
            .owners
            .iter()
            .enumerate()
            .filter_map(|(link, ends)| Some((link, *ends.iter().find(|owner| kind(**owner))?)))
            .collect();
        let Some((link, owner)) = found.get(self.prng.index(found.len())).copied() else { return };
        if let Owner::Client(number) = owner {
            self.clients[number as usize].disturbed = true;
        }
        self.network.cut(LinkId(u32::try_from(link).unwrap_or(0)), &mut self.clock);
        if let Owner::Backend(number) = owner {
            // The server notices as soon as it reads.
            self.end_backend(number, Ending::Reset);
        }
    }
}
