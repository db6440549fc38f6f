//! Properties that hold for any input, for the fuzz targets and a test. Panics where one does not hold.

use crate::{QuotasText, Rules};

/// Any bytes as a file of quotas: refused with a line of it, or unchanged to the byte until it is changed, after which only the lines that the change is about are others.
pub fn quotas(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let (text, rules) = match QuotasText::read(bytes) {
        Ok(read) => read,
        Err(errors) => {
            assert!(!errors.is_empty());
            let in_file = |line: u32| (1..=lines).contains(&(line as usize));
            assert!(errors.iter().all(|error| in_file(error.line) && !error.message.is_empty()));
            return;
        }
    };
    assert_eq!(text.bytes(), bytes);
    let mut changed = text.clone();
    let (order, none) =
        ("database \"a new one\" queries/hour soft=1 hard=2", "database \"a new one\" queries/hour none");
    let Ok(more) = changed.change(order) else { panic!("a valid line cannot be added") };
    assert!(Rules::read(changed.bytes()).is_ok_and(|read| read == more));
    let Ok(less) = changed.change(none) else { panic!("a line cannot be removed") };
    if !text.bytes().windows(9).any(|bytes| bytes == b"a new one") {
        assert!(less == rules, "what was added and removed has left something");
    }
}

#[cfg(test)]
mod tests {
    const SEED: &[u8] = b"# all\ngroup staff = alice, \"b \"\"c\"\nuser default queries/day soft=1 hard=20 grace=7d\r\ngroup staff bytes/month hard=3G # x\n";

    #[test]
    fn any_change_of_a_byte_is_survived() {
        super::quotas(SEED);
        for place in 0..SEED.len() {
            super::quotas(&SEED[..place]);
            for byte in [b'\n', b'"', b'=', b',', b'#', b' ', 0, 0xff, b'9', b'd'] {
                let mut changed = SEED.to_vec();
                changed[place] = byte;
                super::quotas(&changed);
            }
        }
    }
}
