//! The one password of the model's world, and how it is kept.

/// Everybody's password.
pub(crate) const PASSWORD: &str = "secret";

/// The same as a SCRAM verifier, of a single round: a world has many logins, and rounds are not what it is about.
pub(crate) const VERIFIER: &str = "SCRAM-SHA-256$1:c2FsdA==$wN56iZgRmJc8bLR+mwOwuVJuCvu3CIrVguKdgdp7J6s=:\
    ywJYVz0nm/y3tcyI3qXB89hBjaX1PJEJLUzrN3+/5aM=";

#[cfg(test)]
mod tests {
    use super::*;
    use auth::{Secret, Verifier, scram};

    #[test]
    fn the_verifier_is_of_the_password() {
        let salted = scram::salted_password(PASSWORD.as_bytes(), b"salt", 1);
        let expected = Verifier::from_salted_password(&salted, b"salt".to_vec(), 1);
        assert!(matches!(Secret::parse(VERIFIER), Secret::Scram(found) if found == expected));
    }
}
