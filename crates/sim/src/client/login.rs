//! Who a client says that it is, what it can prove of that, and whether it must be let in.
//!
//! The exchange itself is `auth`'s own of a client towards a server. What is judged here is who gets in, and that nobody
//! does unasked (I12); not the arithmetic, which other tests hold against PostgreSQL.

use std::fmt;

use auth::{Credentials, Entropy, ServerKeyCache, ServerLogin, Step, Zeroizing};

use super::context::ClientContext;
use super::session::{Client, Phase};
use crate::model::statement::UNREADABLE;
use crate::prng::Prng;
use crate::protocol::{text, untyped};
use crate::secret::PASSWORD;

/// A client's side of a login.
pub(super) struct Login {
    user: String,
    database: String,
    exchange: ServerLogin,
    /// Nobody of this name, or with this password, may come in.
    stranger: bool,
    /// It was asked for a proof.
    asked: bool,
}

impl fmt::Debug for Login {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Login { user, database, stranger, asked, .. } = self;
        write!(out, "Login {{ {user}, {database}, stranger: {stranger}, asked: {asked} }}")
    }
}

impl Login {
    /// The database that it asks for.
    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// Somebody's login: this user's, or now and then that of one who must not get in.
    pub(super) fn draw(user: &str, database: &str, context: &mut ClientContext<'_>) -> Login {
        let stranger = context.prng.chance(context.client_mix.stranger_per_million);
        let (mut user, mut password) = (user.to_owned(), PASSWORD);
        if stranger {
            match context.prng.below(4) {
                // The right password of another user: it must not help.
                0 | 1 => user = format!("nobody{}", context.prng.below(3)),
                2 => user = format!("{UNREADABLE}{}", context.prng.below(3)),
                _ if context.asks => password = "guessed",
                _ => user = "nobody".to_owned(),
            }
        }
        let credentials = Credentials::Plain(Zeroizing::new(password.to_owned()));
        let exchange = ServerLogin::new(&user, &credentials);
        Login { user, database: database.to_owned(), exchange, stranger, asked: false }
    }
}

impl Client {
    /// The user that it says it is.
    pub(crate) fn user(&self) -> &str {
        &self.login.user
    }

    /// Whether it has come to be refused. (The words may be cut off where the network is narrow.)
    pub(super) fn awaits_refusal(&self) -> bool {
        self.login.stranger && self.phase == Phase::LoggingIn
    }

    pub(super) fn send_startup(&mut self, context: &mut ClientContext<'_>) {
        let (user, database) = (self.login.user.clone(), self.login.database.clone());
        let name = format!("app{}", context.prng.below(3));
        let zone = context.prng.pick(super::choice::TIME_ZONES);
        let says_zone = context.prng.chance(300_000);
        let replicates = self.replicates;
        if replicates {
            context.checker.wants_own_server(self.number);
        }
        let zone_pair = says_zone.then_some(("TimeZone", zone));
        let gives_settings = self.wild.as_ref().is_some_and(|wild| wild.gives_settings);
        let setting_pair = gives_settings.then_some(("lock_timeout", "9s"));
        let pairs = std::iter::once(("application_name", name.as_str())).chain(zone_pair);
        self.view.asks(pairs.chain(setting_pair));
        self.send(|out| {
            untyped(out, |body| {
                body.extend_from_slice(&196_608_u32.to_be_bytes());
                let mut pairs =
                    vec![("user", user.as_str()), ("database", &database), ("application_name", &name)];
                pairs.extend(zone_pair);
                pairs.extend(setting_pair);
                if replicates {
                    pairs.push(("replication", "database"));
                }
                for (name, value) in pairs {
                    text(body, name.as_bytes());
                    text(body, value.as_bytes());
                }
                body.push(0);
            });
        });
    }

    /// An authentication message came.
    pub(super) fn take_authentication(&mut self, body: &[u8], context: &mut ClientContext<'_>) {
        let mut cache = ServerKeyCache::default();
        let mut step = self.login.exchange.message(body, &mut LoginEntropy(context.prng), &cache);
        if let Step::Ask(question) = &step {
            step = self.login.exchange.answer(question.solve(), &mut cache);
        }
        match step {
            Step::Send(bytes) => {
                self.login.asked = true;
                self.output.extend(bytes);
            }
            Step::Accept(_) if self.login.stranger => {
                self.object("I12", format!("was let in as {:?}", self.login), context);
            }
            Step::Accept(_) if context.asks && !self.login.asked => {
                self.object("I12", "was let in without a proof".to_owned(), context);
            }
            Step::Accept(_) => (),
            Step::Ask(_) => self.object("I1", "has nothing left to compute".to_owned(), context),
            Step::Reject(fault) => self.object("I1", format!("cannot log in: {fault:?}"), context),
        }
    }
}

/// A client's chance as entropy.
struct LoginEntropy<'a>(&'a mut Prng);

impl Entropy for LoginEntropy<'_> {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.0.next().to_le_bytes()[0];
        }
    }
}
