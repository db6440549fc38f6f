//! PostgreSQL's description of a prepared statement: the types of its parameters and the columns of its result.
//!
//! Owns what makes two descriptions differ, and the Parse that gives a statement the parameter types that it had elsewhere. Of the
//! columns it keeps a number only.

use wire::{backend, frontend};

/// Types below have the same numbers on every server; those above are made by each (initdb, extensions, CREATE TYPE).
const FIRST_OWN_TYPE: u32 = 10_000;

/// In a Parse: PostgreSQL is to find out the type.
const ANY_TYPE: u32 = 0;

/// The same, by the name of a type (`unknown`).
const UNKNOWN_TYPE: u32 = 705;

/// One description. A client reads rows, and encodes values, by the one that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    parameters: Box<[u32]>,
    has_rows: bool,
    /// Differs where parameters or columns do.
    fingerprint: u64,
}

impl Description {
    /// Of a ParameterDescription's types and the body of a RowDescription (None: NoData). Without `own_types`, types that each server
    /// numbers by itself are all the same. None if the body is none.
    pub(crate) fn read(parameters: Vec<u32>, columns: Option<&[u8]>, own_types: bool) -> Option<Description> {
        let number = |oid: u32| if own_types || oid < FIRST_OWN_TYPE { oid } else { FIRST_OWN_TYPE };
        let parameters: Box<[u32]> = parameters.into_iter().map(number).collect();
        let mut fingerprint = Fingerprint::new();
        parameters.iter().for_each(|oid| fingerprint.add(&oid.to_be_bytes()));
        if let Some(body) = columns {
            fingerprint.add(b"rows");
            for column in backend::row_columns(body)? {
                fingerprint.add(column.name);
                fingerprint.add(&[0]);
                fingerprint.add(&number(column.type_oid).to_be_bytes());
                fingerprint.add(&column.type_modifier.to_be_bytes());
            }
        }
        Some(Description { parameters, has_rows: columns.is_some(), fingerprint: fingerprint.0 })
    }

    /// A client that holds it may misread, or be misread, where another one is in force: there are rows, or parameters whose types
    /// [`Description::typed`] cannot ask for.
    pub(crate) fn matters(&self) -> bool {
        self.has_rows || self.parameters.iter().any(|oid| *oid >= FIRST_OWN_TYPE)
    }

    /// What is encoded by one is read alike by the other.
    pub(crate) fn has_parameters_of(&self, other: &Description) -> bool {
        self.parameters == other.parameters
    }

    /// The rest of a Parse body (text, NUL, types) by which the parameters keep these types, whatever the tables are like by now: for
    /// PostgreSQL they are fixed at the first Parse. Types of the server's own are left to it to find, because a number may be another
    /// type's, or no type's, by now. None if `rest` does so already.
    pub(crate) fn typed(&self, rest: &[u8]) -> Option<Vec<u8>> {
        let (text, asked) = frontend::parse_rest(rest)?;
        let mut types: Vec<u32> = asked.collect();
        let mut changed = false;
        for (at, known) in self.parameters.iter().enumerate().filter(|(_, known)| **known < FIRST_OWN_TYPE) {
            if types.len() <= at {
                types.resize(at + 1, ANY_TYPE);
            }
            if matches!(types[at], ANY_TYPE | UNKNOWN_TYPE) {
                types[at] = *known;
                changed = true;
            }
        }
        if !changed {
            return None;
        }
        let count = u16::try_from(types.len()).ok()?;
        let mut typed = [text, &[0], &count.to_be_bytes()].concat();
        types.iter().for_each(|oid| typed.extend_from_slice(&oid.to_be_bytes()));
        Some(typed)
    }

    /// As another process reads it with [`Description::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.has_rows)];
        out.extend_from_slice(&self.fingerprint.to_be_bytes());
        self.parameters.iter().for_each(|oid| out.extend_from_slice(&oid.to_be_bytes()));
        out
    }

    /// One that another process has written.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Description> {
        let ([has_rows, fingerprint @ ..], types) = bytes.split_first_chunk::<9>()?;
        let (types, odd) = types.as_chunks::<4>();
        let parameters = types.iter().map(|oid| u32::from_be_bytes(*oid)).collect();
        let fingerprint = u64::from_be_bytes(*fingerprint);
        odd.is_empty().then_some(Description { parameters, has_rows: *has_rows != 0, fingerprint })
    }
}

/// FNV-1a: the same in every process and version. Nothing is protected by it; a client could only mislead itself.
struct Fingerprint(u64);

impl Fingerprint {
    fn new() -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use wire::encode::{self, Column};

    fn columns(columns: &[(&str, u32)]) -> Vec<u8> {
        let columns: Vec<Column<'_>> = columns
            .iter()
            .map(|(name, type_oid)| Column { name, type_oid: *type_oid, type_bytes: 4 })
            .collect();
        let mut frame = Vec::new();
        encode::row_description(&mut frame, &columns);
        frame.split_off(wire::frame::HEADER_BYTES)
    }

    fn described(parameters: &[u32], row: &[(&str, u32)], own_types: bool) -> Description {
        Description::read(parameters.to_vec(), Some(&columns(row)), own_types).unwrap()
    }

    #[test]
    fn names_and_types_make_the_difference() {
        let one = described(&[23], &[("a", 23), ("b", 25)], true);
        assert_eq!(one, described(&[23], &[("a", 23), ("b", 25)], true));
        for other in [
            described(&[20], &[("a", 23), ("b", 25)], true),
            described(&[23], &[("a", 20), ("b", 25)], true),
            described(&[23], &[("a", 23), ("c", 25)], true),
            described(&[23], &[("a", 23)], true),
            Description::read(vec![23], None, true).unwrap(),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(Description::read(vec![], Some(b"\0\x01"), true), None);
        assert_eq!(Description::from_bytes(&one.to_bytes()), Some(one));
    }

    #[test]
    fn numbers_of_a_servers_own_types_count_where_all_servers_are_one() {
        assert_ne!(
            described(&[16_400], &[("a", 16_400)], true),
            described(&[16_401], &[("a", 16_401)], true)
        );
        assert_eq!(
            described(&[16_400], &[("a", 16_400)], false),
            described(&[16_401], &[("a", 16_401)], false)
        );
    }

    #[test]
    fn parameters_keep_their_types() {
        let rest = |types: &[u32]| {
            let mut frame = Vec::new();
            encode::parse(&mut frame, b"", b"select $1, $2, $3", types);
            frame.split_off(wire::frame::HEADER_BYTES + 1)
        };
        let known = described(&[23, 16_400, 25], &[], true);
        assert_eq!(known.typed(&rest(&[])), Some(rest(&[23, 0, 25])));
        assert_eq!(known.typed(&rest(&[0, 16_400])), Some(rest(&[23, 16_400, 25])));
        assert_eq!(known.typed(&rest(&[UNKNOWN_TYPE, 0, 25])), Some(rest(&[23, 0, 25])));
        assert_eq!(known.typed(&rest(&[23, 0, 25])), None);
        assert_eq!(described(&[], &[], true).typed(&rest(&[])), None);
        assert_eq!(known.typed(b"no Parse"), None);
    }
}
