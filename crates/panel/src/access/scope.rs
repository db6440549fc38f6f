//! What a caller may do: four scopes, none of which includes another.
//! Never knows the scopes of a user.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

/// A scope as a type, for [`crate::access::Authorized`].
pub(crate) trait RequiredScope: Send {
    /// As a set of one.
    const SCOPE: Scopes;
    /// As it is written.
    const NAME: &'static str;
}

/// Makes the scopes.
macro_rules! scopes {
    ($($type:ident $bit:literal $name:literal $doc:literal;)*) => {
        $(#[doc = $doc]
         pub(crate) struct $type;
        impl RequiredScope for $type {
            const SCOPE: Scopes = Scopes(1 << $bit);
            const NAME: &'static str = $name;
        })*
        /// A scope by its name.
        #[derive(Clone, Copy, Debug, Serialize, ToSchema, PartialEq, Eq)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum ScopeName { $(#[doc = $doc] $type,)* }

        impl ScopeName {
            const ALL: &[ScopeName] = &[$(ScopeName::$type,)*];

            fn word(self) -> &'static str {
                match self { $(ScopeName::$type => $name,)* }
            }

            fn scopes(self) -> Scopes {
                match self { $(ScopeName::$type => Scopes(1 << $bit),)* }
            }
        }
    };
}

scopes! {
    Read 0 "read" "Looking at everything but passwords.";
    Operate 1 "operate" "Pausing, resuming, reconnecting and killing.";
    Admin 2 "admin" "Pools, settings and the lab.";
    ViewCredentials 3 "view_credentials" "Passwords in connection details.";
}

impl Scopes {
    /// All of them.
    pub(crate) const ALL: Scopes = Scopes(0b1111);

    /// Everything that `needed` has is here.
    pub(crate) fn have(self, needed: Scopes) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Each by its name.
    pub(crate) fn names(self) -> Vec<ScopeName> {
        ScopeName::ALL.iter().copied().filter(|name| self.have(name.scopes())).collect()
    }

    /// Reads `read,operate`; None where a word is no scope, or there is none.
    pub(crate) fn read(text: &str) -> Option<Scopes> {
        let mut scopes = Scopes::default();
        for word in text.split(',') {
            let name = ScopeName::ALL.iter().find(|name| name.word() == word.trim())?;
            scopes.0 |= name.scopes().0;
        }
        Some(scopes)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.names().into_iter().map(ScopeName::word).collect();
        out.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        assert_eq!(Scopes::read("read,operate,admin,view_credentials"), Some(Scopes::ALL));
        assert_eq!(
            Scopes::read("read, admin").map(|scopes| scopes.to_string()),
            Some("read,admin".to_owned())
        );
        assert_eq!((Scopes::read(""), Scopes::read("read,root")), (None, None));
        let operator = Scopes::read("operate").expect("a scope");
        assert!(operator.have(Operate::SCOPE) && !operator.have(Read::SCOPE) && !operator.have(Admin::SCOPE));
    }
}
