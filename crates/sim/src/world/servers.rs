//! The servers' side: moves bytes between the network and the model server's processes.

use super::{Owner, What, World};
use crate::model::session::Progress;
use crate::network::{End, Ending};
use crate::pooler::Pooler;

/// What a server process reads at a time, as PostgreSQL's receive buffer.
const READ_MOST: usize = 8192;

impl<P: Pooler> World<P> {
    /// A server process does what it can, and those that it has woken do, too.
    pub(super) fn drive_backend(&mut self, number: u32) {
        self.drive_one(number);
        while let Some(woken) = self.cluster.woken.pop() {
            self.drive_one(woken);
        }
        for (signalled, us) in std::mem::take(&mut self.cluster.signalled) {
            self.clock.after(us, What::BackendWake(signalled));
        }
        self.checker.sent.append(&mut self.cluster.sent);
        self.judge_reads();
        if let Some((invariant, text)) = self.cluster.strange.pop() {
            self.checker.object(invariant, text);
        }
        if let Some(tag) = self.cluster.ledger.take_twice() {
            self.checker.object("I6", format!("{tag} was applied twice"));
        }
    }

    fn drive_one(&mut self, number: u32) {
        let mut bytes = Vec::new();
        let frozen_until_us = self.cluster.frozen_until_us(number);
        if frozen_until_us > self.clock.now_us() {
            return self.clock.at(frozen_until_us, What::BackendWake(number));
        }
        loop {
            if !self.write_output(number) {
                return;
            }
            let now_us = self.clock.now_us();
            let backend = self.cluster.backend(number);
            let end = backend.end;
            if backend.has_ended() {
                return self.end_backend(number, Ending::Finish);
            }
            if backend.busy_until_us.is_some_and(|until_us| until_us > now_us) {
                return;
            }
            backend.busy_until_us = None;
            match self.cluster.step(number, now_us) {
                Progress::Again | Progress::Ended => (),
                Progress::Busy(us) => {
                    self.write_output(number);
                    return self.clock.after(us, What::BackendWake(number));
                }
                Progress::Waiting => {
                    self.network.read(end, READ_MOST, &mut bytes, &mut self.clock);
                    if bytes.is_empty() {
                        if self.network.exhausted(end) {
                            return self.end_backend(number, Ending::Finish);
                        }
                        if self.cluster.backend(number).deliver() {
                            continue;
                        }
                        if let Some(us) = self.cluster.stream_on(number, now_us) {
                            self.write_output(number);
                            self.clock.after(us, What::BackendWake(number));
                        }
                        return;
                    }
                    self.trace.bytes(&bytes);
                    self.cluster.backend(number).feed(&bytes);
                }
            }
        }
    }

    /// True once everything is written.
    fn write_output(&mut self, number: u32) -> bool {
        let backend = self.cluster.backend(number);
        if backend.output.is_empty() {
            return true;
        }
        let end = backend.end;
        let written = self.network.write(end, backend.output.make_contiguous(), &mut self.clock);
        backend.output.drain(..written);
        backend.output.is_empty()
    }

    pub(super) fn end_backend(&mut self, number: u32, ending: Ending) {
        let end = self.kill_backend(number);
        if self.owner(end) != Owner::Nobody {
            self.network.close(end, ending, &mut self.clock);
            self.set_owner(end, Owner::Nobody);
        }
    }

    /// A server process is gone, and nothing says so before then.
    pub(super) fn lose_backend(&mut self, number: u32, until_us: u64) {
        let end = self.kill_backend(number);
        if self.owner(end) != Owner::Nobody {
            self.network.lose(end, until_us, &mut self.clock);
            self.set_owner(end, Owner::Nobody);
        }
    }

    fn kill_backend(&mut self, number: u32) -> End {
        let backend = self.cluster.backend(number);
        let (end, ends) = (backend.end, backend.take_ends());
        backend.kill();
        // What it had read before it ended cannot be asked any more.
        if let Owner::Pooler(spot) = self.owner(end.peer())
            && let Some(tap) = self.socket(spot).and_then(|socket| socket.tap.as_mut())
        {
            tap.read(ends);
        }
        end
    }
}
