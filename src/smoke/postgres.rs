//! What a Postgres prefix must show: a cluster, a server, its own libraries, rows that come back,
//! an index, an extension, a short load, and an orderly end.
//!
//! Every version from 11 on is treated alike.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::model::manifest::Smoke;

use super::child::{Programs, Scratch, make_dir};
use super::parse::Readiness;
use super::server::{Launch, Server};
use super::socket::SocketDir;
use super::{Test, account, own, parse, socket};

/// The server listens on no address; the number only names the socket.
const PORT: u16 = 5432;

/// Superuser of the test cluster.
const USER: &str = "bm";

/// Rows written and read back.
const ROWS: u64 = 10_000;

/// Below this the load is worth a look.
const SLOW_TPS: f64 = 5.0;

/// The server's program.
const SERVER: &str = "bin/postgres";

/// Programs the test runs.
const PROGRAMS: [&str; 4] = ["bin/initdb", SERVER, "bin/psql", "bin/pgbench"];

/// What the server says of itself, in the order asked.
const FACTS: [&str; 6] = [
    "server_version",
    "server_version_num",
    "debug_assertions",
    "data_checksums",
    "block_size",
    "wal_block_size",
];

pub(super) fn run(test: Test<'_>) -> Result<Smoke> {
    let account = account::choose()?;
    test.reach(account, &PROGRAMS)?;
    let scratch = Scratch::create(test.scratch.join("smoke"))?;
    let socket = SocketDir::create(&test.terms.sockets, account, &socket::postgres(PORT))?;
    let data = scratch.path().join("data");
    make_dir(&data, 0o700, account)?;
    let session = Session {
        test,
        programs: test.programs(account, scratch.path()),
        data: &data,
        socket: socket.path().display().to_string(),
    };
    let mut smoke = Smoke {
        uid: account.map_or_else(account::own_uid, |a| a.uid),
        ..Smoke::default()
    };
    session.init(&mut smoke)?;
    let before = session.programs.log_length();
    let server = session.start(&mut smoke)?;
    session.exercise(&server, &mut smoke)?;
    server.stop(&session.programs, libc::SIGINT, test.terms.stop)?;
    let written = session.programs.log_since(before)?;
    session.programs.ended_well(
        parse::log_errors(&written).first().copied(),
        parse::says_shut_down(&written),
    )?;
    smoke
        .did
        .push("fast shutdown, and nothing wrong in the server's log".into());
    scratch.close()?;
    Ok(smoke)
}

/// A test cluster.
struct Session<'a> {
    test: Test<'a>,
    programs: Programs<'a>,
    data: &'a Path,
    socket: String,
}

impl Session<'_> {
    fn init(&self, smoke: &mut Smoke) -> Result<()> {
        let data = self.data.display().to_string();
        let args = [
            "-D",
            &data,
            "-U",
            USER,
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
            "-k",
        ];
        self.programs.call("cannot create a cluster", "bin/initdb", &args)?;
        smoke.did.push("initdb with data checksums".into());
        Ok(())
    }

    /// Starts the server itself, not `pg_ctl`, which would detach it from our supervision.
    fn start(&self, smoke: &mut Smoke) -> Result<Server> {
        let data = self.data.display().to_string();
        let port = PORT.to_string();
        let args = [
            "-D",
            &data,
            "-k",
            &self.socket,
            "-p",
            &port,
            "-c",
            "listen_addresses=",
            "-c",
            "shared_buffers=16MB",
            // A worker would be ended by the shutdown and say so in the log that is judged.
            "-c",
            "autovacuum=off",
        ];
        let launch = Launch {
            program: SERVER,
            args: &args,
            ready: &|pid| read_pid(self.data) == Some((pid, Readiness::Ready)),
            // It removes its shared memory then, which a kill would leave to the next reboot.
            abandon: Some(libc::SIGQUIT),
        };
        let server = Server::start(&self.programs, &launch, self.test.terms)?;
        own::program(&self.test, &self.programs, server.pid(), SERVER)?;
        smoke.did.push("started bin/postgres on a private socket".into());
        Ok(server)
    }

    fn exercise(&self, server: &Server, smoke: &mut Smoke) -> Result<()> {
        self.facts(smoke)?;
        self.rows(smoke)?;
        self.index(smoke)?;
        self.extensions(smoke)?;
        self.libraries(server, smoke)?;
        self.load(smoke)
    }

    /// Sends statements, each in its own transaction, and returns the rows as text.
    fn psql(&self, what: &str, statements: &[&str]) -> Result<String> {
        let port = PORT.to_string();
        let mut args = vec!["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"];
        args.extend(["-h", &self.socket, "-p", &port, "-U", USER, "-d", "postgres"]);
        for statement in statements {
            args.extend(["-c", statement]);
        }
        self.programs.call(what, "bin/psql", &args)
    }

    fn facts(&self, smoke: &mut Smoke) -> Result<()> {
        let shows = FACTS.map(|name| format!("show {name}"));
        let mut statements = vec!["select version()"];
        statements.extend(shows.iter().map(String::as_str));
        let text = self.psql("the server does not answer", &statements)?;
        let values: Vec<&str> = text.lines().collect();
        if values.len() != statements.len() {
            return Err(self.programs.failure("the server's answers cannot be read"));
        }
        smoke.server = std::iter::once("version").chain(FACTS).zip(values).map(owned).collect();
        let said = |name: &str| smoke.server.get(name).map_or("", String::as_str);
        self.programs.expect(
            "the server is of another version",
            &self.test.expect.version,
            said("server_version"),
        )?;
        self.programs
            .expect("the server was built with assertions", "off", said("debug_assertions"))?;
        self.programs
            .expect("the cluster has no data checksums", "on", said("data_checksums"))?;
        smoke
            .did
            .push(format!("the server says it is {}", self.test.expect.version));
        Ok(())
    }

    fn rows(&self, smoke: &mut Smoke) -> Result<()> {
        let insert = format!("insert into bm_smoke select i, 'row ' || i from generate_series(1, {ROWS}) i");
        let text = self.psql(
            "cannot write rows and read them back",
            &[
                "create table bm_smoke (id int primary key, v text not null)",
                &insert,
                "checkpoint",
                "select count(*), sum(id), \
                 encode(sha256(convert_to(string_agg(v, ',' order by id), 'UTF8')), 'hex') from bm_smoke",
            ],
        )?;
        self.programs.expect(
            "the rows read back are not those written",
            &rows_written(),
            text.trim_end(),
        )?;
        smoke.rows = ROWS;
        smoke.did.push(format!("wrote {ROWS} rows and read the same back"));
        Ok(())
    }

    fn index(&self, smoke: &mut Smoke) -> Result<()> {
        let query = "select v from bm_smoke where v = 'row 4711'";
        let explain = format!("explain (costs off) {query}");
        let text = self.psql(
            "cannot make and use an index",
            &[
                "create index bm_smoke_v on bm_smoke (v)",
                "vacuum analyze bm_smoke",
                "set enable_seqscan = off",
                "set enable_bitmapscan = off",
                &explain,
                query,
            ],
        )?;
        if !text.contains("Index Only Scan using bm_smoke_v") {
            return Err(self.programs.failure("an index-only query does not use its index"));
        }
        self.programs.expect(
            "an index-only query has a wrong answer",
            "row 4711",
            text.lines().last().unwrap_or(""),
        )?;
        smoke.did.push("index-only query".into());
        Ok(())
    }

    fn extensions(&self, smoke: &mut Smoke) -> Result<()> {
        for name in &self.test.expect.extensions {
            let create = format!("create extension \"{}\"", name.replace('"', "\"\""));
            self.psql(&format!("extension `{name}` does not work"), &[&create])?;
            if name == "pgstattuple" {
                let call = ["select tuple_count from pgstattuple('bm_smoke')"];
                let text = self.psql("extension `pgstattuple` does not work", &call)?;
                self.programs
                    .expect("`pgstattuple` counts wrongly", &ROWS.to_string(), text.trim_end())?;
            }
            smoke.did.push(format!("extension {name}"));
        }
        Ok(())
    }

    /// Every library must be the prefix's own or the system's: of the server, of a session that has
    /// loaded the client library, and of the client.
    fn libraries(&self, server: &Server, smoke: &mut Smoke) -> Result<()> {
        let postmaster = own::maps(&self.test, server.pid())?;
        // With a length, for servers before 14 ask the file for its size, and `/proc` says 0.
        let backend = self.psql(
            "cannot see what a session has mapped",
            &[
                "load 'libpqwalreceiver'",
                "select pg_read_file('/proc/self/maps', 0, 1000000)",
            ],
        )?;
        let client = self.psql("cannot see what psql has mapped", &[r"\! cat /proc/$PPID/maps"])?;
        let mut server_maps = self.own("the server", &postmaster)?;
        server_maps.extend(self.own("a session of the server", &backend)?);
        self.own("psql", &client)?;
        smoke.mapped = own::shown(&server_maps, &self.test.prefix.join(SERVER));
        smoke
            .did
            .push("every mapped library is the prefix's own or the system's".into());
        Ok(())
    }

    fn own(&self, who: &str, maps: &str) -> Result<BTreeSet<PathBuf>> {
        own::libraries(&self.test, &self.programs, who, maps)
    }

    fn load(&self, smoke: &mut Smoke) -> Result<()> {
        let port = PORT.to_string();
        let place = ["-h", &self.socket, "-p", &port, "-U", USER, "postgres"];
        let init = [&["-i", "-s", "1", "-q"][..], &place].concat();
        self.programs.call("cannot prepare the load", "bin/pgbench", &init)?;
        let seconds = self.test.expect.load.as_secs_f64().ceil().max(1.0).to_string();
        let load = [&["-n", "-T", &seconds, "-c", "2", "-j", "2"][..], &place].concat();
        let text = self.programs.call("the load failed", "bin/pgbench", &load)?;
        let load = parse::load(&text).map_err(|why| {
            self.programs
                .failure("cannot read the result of the load")
                .detail("why", why)
        })?;
        if load.failed > 0 || load.aborted > 0 || load.transactions == 0 {
            return Err(self
                .programs
                .failure("transactions of the load failed")
                .detail("transactions", load.transactions)
                .detail("failed", load.failed)
                .detail("aborted clients", load.aborted));
        }
        if load.tps < SLOW_TPS {
            let text = format!("slow: {:.1} transactions per second in the short load", load.tps);
            smoke.warnings.push(text);
        }
        smoke.tps = load.tps;
        smoke
            .did
            .push(format!("pgbench for {seconds} s, no failed transaction"));
        Ok(())
    }
}

/// The pid file says whether it is ready.
fn read_pid(data: &Path) -> Option<(i32, Readiness)> {
    parse::postmaster_pid(&fs::read_to_string(data.join("postmaster.pid")).ok()?)
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Count, sum and checksum of the rows written, as psql shows them.
pub(super) fn rows_written() -> String {
    let text = (1..=ROWS).map(|i| format!("row {i}")).collect::<Vec<_>>().join(",");
    let hash = Sha256::digest(text.as_bytes());
    let mut line = format!("{ROWS}|{}|", ROWS * (ROWS + 1) / 2);
    for byte in hash {
        write!(line, "{byte:02x}").expect("writing to a String does not fail");
    }
    line
}
