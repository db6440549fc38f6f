//! What goes wrong, when its time has come, and the end of it.

use messages::ShardMessage;

use super::{Era, Owner, What, World};
use crate::fault::Fault;
use crate::network::{Ending, LinkId};
use crate::pooler::Pooler;
use crate::setup;

/// How long a process that is stopped stands still.
pub(super) const STOP_US: u64 = 60 * crate::clock::SECOND_US;
/// How long after that waits are excused.
const EXCUSED_US: u64 = 10 * crate::clock::SECOND_US;

impl<P: Pooler> World<P> {
    /// A fault happens, and its next occurrence is planned.
    pub(super) fn trouble(&mut self, fault: Fault, mean_us: u64) {
        if self.era != Era::Chaos {
            return;
        }
        let next = self.prng.below(mean_us * 2) + 1;
        self.clock.after(next, What::Trouble(fault, mean_us));
        let now_us = self.clock.now_us();
        let while_us = self.prng.log_between(1_000, 300_000);
        if !self.steps.take() {
            return;
        }
        self.steps.note(format_args!("{fault:?}"));
        if self.trace.keeps_lines() {
            self.say(format_args!("trouble: {fault:?}"));
        }
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
            Fault::Stop => {
                self.clock.jump(STOP_US);
                self.excused_until_us = self.clock.now_us() + EXCUSED_US;
            }
            Fault::FilesOut => self.files_out_until_us = now_us + while_us,
            Fault::HostMoved => self.move_host(),
            Fault::Shutdown => self.shut_down(),
            Fault::Takeover => self.take_over(None),
            Fault::BrokenTakeover => self.take_over(Some(while_us)),
            host if Fault::OF_CLUSTERS.contains(&host) => self.trouble_hosts(host, while_us),
            order => self.operate(order, while_us),
        }
    }

    /// A host name stands for another address from now on.
    fn move_host(&mut self) {
        let host = self.prng.pick(setup::HOSTS);
        let gone =
            self.addresses.insert(host, self.addresses.get(host).copied().unwrap_or(1) + 1).unwrap_or(1);
        let letter =
            ShardMessage::HostMoved { host: host.to_owned(), gone: vec![setup::address_of(host, gone)] };
        for shard in (0..self.shards.len()).filter(|shard| !self.shards[*shard].ended).collect::<Vec<_>>() {
            let at_us = self.post(shard);
            self.clock.at(at_us, What::Letter(shard, letter.clone()));
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
        self.heal_hosts();
        self.silence.end_faults();
        self.network.heal();
        self.network.reset_all_lost(&mut self.clock);
        self.files_out_until_us = 0;
        self.undo_everything();
        self.configure_for_healing();
        self.calm_clients();
        let open: Vec<u32> = self.slots.iter().flatten().copied().collect();
        for number in open {
            self.client_acts(number);
        }
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
