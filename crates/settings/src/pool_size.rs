//! `pool_size`: a number of server connections, or `auto`, with which a pool sizes itself between two bounds.
//! Owns how it is written and what it means; who finds the size is the `pool` crate.

use crate::codec::Number;
use crate::value::{BadValue, Codec, ValueKind};

/// What `auto` is written as.
const AUTO: &str = "auto";

/// `pool_size` as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSize {
    /// This many; 0 is no limit.
    Fixed(u32),
    /// The pool finds its size itself.
    Auto,
}

impl Default for PoolSize {
    fn default() -> PoolSize {
        PoolSize::Fixed(0)
    }
}

impl Codec for PoolSize {
    type Value = Self;
    const KIND: ValueKind = ValueKind::PoolSize;
    fn read(text: &str) -> Result<Self, BadValue> {
        if text.eq_ignore_ascii_case(AUTO) {
            return Ok(PoolSize::Auto);
        }
        Number::read(text).map(PoolSize::Fixed)
    }
    fn show(value: &Self) -> Option<String> {
        Some(value.to_string())
    }
}

impl std::fmt::Display for PoolSize {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PoolSize::Fixed(size) => write!(out, "{size}"),
            PoolSize::Auto => out.write_str(AUTO),
        }
    }
}

/// What the size of a pool may be, by all settings that concern it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeBounds {
    /// This, and no other; 0 is no limit.
    Fixed(u32),
    /// What the pool finds, from `min` to `max`: 1 ≤ min ≤ max.
    Auto {
        /// `auto_pool_size_min`.
        min: u32,
        /// `auto_pool_size_max`.
        max: u32,
    },
}

impl SizeBounds {
    /// The largest size that the pool may have; 0 is no limit.
    #[must_use]
    pub fn largest(self) -> u32 {
        match self {
            SizeBounds::Fixed(size) => size,
            SizeBounds::Auto { max, .. } => max,
        }
    }

    /// The pool finds its size itself.
    #[must_use]
    pub fn is_auto(self) -> bool {
        matches!(self, SizeBounds::Auto { .. })
    }

    /// The size nearest to this one that is allowed.
    #[must_use]
    pub fn nearest(self, size: u32) -> u32 {
        match self {
            SizeBounds::Fixed(size) => size,
            SizeBounds::Auto { min, max } => size.clamp(min, max.max(min)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolver::tests::{config, errors};

    #[test]
    fn a_size_is_a_number_or_auto() {
        assert_eq!(PoolSize::read("AUTO"), Ok(PoolSize::Auto));
        assert_eq!(PoolSize::read("7"), Ok(PoolSize::Fixed(7)));
        assert_eq!(PoolSize::show(&PoolSize::Auto).as_deref(), Some("auto"));
        for text in ["", "automatic", "-1", "1.5"] {
            assert!(PoolSize::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_narrower_setting_wins_and_sessions_keep_the_largest_size() {
        let config = config(
            "[pgbouncer]\ndefault_pool_size = auto\nauto_pool_size_max = 30\npool_mode = transaction\n\
             [databases]\na =\nb = pool_size=4\nc = auto_pool_size_min=3 auto_pool_size_max=9\nd = pool_mode=session\n\
             [users]\nu = pool_size=auto\nv = pool_size=6",
        );
        let bounds = |name: &str, user: Option<&str>| {
            let user = user.and_then(|user| config.user(user)).map(|user| &**user);
            config.pool_size(config.databases.get(name).expect("an entry"), user)
        };
        assert_eq!(bounds("a", None), SizeBounds::Auto { min: 2, max: 30 });
        assert_eq!(bounds("b", None), SizeBounds::Fixed(4));
        assert_eq!(bounds("b", Some("u")), SizeBounds::Auto { min: 2, max: 30 });
        assert_eq!(bounds("c", None), SizeBounds::Auto { min: 3, max: 9 });
        assert_eq!(bounds("c", Some("v")), SizeBounds::Fixed(6));
        assert_eq!(bounds("d", None), SizeBounds::Fixed(30));
    }

    #[test]
    fn bounds_that_exclude_every_size_are_an_error_where_they_are_written() {
        let reported = errors(
            "[pgbouncer]\nauto_pool_size_min = 51\n[databases]\na = pool_size=auto\nb = auto_pool_size_max=3 auto_pool_size_min=4",
        );
        assert_eq!(
            reported,
            [
                "w.ini: auto_pool_size_min is 51 and auto_pool_size_max is 50: no size is allowed",
                "w.ini:5: database b: auto_pool_size_min is 4 and auto_pool_size_max is 3: no size is allowed",
            ]
        );
        assert_eq!(errors("[pgbouncer]\nauto_pool_size_min = 0").len(), 1);
    }

    #[test]
    fn any_size_has_a_nearest_one_within_bounds() {
        let auto = SizeBounds::Auto { min: 2, max: 9 };
        assert_eq!([0, 5, 99].map(|size| auto.nearest(size)), [2, 5, 9]);
        assert_eq!((SizeBounds::Fixed(4).nearest(9), SizeBounds::Fixed(4).largest()), (4, 4));
    }
}
