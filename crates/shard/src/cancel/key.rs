//! The eight bytes that a client sends back to cancel its query: how they are made and what they tell.
//!
//! Owns their layout. Alone, the process id says on which shard the client is and where. In a group (`peer_id`) the
//! layout is PgBouncer's, so that either may forward to the other: bytes 1 and 2 are the peer, the last two bits count
//! how often the request may still be forwarded. Never decides what a request leads to.

use subtle::ConstantTimeEq;

use crate::ConnId;

/// As a client has it: process id, then secret.
pub(crate) type Key = [u8; 8];

/// The bits of the last byte that count down with every forwarding.
const HOPS: u8 = 0x03;

/// The shards that the first byte can name; its sign bit stays clear, for clients that take the first half for a number.
const SHARDS: u8 = 0x3f;

/// What a client of this shard gets. `random` must be unguessable; of a peer's key 38 bits of it are left.
pub(crate) fn make(peer_id: u32, shard: u16, conn: ConnId, random: Key) -> Key {
    let shard = u8::try_from(shard).unwrap_or(0) & SHARDS;
    let mut key = random;
    key[0] = shard;
    if peer_id == 0 {
        key[1..4].copy_from_slice(&conn.0.wrapping_add(1).to_be_bytes()[1..]);
    } else {
        let [low, high, ..] = peer_id.to_le_bytes();
        (key[1], key[2]) = (low, high);
        key[7] |= HOPS;
    }
    key
}

/// The shard that made it.
pub(crate) fn shard(key: &Key) -> u16 {
    u16::from(key[0] & SHARDS)
}

/// The place of its client on that shard; only in a key that no peer made.
pub(crate) fn place(key: &Key) -> ConnId {
    ConnId(u32::from_be_bytes([0, key[1], key[2], key[3]]).wrapping_sub(1))
}

/// The process that made it, if that is in a group.
pub(crate) fn peer(key: &Key) -> u32 {
    u32::from(u16::from_le_bytes([key[1], key[2]]))
}

/// The key to forward; None if it has been forwarded too often.
pub(crate) fn forwarded(key: &Key) -> Option<Key> {
    let mut key = *key;
    if key[7] & HOPS == 0 {
        return None;
    }
    key[7] -= 1;
    Some(key)
}

/// The key before it was forwarded for the first time.
pub(crate) fn whole(key: &Key, peer_id: u32) -> Key {
    let mut key = *key;
    key[7] |= if peer_id == 0 { 0 } else { HOPS };
    key
}

/// Whether they are the same key, however often it was forwarded; takes as long if they are not.
pub(crate) fn same(one: &Key, other: &Key, peer_id: u32) -> bool {
    whole(one, peer_id).ct_eq(&whole(other, peer_id)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: Key = [0xff, 1, 2, 3, 4, 5, 6, 0xa4];

    #[test]
    fn alone_a_key_names_shard_and_place() {
        let key = make(0, 5, ConnId(0x01_02_03), RANDOM);
        assert_eq!((shard(&key), place(&key)), (5, ConnId(0x01_02_03)));
        assert_eq!(key[4..], RANDOM[4..]);
        assert!(same(&key, &key, 0));
        for byte in 0..8 {
            let mut other = key;
            other[byte] ^= 1;
            assert!(!same(&key, &other, 0), "byte {byte}");
        }
    }

    #[test]
    fn in_a_group_a_key_names_the_peer_and_is_forwarded_three_times() {
        let made = make(16_383, 1, ConnId(7), RANDOM);
        assert_eq!((peer(&made), shard(&made)), (16_383, 1));
        let (mut key, mut hops) = (made, 0);
        while let Some(next) = forwarded(&key) {
            (key, hops) = (next, hops + 1);
            assert!(same(&made, &key, 16_383) && peer(&key) == 16_383);
        }
        assert_eq!(hops, 3);
        assert_eq!(forwarded(&[0; 8]), None);
    }
}
