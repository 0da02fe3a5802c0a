//! What a prefix of the MySQL family must show: a data directory, a server on a socket alone, its own libraries,
//! a build without debug code, rows of the right engine that come back, a short load, and an orderly end.
//!
//! Every version from 5.6 on is treated alike, but for the making of the data directory. No option file is read, and the
//! places compiled into the server are not overridden, for they are part of what is tested.

mod parse;

#[cfg(test)]
mod fake;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::error::{IoContext, Result};
use crate::model::manifest::Smoke;
use crate::model::version::Version;

use super::child::{Programs, Scratch, make_dir};
use super::server::{Launch, Server};
use super::socket::{self, SocketDir};
use super::{Test, account, own};
use parse::Load;

/// How often the rows are doubled.
const DOUBLINGS: u32 = 13;

/// Rows written and read back.
const ROWS: u64 = 1 << DOUBLINGS;

/// Clients of the load.
const CLIENTS: u64 = 2;

/// What each client of the load does over and over. Its effect is counted afterwards, for mysqlslap's exit status is 0
/// also when a statement fails.
const LOAD: [&str; 3] = [
    "insert into made (v) values ('load')",
    "select v from kept where id = 4711",
    "update kept set n = n + 1 where id = 4711",
];

/// Statements after which every client has done the whole of `LOAD` once.
const ROUND: u64 = CLIENTS * LOAD.len() as u64;

/// Rounds of the first load, whose rate says how many are a few seconds' worth.
const FIRST_ROUNDS: u64 = 50;

/// Most rounds of the second.
const MOST_ROUNDS: u64 = 20_000;

/// Statements per second below which the load is worth a look.
const SLOW: f64 = 5.0;

/// The server's program.
const SERVER: &str = "bin/mysqld";

/// Programs the test runs.
const PROGRAMS: [&str; 4] = [SERVER, "bin/mysql", "bin/mysqladmin", "bin/mysqlslap"];

/// Makes the data directory of servers that cannot do it themselves.
const SCRIPT: &str = "scripts/mysql_install_db";

/// Variables of the server that go to the manifest; one that a version does not have is left out.
const FACTS: [&str; 8] = [
    "version",
    "version_comment",
    "version_compile_machine",
    "version_compile_os",
    "basedir",
    "default_storage_engine",
    "performance_schema",
    "log_bin",
];

/// Variables that only a server with debug code has: of the server itself, and of InnoDB.
const DEBUG_FACTS: &str = "variable_name in ('debug', 'debug_sync') or variable_name like 'innodb%debug'";

/// Small, for the host may be building. `loose` so that a server without InnoDB says so when it is asked.
const BUFFERS: &str = "--loose-innodb-buffer-pool-size=32M";

pub(super) fn run(test: Test<'_>) -> Result<Smoke> {
    let account = account::choose()?;
    test.reach(account, &PROGRAMS)?;
    let by_script = needs_script(&test.expect.version);
    if by_script {
        test.reach(account, &[SCRIPT])?;
    }
    let scratch = Scratch::create(test.scratch.join("smoke"))?;
    let socket = SocketDir::create(&test.terms.sockets, account, socket::MYSQL)?;
    let (data, tmp) = (scratch.path().join("data"), scratch.path().join("tmp"));
    make_dir(&data, 0o700, account)?;
    make_dir(&tmp, 0o700, account)?;
    let session = Session {
        test,
        programs: test.programs(account, scratch.path()),
        data,
        tmp,
        socket: option("socket", &socket.path().join(socket::MYSQL)),
    };
    let mut smoke = Smoke {
        uid: account.map_or_else(account::own_uid, |a| a.uid),
        ..Smoke::default()
    };
    session.init(by_script, &mut smoke)?;
    let before = session.programs.log_length();
    let server = session.start(before, &mut smoke)?;
    session.facts(&mut smoke)?;
    session.rows(&mut smoke)?;
    session.libraries(&server, &mut smoke)?;
    session.load(&mut smoke)?;
    session.stop(server)?;
    let written = session.programs.log_since(before)?;
    session.programs.ended_well(
        parse::log_errors(&written).first().copied(),
        parse::says_shut_down(&written),
    )?;
    smoke
        .did
        .push("mysqladmin shutdown, and nothing wrong in the server's log".into());
    scratch.close()?;
    Ok(smoke)
}

/// Whether a server of this version makes its data directory by a script: `--initialize-insecure` is there since 5.7.6.
fn needs_script(version: &str) -> bool {
    let version: Option<Version> = version.parse().ok();
    version.is_some_and(|v| v.numbers() < [5, 7, 6].as_slice())
}

/// A test server.
struct Session<'a> {
    test: Test<'a>,
    programs: Programs<'a>,
    data: PathBuf,
    tmp: PathBuf,
    /// The option that names the socket, the same for server and clients.
    socket: String,
}

impl Session<'_> {
    fn init(&self, by_script: bool, smoke: &mut Smoke) -> Result<()> {
        let programs = Programs {
            bound: self.test.terms.init,
            ..self.programs
        };
        let data = option("datadir", &self.data);
        let tmp = option("tmpdir", &self.tmp);
        let what = "cannot make a data directory";
        if !by_script {
            let args = ["--no-defaults", "--initialize-insecure", &data, &tmp, BUFFERS];
            programs.call(what, SERVER, &args)?;
            smoke.did.push("mysqld --initialize-insecure".into());
            return Ok(());
        }
        // With `--no-defaults` the script would still read a `my.cnf` in the prefix, and without `--keep-my-cnf` write one.
        let empty = self.programs.dir.join("empty.cnf");
        let doing = || "cannot write an empty option file".into();
        fs::write(&empty, "").doing(doing)?;
        fs::set_permissions(&empty, PermissionsExt::from_mode(0o644)).doing(doing)?;
        let (defaults, base) = (option("defaults-file", &empty), option("basedir", self.test.prefix));
        // `--force`: the names of the host do not matter to a server without a network.
        let args = [&*defaults, "--keep-my-cnf", "--force", &base, &data, &tmp, BUFFERS];
        let text = programs.call(what, SCRIPT, &args)?;
        // The script does not look how its server ended.
        let whole = self.data.join("mysql/user.frm").is_file();
        let error = parse::log_errors(&text).first().map(ToString::to_string);
        if !whole || error.is_some() {
            let said = error.unwrap_or_else(|| "no error".into());
            return Err(programs
                .failure(format!("{what}: `{SCRIPT}` made no whole set of system tables"))
                .detail("its server said", said));
        }
        smoke.did.push("mysql_install_db".into());
        Ok(())
    }

    /// Starts the server itself, not `mysqld_safe`, which would start it again when it crashes.
    fn start(&self, before: u64, smoke: &mut Smoke) -> Result<Server> {
        let args = [
            "--no-defaults".to_owned(),
            option("datadir", &self.data),
            option("tmpdir", &self.tmp),
            option("pid-file", &self.data.join("mysqld.pid")),
            self.socket.clone(),
            "--skip-networking".to_owned(),
            // It would listen on a socket of its own, in a place that everybody shares.
            "--loose-mysqlx=OFF".to_owned(),
            BUFFERS.to_owned(),
            // Engines besides InnoDB are off until they are asked for.
            format!("--loose-{}=ON", self.test.expect.engine.to_ascii_lowercase()),
        ];
        let innodb = self.test.expect.engine.eq_ignore_ascii_case("innodb");
        let count = if innodb { args.len() - 1 } else { args.len() };
        let args: Vec<&str> = args[..count].iter().map(String::as_str).collect();
        let launch = Launch {
            program: SERVER,
            args: &args,
            ready: &|_| self.programs.log_since(before).is_ok_and(|log| parse::says_ready(&log)),
            // Its files are thrown away, and it has nothing elsewhere.
            abandon: None,
        };
        let server = Server::start(&self.programs, &launch, self.test.terms)?;
        own::program(&self.test, &self.programs, server.pid(), SERVER)?;
        let ping = [&self.place()[..], &["ping"]].concat();
        let text = self
            .programs
            .call("the server does not answer", "bin/mysqladmin", &ping)?;
        if !text.contains("mysqld is alive") {
            return Err(self.programs.failure("the server does not answer"));
        }
        smoke.did.push("started bin/mysqld on a private socket".into());
        Ok(server)
    }

    /// How every client finds the server: as the administrator of a new data directory, who has no password.
    fn place(&self) -> [&str; 4] {
        // No client takes the first anywhere else.
        ["--no-defaults", "--protocol=socket", &self.socket, "--user=root"]
    }

    /// Sends statements and returns the rows, columns separated by tabs.
    fn mysql(&self, what: &str, statements: &[&str]) -> Result<String> {
        let text = statements.join("; ");
        let args = [&self.place()[..], &["--batch", "--skip-column-names", "-e", &text]].concat();
        self.programs.call(what, "bin/mysql", &args)
    }

    fn facts(&self, smoke: &mut Smoke) -> Result<()> {
        let names = FACTS.map(|name| format!("'{name}'")).join(", ");
        let show = format!("show variables where variable_name in ({names}) or {DEBUG_FACTS}");
        let text = self.mysql("the server does not answer", &["select 'version()', version()", &show])?;
        let mut said: BTreeMap<String, String> = parse::pairs(&text);
        let Some(version) = said.remove("version()") else {
            return Err(self.programs.failure("the server's answers cannot be read"));
        };
        let facts: BTreeMap<String, String> = FACTS.iter().filter_map(|name| said.remove_entry(*name)).collect();
        if let Some(kind) = parse::special_build(&version) {
            return Err(self
                .programs
                .failure(format!("the server is a build for {kind}"))
                .detail("version", version));
        }
        if !said.is_empty() {
            let names: Vec<&str> = said.keys().map(String::as_str).collect();
            return Err(self
                .programs
                .failure("the server is a build for debugging")
                .detail("variables", names.join(", ")));
        }
        if !parse::is_version(&version, &self.test.expect.version) {
            return self
                .programs
                .expect("the server is of another version", &self.test.expect.version, &version);
        }
        let base = PathBuf::from(facts.get("basedir").map_or("", String::as_str));
        let base = fs::canonicalize(&base).unwrap_or(base);
        self.programs.expect(
            "the server looks for its files in another place",
            &self.test.prefix.display().to_string(),
            &base.display().to_string(),
        )?;
        smoke.server = facts;
        smoke.did.push(format!("the server says it is {version}"));
        Ok(())
    }

    fn rows(&self, smoke: &mut Smoke) -> Result<()> {
        let engine = self.test.expect.engine.as_str();
        let ask = format!("select engine, support from information_schema.engines where engine = '{engine}'");
        let text = self.mysql("the server does not name its engines", &[&ask])?;
        let support = parse::pairs(&text).into_values().next().unwrap_or_default();
        if !["YES", "DEFAULT"].contains(&support.as_str()) {
            let said = if support.is_empty() { "not known" } else { &support };
            let headline = format!("the server has no engine `{engine}`");
            return Err(self.programs.failure(headline).detail("support", said));
        }
        // A binary collation, which every engine can index.
        let v = "v varchar(40) character set latin1 collate latin1_bin not null";
        let mut statements = vec![
            "create database bm_smoke".to_owned(),
            "use bm_smoke".to_owned(),
            format!("create table kept (id int not null primary key, {v}, n int not null, key (v)) engine = {engine}"),
            format!("create table made (id int not null auto_increment primary key, {v}) engine = {engine}"),
            "insert into kept values (1, 'row 1', 0)".to_owned(),
        ];
        statements.extend(
            (0..DOUBLINGS)
                .map(|i| 1_u64 << i)
                .map(|half| format!("insert into kept select id + {half}, concat('row ', id + {half}), 0 from kept")),
        );
        let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
        let begun = Instant::now();
        self.mysql("cannot write rows", &statements)?;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let rate = ROWS as f64 / begun.elapsed().as_secs_f64();
        let text = self.mysql(
            "cannot read the rows back",
            &[
                "select table_name, engine from information_schema.tables where table_schema = 'bm_smoke'",
                "set session group_concat_max_len = 1000000",
                "select count(*), sum(id), sha2(group_concat(v order by id separator ','), 256) from bm_smoke.kept",
            ],
        )?;
        let mut engines = parse::pairs(&text);
        let kept = engines.remove("kept").unwrap_or_default();
        let made = engines.remove("made").unwrap_or_default();
        for actual in [kept.as_str(), made.as_str()] {
            if !actual.eq_ignore_ascii_case(engine) {
                return self
                    .programs
                    .expect("a table is not of the engine asked for", engine, actual);
            }
        }
        self.programs.expect(
            "the rows read back are not those written",
            &rows_written(),
            text.lines().last().unwrap_or(""),
        )?;
        smoke.rows = ROWS;
        smoke.did.push(format!(
            "wrote {ROWS} rows into {kept} and read the same back ({rate:.0} rows/s written)"
        ));
        smoke.server.insert("engine".into(), kept);
        Ok(())
    }

    /// Every library must be the prefix's own, of a private dependency, or the system's: of the server and of the client.
    fn libraries(&self, server: &Server, smoke: &mut Smoke) -> Result<()> {
        let server = own::maps(&self.test, server.pid())?;
        let server = own::libraries(&self.test, &self.programs, "the server", &server)?;
        // Newer clients want to be told that commands of their own are welcome.
        let commands = ["--loose-commands=ON", "--loose-system-command=ON"];
        let look = ["--batch", "-e", r"\! cat /proc/$PPID/maps"];
        let args = [&self.place()[..], &commands, &look].concat();
        let client = self
            .programs
            .call("cannot see what mysql has mapped", "bin/mysql", &args)?;
        own::libraries(&self.test, &self.programs, "mysql", &client)?;
        smoke.mapped = own::shown(&server, &self.test.prefix.join(SERVER));
        smoke
            .did
            .push("every mapped library is the prefix's own or the system's".into());
        Ok(())
    }

    fn load(&self, smoke: &mut Smoke) -> Result<()> {
        let first = self.slap(FIRST_ROUNDS)?;
        let rounds = rounds_for(first.rate(), self.test.expect.load);
        let load = self.slap(rounds)?;
        let text = self.mysql(
            "cannot see what the load did",
            &[
                "select 'rows', count(*) from bm_smoke.made",
                "select 'updates', sum(n) from bm_smoke.kept",
                "check table bm_smoke.kept, bm_smoke.made",
            ],
        )?;
        let done = parse::pairs(&text);
        let wanted = (FIRST_ROUNDS + rounds) * CLIENTS;
        for what in ["rows", "updates"] {
            let actual = done.get(what).map_or("", String::as_str);
            self.programs
                .expect(&format!("the load lost {what}"), &wanted.to_string(), actual)?;
        }
        if let Some(bad) = parse::bad_tables(&text, 2) {
            return Err(self
                .programs
                .failure("a table is damaged after the load")
                .detail("said", bad));
        }
        smoke.tps = load.rate();
        if smoke.tps < SLOW {
            let text = format!("slow: {:.1} statements per second in the short load", smoke.tps);
            smoke.warnings.push(text);
        }
        smoke.did.push(format!(
            "mysqlslap: {} statements of {CLIENTS} clients in {:.1} s, all of them counted after it",
            load.statements(),
            load.seconds
        ));
        smoke.did.push("check table".into());
        Ok(())
    }

    /// Lets mysqlslap do this many rounds of the load.
    fn slap(&self, rounds: u64) -> Result<Load> {
        let query = format!("--query={}", LOAD.join(";"));
        let clients = format!("--concurrency={CLIENTS}");
        let number = format!("--number-of-queries={}", rounds * ROUND);
        let words = ["--create-schema=bm_smoke", "--delimiter=;", "--iterations=1", "--csv"];
        let args = [&self.place()[..], &words, &[&clients, &number, &query]].concat();
        let text = self.programs.call("the load failed", "bin/mysqlslap", &args)?;
        let load = parse::load(&text).map_err(|why| {
            self.programs
                .failure("cannot read the result of the load")
                .detail("why", why)
        })?;
        self.programs.expect(
            "the load was not the one asked for",
            &format!("{} statements", rounds * ROUND),
            &format!("{} statements", load.statements()),
        )?;
        Ok(load)
    }

    fn stop(&self, server: Server) -> Result<()> {
        let bound = self.test.terms.stop;
        // It waits for the server's end by itself, in whole seconds and for an hour unless told.
        let wait = format!("--shutdown-timeout={}", bound.as_secs_f64().ceil().max(1.0));
        let args = [&self.place()[..], &[&wait, "shutdown"]].concat();
        server.stop_by(&self.programs, "bin/mysqladmin", &args, bound)
    }
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// Rounds that take about as long as the load should, at `rate` statements per second.
fn rounds_for(rate: f64, load: Duration) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is brought into a small range"
    )]
    let rounds = (rate * load.as_secs_f64() / ROUND as f64) as u64;
    rounds.clamp(FIRST_ROUNDS / 5, MOST_ROUNDS)
}

/// Count, sum and checksum of the rows written, as mysql shows them.
fn rows_written() -> String {
    let text = (1..=ROWS).map(|i| format!("row {i}")).collect::<Vec<_>>().join(",");
    let hash = Sha256::digest(text.as_bytes());
    let mut line = format!("{ROWS}\t{}\t", ROWS * (ROWS + 1) / 2);
    for byte in hash {
        write!(line, "{byte:02x}").expect("writing to a String does not fail");
    }
    line
}
