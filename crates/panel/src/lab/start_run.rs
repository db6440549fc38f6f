//! What may be asked of the lab by the panel, and the command line that it becomes.
//!
//! Owns the bounds. Workloads are the lab's own, by name: scripts and SQL are not accepted.

use programs::WORKLOADS;
use serde::{Deserialize, Serialize};
use settings::Config;
use utoipa::ToSchema;

use crate::connection_info::{is_verifier, percent};
use crate::failure::Failure;

/// What a run measures.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunKind {
    /// The pool beside a direct connection.
    Compare,
    /// Several pool sizes.
    Sweep,
}

impl RunKind {
    /// As `weir-bench` has it.
    fn word(self) -> &'static str {
        match self {
            RunKind::Compare => "compare",
            RunKind::Sweep => "sweep",
        }
    }
}

/// What to measure, and with what.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRun {
    /// compare or sweep.
    #[schema(value_type = RunKind)]
    kind: String,
    /// One of the lab's own, as tpcb-like.
    workload: String,
    /// Numbers of clients.
    #[serde(default)]
    clients: Vec<u32>,
    /// Pool sizes; a comparison has one, which is the size of the pool in `target` where none is named.
    #[serde(default)]
    pool_sizes: Vec<u32>,
    /// Of each run.
    #[serde(default)]
    seconds: Option<u32>,
    /// Runs of everything.
    #[serde(default)]
    rounds: Option<u32>,
    /// A few minutes are to be enough.
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    target: RunTarget,
}

/// Which server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunTarget {
    /// The server and database of this pool; pgbench's tables are made there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// A private PostgreSQL, made for the purpose.
    #[serde(default)]
    embedded: bool,
}

/// A command line for `weir`, without the places that the lab chooses.
#[derive(Debug)]
pub(crate) struct LabCommand {
    pub(crate) kind: RunKind,
    pub(crate) args: Vec<String>,
    /// For the server, by the environment: a list of processes shows the words.
    pub(crate) password: Option<String>,
}

impl StartRun {
    /// The command line.
    ///
    /// # Errors
    /// 422 with the field that is out of bounds, 404 for a pool that there is not.
    pub(crate) fn command(&self, config: &Config) -> Result<LabCommand, Failure> {
        let wrong = |field, text: &str| Err(Failure::invalid(field, text));
        let kind = match self.kind.as_str() {
            "compare" => RunKind::Compare,
            "sweep" => RunKind::Sweep,
            _ => return wrong("kind", "kind is compare or sweep"),
        };
        if !WORKLOADS.contains(&self.workload.as_str()) {
            return wrong("workload", &format!("the lab's workloads are {}", WORKLOADS.join(", ")));
        }
        if self.clients.len() > 8 || self.clients.iter().any(|count| !(1..=2_000).contains(count)) {
            return wrong("clients", "at most 8 numbers of clients, from 1 to 2000");
        }
        let most = if kind == RunKind::Compare { 1 } else { 16 };
        if self.pool_sizes.len() > most || self.pool_sizes.iter().any(|size| !(1..=1_000).contains(size)) {
            return wrong("pool_sizes", "at most 16 pool sizes (a comparison has one), from 1 to 1000");
        }
        if self.seconds.is_some_and(|seconds| !(1..=600).contains(&seconds)) {
            return wrong("seconds", "from 1 to 600 seconds");
        }
        if self.rounds.is_some_and(|rounds| !(1..=50).contains(&rounds)) {
            return wrong("rounds", "from 1 to 50 rounds");
        }
        let (server, password) = self.target.server(config)?;
        let pool_sizes = match (kind, &self.pool_sizes[..]) {
            (RunKind::Compare, []) => Vec::from_iter(self.target.size(config)),
            (_, sizes) => sizes.to_vec(),
        };
        let mut args =
            vec!["bench".to_owned(), kind.word().to_owned(), "--workload".to_owned(), self.workload.clone()];
        let sizes = if kind == RunKind::Compare { "--pool-size" } else { "--pool-sizes" };
        let mut option = |name: &str, value: Option<String>| {
            args.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        option("--clients", listed(&self.clients));
        option(sizes, listed(&pool_sizes));
        option("--seconds", self.seconds.map(|seconds| seconds.to_string()));
        option("--rounds", self.rounds.map(|rounds| rounds.to_string()));
        option("--server", server);
        args.extend(self.quick.then(|| "--quick".to_owned()));
        Ok(LabCommand { kind, args, password })
    }
}

impl RunTarget {
    /// The address of the pool's server, and the password of the user whom the entry names.
    fn server(&self, config: &Config) -> Result<(Option<String>, Option<String>), Failure> {
        let Some(name) = &self.pool else { return Ok((None, None)) };
        let pool = config.database(name).ok_or(Failure::NotFound)?;
        let Some(user) = &pool.user else {
            return Err(Failure::PoolWithoutUser);
        };
        // Where reads go to standbys, they are measured there.
        let count = if config.splits_reads(&pool, None) { pool.host.len() } else { 1 };
        let ports: Vec<String> = (0..count).map(|place| pool.port.of(place).to_string()).collect();
        let mut server = format!(
            "postgresql:///{}?port={}&user={}",
            percent(&pool.dbname),
            ports.join(","),
            percent(user)
        );
        let hosts: Vec<String> = pool.host.iter().take(count).map(|host| percent(host).to_string()).collect();
        if !hosts.is_empty() {
            server.push_str(&format!("&host={}", hosts.join(",")));
        }
        // As the pool's own logins: the entry's password, else the one of auth_file, if it is one and no verifier.
        let stored = config.secrets.get(user).filter(|secret| !is_verifier(secret));
        let password =
            pool.password.clone().or_else(|| stored.cloned()).filter(|password| !password.is_empty());
        Ok((Some(server), password))
    }

    /// The size of the pool, as it is.
    fn size(&self, config: &Config) -> Option<u32> {
        let pool = config.database(self.pool.as_ref()?)?;
        let user = pool.user.as_deref().and_then(|user| config.user(user)).map(|user| &**user);
        Some(config.pool_size(&pool, user).largest())
    }
}

fn listed(numbers: &[u32]) -> Option<String> {
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn command(json: &str) -> Result<LabCommand, Failure> {
        serde_json::from_str::<StartRun>(json).unwrap().command(&Config::default())
    }

    #[test]
    fn a_wish_becomes_a_command_line() {
        let json = r#"{"kind":"sweep","workload":"select-only","clients":[8,80],"pool_sizes":[1,2],"quick":true,"target":{"embedded":true}}"#;
        let command = command(json).unwrap();
        let args = "bench sweep --workload select-only --clients 8,80 --pool-sizes 1,2 --quick";
        assert_eq!(command.args.join(" "), args);
    }

    #[test]
    fn a_pool_whose_reads_go_to_standbys_is_measured_with_them() {
        let mut pool = settings::Database::new("app", settings::Origin { file: "weir.ini".into(), line: 1 });
        pool.user = Some("u".to_owned());
        pool.host = vec!["a".to_owned(), "b".to_owned()];
        pool.pool_mode = Some(settings::PoolMode::Transaction);
        let server = |pool: &settings::Database| {
            let databases = [("app".to_owned(), std::sync::Arc::new(pool.clone()))].into();
            let target = RunTarget { pool: Some("app".to_owned()), embedded: false };
            target.server(&Config { databases, ..Config::default() }).unwrap().0.unwrap()
        };
        assert_eq!(server(&pool), "postgresql:///app?port=5432&user=u&host=a");
        pool.read_write_split = true;
        assert_eq!(server(&pool), "postgresql:///app?port=5432,5432&user=u&host=a,b");
    }

    #[test]
    fn a_pool_is_measured_with_its_own_password_and_size() {
        let pool = |name: &str, user: &str| settings::Database {
            user: Some(user.to_owned()),
            ..settings::Database::new(name, settings::Origin { file: "weir.ini".into(), line: 1 })
        };
        let own = settings::Database {
            password: Some("pw".to_owned()),
            pool_size: Some(settings::PoolSize::Fixed(7)),
            ..pool("own", "u")
        };
        let pools = [own, pool("file", "u"), pool("verifier", "v")];
        let databases = pools.map(|pool| (pool.name.clone(), std::sync::Arc::new(pool))).into();
        let mut config = Config { databases, ..Config::default() };
        config.global.default_pool_size = settings::PoolSize::Fixed(16);
        let verifier = "SCRAM-SHA-256$4096:c2FsdA==$a:b".to_owned();
        config.secrets =
            std::sync::Arc::new([("u".to_owned(), "of file".to_owned()), ("v".to_owned(), verifier)].into());
        let command = |pool: &str, sizes: &str| {
            let json = format!(
                r#"{{"kind":"compare","workload":"tpcb-like","pool_sizes":{sizes},"target":{{"pool":"{pool}"}}}}"#
            );
            let command = serde_json::from_str::<StartRun>(&json).unwrap().command(&config).unwrap();
            let size = command.args.iter().skip_while(|word| *word != "--pool-size").nth(1).cloned();
            (size.unwrap_or_default(), command.password.unwrap_or_default())
        };
        assert_eq!(command("own", "[]"), ("7".to_owned(), "pw".to_owned()));
        assert_eq!(command("file", "[]"), ("16".to_owned(), "of file".to_owned()));
        assert_eq!(command("verifier", "[3]"), ("3".to_owned(), String::new()));
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        for (json, code) in [
            (r#"{"kind":"replay","workload":"select-only"}"#, 422),
            (r#"{"kind":"sweep","workload":"--script=/etc/passwd"}"#, 422),
            (r#"{"kind":"compare","workload":"tpcb-like","pool_sizes":[1,2]}"#, 422),
            (r#"{"kind":"sweep","workload":"tpcb-like","clients":[0]}"#, 422),
            (r#"{"kind":"sweep","workload":"tpcb-like","seconds":601}"#, 422),
            (r#"{"kind":"sweep","workload":"tpcb-like","target":{"pool":"none"}}"#, 404),
        ] {
            assert_eq!(command(json).unwrap_err().code(), code, "{json}");
        }
        assert!(serde_json::from_str::<StartRun>(r#"{"kind":"sweep","workload":"x","script":"y"}"#).is_err());
        assert_eq!(percent("/a b&c=é"), "%2Fa%20b%26c%3D%C3%A9");
    }
}
