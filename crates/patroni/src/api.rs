//! The requests to one cluster's REST APIs, of which the first that answers is used.
//!
//! Owns the order in which they are asked. A request that changes something is never sent twice: it goes to the next URL only if no connection was made.

use std::time::Duration;

use control::PatroniError;
use httpclient::{HttpTarget, PostError};
use settings::{Config, Headers, Member, PatroniUrl, PatroniUrls};

use crate::answer;

/// For an answer to `GET /cluster`.
const LIMIT: Duration = Duration::from_secs(2);

/// For an answer to `GET /leader`: clients wait meanwhile.
const LEADER_LIMIT: Duration = Duration::from_millis(500);

/// For an answer to `POST /switchover`: Patroni waits for the new leader, up to twice its `loop_wait`.
const SWITCHOVER_LIMIT: Duration = Duration::from_secs(60);

/// As much of Patroni's words as messages and the log have.
const WORDS: usize = 500;

/// The REST APIs of one cluster.
pub(crate) struct Api {
    targets: Vec<(PatroniUrl, Result<HttpTarget, String>)>,
    /// Which has answered last.
    last: usize,
}

impl Api {
    pub(crate) fn new(urls: &PatroniUrls, config: &Config) -> Api {
        let target = |url: &PatroniUrl| {
            let roots = &config.tls_files.collector;
            let target = HttpTarget::to(&url.endpoint, &Headers::default(), "application/json", roots);
            let target = target.map_err(|why| why.to_string());
            let target = target.map(|target| match &url.credentials {
                Some(credentials) => target.authorized(credentials),
                None => target,
            });
            (url.clone(), target)
        };
        Api { targets: urls.iter().map(target).collect(), last: 0 }
    }

    /// The members, as the first API has them that answers. The one that has answered before is asked first.
    pub(crate) async fn members(&mut self) -> Result<Vec<Member>, PatroniError> {
        let (mut whys, mut answers, mut is_untrusted) = (Vec::new(), false, false);
        for step in 0..self.targets.len() {
            let place = (self.last + step) % self.targets.len();
            let (url, target) = &self.targets[place];
            match members(url, target).await {
                Ok(members) => {
                    self.last = place;
                    return Ok(members);
                }
                Err(error) => {
                    answers |= matches!(error, PatroniError::Invalid(_));
                    is_untrusted |= matches!(error, PatroniError::Untrusted(_));
                    whys.push(format!("{url}: {}", error.why()));
                }
            }
        }
        // In the order of the setting, whichever was asked first: the same failure is one line in the log.
        whys.sort();
        let text = whys.join("; ");
        Err(match (answers, is_untrusted) {
            (true, _) => PatroniError::Invalid(text),
            (false, true) => PatroniError::Untrusted(text),
            (false, false) => PatroniError::Unreachable(text),
        })
    }

    /// The place of the leader's own API: it acts on a switchover at once, and on one that another member was asked for in its next round.
    async fn leaders_own(&self) -> Option<usize> {
        for (place, (url, target)) in self.targets.iter().enumerate() {
            if let Ok(target) = target
                && leads(url, target).await
            {
                return Some(place);
            }
        }
        None
    }

    /// Asks for a switchover: Patroni's words, if it has made one or will.
    pub(crate) async fn switch_over(&self, leader: &str, candidate: Option<&str>) -> Result<String, String> {
        let mut wanted = serde_json::json!({ "leader": leader });
        if let Some(candidate) = candidate {
            wanted["candidate"] = candidate.into();
        }
        let (mut whys, first) = (Vec::new(), self.leaders_own().await);
        let of_leader = first.and_then(|place| self.targets.get(place));
        let others = self.targets.iter().enumerate().filter(|(place, _)| Some(*place) != first);
        for (url, target) in of_leader.into_iter().chain(others.map(|(_, target)| target)) {
            let target = match target {
                Ok(target) => target,
                Err(why) => {
                    whys.push(format!("{url}: {why}"));
                    continue;
                }
            };
            let path = format!("{}/switchover", url.endpoint.path);
            let body = wanted.to_string().into_bytes();
            match target.exchange(&path, Some(body), SWITCHOVER_LIMIT).await {
                Ok((status, body)) if status.is_success() => return Ok(words(&body)),
                Ok((status, body)) => return Err(format!("{} ({status})", words(&body))),
                Err(
                    why @ (PostError::Unreachable(_) | PostError::Handshake(_) | PostError::Untrusted(_)),
                ) => {
                    whys.push(format!("{url}: {why}"));
                }
                Err(why) => return Err(format!("{url}: {why}; see patronictl list for what has come of it")),
            }
        }
        Err(whys.join("; "))
    }
}

/// One URL's answer to whether its member leads: 200 is yes.
async fn leads(url: &PatroniUrl, target: &HttpTarget) -> bool {
    let path = format!("{}/leader", url.endpoint.path);
    target.exchange(&path, None, LEADER_LIMIT).await.is_ok_and(|(status, _)| status.as_u16() == 200)
}

async fn members(url: &PatroniUrl, target: &Result<HttpTarget, String>) -> Result<Vec<Member>, PatroniError> {
    // There are no roots.
    let target = target.as_ref().map_err(|why| PatroniError::Untrusted(why.clone()))?;
    let path = format!("{}/cluster", url.endpoint.path);
    let answer = target.exchange(&path, None, LIMIT).await;
    let (status, body) = answer.map_err(|why| match why {
        PostError::Http(_) | PostError::Unreadable => PatroniError::Invalid(why.to_string()),
        PostError::Untrusted(_) => PatroniError::Untrusted(why.to_string()),
        _ => PatroniError::Unreachable(why.to_string()),
    })?;
    match status.as_u16() {
        200 => answer::members(&body).map_err(PatroniError::Invalid),
        // Patroni itself, without its store.
        500..=599 => Err(PatroniError::Unreachable(format!("the answer is {status}"))),
        _ => Err(PatroniError::Invalid(format!("the answer is {status}"))),
    }
}

/// A text of Patroni's in one line.
fn words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let in_line = |letter: char| if letter.is_control() { ' ' } else { letter };
    let text: String = text.trim().chars().map(in_line).take(WORDS).collect();
    if text.is_empty() { "no words".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    /// An HTTP server with one answer: its port, and the requests that it gets.
    fn server(status: &'static str, body: &'static str) -> (u16, Receiver<String>) {
        server_of(status, body, false)
    }

    /// The same, of a member that leads or does not.
    fn server_of(status: &'static str, body: &'static str, leads: bool) -> (u16, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, (sender, requests)) = (listener.local_addr().unwrap().port(), channel());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 4096];
                let mut request = String::new();
                while !request.contains("\r\n\r\n") || request.starts_with("POST") && !request.ends_with('}')
                {
                    let count = stream.read(&mut bytes).unwrap();
                    request.push_str(&String::from_utf8_lossy(&bytes[..count]));
                }
                let length = body.len();
                if request.contains("/leader HTTP") {
                    let status = if leads { "200 OK" } else { "503 Service Unavailable" };
                    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").unwrap();
                    continue;
                }
                // Told before it is answered: whoever has the answer finds it told.
                if sender.send(request).is_err() {
                    return;
                }
                write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
            }
        });
        (port, requests)
    }

    fn unused() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn api(urls: &str) -> Api {
        struct Ini(String);
        impl settings::Files for Ini {
            fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
                Ok(self.0.clone().into_bytes())
            }
        }
        let text = format!("[databases]\na = topology='patroni {urls}'\n[pgbouncer]\n");
        let config = settings::load(&Ini(text), "w.ini", &[]).unwrap();
        Api::new(&config.patronis()[0], &config)
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    const ONE: &str =
        r#"{"members": [{"name": "a", "role": "leader", "state": "running", "host": "h", "port": 1}]}"#;

    #[test]
    fn the_first_that_answers_is_asked_and_first_the_next_time() {
        let ((broken, asked), (port, requests)) = (server("503 Down", ""), server("200 OK", ONE));
        let urls =
            format!("http://127.0.0.1:{},http://127.0.0.1:{broken},http://127.0.0.1:{port}/p", unused());
        let mut api = api(&urls);
        block_on(async {
            for _ in 0..2 {
                assert_eq!(api.members().await.unwrap()[0].label(), "h:1");
            }
        });
        assert!(requests.recv().unwrap().starts_with("GET /p/cluster HTTP/1.1"));
        assert!(requests.recv().is_ok());
        assert_eq!(asked.try_iter().count(), 1, "the second time the last one was asked at once");
    }

    #[test]
    fn the_leader_is_asked_for_a_switchover_first() {
        let (other, not_asked) = server("200 OK", "not here");
        let (port, _requests) = server_of("200 OK", "done", true);
        let urls = format!("http://127.0.0.1:{},http://127.0.0.1:{other},http://127.0.0.1:{port}", unused());
        assert_eq!(block_on(api(&urls).switch_over("a", None)), Ok("done".to_owned()));
        assert_eq!(not_asked.try_iter().count(), 0);
    }

    #[test]
    fn what_is_wrong_is_named_with_each_url() {
        let ((port, _requests), nothing) = (server("404 Not Found", "no"), unused());
        let error = |urls: &str| block_on(api(urls).members()).unwrap_err();
        let PatroniError::Invalid(why) = error(&format!("http://127.0.0.1:{port}")) else { panic!() };
        assert!(why.contains("the answer is 404"), "{why}");
        let PatroniError::Unreachable(why) = error(&format!("http://127.0.0.1:{nothing}")) else { panic!() };
        assert!(why.starts_with(&format!("http://127.0.0.1:{nothing}: ")), "{why}");
    }

    #[test]
    fn a_switchover_is_asked_for_once_and_answered_in_patronis_words() {
        let (port, requests) = server("412 Precondition Failed", "candidate\nis the leader\n");
        let (other, not_asked) = server("200 OK", "done");
        let urls =
            format!("http://127.0.0.1:{},http://me:pw@127.0.0.1:{port},http://127.0.0.1:{other}", unused());
        let outcome = block_on(api(&urls).switch_over("a", Some("b")));
        assert_eq!(outcome, Err("candidate is the leader (412 Precondition Failed)".to_owned()));
        let request = requests.recv().unwrap();
        assert!(request.starts_with("POST /switchover HTTP/1.1"), "{request}");
        assert!(request.contains("authorization: Basic bWU6cHc="), "{request}");
        assert!(request.contains(r#""leader":"a""#) && request.contains(r#""candidate":"b""#), "{request}");
        assert_eq!(not_asked.try_iter().count(), 0);
        let outcome = block_on(api(&format!("http://127.0.0.1:{other}")).switch_over("a", None));
        assert_eq!(outcome, Ok("done".to_owned()));
    }
}
