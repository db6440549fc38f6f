//! What a client's login has spent its time on, while slow ones are logged (`log_slow_queries`).
//!
//! Data only; when a part begins and what the log says of them is `link/slow_login`'s.

/// What a login waits for. What is none of these is the client's own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginPart {
    /// The TLS handshake.
    Tls,
    /// A server, for the secret (`auth_query`) or the roles of its user.
    AuthQuery,
    /// PAM.
    Pam,
    /// The LDAP directory.
    Ldap,
    /// A helper thread: the keys of a password, the name of a system user.
    Helper,
    /// `auth_failure_delay`.
    Delay,
    /// A server connection: the first of its pool, or its own.
    Server,
}

impl LoginPart {
    /// Each, in the order in which a login meets them.
    pub(crate) const ALL: [LoginPart; 7] = [
        LoginPart::Tls,
        LoginPart::AuthQuery,
        LoginPart::Pam,
        LoginPart::Ldap,
        LoginPart::Helper,
        LoginPart::Delay,
        LoginPart::Server,
    ];

    /// As the log names it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            LoginPart::Tls => "tls",
            LoginPart::AuthQuery => "auth_query",
            LoginPart::Pam => "pam",
            LoginPart::Ldap => "ldap",
            LoginPart::Helper => "helper",
            LoginPart::Delay => "auth_failure_delay",
            LoginPart::Server => "server",
        }
    }
}

/// How long each part has taken, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct LoginTimes {
    us: [u64; LoginPart::ALL.len()],
    /// The part that lasts, and since when.
    running: Option<(LoginPart, u64)>,
}

impl LoginTimes {
    /// A part begins, and with it the one before it ends.
    pub(crate) fn begin(&mut self, part: LoginPart, now_us: u64) {
        self.end(now_us);
        self.running = Some((part, now_us));
    }

    /// The part that lasts ends: the client's turn.
    pub(crate) fn end(&mut self, now_us: u64) {
        if let Some((part, since_us)) = self.running.take() {
            self.us[part as usize] += now_us.saturating_sub(since_us);
        }
    }

    /// How long it took.
    pub(crate) fn us(&self, part: LoginPart) -> u64 {
        self.us[part as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_own_time() {
        let mut times = LoginTimes::default();
        for (place, part) in LoginPart::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, place);
        }
        times.begin(LoginPart::Tls, 10);
        times.end(17);
        times.begin(LoginPart::AuthQuery, 20);
        times.begin(LoginPart::Server, 50);
        times.end(60);
        times.end(90);
        let us = LoginPart::ALL.map(|part| times.us(part));
        assert_eq!(us, [7, 30, 0, 0, 0, 0, 10]);
    }
}
