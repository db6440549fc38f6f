//! Follows one primary until that fails: a connection for questions, and one for the stream.
//!
//! Owns how often what is asked. What the answers mean for shards is `news`' to decide.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant, SystemTime};

use messages::CacheNewsKind;
use pgclient::{Connection, Failure, Outcome, Place, Refusal};
use tls::TlsConfig;
use tokio::time::sleep;

use crate::System;
use crate::decoding::{Event, Stream};
use crate::news::{Catalog, Fingerprint, News, Sample, Seen};
use crate::questions;
use crate::target::Target;

/// How often the primary is asked where it is.
const INTERVAL: Duration = Duration::from_millis(100);

/// The least time between two questions for the catalog; they take no more than a tenth of the time either.
const CATALOG_INTERVAL: Duration = Duration::from_millis(200);

/// How much of the time comparing the catalogs, and asking for them, may take.
const SHARE: u32 = 10;

/// How often the server is asked how far the stream is, while a sample waits for it.
const PING: Duration = Duration::from_millis(10);

/// A stream that has not reached a position by then may wait for WAL that is not on disk.
const UNFLUSHED: Duration = Duration::from_millis(150);

/// The same again, while it still has not; it may be busy with a large transaction.
const UNFLUSHED_AGAIN: Duration = Duration::from_secs(5);

/// The longest silence of a server that was asked how far the stream is.
const SILENCE: Duration = Duration::from_secs(60);

/// The server is told how far the stream is at least so often: it ends one that is silent for `wal_sender_timeout`.
const CONFIRM: Duration = Duration::from_secs(5);

/// Seconds from 1970 to 2000, where PostgreSQL's clock begins.
const POSTGRES_EPOCH_S: u64 = 946_684_800;

/// Where a follower's news go.
pub(crate) type Sink<'a> = &'a mut (dyn FnMut(CacheNewsKind) + Send);

/// Both connections to a primary, before its changes are followed.
pub(crate) struct Primary {
    place: Place,
    questions: Connection,
    stream: Connection,
    is_utf8: bool,
    system: u64,
    timeline: u32,
    slot: String,
    os: System,
}

impl Primary {
    /// Connects to a server that can be followed.
    ///
    /// # Errors
    /// Why it cannot, and what to do.
    pub(crate) async fn find(
        target: &Target,
        place: &Place,
        tls: &TlsConfig,
        os: System,
    ) -> Result<Primary, String> {
        let explain = |failure| explained(failure, target);
        let mut questions =
            Connection::open(&target.account, place, tls, (os.client(), false)).await.map_err(explain)?;
        let able = questions.ask(questions::ABILITIES).await.map_err(explain)?;
        let text = |column: usize| {
            let value = able.first()?.get(column)?.as_deref()?;
            std::str::from_utf8(value).ok()
        };
        match (text(0), text(1)) {
            (Some("f"), Some("logical")) => {}
            (Some("t"), _) => return Err("it is a standby".to_owned()),
            (_, Some(level)) => {
                return Err(format!(
                    "its wal_level is {level}; set wal_level = logical and restart PostgreSQL"
                ));
            }
            _ => return Err("its answers are not PostgreSQL's".to_owned()),
        }
        let is_utf8 = text(2) == Some("UTF8");
        questions.ask(questions::SESSION).await.map_err(explain)?;
        let mut stream =
            Connection::open(&target.account, place, tls, (os.client(), true)).await.map_err(explain)?;
        let identity = stream.ask("IDENTIFY_SYSTEM").await.map_err(explain)?;
        let number = |column: usize| {
            let value = identity.first()?.get(column)?.as_deref()?;
            std::str::from_utf8(value).ok()?.parse::<u64>().ok()
        };
        let (system, timeline) = number(0).zip(number(1)).ok_or("its answers are not PostgreSQL's")?;
        let timeline = u32::try_from(timeline).map_err(|_| "its answers are not PostgreSQL's")?;
        let place = place.clone();
        Ok(Primary { place, questions, stream, is_utf8, system, timeline, slot: unique_name(os), os })
    }

    /// Its name in the log.
    pub(crate) fn label(&self) -> String {
        let Primary { place, system, timeline, .. } = self;
        format!("{} (system {system}, timeline {timeline})", place.label())
    }

    /// Makes the slot, which takes as long as the transactions that are running.
    async fn create_slot(&mut self) -> Outcome<()> {
        let create = format!(
            "CREATE_REPLICATION_SLOT \"{}\" TEMPORARY LOGICAL test_decoding NOEXPORT_SNAPSHOT",
            self.slot
        );
        let mut creating = pin!(self.stream.ask_for_long(&create));
        loop {
            tokio::select! {
                created = &mut creating => return created.map(drop),
                // This connection is silent meanwhile; the other shows whether the server is there.
                () = sleep(CONFIRM) => drop(self.questions.ask("SELECT").await?),
            }
        }
    }

    /// Makes the slot, and begins to stream.
    ///
    /// # Errors
    /// Why it cannot, and what to do.
    pub(crate) async fn begin(mut self, target: &Target) -> Result<Follower, String> {
        let explain = |failure| explained(failure, target);
        self.create_slot().await.map_err(explain)?;
        let slot = &self.slot;
        // Nobody else can know the name of the slot: where it is found, both connections lead to one server.
        let found = format!("SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = '{slot}'");
        if self.questions.ask(&found).await.map_err(explain)?.is_empty() {
            return Err(
                "its connections lead to different servers; query_cache needs a host that is one server"
                    .to_owned(),
            );
        }
        let rows = self.questions.ask(&questions::comparing()).await.map_err(explain)?;
        let (seen, large) = questions::compared(&rows).ok_or("its catalogs cannot be read")?;
        let start = format!(
            "START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (\"include-xids\" '1', \"skip-empty-xacts\" '0')"
        );
        let behind = self.stream.start_stream(&start).await.map_err(explain)?;
        let news = News::new(self.system, self.timeline, Fingerprint { small: seen.small, large });
        let own_messages = unique_name(self.os);
        let now = Instant::now();
        let mut follower = Follower {
            questions: Some(self.questions),
            connection: self.stream,
            stream: Stream::new(self.is_utf8, &own_messages),
            events: Vec::new(),
            news,
            os: self.os,
            texts: Texts::new(&own_messages),
            times: Times { sample: now, catalog: now, ping: now, confirm: now, flush: now, heard: now },
        };
        follower.take(&behind)?;
        Ok(follower)
    }
}

/// The words for the log and the console.
fn explained(failure: Failure, target: &Target) -> String {
    let advice = match &failure {
        Failure::Refused(Refusal { code, message }) => match code.as_str() {
            "42501" => format!(
                "; ALTER ROLE \"{}\" REPLICATION, or set query_cache_user to a role that has it",
                target.account.user
            ),
            "53400" => "; raise max_replication_slots".to_owned(),
            "53300" => "; raise max_wal_senders or max_connections".to_owned(),
            "58P01" if message.contains("test_decoding") => {
                "; install PostgreSQL's contrib package on the server".to_owned()
            }
            "28P01" | "28000" => {
                format!("; check the password of \"{}\" in auth_file, and pg_hba.conf", target.account.user)
            }
            _ => String::new(),
        },
        _ => String::new(),
    };
    format!("{failure}{advice}")
}

/// A name that nothing else has.
fn unique_name(mut system: System) -> String {
    let mut bytes = [0; 16];
    auth::Entropy::fill(&mut system, &mut bytes);
    format!("weir_cache_{:032x}", u128::from_ne_bytes(bytes))
}

/// The texts of the questions, which are always the same.
struct Texts {
    sampling: String,
    comparing: String,
    cataloging: String,
    flushing: String,
}

impl Texts {
    fn new(own_messages: &str) -> Texts {
        Texts {
            sampling: questions::sampling(),
            comparing: questions::comparing(),
            cataloging: questions::cataloging(),
            flushing: questions::flush_wal(own_messages),
        }
    }
}

/// When something is due.
struct Times {
    sample: Instant,
    catalog: Instant,
    /// The question how far the stream is.
    ping: Instant,
    /// Telling the server how far it is.
    confirm: Instant,
    /// Bringing WAL to disk.
    flush: Instant,
    /// When the server was last heard, or not expected to be.
    heard: Instant,
}

/// A question under way, which has the connection.
type Asking = Pin<Box<dyn Future<Output = (Connection, Instant, Outcome<Answer>)> + Send>>;

/// What an answer says.
enum Answer {
    Sample(Sample),
    Compared(Seen, Box<str>),
    Cataloged(Seen, Box<str>, Catalog),
    Flushed,
}

#[derive(Clone, Copy, PartialEq)]
enum Question {
    Sample,
    Compare,
    Catalog,
    Flush,
}

/// A primary whose changes are followed.
pub(crate) struct Follower {
    questions: Option<Connection>,
    connection: Connection,
    stream: Stream,
    events: Vec<Event>,
    news: News,
    texts: Texts,
    times: Times,
    os: System,
}

impl Follower {
    /// Goes on until something fails; what and why.
    pub(crate) async fn run(mut self, target: &Target, sink: Sink<'_>) -> String {
        loop {
            match self.follow(sink).await {
                Ok(()) => {}
                Err(failure) => return explained(failure, target),
            }
        }
    }

    async fn follow(&mut self, sink: Sink<'_>) -> Outcome<()> {
        let mut asking: Option<Asking> = None;
        loop {
            while let Some(news) = self.news.poll() {
                sink(news);
            }
            if asking.is_none()
                && let Some(question) = self.due(Instant::now())
            {
                asking = self.ask(question);
            }
            self.report().await?;
            let wait = self.wait(Instant::now(), asking.is_some());
            tokio::select! {
                bytes = self.connection.receive() => {
                    self.stream.receive(bytes?, &mut self.events).map_err(|fault| {
                        Failure::Other(format!("its stream cannot be read ({fault:?})"))
                    })?;
                    self.times.heard = Instant::now();
                    self.apply().await?;
                }
                (connection, began, answer) = answered(&mut asking), if asking.is_some() => {
                    asking = None;
                    self.questions = Some(connection);
                    self.answered(answer?, began);
                }
                () = sleep(wait) => {}
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let taken = self.stream.receive(bytes, &mut self.events);
        taken.map_err(|fault| format!("its stream cannot be read ({fault:?})"))
    }

    /// Makes news of what has been streamed.
    async fn apply(&mut self) -> Outcome<()> {
        let mut wants_reply = false;
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Committed(transaction) => self.news.committed(transaction),
                Event::Reached { lsn, wants_reply: wants } => {
                    self.news.reached(lsn);
                    wants_reply |= wants;
                }
                Event::Error(body) => return Err(Failure::Refused(Refusal::read(&body))),
                Event::Ended => return Err(Failure::Other("the server has ended the stream".to_owned())),
            }
        }
        self.news.flush();
        if wants_reply { self.confirm(false).await } else { Ok(()) }
    }

    /// What is to be asked now.
    fn due(&self, now: Instant) -> Option<Question> {
        if self.news.needs_catalog() && now >= self.times.catalog {
            Some(Question::Catalog)
        } else if self.news.needs_fingerprint() {
            Some(Question::Compare)
        } else if self.news.wants_sample() && now >= self.times.sample {
            Some(Question::Sample)
        } else if self.news.awaits().is_some() && now >= self.times.flush {
            Some(Question::Flush)
        } else {
            None
        }
    }

    fn ask(&mut self, question: Question) -> Option<Asking> {
        let mut connection = self.questions.take()?;
        let monotonic_us = self.os.monotonic_us;
        let Texts { sampling, comparing, cataloging, flushing } = &self.texts;
        let text = match question {
            Question::Sample => sampling,
            Question::Compare => comparing,
            Question::Catalog => cataloging,
            Question::Flush => flushing,
        };
        let (text, began) = (text.clone(), Instant::now());
        match question {
            Question::Sample => self.times.sample = began + INTERVAL,
            Question::Flush => self.times.flush = began + UNFLUSHED_AGAIN,
            Question::Compare | Question::Catalog => {}
        }
        Some(Box::pin(async move {
            let as_of_us = monotonic_us();
            let answer = connection.ask(&text).await.and_then(|rows| {
                let answer = match question {
                    Question::Sample => questions::sample(&rows)
                        .map(|(position, seen)| Answer::Sample(Sample { as_of_us, position, seen })),
                    Question::Compare => {
                        questions::compared(&rows).map(|(seen, large)| Answer::Compared(seen, large))
                    }
                    Question::Catalog => questions::cataloged(&rows)
                        .map(|(seen, large, catalog)| Answer::Cataloged(seen, large, catalog)),
                    Question::Flush => Some(Answer::Flushed),
                };
                answer.ok_or_else(|| {
                    Failure::Other(
                        "it is not a primary any more, or its answers are not PostgreSQL's".to_owned(),
                    )
                })
            });
            (connection, began, answer)
        }))
    }

    fn answered(&mut self, answer: Answer, began: Instant) {
        let now = Instant::now();
        let took = now.duration_since(began);
        match answer {
            Answer::Sample(sample) => {
                self.news.sampled(sample);
                self.times.ping = now;
                self.times.flush = now + UNFLUSHED;
                self.times.heard = now;
            }
            Answer::Compared(seen, large) => {
                self.news.compared(seen, large);
                self.times.sample = self.times.sample.max(now + took * (SHARE - 1));
            }
            Answer::Cataloged(seen, large, catalog) => {
                let snapshot = seen.snapshot.clone();
                self.news.compared(seen, large);
                self.news.cataloged(&snapshot, catalog);
                self.times.catalog = began + CATALOG_INTERVAL.max(took * SHARE);
            }
            Answer::Flushed => {}
        }
    }

    /// Tells the server how far the stream is, and asks it, when that is due.
    async fn report(&mut self) -> Outcome<()> {
        let now = Instant::now();
        let awaits = self.news.awaits().is_some();
        if awaits && now.duration_since(self.times.heard) > SILENCE {
            return Err(Failure::TimedOut);
        }
        if awaits && now >= self.times.ping {
            self.times.ping = now + PING;
            return self.confirm(true).await;
        }
        if now >= self.times.confirm { self.confirm(false).await } else { Ok(()) }
    }

    /// A Standby status update: everything up to there was received, and is not needed again.
    async fn confirm(&mut self, asks: bool) -> Outcome<()> {
        let now = Instant::now();
        self.times.confirm = now + CONFIRM;
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let since = since_epoch.saturating_sub(Duration::from_secs(POSTGRES_EPOCH_S));
        let clock_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let position = self.news.position();
        let mut message = vec![b'r'];
        for number in [position, position, position, clock_us] {
            message.extend_from_slice(&number.to_be_bytes());
        }
        message.push(u8::from(asks));
        self.connection.send_copy(&message).await
    }

    /// How long nothing is due.
    fn wait(&self, now: Instant, is_asking: bool) -> Duration {
        let mut next = self.times.confirm;
        if self.news.awaits().is_some() {
            next = next.min(self.times.ping);
            if !is_asking {
                next = next.min(self.times.flush);
            }
        }
        if !is_asking && self.news.needs_catalog() {
            next = next.min(self.times.catalog);
        }
        if !is_asking && self.news.wants_sample() {
            next = next.min(self.times.sample);
        }
        next.saturating_duration_since(now)
    }
}

async fn answered(asking: &mut Option<Asking>) -> (Connection, Instant, Outcome<Answer>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}
