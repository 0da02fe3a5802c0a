//! What the live view knows of a run, and the lines it comes to: a pure function of what happened, of the time and
//! of the size of the terminal.
//!
//! Owns what is shown where, and what is left out when there is no room. Does not paint, read a log or a clock.

use std::path::PathBuf;

use anstyle::{AnsiColor, Style};

use crate::model::event::{BuildResult, Event, What};
use crate::model::name::BuildName;
use crate::model::step::StepName;
use crate::text;

use super::terminal::{columns, cut};

const STEP: Style = AnsiColor::Cyan.on_default().bold();
const BAR: Style = AnsiColor::Cyan.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const ALERT: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// Free disk below which it is shown.
const SHORT_OF_DISK: u64 = 10_000_000_000;
/// Rows that stay for what scrolls above.
const ROWS_ABOVE: usize = 2;
/// Lines of a log that is shown.
const LOG_LINES: usize = 12;

/// A build at work.
#[derive(Debug, Clone)]
pub(super) struct Active {
    pub(super) build: BuildName,
    /// `None` while it waits for something before its first step.
    pub(super) step: Option<StepName>,
    /// When the step, or the waiting, began; seconds since the run began.
    since: f64,
    estimate: Option<f64>,
    pub(super) log: PathBuf,
    /// The last of its logs that has anything in it: some steps write none.
    pub(super) written: PathBuf,
    /// For what it waits, if it does.
    waiting: Option<String>,
    /// Last line of its log, printable.
    pub(super) last_line: String,
}

/// How the machine is used.
#[derive(Debug, Clone, Copy)]
struct Load {
    at: f64,
    tokens: usize,
    jobs: usize,
    memory_kib: u64,
    free_disk: u64,
    left: Option<f64>,
}

/// A run so far.
#[derive(Debug, Default)]
pub(super) struct Board {
    total: usize,
    done: usize,
    failed: usize,
    /// A build at work keeps its place, so that lines do not jump; the next one takes a place that has become free.
    places: Vec<Option<Active>>,
    /// Builds that wait for more than their turn.
    waiting: Vec<Active>,
    load: Option<Load>,
}

/// What the user has asked to see, by keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// Whether keys are read at all.
    pub(super) keys: bool,
    pub(super) help: bool,
    /// The build whose log is shown, and the log's last lines, printable.
    pub(super) log: Option<(BuildName, Vec<String>)>,
    /// A stop was asked for.
    pub(super) stopping: bool,
}

impl Board {
    pub(super) fn on(&mut self, event: &Event) {
        match &event.what {
            What::RunBegun { builds, .. } => self.total = builds.len(),
            What::StepBegun {
                build,
                step,
                log,
                estimate,
            } => {
                self.waiting.retain(|a| a.build != *build);
                let active = self.place(build);
                active.step = Some(*step);
                active.since = event.at;
                active.estimate = *estimate;
                active.log.clone_from(log);
                if active.written.as_os_str().is_empty() {
                    active.written.clone_from(log);
                }
                active.last_line.clear();
            }
            What::Waiting { build, reason } => {
                self.leave(build);
                match self.waiting.iter_mut().find(|a| a.build == *build) {
                    Some(known) => known.waiting = Some(reason.clone()),
                    None => self.waiting.push(Active {
                        since: event.at,
                        waiting: Some(reason.clone()),
                        ..Active::new(build)
                    }),
                }
            }
            // A build that has its source takes its turn with all others.
            What::StepEnded {
                build,
                step: StepName::Fetch,
                ..
            } => self.leave(build),
            What::BuildEnded { build, result, .. } => {
                self.done += 1;
                self.failed += usize::from(*result == BuildResult::Failed);
                self.leave(build);
                self.waiting.retain(|a| a.build != *build);
            }
            What::Load {
                tokens,
                jobs,
                memory_kib,
                free_disk,
                left,
            } => {
                self.load = Some(Load {
                    at: event.at,
                    tokens: *tokens,
                    jobs: *jobs,
                    memory_kib: *memory_kib,
                    free_disk: *free_disk,
                    left: *left,
                });
            }
            What::StepEnded { .. } | What::RunEnded { .. } => {}
        }
    }

    fn leave(&mut self, build: &BuildName) {
        for place in &mut self.places {
            place.take_if(|a| a.build == *build);
        }
    }

    fn place(&mut self, build: &BuildName) -> &mut Active {
        let known = |p: &Option<Active>| p.as_ref().is_some_and(|a| a.build == *build);
        let at = self.places.iter().position(known);
        let at = at.unwrap_or_else(|| {
            let free = self.places.iter().position(Option::is_none);
            let free = free.unwrap_or_else(|| {
                self.places.push(None);
                self.places.len() - 1
            });
            self.places[free] = Some(Active::new(build));
            free
        });
        self.places[at].as_mut().expect("it was put there just now")
    }

    /// Builds at work, each with the number of its place, from 1; then those that wait, without one.
    pub(super) fn active(&self) -> impl Iterator<Item = (usize, &Active)> {
        let numbered = self.places.iter().enumerate();
        let at_work = numbered.filter_map(|(i, place)| Some((i + 1, place.as_ref()?)));
        at_work.chain(self.waiting.iter().map(|a| (0, a)))
    }

    pub(super) fn active_mut(&mut self) -> impl Iterator<Item = &mut Active> {
        self.places.iter_mut().flatten()
    }

    /// The lines at the foot of a terminal of `width` columns and `height` rows, `now` seconds after the run began.
    pub(super) fn frame(&self, asked: &Asked, now: f64, width: usize, height: usize) -> Vec<String> {
        // The last column stays free: some terminals wrap already when it is filled.
        let width = width.saturating_sub(1).max(1);
        let room = height.saturating_sub(ROWS_ABOVE).max(1);
        let mut below = vec![self.overall(asked, now, width)];
        if asked.help && room > 2 {
            below.push(help());
        }
        let active: Vec<(usize, &Active)> = self.active().collect();
        let mut room_for_builds = room - below.len();
        let mut lines = Vec::new();
        if let Some((build, tail)) = &asked.log
            && let Some((_, of)) = active.iter().find(|(_, a)| a.build == *build)
        {
            // The log is what was asked for: builds get what it leaves, but for its own line at the least.
            let wanted = room_for_builds.saturating_sub(active.len() + 2);
            let rows = wanted
                .clamp(room_for_builds.min(5), LOG_LINES)
                .min(room_for_builds.saturating_sub(3));
            if rows > 0 {
                lines = log_lines(of, tail, rows, width);
                room_for_builds -= lines.len();
            }
        }
        let shown = if active.len() <= room_for_builds {
            active.len()
        } else {
            room_for_builds.saturating_sub(1)
        };
        lines.extend(build_lines(&active[..shown], asked, now, width));
        let hidden = active.len() - shown;
        if hidden > 0 && room_for_builds > 0 {
            lines.push(format!("{DIM}{:>12} +{hidden} more{DIM:#}", ""));
        }
        lines.extend(below);
        lines.into_iter().map(|line| cut(&line, width)).collect()
    }

    fn overall(&self, asked: &Asked, now: f64, width: usize) -> String {
        let label = if asked.stopping {
            format!("{ALERT}{:>12}{ALERT:#}", "stopping")
        } else {
            format!("{BAR}{:>12}{BAR:#}", "building")
        };
        // Most important first: what does not fit any more is cut off at the end.
        let mut parts = vec![format!("{} of {}", self.done, self.total)];
        if self.failed > 0 {
            parts.push(format!("{BAD}{} failed{BAD:#}", self.failed));
        }
        if asked.stopping {
            parts.push("children are being ended; Ctrl-C again kills them".to_owned());
        }
        // What has run out was wrong, or is over in a moment.
        let left = self.load.and_then(|l| Some(l.left? - (now - l.at)));
        let left = left.filter(|left| *left >= 1.0);
        parts.push(match left {
            Some(left) => format!("{}, about {} left", clock(now), clock(left)),
            None => clock(now),
        });
        if let Some(load) = self.load {
            parts.push(format!("jobs {}/{}", load.tokens, load.jobs));
            if load.free_disk < SHORT_OF_DISK {
                parts.push(format!("{ALERT}{} of disk left{ALERT:#}", text::size(load.free_disk)));
            }
            parts.push(text::size(load.memory_kib * 1024));
        }
        if asked.keys && !asked.help && !asked.stopping {
            parts.push(format!("{DIM}? for keys{DIM:#}"));
        }
        let words = parts.join("  ");
        let bar = width.saturating_sub(columns(&words) + 16).min(30);
        if bar < 6 {
            return format!("{label} {words}");
        }
        let share = match left {
            Some(left) => now / (now + left).max(0.001),
            None => self.done as f64 / self.total.max(1) as f64,
        };
        format!("{label} {} {words}", drawn(share, bar))
    }
}

/// `[====>     ]`, `inner` columns between the brackets.
fn drawn(share: f64, inner: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * inner as f64).floor() as usize).min(inner);
    let head = if filled == inner { "" } else { ">" };
    format!("[{:inner$}]", "=".repeat(filled) + head)
}

fn help() -> String {
    let keys = [
        ("q", "stop, as Ctrl-C"),
        ("1-9", "its log"),
        ("l", "next log"),
        ("Esc", "no log"),
        ("?", "no help"),
    ];
    let words: Vec<String> = keys
        .iter()
        .map(|(key, does)| format!("{BAR}{key}{BAR:#} {does}"))
        .collect();
    format!("{:>12} {}", "keys", words.join("  "))
}

/// One line per build: number, step, name, time, and the last line of the log in what is left of the width.
fn build_lines(active: &[(usize, &Active)], asked: &Asked, now: f64, width: usize) -> Vec<String> {
    let times: Vec<String> = active.iter().map(|(_, a)| a.time(now)).collect();
    let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let name_width = longest(&mut active.iter().map(|(_, a)| a.build.as_str().len())).min(width / 2);
    let time_width = longest(&mut times.iter().map(String::len));
    let line = |((number, active), time): (&(usize, &Active), &String)| {
        let number = match number {
            1..10 if asked.keys => number.to_string(),
            _ => String::new(),
        };
        let (style, step) = match (&active.waiting, active.step) {
            (None, Some(step)) => (STEP, step.as_str()),
            _ => (ALERT, "waiting"),
        };
        let (name, shown) = (active.build.as_str(), active.shows(asked));
        let name = format!("{:name_width$}", cut(name, name_width));
        let name = if shown { format!("{BAR}{name}{BAR:#}") } else { name };
        let said = active
            .waiting
            .as_ref()
            .map(|w| format!("for {}", crate::text::visible(w, &[])));
        let room = width.saturating_sub(13 + name_width + 2 + time_width + 2);
        let said = middle(&said.unwrap_or_else(|| active.last_line.clone()), room);
        format!("{DIM}{number:2}{DIM:#}{style}{step:>10}{style:#} {name}  {time:time_width$}  {DIM}{said}{DIM:#}")
    };
    active.iter().zip(&times).map(line).collect()
}

/// A text without its middle, where it is too long: a compiler's call begins with the compiler and ends with the file.
fn middle(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let head = cut(text, width / 3);
    let mut end = text.len();
    let mut room = width.saturating_sub(columns(&head) + 3);
    for (at, c) in text.char_indices().rev() {
        let wide = columns(c.encode_utf8(&mut [0; 4]));
        if wide > room {
            break;
        }
        (room, end) = (room - wide, at);
    }
    format!("{head} … {}", &text[end..])
}

fn log_lines(of: &Active, tail: &[String], rows: usize, width: usize) -> Vec<String> {
    let step = of.step.map_or("", StepName::as_str);
    let title = format!(
        "── {} {step}  {} ",
        of.build,
        crate::text::visible(&of.written.to_string_lossy(), &[])
    );
    let rule = "─".repeat(width.saturating_sub(columns(&title)));
    let mut lines = vec![format!("{DIM}{title}{rule}{DIM:#}")];
    lines.extend(tail[tail.len().saturating_sub(rows)..].iter().cloned());
    // As many lines whatever the log holds, so that nothing jumps.
    lines.resize(rows + 1, String::new());
    lines.push(format!("{DIM}{}{DIM:#}", "─".repeat(width)));
    lines
}

impl Active {
    fn new(build: &BuildName) -> Self {
        Active {
            build: build.clone(),
            step: None,
            since: 0.0,
            estimate: None,
            log: PathBuf::new(),
            written: PathBuf::new(),
            waiting: None,
            last_line: String::new(),
        }
    }

    fn shows(&self, asked: &Asked) -> bool {
        asked.log.as_ref().is_some_and(|(build, _)| *build == self.build)
    }

    fn time(&self, now: f64) -> String {
        let spent = clock(now - self.since);
        match self.estimate {
            Some(estimate) => format!("{spent} of ~{}", clock(estimate)),
            _ => spent,
        }
    }
}

/// `0:07`, `12:34`, `1:02:03`: as wide a second later, unlike `7 s`.
fn clock(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(name: &str) -> BuildName {
        name.parse().unwrap()
    }

    fn board(total: usize, events: &[(f64, What)]) -> Board {
        let mut board = Board::default();
        board.on(&Event {
            at: 0.0,
            what: What::RunBegun {
                builds: (0..total).map(|i| name(&format!("b{i}"))).collect(),
                jobs: 4,
                parallel: 4,
                began: String::new(),
            },
        });
        for (at, what) in events {
            board.on(&Event {
                at: *at,
                what: what.clone(),
            });
        }
        board
    }

    fn begun(build: &str, step: StepName, estimate: Option<f64>) -> What {
        What::StepBegun {
            build: name(build),
            step,
            log: PathBuf::from(format!("/logs/{build}/{}.log", step.as_str())),
            estimate,
        }
    }

    fn ended(build: &str, result: BuildResult) -> What {
        What::BuildEnded {
            build: name(build),
            result,
            wall: 1.0,
            reason: None,
            log: None,
        }
    }

    fn waiting(build: &str) -> What {
        What::Waiting {
            build: name(build),
            reason: "process 7 on there (`bm build`)".into(),
        }
    }

    fn fetched(build: &str) -> What {
        What::StepEnded {
            build: name(build),
            step: StepName::Fetch,
            ok: true,
            wall: 1.0,
            cpu: 0.0,
            max_rss_kib: 0,
            cache: None,
        }
    }

    /// What a terminal shows of it.
    fn plain(lines: &[String]) -> Vec<String> {
        let plain = |l: &String| anstream::adapter::strip_str(l).to_string().trim_end().to_owned();
        lines.iter().map(plain).collect()
    }

    #[test]
    fn a_line_for_each_build_and_one_for_the_run() {
        let mut board = board(
            7,
            &[
                (1.0, begun("pg160_o3_native_lto", StepName::Compile, Some(754.0))),
                (2.0, begun("pg154_def", StepName::Fetch, None)),
                (2.5, ended("pg154_def", BuildResult::Failed)),
                (3.0, ended("b1", BuildResult::Fresh)),
                // Got its source; its turn comes later.
                (4.0, begun("pg157_def", StepName::Fetch, None)),
                (5.0, fetched("pg157_def")),
                (60.0, begun("pg155_def", StepName::Configure, Some(20.0))),
                // Has waited before.
                (60.5, waiting("pg155_o2")),
                (61.0, waiting("pg156_o3")),
                (62.0, begun("pg155_o2", StepName::Unpack, None)),
                (70.0, waiting("pg156_o3")),
                (
                    100.0,
                    What::Load {
                        tokens: 3,
                        jobs: 4,
                        memory_kib: 2_000_000,
                        free_disk: 9_100_000_000,
                        left: Some(300.0),
                    },
                ),
            ],
        );
        board.active_mut().next().unwrap().last_line = "gcc -O3 -c nodeHash.c".into();
        let asked = Asked {
            keys: true,
            ..Asked::default()
        };
        let frame = plain(&board.frame(&asked, 101.0, 121, 24));
        assert_eq!(
            frame,
            [
                "1    compile pg160_o3_native_lto  1:40 of ~12:34  gcc -O3 -c nodeHash.c",
                // The place of the build that failed.
                "2  configure pg155_def            0:41 of ~0:20",
                "3     unpack pg155_o2             0:39",
                "     waiting pg156_o3             0:40            for process 7 on there (`bm build`)",
                "    building [===>          ] 2 of 7  1 failed  1:41, about 4:59 left  jobs 3/4  9.1 GB of disk left  2.0 GB  ? for keys",
            ]
        );
        // Nothing is wider than the terminal, and its last column stays free.
        for width in [1, 7, 20, 40, 80] {
            let frame = board.frame(&asked, 101.0, width, 24);
            assert!(frame.iter().all(|l| columns(l) < width.max(2)), "{width}: {frame:?}");
        }
        let narrow = plain(&board.frame(&Asked::default(), 101.0, 40, 24));
        assert_eq!(narrow[0], "     compile pg160_o3_native_lto  1:40");
        assert_eq!(narrow[4], "    building 2 of 7  1 failed  1:41, ab");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let events: Vec<(f64, What)> = (0..9)
            .map(|i| (1.0, begun(&format!("b{i}"), StepName::Compile, None)))
            .collect();
        let board = board(9, &events);
        let rows = |height| plain(&board.frame(&Asked::default(), 2.0, 80, height));
        assert_eq!(rows(12).len(), 10);
        let eight = rows(8);
        assert_eq!(eight.len(), 6);
        assert_eq!(eight[3], "     compile b3  0:01");
        assert_eq!(eight[4], "             +5 more");
        assert!(eight[5].trim_start().starts_with("building"));
        for height in [0, 1, 2, 3] {
            assert_eq!(rows(height).len(), 1, "the run's own line is always there");
        }
    }

    #[test]
    fn a_log_takes_its_room_from_the_builds() {
        let events: Vec<(f64, What)> = (0..9)
            .map(|i| (1.0, begun(&format!("b{i}"), StepName::Compile, None)))
            .collect();
        let board = board(9, &events);
        let lines: Vec<String> = (0..50).map(|i| format!("line {i}")).collect();
        let asked = Asked {
            log: Some((name("b2"), lines)),
            help: true,
            ..Asked::default()
        };
        let frame = plain(&board.frame(&asked, 2.0, 60, 16));
        assert_eq!(frame.len(), 14);
        assert!(
            frame[0].starts_with("── b2 compile  /logs/b2/compile.log ──"),
            "{frame:?}"
        );
        assert_eq!(frame[5], "line 49");
        assert_eq!(frame[6], "─".repeat(59));
        assert!(frame[11].contains("+5 more"), "{frame:?}");
        assert!(frame[13].contains("q stop"), "{frame:?}");
        // With rows enough both fit.
        assert_eq!(plain(&board.frame(&asked, 2.0, 60, 60)).len(), 14 + 9 + 2);
        // A log of a build that is through is gone.
        let gone = Asked {
            log: Some((name("other"), vec![])),
            ..Asked::default()
        };
        assert_eq!(board.frame(&gone, 2.0, 60, 60).len(), 10);
        for height in 0..20 {
            let frame = board.frame(&asked, 2.0, 60, height);
            assert!(
                frame.len() <= height.saturating_sub(ROWS_ABOVE).max(1),
                "{height}: {}",
                frame.len()
            );
        }
    }

    #[test]
    fn times_keep_their_width() {
        assert_eq!(
            [0.0, 59.9, 754.0, 3723.0].map(clock),
            ["0:00", "0:59", "12:34", "1:02:03"]
        );
        assert_eq!(drawn(0.5, 6), "[===>  ]");
        assert_eq!(drawn(1.0, 3), "[===]");
    }

    #[test]
    fn long_lines_keep_their_beginning_and_their_end() {
        assert_eq!(middle("gcc -O3 -c x.c", 14), "gcc -O3 -c x.c");
        assert_eq!(
            middle("gcc -O3 -g -c -o nodeHash.o nodeHash.c", 18),
            "gcc -O … odeHash.c"
        );
        assert_eq!(middle("表表表表", 7), "表 … 表");
        assert_eq!(middle("abc", 0), " … ");
    }
}
