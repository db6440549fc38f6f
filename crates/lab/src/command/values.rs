//! Values of options: a name with a value, and a list of numbers as people type it: `50,150`, `10-80:10` (from ten to
//! eighty by ten), or both mixed. Never decides what they are for.

use std::str::FromStr;

/// A name with a value, as `pgbouncer=/usr/sbin/pgbouncer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What reports call it.
    pub name: String,
    /// What it is.
    pub value: String,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("NAME=URI or NAME=PROGRAM is wanted")?;
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
            return Err("a name has letters, digits, '-', '_' and '.', at most 40".to_owned());
        }
        if name == "direct" {
            return Err("'direct' is the name of PostgreSQL itself".to_owned());
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// The most numbers that one list may have: each is at least one run.
const MOST: usize = 200;

/// The numbers, ascending, each once; never empty, never zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(Vec<u32>);

impl Numbers {
    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<u32> {
        self.0.clone()
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let wrong = || format!("{part:?} is no number above 0 and no range such as 10-80:10");
            let (range, step) = part.split_once(':').unwrap_or((part, "1"));
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0);
            let (low, high, step) = (
                number(low).ok_or_else(wrong)?,
                number(high).ok_or_else(wrong)?,
                number(step).ok_or_else(wrong)?,
            );
            if low > high {
                return Err(wrong());
            }
            let step = usize::try_from(step).unwrap_or(usize::MAX);
            numbers.extend((low..=high).step_by(step).take(MOST + 1));
        }
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() > MOST { Err(format!("more than {MOST} numbers")) } else { Ok(Self(numbers)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Option<Vec<u32>> {
        text.parse::<Numbers>().ok().map(|numbers| numbers.list())
    }

    #[test]
    fn numbers_and_ranges_mix() {
        assert_eq!(list("150,50,50"), Some(vec![50, 150]));
        assert_eq!(list("10-80:10"), Some(vec![10, 20, 30, 40, 50, 60, 70, 80]));
        assert_eq!(list("1-3, 8"), Some(vec![1, 2, 3, 8]));
        assert_eq!(list("5-6:9"), Some(vec![5]));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "0", "a", "-1", "3-1", "1-9:0", "1,,2", "1-4000000000", "99999999999"] {
            assert_eq!(list(text), None, "{text}");
        }
    }
}
