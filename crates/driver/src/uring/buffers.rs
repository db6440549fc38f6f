//! Receive buffers that the kernel chooses from (a provided-buffer ring), and who still reads them.
//!
//! A buffer goes back to the kernel when the last [`Buffer`] that stands for it was released. The memory is reserved
//! whole and touched piece by piece: when slow clients hold many buffers, further ones are handed out, so that they
//! stop no other connection; when those come back, and when less is received than before, memory goes back to the system
//! ([`Buffers::trim`]). Never looks into the bytes.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::{io, slice};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The only group of buffers of a ring.
pub(crate) const GROUP: u16 = 0;

/// Memory of free buffers that is kept however little is received, in bytes.
const KEPT: usize = 2 * 1024 * 1024;
/// Buffers whose memory goes back at most with one [`Buffers::trim`]: each costs a system call.
const TRIMMED: usize = 512;
const PAGE: usize = 4096;

/// How many buffers there are, and how large.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveBuffers {
    /// One buffer, in bytes.
    pub size: usize,
    /// Handed out at first; as many stay with the kernel while it has the choice.
    pub first: u16,
    /// Handed out at most, a power of two.
    pub most: u16,
}

impl Default for ReceiveBuffers {
    fn default() -> ReceiveBuffers {
        ReceiveBuffers { size: 64 * 1024, first: 256, most: 8192 }
    }
}

/// Stands for one holder of one buffer. To be released, never dropped: a dropped one keeps its buffer for ever.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Buffer(u16);

/// All buffers of one ring.
pub(crate) struct Buffers {
    entries: *mut BufRingEntry,
    memory: *mut u8,
    size: usize,
    /// From one to the next, in bytes: whole pages, because that is what is given back to the system.
    stride: usize,
    most: u16,
    tail: u16,
    /// Holders of each buffer.
    holds: Vec<u16>,
    /// Buffers that the kernel was never given, or not again.
    reserve: Vec<u16>,
    /// Buffers that are the kernel's or held.
    handed_out: u16,
    held: u16,
    /// The number that should be the kernel's.
    target: u16,
    /// The least that `target` may be.
    first: u16,
    /// How much of each buffer has memory, in bytes.
    touched: Vec<u32>,
    /// The sum of that over the buffers that are the kernel's.
    idle_bytes: usize,
    /// Buffers that the kernel has filled since the last trim.
    taken: u16,
    /// It had none for a connection since the last trim.
    has_run_out: bool,
}

impl Buffers {
    /// Reserves memory and registers it with the ring.
    pub(crate) fn new(ring: &IoUring, plan: ReceiveBuffers) -> io::Result<Buffers> {
        let most = plan.most.next_power_of_two();
        let entries = reserve(usize::from(most) * size_of::<BufRingEntry>())?.cast::<BufRingEntry>();
        let stride = plan.size.next_multiple_of(PAGE);
        let memory = reserve(usize::from(most) * stride)?;
        // SAFETY: the entries are page-aligned, long enough for `most`, zeroed and never unmapped.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, most, GROUP, 0) }?;
        let mut buffers = Buffers {
            entries,
            memory,
            size: plan.size,
            stride,
            most,
            tail: 0,
            holds: vec![0; usize::from(most)],
            reserve: (0..most).rev().collect(),
            handed_out: 0,
            held: 0,
            target: plan.first.clamp(1, most),
            first: plan.first.clamp(1, most),
            touched: vec![0; usize::from(most)],
            idle_bytes: 0,
            taken: 0,
            has_run_out: false,
        };
        buffers.hand_out(buffers.target);
        buffers.publish();
        Ok(buffers)
    }

    /// How long each is, in bytes.
    pub(crate) fn size(&self) -> u32 {
        u32::try_from(self.size).unwrap_or(u32::MAX)
    }

    /// The kernel has filled a buffer with this many bytes; the caller is its first holder.
    pub(crate) fn take(&mut self, id: u16, length: usize) -> Buffer {
        let index = usize::from(id);
        debug_assert_eq!(self.holds[index], 0, "the kernel filled a held buffer");
        self.holds[index] = 1;
        self.held += 1;
        self.taken = self.taken.saturating_add(1);
        let touched = &mut self.touched[index];
        self.idle_bytes = self.idle_bytes.saturating_sub(*touched as usize);
        *touched = (*touched).max(u32::try_from(length.next_multiple_of(PAGE)).unwrap_or(u32::MAX));
        Buffer(id)
    }

    /// One more holder.
    pub(crate) fn hold(&mut self, buffer: &Buffer) -> Buffer {
        self.holds[usize::from(buffer.0)] += 1;
        Buffer(buffer.0)
    }

    /// One holder less.
    pub(crate) fn release(&mut self, buffer: Buffer) {
        let id = buffer.0;
        let holds = &mut self.holds[usize::from(id)];
        *holds -= 1;
        if *holds > 0 {
            return;
        }
        self.held -= 1;
        if self.free() > self.target.saturating_mul(2) {
            self.retire(id);
        } else {
            self.give(id);
        }
    }

    /// The first bytes of a buffer.
    pub(crate) fn bytes(&self, buffer: &Buffer, length: usize) -> &[u8] {
        let length = length.min(self.size);
        // SAFETY: the buffer is held, so the kernel does not write to it; its memory is mapped, initialised (zeroed
        // by mmap, then written by the kernel) and `size` long. The slice lives no longer than the borrow of `self`,
        // and releasing takes `&mut self`.
        unsafe { slice::from_raw_parts(self.address(buffer), length) }
    }

    /// Where a held buffer begins.
    pub(crate) fn address(&self, buffer: &Buffer) -> *const u8 {
        debug_assert!(self.holds[usize::from(buffer.0)] > 0);
        self.at(buffer.0)
    }

    fn at(&self, id: u16) -> *mut u8 {
        // SAFETY: ids are below `most`, so this stays within the reserved memory.
        unsafe { self.memory.add(usize::from(id) * self.stride) }
    }

    /// The kernel ran out of buffers for a connection: it gets more from now on, if there are any.
    pub(crate) fn ran_out(&mut self) {
        const BURST: u16 = 2048;
        self.has_run_out = true;
        self.target = self.target.saturating_mul(2).min(BURST).min(self.most).max(self.target);
        let free = self.free();
        self.hand_out(self.target.saturating_sub(free));
    }

    /// Makes what was given back known to the kernel, and adds to it while much is held.
    pub(crate) fn publish(&mut self) {
        if self.free() < self.target / 4 {
            self.hand_out(self.target / 2);
        }
        // SAFETY: the entries are the registered ring, whose first entry carries the tail; the kernel reads it with
        // acquire.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    /// Gives memory back that a busier time has left: of the buffers that the kernel would fill last, and not of as many
    /// as it may well fill before the next trim. About once a second, and only while no answer of the kernel waits to
    /// be taken: what it has filled and not told yet would be lost.
    pub(crate) fn trim(&mut self) {
        if !std::mem::take(&mut self.has_run_out) {
            self.target = (self.target / 2).max(self.first);
        }
        let likely = std::mem::take(&mut self.taken).saturating_mul(2);
        let mut left = TRIMMED;
        for back in 1..=self.free().saturating_sub(likely) {
            if self.idle_bytes <= KEPT || left == 0 {
                return;
            }
            let id = self.entry_back(back).bid();
            let touched = self.touched[usize::from(id)] as usize;
            if touched > 0 {
                self.idle_bytes = self.idle_bytes.saturating_sub(touched);
                self.return_memory(id);
                left -= 1;
            }
        }
    }

    /// There is something to be trimmed even if nothing more happens.
    pub(crate) fn wants_trim(&self) -> bool {
        self.idle_bytes > KEPT || self.target > self.first || self.are_scarce()
    }

    /// Whether buffers are short enough that connections which hold them for long must be found.
    pub(crate) fn are_scarce(&self) -> bool {
        self.held > self.first / 4
    }

    /// So few are not held that none may be kept for an unknown time: one in eight, and two.
    pub(crate) fn are_few_left(&self) -> bool {
        self.most - self.held < (self.most / 8).max(2)
    }

    /// How many have a holder.
    pub(crate) fn held(&self) -> u16 {
        self.held
    }

    /// How many the kernel can choose from.
    pub(crate) fn free(&self) -> u16 {
        self.handed_out - self.held
    }

    fn hand_out(&mut self, count: u16) {
        for _ in 0..count {
            let Some(id) = self.reserve.pop() else { return };
            self.handed_out += 1;
            self.give(id);
        }
    }

    fn give(&mut self, id: u16) {
        let (address, length) = (self.at(id) as u64, self.size());
        self.tail = self.tail.wrapping_add(1);
        let entry = self.entry_back(1);
        entry.set_addr(address);
        entry.set_len(length);
        entry.set_bid(id);
        self.idle_bytes += self.touched[usize::from(id)] as usize;
    }

    /// An entry of the ring, counted from the last one that was written.
    fn entry_back(&mut self, back: u16) -> &mut BufRingEntry {
        let index = self.tail.wrapping_sub(back) & (self.most - 1);
        // SAFETY: the index is masked to the ring's length. The kernel only reads entries, and those that are new not
        // before `publish`.
        unsafe { &mut *self.entries.add(usize::from(index)) }
    }

    /// Takes a buffer out of circulation and its memory back to the system.
    fn retire(&mut self, id: u16) {
        self.handed_out -= 1;
        self.reserve.push(id);
        self.return_memory(id);
    }

    /// Gives the memory of a buffer without content back to the system; its pages read as zeros afterwards.
    fn return_memory(&mut self, id: u16) {
        self.touched[usize::from(id)] = 0;
        // SAFETY: it lies within the reserved memory, and what it held has been read.
        unsafe { libc::madvise(self.at(id).cast(), self.size, libc::MADV_DONTNEED) };
    }
}

/// Maps memory that costs nothing until it is touched. It is never unmapped: the kernel may still write to it for a
/// moment after a ring is closed, and rings live as long as the process.
fn reserve(length: usize) -> io::Result<*mut u8> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping wherever the kernel likes; nothing of ours is touched.
    let memory = unsafe { libc::mmap(ptr::null_mut(), length, access, kind | libc::MAP_NORESERVE, -1, 0) };
    if memory == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(memory.cast()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn buffers(first: u16, most: u16) -> Buffers {
        Buffers::new(&IoUring::new(8).unwrap(), ReceiveBuffers { size: 4096, first, most }).unwrap()
    }

    #[test]
    fn a_buffer_goes_back_with_its_last_holder() {
        let mut buffers = buffers(8, 8);
        let first = buffers.take(7, 10);
        let second = buffers.hold(&first);
        assert_eq!(buffers.bytes(&first, 10), [0; 10]);
        buffers.release(first);
        assert_eq!(buffers.free(), 7);
        buffers.release(second);
        assert_eq!(buffers.free(), 8);
    }

    #[test]
    fn held_buffers_are_made_good_for_and_come_back_out_of_use() {
        let mut buffers = buffers(8, 64);
        let held: Vec<Buffer> = (0..7).map(|id| buffers.take(id, 4096)).collect();
        assert_eq!(buffers.free(), 1);
        buffers.publish();
        assert_eq!(buffers.free(), 5, "half of the target was added");
        buffers.ran_out();
        assert_eq!(buffers.free(), 16, "the target has doubled");
        for buffer in held {
            buffers.release(buffer);
        }
        assert!(buffers.free() <= 32, "what is too much is retired");
        assert_eq!(usize::from(buffers.handed_out) + buffers.reserve.len(), 64, "none was lost");
    }

    #[test]
    fn memory_goes_back_of_no_other_buffer() {
        let plan = ReceiveBuffers { size: 64, first: 64, most: 64 };
        let mut buffers = Buffers::new(&IoUring::new(8).unwrap(), plan).unwrap();
        let (first, second) = (buffers.take(0, 64), buffers.take(1, 64));
        // SAFETY: the buffer is held, and 64 bytes long.
        unsafe { ptr::write_bytes(buffers.address(&second).cast_mut(), 7, 64) };
        buffers.retire(first.0);
        assert_eq!(buffers.bytes(&second, 64), [7; 64]);
    }

    #[test]
    fn memory_of_a_busier_time_goes_back() {
        let plan = ReceiveBuffers { size: 64 * 1024, first: 256, most: 1024 };
        let mut buffers = Buffers::new(&IoUring::new(8).unwrap(), plan).unwrap();
        let fill = |buffers: &mut Buffers, length: usize| {
            let ids: Vec<u16> = (1..=256).rev().map(|back| buffers.entry_back(back).bid()).collect();
            let held: Vec<Buffer> = ids.into_iter().map(|id| buffers.take(id, length)).collect();
            assert_eq!(buffers.idle_bytes, 0);
            held.into_iter().for_each(|buffer| buffers.release(buffer));
        };
        fill(&mut buffers, 10);
        assert_eq!(buffers.idle_bytes, 256 * 4096);
        assert!(!buffers.wants_trim(), "small messages touch little");
        fill(&mut buffers, 64 * 1024);
        assert_eq!(buffers.idle_bytes, 16 * 1024 * 1024);
        buffers.trim();
        assert_eq!(buffers.idle_bytes, 16 * 1024 * 1024, "they were all used since");
        assert!(buffers.wants_trim());
        buffers.trim();
        assert_eq!(buffers.idle_bytes, KEPT);
        assert!(!buffers.wants_trim());
    }

    #[test]
    fn what_a_burst_has_asked_for_is_not_kept_for_good() {
        let mut buffers = buffers(8, 64);
        buffers.ran_out();
        buffers.ran_out();
        assert_eq!(buffers.target, 32);
        buffers.trim();
        assert_eq!(buffers.target, 32, "it ran out since the last time");
        buffers.trim();
        buffers.trim();
        buffers.trim();
        assert_eq!(buffers.target, 8);
        assert!(!buffers.wants_trim());
    }
}
