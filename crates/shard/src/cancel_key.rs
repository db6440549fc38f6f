//! What a client sends back to cancel its query: a process id and a secret, how they are made and compared.
//!
//! Owns their layout. The process id is a counter of the whole process, permuted by a secret key: it cannot be
//! predicted, none is given again until all have been, and none is that of a server process ([`SERVER_PROCESS_ID_MAX`]). The secret has 4 bytes, or 32 where the client speaks protocol 3.2. In a
//! group (`peer_id`, or a fleet) bytes 1 and 2 are the number of the process in it, and the last two bits count how often the request may still be forwarded. With `peer_id` there are
//! 4 bytes of secret always: the layout is PgBouncer's, so that either may forward to the other. Never decides what a request leads to.

use auth::{KeyedPermutation, MockKey};
use pool::CancelKeyPrefix;
use settings::PeerGroup;
use subtle::ConstantTimeEq;

/// The bits of the last byte that count down with every forwarding.
const HOPS: u8 = 0x03;
/// Of a process id alone: its sign bit stays clear, for clients that take it for a signed number.
const BITS: u32 = 31;
/// The largest process id that a server can have: Linux' limit of `kernel.pid_max` (22 bits), above that of other systems.
const SERVER_PROCESS_ID_MAX: u32 = 1 << 22;
/// Of one in a group: the first and the last byte, without the sign bit.
const BITS_IN_GROUP: u32 = 15;
/// The shortest secret and, in a group with PgBouncers, the only one.
const SHORT: usize = 4;
/// The longest secret that PostgreSQL gives (`MAX_CANCEL_KEY_LENGTH`).
pub(crate) const LONG: usize = 32;

/// As a client has it: process id, then secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key(Box<[u8]>);

impl Key {
    pub(crate) fn new(process_id: u32, secret: &[u8]) -> Key {
        Key([&process_id.to_be_bytes(), secret].concat().into())
    }

    /// From a process id and a secret in a row.
    pub(crate) fn of(bytes: &[u8]) -> Option<Key> {
        bytes
            .split_first_chunk()
            .map(|(process_id, secret)| Key::new(u32::from_be_bytes(*process_id), secret))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.0.first_chunk().map_or(0, |process_id| u32::from_be_bytes(*process_id))
    }

    pub(crate) fn secret(&self) -> &[u8] {
        self.0.get(4..).unwrap_or_default()
    }

    /// Process id and the first bytes of the secret: all of a short key.
    pub(crate) fn short(&self) -> [u8; 8] {
        self.0.first_chunk().copied().unwrap_or_default()
    }

    /// The same with another process id.
    pub(crate) fn with_process_id(&self, process_id: u32) -> Key {
        Key::new(process_id, self.secret())
    }

    /// Its process id may be that of a server process; none that is made here is.
    pub(crate) fn may_be_of_server(&self) -> bool {
        self.process_id() <= SERVER_PROCESS_ID_MAX
    }

    /// The process of this group that made it; None if none can have.
    pub(crate) fn peer(&self, group: PeerGroup) -> Option<u32> {
        let [_, low, high, ..] = self.short();
        let is_of_group = match group {
            PeerGroup::None => false,
            PeerGroup::Configured(_) => self.secret().len() == SHORT,
            PeerGroup::Fleet(_) => matches!(self.secret().len(), SHORT | LONG),
        };
        is_of_group.then(|| u16::from_le_bytes([low, high]).into())
    }

    /// No process of the group has forwarded it.
    pub(crate) fn is_unforwarded(&self) -> bool {
        self.0.last().is_some_and(|last| last & HOPS == HOPS)
    }

    /// The key to forward; None if it has been forwarded too often.
    pub(crate) fn forwarded(&self) -> Option<Key> {
        let mut key = self.clone();
        let last = key.0.last_mut().filter(|last| **last & HOPS > 0)?;
        *last -= 1;
        Some(key)
    }

    /// The key before it was forwarded for the first time.
    pub(crate) fn whole(mut self, group: PeerGroup) -> Key {
        if let Some(last) = self.0.last_mut().filter(|_| group != PeerGroup::None) {
            *last |= HOPS;
        }
        self
    }

    /// Under what a key of this group is registered; the rest of a long secret is compared by [`Key::is`].
    pub(crate) fn prefix(&self, group: PeerGroup) -> CancelKeyPrefix {
        let [alone, in_group] = self.prefixes();
        if group == PeerGroup::None { alone } else { in_group }
    }

    /// By what the client with this key is found: without a group, and in any. Clients keep their keys when the group changes.
    pub(crate) fn prefixes(&self) -> [CancelKeyPrefix; 2] {
        let (alone, mut in_group) = (self.short(), self.short());
        in_group[7] |= HOPS;
        [alone, in_group]
    }

    /// Whether they are the same key, however often it was forwarded; takes as long if they are not.
    pub(crate) fn is(&self, other: &Key, group: PeerGroup) -> bool {
        self.clone().whole(group).0.ct_eq(&other.clone().whole(group).0).into()
    }
}

/// How many bytes the secret has of a client that can or cannot take a long one.
pub(crate) fn secret_length(group: PeerGroup, is_long: bool) -> usize {
    if is_long && !matches!(group, PeerGroup::Configured(_)) { LONG } else { SHORT }
}

/// Makes cancel keys; all shards of a process share its counter and permutations.
pub(crate) struct KeyMaker {
    alone: KeyedPermutation,
    in_group: KeyedPermutation,
}

impl KeyMaker {
    /// With permutations derived from the process's secret.
    pub(crate) fn new(secret: &MockKey) -> KeyMaker {
        KeyMaker {
            alone: KeyedPermutation::new(&secret.subkey("cancel process id"), BITS),
            in_group: KeyedPermutation::new(&secret.subkey("cancel process id in a group"), BITS_IN_GROUP),
        }
    }

    /// The process id that a number of the counter stands for; None if a server process could have it.
    fn process_id(&self, group: PeerGroup, number: u32) -> Option<u32> {
        let process_id = match group.own() {
            None => self.alone.apply(number),
            Some(own) => {
                let [low, high, ..] = own.to_le_bytes();
                let [.., first, last] = self.in_group.apply(number).to_be_bytes();
                u32::from_be_bytes([first, low, high, last])
            }
        };
        (process_id > SERVER_PROCESS_ID_MAX).then_some(process_id)
    }

    /// A key by the next number of the counter. `secret` must be unguessable and as long as [`secret_length`] says.
    pub(crate) fn make(&self, group: PeerGroup, secret: &[u8], mut count: impl FnMut() -> u32) -> Key {
        let process_id = loop {
            if let Some(process_id) = self.process_id(group, count()) {
                break process_id;
            }
        };
        Key::new(process_id, secret).whole(group)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    const ALONE: PeerGroup = PeerGroup::None;
    const LAST: PeerGroup = PeerGroup::Configured(16_383);
    const NODE: PeerGroup = PeerGroup::Fleet(16_383);

    fn keys(group: PeerGroup, is_long: bool, count: u32) -> Vec<Key> {
        let maker = KeyMaker::new(&MockKey::new([7; 32]));
        let mut number = 0;
        let mut next = || {
            number += 1;
            number
        };
        let secret = vec![0xa4; secret_length(group, is_long)];
        (0..count).map(|_| maker.make(group, &secret, &mut next)).collect()
    }

    #[test]
    fn process_ids_are_positive_and_differ_and_are_no_servers() {
        let groups = [
            (ALONE, 5_000),
            (LAST, 32_768),
            (PeerGroup::Configured(1), 32_512),
            (NODE, 32_768),
            (PeerGroup::Fleet(0), 32_512),
        ];
        for (group, count) in groups {
            let ids: BTreeSet<u32> = keys(group, false, count).iter().map(Key::process_id).collect();
            assert_eq!(ids.len(), count as usize);
            let given = SERVER_PROCESS_ID_MAX + 1..=i32::MAX.unsigned_abs();
            assert!(ids.iter().all(|id| given.contains(id)));
        }
    }

    #[test]
    fn secrets_are_as_long_as_the_client_and_the_group_can_take() {
        let lengths = |group, is_long| keys(group, is_long, 1)[0].secret().len();
        assert_eq!((lengths(ALONE, false), lengths(ALONE, true)), (4, 32));
        assert_eq!((lengths(LAST, false), lengths(LAST, true)), (4, 4));
        assert_eq!((lengths(NODE, false), lengths(NODE, true)), (4, 32));
    }

    #[test]
    fn every_bit_counts() {
        for group in [ALONE, NODE] {
            let key = &keys(group, true, 1)[0];
            assert!(key.is(key, group));
            for byte in 0..key.bytes().len() {
                let mut other = key.bytes().to_vec();
                other[byte] ^= 4;
                assert!(!key.is(&Key::of(&other).unwrap(), group), "byte {byte}");
                other[byte] ^= 5;
                let is_hop = group == NODE && byte == 35;
                assert_eq!(key.is(&Key::of(&other).unwrap(), group), is_hop, "byte {byte}");
            }
            assert!(!key.is(&Key::of(&key.short()).unwrap(), group), "a part of it is not it");
        }
        assert!(!Key::default().is(&Key::of(&[0; 8]).unwrap(), ALONE));
        assert_eq!(Key::of(&[1, 2, 3]), None);
    }

    #[test]
    fn in_a_group_a_key_names_the_process_and_is_forwarded_three_times() {
        for (group, is_long) in [(LAST, false), (NODE, false), (NODE, true)] {
            let made = keys(group, is_long, 1).remove(0);
            assert_eq!(made.peer(group), Some(16_383));
            let (mut key, mut hops) = (made.clone(), 0);
            while let Some(next) = key.forwarded() {
                (key, hops) = (next, hops + 1);
                assert!(made.is(&key, group) && key.peer(group) == Some(16_383));
                assert_eq!(made.prefix(group), key.prefix(group));
            }
            assert_eq!(hops, 3);
        }
        let long = keys(ALONE, true, 1).remove(0);
        assert_eq!(
            (long.peer(LAST), long.peer(ALONE)),
            (None, None),
            "no process of such a group makes long ones"
        );
        let unnumbered = keys(PeerGroup::Fleet(0), true, 1).remove(0);
        assert_eq!(unnumbered.peer(NODE), Some(0), "a node that has no number yet");
    }
}
