//! Which member of the etcd cluster is used.
//!
//! Owns that one is found that has a quorum, that another is looked for when it stops answering, and how long that takes. All requests use the same one; a request
//! that may have been carried out is never sent again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::transport::Endpoint;

use super::api::RangeRequest;
use super::client::Client;
use super::failure::Failure;
use super::keys::Keys;
use super::options::{EtcdOptions, EtcdTls};
use settings::EtcdUser;

/// The next member is tried beside one that has not answered for this long.
const STAGGER: Duration = Duration::from_millis(300);

/// The members, and the one in use.
pub(crate) struct Members {
    endpoints: Vec<(String, Endpoint)>,
    user: Option<EtcdUser>,
    tls: Option<EtcdTls>,
    prefix: String,
    request_timeout: Duration,
    /// The place of the endpoint that is tried first.
    first: AtomicUsize,
    link: watch::Sender<Link>,
}

/// The state of the connection.
#[derive(Clone)]
pub(crate) enum Link {
    /// Never connected, or the last member did not answer.
    Down,
    Connecting,
    Up(Arc<Member>),
    /// No member could be used, and why.
    Failed(Arc<str>),
}

/// A member in use.
pub(crate) struct Member {
    place: usize,
    label: String,
    pub(crate) client: Client,
    /// How many requests it has answered.
    answers: AtomicU64,
}

impl Members {
    pub(crate) fn new(options: &EtcdOptions, endpoints: Vec<(String, Endpoint)>) -> Arc<Members> {
        Arc::new(Members {
            endpoints,
            user: options.url.user.clone(),
            tls: options.tls.clone(),
            prefix: options.url.prefix.clone(),
            request_timeout: options.request_timeout,
            first: AtomicUsize::new(0),
            link: watch::Sender::new(Link::Down),
        })
    }

    /// Carries a request out on the member in use, by a deadline.
    ///
    /// # Errors
    /// The member, and why it has not answered, or has refused.
    pub(crate) async fn call<T, F>(
        self: &Arc<Self>,
        deadline: Instant,
        request: impl Fn(Arc<Member>) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut may_log_in_again = true;
        loop {
            let member = timeout_at(deadline, self.member()).await;
            let member = member
                .unwrap_or_else(|_| Err(format!("no member of etcd could be used {}", self.in_time())))?;
            let answers_before = member.answers.load(Relaxed);
            match timeout_at(deadline, request(Arc::clone(&member))).await {
                Ok(Ok(answer)) => {
                    member.answers.fetch_add(1, Relaxed);
                    return Ok(answer);
                }
                // Nothing was done.
                Ok(Err(failure)) if failure.is_of_login() && may_log_in_again => {
                    may_log_in_again = false;
                    self.leave(&member);
                }
                Ok(Err(failure)) => {
                    self.failed(&member, &failure, answers_before);
                    return Err(self.words(&member.label, &failure));
                }
                Err(_) => {
                    self.unanswered(&member, answers_before);
                    return Err(format!("{}: no answer {}", member.label, self.in_time()));
                }
            }
        }
    }

    /// The member in use; looks for one if there is none.
    pub(crate) async fn member(self: &Arc<Self>) -> Result<Arc<Member>, String> {
        let mut links = self.link.subscribe();
        // A failure that was there before is not this request's.
        self.begin_to_connect(|link| matches!(link, Link::Down | Link::Failed(_)));
        loop {
            let link =
                links.wait_for(|link| !matches!(link, Link::Connecting)).await.map(|link| link.clone());
            match link {
                Ok(Link::Up(member)) => return Ok(member),
                Ok(Link::Failed(why)) => return Err(why.to_string()),
                // Found, and left again by another request.
                Ok(Link::Down | Link::Connecting) => self.begin_to_connect(|link| matches!(link, Link::Down)),
                Err(_) => return Err("there is no connection to etcd".to_owned()),
            }
        }
    }

    fn begin_to_connect(self: &Arc<Self>, is_needed: impl Fn(&Link) -> bool) {
        let begins = self.link.send_if_modified(|link| {
            let begins = is_needed(link);
            if begins {
                *link = Link::Connecting;
            }
            begins
        });
        if begins {
            // For all requests that wait, whichever of them is given up.
            let members = Arc::clone(self);
            tokio::spawn(members.connect());
        }
    }

    /// Returns when this member is in use no more.
    pub(crate) async fn left(&self, member: &Arc<Member>) {
        let is_other = |link: &Link| !matches!(link, Link::Up(now) if Arc::ptr_eq(now, member));
        let _ = self.link.subscribe().wait_for(is_other).await;
    }

    /// A request has failed on a member.
    fn failed(&self, member: &Arc<Member>, failure: &Failure, answers_before: u64) {
        if failure.is_of_member() {
            self.unanswered(member, answers_before);
        } else {
            member.answers.fetch_add(1, Relaxed);
        }
    }

    /// A member has not answered a request: another one is looked for, unless it has answered others meanwhile.
    fn unanswered(&self, member: &Arc<Member>, answers_before: u64) {
        if member.answers.load(Relaxed) == answers_before {
            self.prefer_others(member);
        }
    }

    /// The watch on a member has failed, which says more than that other requests were answered before.
    pub(crate) fn watch_failed(&self, member: &Arc<Member>, failure: &Failure) {
        if failure.is_of_member() {
            self.prefer_others(member);
        }
    }

    fn prefer_others(&self, member: &Arc<Member>) {
        self.first.store(member.place + 1, Relaxed);
        self.leave(member);
    }

    fn leave(&self, member: &Arc<Member>) {
        self.link.send_if_modified(|link| {
            let is_in_use = matches!(link, Link::Up(now) if Arc::ptr_eq(now, member));
            if is_in_use {
                *link = Link::Down;
            }
            is_in_use
        });
    }

    /// Tries all members, each a little later than the one before it, and uses the first that answers.
    async fn connect(self: Arc<Self>) {
        let (count, first) = (self.endpoints.len(), self.first.load(Relaxed));
        let mut waiting = (0..count).map(|step| (first + step) % count);
        let (mut attempts, mut whys) = (JoinSet::new(), Vec::new());
        let mut start = |attempts: &mut JoinSet<_>| {
            let place = waiting.next();
            let members = Arc::clone(&self);
            place.map(|place| attempts.spawn(async move { members.open(place).await })).is_some()
        };
        let mut has_more = start(&mut attempts);
        let link = loop {
            tokio::select! {
                Some(attempt) = attempts.join_next() => match attempt {
                    Ok(Ok(member)) => break Link::Up(Arc::new(member)),
                    Ok(Err(why)) => {
                        whys.push(why);
                        has_more = has_more && start(&mut attempts);
                    }
                    Err(_) => {}
                },
                () = sleep(STAGGER), if has_more => has_more = start(&mut attempts),
                else => {
                    // In the order of the setting, whichever answered first: the same failure is one line in the log.
                    whys.sort();
                    break Link::Failed(whys.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; ").into());
                }
            }
        };
        self.link.send_replace(link);
    }

    /// Connects to a member, and reads a key: one without a quorum does not answer, and a user without permission is refused.
    async fn open(&self, place: usize) -> Result<Member, (usize, String)> {
        let Some((label, endpoint)) = self.endpoints.get(place) else {
            return Err((place, "there is no such member".to_owned()));
        };
        let opening = async {
            let client = Client::connect(endpoint).await?;
            let first = |failure: Failure| failure.of_first_request(self.tls.as_ref());
            let client = client.log_in(self.user.as_ref()).await.map_err(first)?;
            let (key, range_end) = Keys::new(&self.prefix).range();
            let probe = RangeRequest { key, range_end, limit: 1, keys_only: true, ..RangeRequest::default() };
            client.range(probe).await.map_err(first)?;
            Ok(client)
        };
        // So that requests that wait have its words.
        let limit = self.request_timeout * 3 / 4;
        let client = match timeout(limit, opening).await {
            Ok(Ok(client)) => client,
            Ok(Err(failure)) => return Err((place, self.words(label, &failure))),
            Err(_) => return Err((place, format!("{label}: no answer within {} ms", limit.as_millis()))),
        };
        Ok(Member { place, label: label.clone(), client, answers: AtomicU64::new(0) })
    }

    pub(crate) fn words(&self, label: &str, failure: &Failure) -> String {
        let user = self.user.as_ref().map(|user| user.name.as_str());
        format!("{label}: {}", failure.words(&self.prefix, user))
    }

    fn in_time(&self) -> String {
        format!("within {} ms", self.request_timeout.as_millis())
    }
}

impl Member {
    /// Its endpoint.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}
