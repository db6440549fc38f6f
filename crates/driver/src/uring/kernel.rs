//! Whether io_uring works here, found out by doing what the loop will do.
//!
//! Containers forbid it, old kernels lack parts of it: each failure becomes a reason for the log.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::system::uname;

use crate::ids::Generation;
use crate::uring::buffers::{Buffers, ReceiveBuffers};
use crate::uring::ring::{Completion, Op, Ring, RingSize, Tag, socket_pair};

/// The oldest kernel with everything that the loop needs.
const OLDEST: (u32, u32) = (6, 1);

/// A ring and its receive buffers, tried out.
pub(crate) struct Kernel {
    pub(crate) ring: Ring,
    pub(crate) buffers: Buffers,
}

/// What did not work, and the system's fault.
type Refusal = (&'static str, io::Error);

impl Kernel {
    /// A ring of the calling thread, or why there is none.
    pub(crate) fn new(size: RingSize, plan: ReceiveBuffers) -> Result<Kernel, String> {
        let release = uname().release().to_string_lossy().into_owned();
        if version(&release).is_some_and(|version| version < OLDEST) {
            return Err(format!("kernel {release} is older than {}.{}", OLDEST.0, OLDEST.1));
        }
        Kernel::of(size, plan).or_else(|refusal| Kernel::smaller(plan, refusal)).map_err(reason)
    }

    /// Rings are locked memory, which is limited for all processes of a user together: where it does not suffice, a
    /// small ring is better than none. What the first try took is given back by the system in its own time, and so is
    /// that of processes which have just ended.
    fn smaller(plan: ReceiveBuffers, mut refusal: Refusal) -> Result<Kernel, Refusal> {
        const PAUSES_MS: [u64; 4] = [100, 200, 400, 800];
        let most = (plan.most / 8).max(1);
        let plan = ReceiveBuffers { first: plan.first.min(most), most, ..plan };
        for pause_ms in PAUSES_MS {
            if Errno::from_io_error(&refusal.1) != Some(Errno::NOMEM) {
                break;
            }
            thread::sleep(Duration::from_millis(pause_ms));
            match Kernel::of(RingSize::SMALL, plan) {
                Ok(kernel) => return Ok(kernel),
                Err(again) => refusal = again,
            }
        }
        Err(refusal)
    }

    fn of(size: RingSize, plan: ReceiveBuffers) -> Result<Kernel, Refusal> {
        let ring = Ring::new(size).map_err(|fault| ("no ring", fault))?;
        let buffers = Buffers::new(ring.kernel(), plan).map_err(|fault| ("no provided buffers", fault))?;
        let mut kernel = Kernel { ring, buffers };
        kernel.try_out().map_err(|fault| ("multishot receive does not work", fault))?;
        Ok(kernel)
    }

    /// Receives one byte by a multishot receive, then sees its end.
    fn try_out(&mut self) -> io::Result<()> {
        let (near, far) = socket_pair()?;
        let tag = Tag { op: Op::Receive, generation: Generation::FIRST, number: 0 };
        self.ring.receive_on(tag, near.as_fd());
        rustix::io::write(&far, b"x")?;
        let first = self.answer()?;
        let Some(id) = first.buffer.filter(|_| first.result == Ok(1) && first.more) else {
            return Err(first.result.err().unwrap_or(Errno::NOSYS).into());
        };
        let buffer = self.buffers.take(id, 1);
        self.buffers.release(buffer);
        self.buffers.publish();
        drop(far);
        let last = self.answer()?;
        if last.more { Err(Errno::NOSYS.into()) } else { Ok(()) }
    }

    fn answer(&mut self) -> io::Result<Completion> {
        const PATIENCE_US: u64 = 1_000_000;
        let mut answers = Vec::new();
        self.ring.turn(Some(PATIENCE_US), &mut answers)?;
        answers.pop().ok_or_else(|| Errno::TIMEDOUT.into())
    }
}

fn reason((what, fault): Refusal) -> String {
    match Errno::from_io_error(&fault) {
        Some(errno) => format!("{what}: {}", crate::connect::text(errno)),
        None => format!("{what}: {fault}"),
    }
}

/// Major and minor of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|character: char| !character.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version("5.15.167.4-microsoft"), Some((5, 15)));
        assert_eq!(version("nonsense"), None);
        assert!((5, 15) < OLDEST && (6, 18) >= OLDEST);
    }
}
