//! Clusters of real etcd members on loopback, and stores that are asked one thing after another.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet::{CallId, Event, NodeRecord, ObjectName, Request, Revision, SessionId};
use fleetstore::{BackendQuery, EtcdOptions, EtcdTls, Store};
use serde_json::{Value, json};
use settings::EtcdUrl;

/// The longest wait for a condition.
const LIMIT: Duration = Duration::from_secs(30);

/// Whether etcd is on PATH; a test without it says so and does nothing, but in CI it fails.
pub(crate) fn has_etcd() -> bool {
    let has =
        Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !has {
        assert!(std::env::var_os("CI").is_none(), "etcd is not on PATH");
        println!("skipped: etcd is not on PATH (package etcd-server)");
    }
    has
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    if has_etcd() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.unwrap() });
    }
}

/// A directory that vanishes.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("weir-fleetstore-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cluster of etcd.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    _dir: TempDir,
}

pub(crate) struct Member {
    pub(crate) port: u16,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Child>,
}

impl Member {
    pub(crate) fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new("etcd");
        command.args(&self.arguments).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// `STOP` and `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.as_ref().unwrap().id();
        assert!(
            Command::new("kill").args([&format!("-{name}"), &id.to_string()]).status().unwrap().success()
        );
    }

    /// A call by etcd's JSON gateway.
    pub(crate) fn post(&self, path: &str, body: &Value, token: Option<&str>) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = body.to_string();
        let token = token.map_or(String::new(), |token| format!("Authorization: {token}\r\n"));
        let length = body.len();
        write!(
            stream,
            "POST /v3/{path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{token}Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        serde_json::from_str(body).unwrap_or(Value::Null)
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        self.post("kv/put", &json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) }), None);
    }

    pub(crate) fn delete(&self, key: &str) {
        self.post("kv/deleterange", &json!({ "key": STANDARD.encode(key) }), None);
    }

    /// Forgets all old revisions.
    pub(crate) fn compact(&self) {
        let answer = self.post("kv/range", &json!({ "key": STANDARD.encode("x") }), None);
        let revision = answer["header"]["revision"].as_str().unwrap();
        self.post("kv/compaction", &json!({ "revision": revision, "physical": true }), None);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Cluster {
    /// So many members, with these arguments besides.
    pub(crate) async fn start(count: usize, extra: &[&str]) -> Cluster {
        let cluster = Cluster::spawn(count, extra);
        let mut asking = cluster.fleet("probe");
        asking.eventually_swaps().await;
        cluster
    }

    pub(crate) fn spawn(count: usize, extra: &[&str]) -> Cluster {
        let scheme =
            if extra.iter().any(|argument| argument.starts_with("--cert-file")) { "https" } else { "http" };
        let dir = TempDir::new();
        let ports = free_ports(2 * count);
        let (clients, peers) = ports.split_at(count);
        let name = |(at, port): (usize, &u16)| format!("m{at}=http://127.0.0.1:{port}");
        let all: Vec<_> = peers.iter().enumerate().map(name).collect();
        let member = |at: usize| {
            let (client, peer) =
                (format!("{scheme}://127.0.0.1:{}", clients[at]), format!("http://127.0.0.1:{}", peers[at]));
            let mut arguments = vec![
                format!("--name=m{at}"),
                format!("--data-dir={}", dir.0.join(format!("m{at}")).display()),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster={}", all.join(",")),
                "--heartbeat-interval=50".to_owned(),
                "--election-timeout=500".to_owned(),
                "--logger=zap".to_owned(),
            ];
            arguments.extend(extra.iter().map(|argument| (*argument).to_owned()));
            let log = dir.0.join(format!("m{at}.log"));
            let mut member = Member { port: clients[at], arguments, log, process: None };
            member.start();
            member
        };
        Cluster { members: (0..count).map(member).collect(), _dir: dir }
    }

    pub(crate) fn hosts(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        hosts.join(",")
    }

    /// A node's store, without TLS and user.
    pub(crate) fn fleet(&self, node: &str) -> Fleet {
        Fleet::new(&format!("etcd://{}/weir", self.hosts()), None, node)
    }
}

/// A store, asked one thing after another.
pub(crate) struct Fleet {
    pub(crate) store: Store,
    next_call: u64,
    /// Events that came while another one was awaited.
    waiting: VecDeque<Event>,
}

impl Fleet {
    pub(crate) fn new(url: &str, tls: Option<EtcdTls>, node: &str) -> Fleet {
        let options = EtcdOptions {
            url: EtcdUrl::parse(url).unwrap(),
            tls,
            node: node.into(),
            lease_s: 2,
            request_timeout: EtcdOptions::REQUEST_TIMEOUT,
        };
        let system = pgclient::System { fill_random: |_| {} };
        let backends = BackendQuery::new(&Arc::default(), None, system, Arc::new(|_| {}));
        Fleet { store: Store::etcd(&options, backends).unwrap(), next_call: 0, waiting: VecDeque::new() }
    }

    pub(crate) fn submit(&mut self, request: impl FnOnce(CallId) -> Request) -> CallId {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.store.submit(request(call));
        call
    }

    /// The first event that fits, of those that came before too.
    pub(crate) async fn event<T>(&mut self, fits: impl Fn(&Event) -> Option<T>) -> T {
        if let Some(at) = self.waiting.iter().position(|event| fits(event).is_some()) {
            return fits(&self.waiting.remove(at).unwrap()).unwrap();
        }
        loop {
            let event = tokio::time::timeout(LIMIT, self.store.next()).await;
            let event = event.unwrap_or_else(|_| panic!("no such event; others: {:?}", self.waiting));
            match fits(&event) {
                Some(found) => return found,
                None => self.waiting.push_back(event),
            }
        }
    }

    pub(crate) async fn ask(&mut self, request: impl FnOnce(CallId) -> Request) -> Event {
        let asked = self.submit(request);
        self.event(|event| (call_of(event) == Some(asked)).then(|| event.clone())).await
    }

    /// The next event of a watch.
    pub(crate) async fn watched(&mut self, call: CallId) -> Event {
        self.event(|event| (watch_of(event) == Some(call)).then(|| event.clone())).await
    }

    pub(crate) async fn join(&mut self, session: u64) -> Event {
        self.ask(|call| Request::Join { call, record: record(session) }).await
    }

    pub(crate) async fn renew(&mut self, session: u64) -> Event {
        self.ask(|call| Request::Renew { call, record: record(session) }).await
    }

    pub(crate) async fn swap(&mut self, name: &[&str], expected: Revision, contents: Option<&[u8]>) -> Event {
        let (name, contents) = (object(name), contents.map(<[u8]>::to_vec));
        self.ask(|call| Request::Swap { call, name, expected, contents }).await
    }

    /// Swaps, and it works.
    pub(crate) async fn write(
        &mut self,
        name: &[&str],
        expected: Revision,
        contents: Option<&[u8]>,
    ) -> Revision {
        match self.swap(name, expected, contents).await {
            Event::Swapped { revision, .. } => revision,
            other => panic!("{name:?}: {other:?}"),
        }
    }

    /// Tries until etcd writes again: how often it did not answer.
    pub(crate) async fn eventually_swaps(&mut self) -> usize {
        let (began, mut count) = (Instant::now(), 0);
        loop {
            match self.swap(&["probe"], Revision(u64::MAX >> 1), None).await {
                Event::Conflict { .. } => return count,
                Event::Unanswered { why, .. } => assert!(began.elapsed() < LIMIT, "{why}"),
                other => panic!("{other:?}"),
            }
            count += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Begins to watch: the call, and the snapshot.
    pub(crate) async fn watch(&mut self) -> (CallId, Event) {
        let call = self.submit(|call| Request::Watch { call });
        (call, self.watched(call).await)
    }

    /// Why a request is not answered.
    pub(crate) async fn why_not(&mut self) -> String {
        match self.join(1).await {
            Event::Unanswered { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn record(session: u64) -> NodeRecord {
    NodeRecord {
        session: SessionId(session),
        address: "127.0.0.1:1".to_owned(),
        version: "1".to_owned(),
        started_s: 5,
        clients: 1,
        servers: 2,
        is_draining: false,
        pools: fleet::PoolsInUse::default(),
    }
}

pub(crate) fn object(parts: &[&str]) -> ObjectName {
    ObjectName(parts.iter().map(|part| (*part).to_owned()).collect())
}

fn call_of(event: &Event) -> Option<CallId> {
    match event {
        Event::Renewed { call, .. }
        | Event::IdTaken { call, .. }
        | Event::Expired { call }
        | Event::Left { call }
        | Event::Swapped { call, .. }
        | Event::Conflict { call }
        | Event::Unanswered { call, .. }
        | Event::Backends { call, .. } => Some(*call),
        _ => None,
    }
}

fn watch_of(event: &Event) -> Option<CallId> {
    match event {
        Event::Snapshot { call: watch, .. }
        | Event::NodeSeen { watch, .. }
        | Event::NodeGone { watch, .. }
        | Event::Changed { watch, .. }
        | Event::WatchLost { watch, .. } => Some(*watch),
        _ => None,
    }
}

/// Certificates by the openssl command: a root, another root, and certificates of the first for 127.0.0.1 and a client.
pub(crate) struct Certificates<'a>(pub(crate) &'a Path);

impl Certificates<'_> {
    pub(crate) fn make(&self) {
        std::fs::write(self.0.join("ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        for root in ["root", "other"] {
            self.openssl(&format!("ecparam -name prime256v1 -genkey -noout -out {root}.key"));
            self.openssl(&format!(
                "req -x509 -new -key {root}.key -out {root}.crt -days 30 -subj /CN={root}"
            ));
        }
        for leaf in ["server", "client"] {
            self.openssl(&format!("ecparam -name prime256v1 -genkey -noout -out {leaf}.sec1"));
            self.openssl(&format!("pkcs8 -topk8 -nocrypt -in {leaf}.sec1 -out {leaf}.key"));
            self.openssl(&format!("req -new -key {leaf}.key -out {leaf}.csr -subj /CN={leaf}"));
            self.openssl(&format!(
                "x509 -req -in {leaf}.csr -CA root.crt -CAkey root.key -CAcreateserial -out {leaf}.crt -days 30 -extfile ext"
            ));
        }
    }

    fn openssl(&self, arguments: &str) {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(self.0).output().unwrap();
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }
}
