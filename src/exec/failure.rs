//! Turning the end of a step into an error that teaches: first real error, log, kept tree, the
//! command to go on, and the remedy when the symptom is known.

use std::path::Path;

use fs_err as fs;

use crate::error::{Error, Exit};
use crate::model::name::BuildName;
use crate::model::recipe::Hint;
use crate::plan::StepName;
use crate::process::{Ended, Outcome};
use crate::store::disk;

/// Lines of the log's end that an error shows.
const TAIL: usize = 20;
/// Free bytes below which a step that failed without a word is taken to have failed for the lack of more.
const BRIM: u64 = 1 << 20;
/// Bytes of a log that are looked at from its end; make's own complaint is always there.
const WINDOW: u64 = 4 << 20;

/// The error of a step whose command did not succeed.
pub fn of_step(
    name: &BuildName,
    step: StepName,
    program: &str,
    outcome: &Outcome,
    log: &Path,
    hints: &[Hint],
) -> Error {
    let how = match &outcome.ended {
        Ended::Exited(code) => format!("`{program}` exited with status {code}"),
        Ended::Signaled(signal) => format!("`{program}` was killed by signal {signal}"),
        Ended::Limit(which) => format!("`{program}` was stopped: {which}"),
        Ended::Interrupted => {
            return Error::new(
                Exit::Interrupted,
                format!("build `{name}` was interrupted in step `{}`", step.as_str()),
            );
        }
        Ended::NotStarted(why) => {
            return Error::new(
                Exit::Host,
                format!(
                    "build `{name}`: `{program}` cannot be started in step `{}`",
                    step.as_str()
                ),
            )
            .caused_by(why)
            .hint(format!("`bm doctor {name}` says what this host lacks"));
        }
    };
    let text = tail_of(log);
    // A disk that is full to the brim takes not even the message that says so.
    let brimful = || first_error(&text).is_none() && disk::free_bytes(log).is_ok_and(|free| free < BRIM);
    let exit = if disk_full(&text) || brimful() {
        Exit::Host
    } else {
        Exit::Build
    };
    let mut error = Error::new(
        exit,
        format!("build `{name}` failed in step `{}`: {how}", step.as_str()),
    );
    if let Some(first) = first_error(&text) {
        error = error.detail("first error", first);
    }
    error = error.detail("log", log.display());
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(TAIL)..];
    if !tail.is_empty() {
        error = error.detail("last lines", tail.join("\n"));
    }
    let remedy = hints
        .iter()
        .find(|h| text.contains(&h.symptom))
        .map(|h| h.remedy.clone());
    match remedy {
        Some(remedy) => error.hint(remedy),
        None if exit == Exit::Host => error.hint("free some disk space, or choose another root with `--root`"),
        None => error.hint(format!(
            "to go on in the kept tree: bm build {name} --from {}",
            step.as_str()
        )),
    }
}

/// Whether a step failed since something below it was killed by a signal that bm did not send, as the system
/// does when memory runs out: the compiler driver says so, or make does.
pub fn killed_for_memory(outcome: &Outcome, log: &Path) -> bool {
    match outcome.ended {
        Ended::Signaled(signal) => signal == libc::SIGKILL,
        Ended::Exited(_) => said_killed(&tail_of(log)),
        _ => false,
    }
}

fn said_killed(log: &str) -> bool {
    let gcc = log.contains("Killed signal terminated program");
    // clang's own words, and those of a shell or of make for a child of theirs.
    let clang = log.contains("unable to execute command: Killed");
    let make = |l: &str| l.starts_with("make") && l.contains("*** ") && l.ends_with(" Killed");
    gcc || clang || log.lines().any(make)
}

fn disk_full(log: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"]
        .iter()
        .any(|s| log.contains(s))
}

/// The end of a log, as text.
pub fn tail_of(log: &Path) -> String {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(log)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(WINDOW)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read()
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default()
}

/// The first line that is an error and not a consequence of one.
fn first_error(log: &str) -> Option<&str> {
    const SIGNS: [&str; 8] = [
        ": error:",
        ": fatal error:",
        "configure: error:",
        "undefined reference to",
        "ld returned",
        "lto1: fatal",
        "internal compiler error",
        "No space left on device",
    ];
    log.lines().find(|l| SIGNS.iter().any(|s| l.contains(s))).or_else(|| {
        // make's own complaint names the target, which is better than nothing.
        log.lines().find(|l| l.contains("*** ") && l.starts_with("make"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn outcome(ended: Ended) -> Outcome {
        Outcome {
            ended,
            wall: 1.0,
            cpu: 1.0,
            max_rss_kib: 1,
            strays: vec![],
        }
    }

    fn failed(log: &str, ended: Ended) -> Error {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("compile.log");
        fs::write(&path, log).unwrap();
        let hints = [Hint {
            symptom: "plugin needed".into(),
            remedy: "use gcc-ar".into(),
        }];
        of_step(
            &"pg_x".parse().unwrap(),
            StepName::Compile,
            "make",
            &outcome(ended),
            &path,
            &hints,
        )
    }

    #[test]
    fn the_first_real_error_is_found_above_the_tail() {
        let mut log = "gcc -c a.c\na.c:3:1: error: unknown type name\n".to_owned();
        log.push_str(&"x\n".repeat(60));
        log.push_str("make: *** [a.o] Error 1\n");
        let error = failed(&log, Ended::Exited(2));
        assert_eq!(error.exit(), Exit::Build);
        assert!(error.headline().contains("`make` exited with status 2"));
        assert_eq!(
            error.details()[0],
            ("first error".into(), "a.c:3:1: error: unknown type name".into())
        );
        assert_eq!(
            error.hint_text(),
            Some("to go on in the kept tree: bm build pg_x --from compile")
        );
    }

    #[test]
    fn known_symptoms_bring_their_remedy_and_a_full_disk_is_the_hosts() {
        assert_eq!(
            failed("ar: plugin needed to handle lto object", Ended::Exited(1)).hint_text(),
            Some("use gcc-ar")
        );
        let full = failed("cc1: error: No space left on device", Ended::Exited(1));
        assert_eq!(full.exit(), Exit::Host);
        assert_eq!(failed("", Ended::Interrupted).exit(), Exit::Interrupted);
    }
}
