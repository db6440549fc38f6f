//! What stands as long as the demo runs: Weir before the private PostgreSQL, with one pool, the control panel and a token
//! for it. The measured runs have poolers of their own, so queries on this one do not disturb them.

use std::path::Path;
use std::process::Command;

use crate::demo::{Options, POOL};
use lab::error::{LabError, Result};
use lab::laboratory::{Lab, ROLE};
use lab::pooler::{Invocation, Plan, Pooler};
use lab::postgres::free_port;
use lab::process;

/// Whose token it is, as the log and the panel name them.
const HOLDER: &str = "demo";

/// Weir with its panel, up.
#[derive(Debug)]
pub(super) struct DemoServer {
    pooler: Pooler,
    panel_port: u16,
    token: String,
}

impl DemoServer {
    /// Starts it; clients can log in, and the panel answers.
    pub(super) fn start(lab: &Lab, options: &Options, pool_size: u32) -> Result<Self> {
        let program = options.weir_with_lab(lab)?;
        let (port, panel_port) = (free_port()?, free_port()?);
        let place = lab.place();
        let (keys, token) = token(lab, &program)?;
        place.write("panel.keys", &keys)?;
        place.write("users.txt", &format!("\"{ROLE}\" \"\"\n"))?;
        place.write("pools.ini", &pools(lab.cluster().port(), pool_size))?;
        // What the panel's lab makes goes with everything else, and it finds the PostgreSQL that was found here.
        let environment = vec![
            ("TMPDIR", place.path().to_path_buf()),
            ("WEIR_PG_BIN", lab.programs().directory().to_path_buf()),
        ];
        let config = config(&place.path().display().to_string(), port, panel_port);
        let plan = Plan {
            name: "weir",
            program: &program,
            config: &config,
            port,
            user: ROLE,
            // A login to the pool itself would open a server connection, and the runs want all that there are.
            pool: "pgbouncer",
            manner: Invocation { environment, ..Invocation::default() },
        };
        let pooler = Pooler::start(&plan, place, lab.interrupt())?;
        Ok(Self { pooler, panel_port, token })
    }

    /// How to connect to the pool.
    pub(super) fn uri(&self) -> String {
        format!("postgres://{ROLE}@127.0.0.1:{}/{POOL}?sslmode=disable", self.pooler.port())
    }

    /// Where the panel is, and what opens it; each has a line of its own, for people and for programs.
    pub(super) fn entrance(&self) -> [String; 2] {
        [format!("panel: http://127.0.0.1:{}", self.panel_port), format!("api token: {}", self.token)]
    }

    /// The pooler itself.
    pub(super) fn pooler(&self) -> &Pooler {
        &self.pooler
    }
}

/// A line for `http_auth_file`, and the token of all scopes that it lets in; Weir makes them.
pub(crate) fn token(lab: &Lab, program: &Path) -> Result<(String, String)> {
    let mut command = Command::new(program);
    command.args(["panel", "token", HOLDER, "--scopes", "read,operate,admin,view_credentials"]);
    let finished = process::run(command, lab.place().identity(), lab.interrupt(), &mut |_| {})?;
    let told =
        finished.stderr.iter().find_map(|line| line.rsplit_once(": ")).map(|(_, token)| token.to_owned());
    let line = finished.success("weir panel token")?;
    let token = told.ok_or_else(|| LabError::program("weir panel token", "it told no token"))?;
    Ok((line, token))
}

/// The panel's own file: so the demo's pool can be changed there.
fn pools(server: u16, size: u32) -> String {
    format!("[databases]\n{POOL} = host=127.0.0.1 port={server} dbname={ROLE} user={ROLE} pool_size={size}\n")
}

fn config(directory: &str, port: u16, panel_port: u16) -> String {
    format!(
        "[databases]\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir = {directory}\n\
         auth_type = trust\n\
         auth_file = {directory}/users.txt\n\
         admin_users = {ROLE}\n\
         pool_mode = transaction\n\
         max_client_conn = 1000\n\
         logfile = {directory}/weir.log\n\
         pools_file = {directory}/pools.ini\n\
         http_port = {panel_port}\n\
         http_auth_file = {directory}/panel.keys\n\
         track_queries = 1\n"
    )
}
