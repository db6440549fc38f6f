//! Properties that hold for any input, for the fuzz target and a test. Panics where one does not hold.

use crate::shared::text;

/// Any bytes as a node's object of shared usage: refused, or figures that are the same after they have been written again.
pub fn shared_usage(bytes: &[u8]) {
    match text::read(bytes) {
        Ok(contents) => assert_eq!(text::read(&text::write(&contents)), Ok(contents)),
        Err(why) => assert!(!why.is_empty() && !why.contains(char::is_control)),
    }
}

#[cfg(test)]
mod tests {
    const SEED: &[u8] = b"weir-fleet 1\nsession 00000000000000ab\nclients 3 0 0 \nuser 1 0 0 a%0Ab\nquota 12 3600 7200 user%20alice%20queries/hour\n";

    #[test]
    fn any_change_of_a_byte_is_survived() {
        super::shared_usage(SEED);
        for place in 0..SEED.len() {
            super::shared_usage(&SEED[..place]);
            for byte in [b'\n', b'\r', b'%', b' ', b'0', b'9', b'A', 0, 0xff, 0x1b] {
                let mut changed = SEED.to_vec();
                changed[place] = byte;
                super::shared_usage(&changed);
            }
        }
    }
}
