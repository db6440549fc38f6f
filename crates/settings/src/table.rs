//! The type of a row of settings, and the macro that makes rows: name, kind, default, effect, doc, and how the setting
//! compares with PgBouncer's.
//! The rows are in `global.rs`, `database.rs`, `user.rs` and `peer.rs`.

use crate::value::{BadValue, ValueKind};

/// Where a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Section `[pgbouncer]`.
    Global,
    /// The value of an entry of `[databases]`.
    Database,
    /// The value of an entry of `[users]`.
    User,
    /// The value of an entry of `[peers]`.
    Peer,
}

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// On RELOAD, and on SET for a global one.
    Reload,
    /// On RELOAD, for server connections made after it: the present ones are obsolete.
    Reconnect,
    /// When the process starts; SHOW CONFIG says `no` under `changeable`.
    Restart,
}

/// What a setting does in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// As documented.
    Live,
    /// None, and why: it tunes an internal of PgBouncer that Weir does not have.
    Inert(&'static str),
}

/// How a setting, view, command or option compares with that of PgBouncer 1.25.2 of the same name. `weir check` and
/// docs/pgbouncer.md show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// The same behaviour.
    Same,
    /// Compatible, with an improvement.
    Better(&'static str),
    /// Behaves differently: how, and why.
    Different(&'static str),
    /// PgBouncer does not have it.
    Own,
}

/// The description of a setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingInfo {
    /// PgBouncer's name, or Weir's own.
    pub name: &'static str,
    /// Where it is written.
    pub scope: Scope,
    /// The shape and unit of its values.
    pub kind: ValueKind,
    /// As SHOW CONFIG writes it; `None` where PgBouncer has no default (NULL).
    pub default: Option<&'static str>,
    /// When a changed value takes effect.
    pub when: TakesEffect,
    /// Whether it has an effect.
    pub effect: Effect,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
    /// How it compares with PgBouncer's.
    pub compat: Compat,
}

/// A row of a table: a setting of `T` with its accessors.
pub struct Row<T: 'static> {
    /// Its description.
    pub info: SettingInfo,
    /// Writes a value into `T`. Reads what `show` writes back to the same value; NULL is the empty text.
    pub assign: fn(&mut T, &str) -> Result<(), BadValue>,
    /// Shows the value that `T` has; `None` is NULL.
    pub show: fn(&T) -> Option<String>,
}

impl<T> Row<T> {
    /// Whether two of `T` have the same value.
    pub(crate) fn same(&self, one: &T, other: &T) -> bool {
        (self.show)(one) == (self.show)(other)
    }
}

/// `unset` or a literal.
macro_rules! default_of {
    (unset) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

/// The last part of a row: nothing (the same as PgBouncer's), `own`, `better "how"` or `different "why"`.
macro_rules! compat_of {
    () => {
        $crate::table::Compat::Same
    };
    (own) => {
        $crate::table::Compat::Own
    };
    (better $how:literal) => {
        $crate::table::Compat::Better($how)
    };
    (different $why:literal) => {
        $crate::table::Compat::Different($why)
    };
}

/// One live row: writes and shows the field of its own name.
macro_rules! live_row {
    ($target:ty, $scope:ident, $name:ident, $codec:ty, $default:tt, $when:ident, $doc:literal, [$($compat:tt)*]) => {
        $crate::table::Row::<$target> {
            info: $crate::table::SettingInfo {
                name: stringify!($name),
                scope: $crate::table::Scope::$scope,
                kind: <$codec as $crate::value::Codec>::KIND,
                default: $crate::table::default_of!($default),
                when: $crate::table::TakesEffect::$when,
                effect: $crate::table::Effect::Live,
                doc: $doc,
                compat: $crate::table::compat_of!($($compat)*),
            },
            assign: |target, text| {
                target.$name = <$codec as $crate::value::Codec>::read(text)?;
                Ok(())
            },
            show: |target| <$codec as $crate::value::Codec>::show(&target.$name),
        }
    };
}

pub(crate) use {compat_of, default_of, live_row};
