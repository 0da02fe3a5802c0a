//! The page of timings: builds and their steps on a time axis, jobs and memory under it, tables of what each cost.
//!
//! Owns the page, one file that needs no other. It is told events as every view, and made from them at the end,
//! also of a run that failed or was interrupted. Does not know where it is written, or where logs are by then.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::model::event::{BuildResult, Event, What};
use crate::model::name::BuildName;
use crate::model::step::StepName;
use crate::text;

use super::View;

const CSS: &str = include_str!("timings/page.css");
const JS: &str = include_str!("timings/page.js");

/// Most points of a curve; a screen has not many more columns.
const MOST_POINTS: usize = 1200;
/// Up to so many builds, their steps are unfolded from the start.
const FEW: usize = 4;

/// Keeps the events of a run.
#[derive(Debug, Default)]
pub struct Timings(Mutex<Vec<Event>>);

/// What the page says besides the events.
pub struct Surroundings<'a> {
    /// Processors of the host.
    pub cores: usize,
    /// The command line, fit to be shown to others.
    pub command: String,
    /// Where the log of a step is now, by the path it was written to; `None` if it wrote none.
    pub log: &'a dyn Fn(&BuildName, StepName, &Path) -> Option<PathBuf>,
}

impl View for Timings {
    fn on(&self, event: &Event) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event.clone());
    }
}

impl Timings {
    /// When the run began, RFC 3339; `None` if it never did.
    pub fn began(&self) -> Option<String> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().find_map(|e| match &e.what {
            What::RunBegun { began, .. } => Some(began.clone()),
            _ => None,
        })
    }

    /// The page, as HTML.
    pub fn page(&self, around: &Surroundings<'_>) -> String {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Run::of(&events).page(around)
    }
}

/// What the events come to.
#[derive(Debug, Default)]
struct Run {
    began: String,
    jobs: usize,
    parallel: usize,
    /// Length of the time axis, seconds.
    wall: f64,
    /// CPU seconds of bm itself, of a run that got to its end.
    own_cpu: Option<f64>,
    builds: Vec<Build>,
    /// Time and jobs in use.
    tokens: Vec<(f64, f64)>,
    /// Time and resident memory, bytes.
    memory: Vec<(f64, f64)>,
}

#[derive(Debug)]
struct Build {
    name: BuildName,
    steps: Vec<Step>,
    waits: Vec<(f64, String)>,
    /// How and why; `None` if it never ended.
    ended: Option<(BuildResult, String)>,
}

#[derive(Debug)]
struct Step {
    step: StepName,
    begun: f64,
    log: PathBuf,
    /// `None` if it was still at work at the end.
    ended: Option<Cost>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    at: f64,
    ok: bool,
    wall: f64,
    cpu: f64,
    max_rss_kib: u64,
}

impl Run {
    fn of(events: &[Event]) -> Run {
        let mut run = Run::default();
        for Event { at, what } in events {
            run.wall = run.wall.max(*at);
            match what {
                What::RunBegun {
                    builds,
                    jobs,
                    parallel,
                    began,
                } => {
                    (run.jobs, run.parallel) = (*jobs, *parallel);
                    run.began.clone_from(began);
                    for name in builds {
                        run.build(name);
                    }
                }
                What::StepBegun { build, step, log, .. } => run.build(build).steps.push(Step {
                    step: *step,
                    begun: *at,
                    log: log.clone(),
                    ended: None,
                }),
                What::StepEnded {
                    build,
                    step,
                    ok,
                    wall,
                    cpu,
                    max_rss_kib,
                    ..
                } => {
                    let mut steps = run.build(build).steps.iter_mut().rev();
                    if let Some(open) = steps.find(|s| s.step == *step && s.ended.is_none()) {
                        open.ended = Some(Cost {
                            at: *at,
                            ok: *ok,
                            wall: *wall,
                            cpu: *cpu,
                            max_rss_kib: *max_rss_kib,
                        });
                    }
                }
                What::Waiting { build, reason } => run.build(build).waits.push((*at, reason.clone())),
                What::BuildEnded {
                    build, result, reason, ..
                } => run.build(build).ended = Some((*result, reason.clone().unwrap_or_default())),
                What::Load { tokens, memory_kib, .. } => {
                    run.tokens.push((*at, *tokens as f64));
                    run.memory.push((*at, *memory_kib as f64 * 1024.0));
                }
                What::RunEnded { own_cpu, .. } => run.own_cpu = Some(*own_cpu),
            }
        }
        // In the order in which they were taken up; those that never were come last.
        run.builds.sort_by(|a, b| a.begun().total_cmp(&b.begun()));
        run
    }

    fn build(&mut self, name: &BuildName) -> &mut Build {
        let at = self.builds.iter().position(|b| b.name == *name);
        let at = at.unwrap_or_else(|| {
            self.builds.push(Build {
                name: name.clone(),
                steps: vec![],
                waits: vec![],
                ended: None,
            });
            self.builds.len() - 1
        });
        &mut self.builds[at]
    }

    /// Builds that had anything to do.
    fn worked(&self) -> impl Iterator<Item = (usize, &Build)> {
        self.builds.iter().enumerate().filter(|(_, b)| !b.steps.is_empty())
    }

    fn cpu(&self) -> f64 {
        self.builds.iter().map(Build::cpu).sum()
    }

    fn page(&self, around: &Surroundings<'_>) -> String {
        let mut out = String::new();
        let command = esc(&around.command);
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{command}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n\
             <header>\n<h1>bm build timings</h1>\n<p><code>{command}</code></p>\n<p class=\"quiet\">{} · {} at once, {} · bm {}</p>\n\
             </header>\n",
            esc(&self.began),
            text::count(self.parallel, "build"),
            text::count(self.jobs, "job"),
            env!("CARGO_PKG_VERSION"),
        );
        self.summary(&mut out, around.cores);
        self.timeline(&mut out, around);
        self.by_step(&mut out);
        self.by_build(&mut out, around);
        let _ = write!(
            out,
            "<div id=\"tip\" hidden></div>\n<script>\n{JS}</script>\n</body>\n</html>\n"
        );
        out
    }

    fn summary(&self, out: &mut String, cores: usize) {
        let count = |wanted: BuildResult| {
            let ended = self.builds.iter().filter_map(|b| b.ended.as_ref());
            ended.filter(|(result, _)| *result == wanted).count()
        };
        let mut tiles = vec![(seconds(self.wall), "wall time".to_owned(), "")];
        tiles.push((seconds(self.cpu()), "CPU time of all steps".to_owned(), ""));
        for (result, class) in [
            (BuildResult::Built, "good"),
            (BuildResult::Failed, "bad"),
            (BuildResult::Fresh, ""),
            (BuildResult::Kept, ""),
            (BuildResult::Skipped, ""),
        ] {
            if count(result) > 0 || result == BuildResult::Built {
                tiles.push((count(result).to_string(), word(result).to_owned(), class));
            }
        }
        let open = self.builds.iter().filter(|b| b.ended.is_none()).count();
        if open > 0 {
            tiles.push((open.to_string(), "not ended".to_owned(), "bad"));
        }
        let peak = self.memory.iter().fold(0.0, |most: f64, (_, bytes)| most.max(*bytes));
        if peak > 0.0 {
            tiles.push((text::size(peak as u64), "most memory at once".to_owned(), ""));
        }
        // A smaller budget than the host could bear is not to be held against the run.
        let cores = cores.min(self.jobs.max(1)).max(1);
        let least = self.cpu() / cores as f64;
        if least > 0.0 {
            tiles.push((format!("{:.2}", self.wall / least), "times the limit".to_owned(), ""));
        }
        out.push_str("<section class=\"tiles\">\n");
        for (value, label, class) in tiles {
            let _ = writeln!(
                out,
                "<div class=\"tile {class}\"><b>{value}</b><span>{label}</span></div>"
            );
        }
        out.push_str("</section>\n<p class=\"quiet\">");
        if least > 0.0 {
            let _ = write!(
                out,
                "The steps' CPU time over {} comes to {}: the limit, which no order of the work can beat. This run \
                 used {:.0} % of the cores' time.",
                text::count(cores, "core"),
                seconds(least),
                100.0 * least / self.wall.max(least),
            );
        }
        if let Some(own) = self.own_cpu {
            let _ = write!(out, " bm itself took {}", seconds(own));
            if self.cpu() > 0.0 {
                let _ = write!(out, " of CPU time, {:.2} % of the steps'", 100.0 * own / self.cpu());
            }
            out.push('.');
        }
        out.push_str("</p>\n");
    }

    /// A place on the axis, in percent.
    fn x(&self, at: f64) -> f64 {
        100.0 * at / self.wall.max(0.001)
    }

    fn grid(&self, out: &mut String) {
        for (at, _) in ticks(self.wall) {
            let x = self.x(at);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"0\" y2=\"100%\"/>"
            );
        }
    }

    fn timeline(&self, out: &mut String, around: &Surroundings<'_>) {
        let rows: Vec<(usize, &Build)> = self.worked().collect();
        if rows.is_empty() {
            out.push_str("<p>Nothing had to be built.</p>\n");
            return;
        }
        out.push_str("<section>\n<h2>When</h2>\n<p class=\"legend\">");
        for step in StepName::ALL {
            let name = step.as_str();
            let _ = write!(out, "<span><i class=\"s-{name}\"></i>{name}</span>");
        }
        out.push_str("<span><i class=\"waits\"></i>between steps</span><span><i class=\"failed\"></i>failed or stopped</span></p>\n");
        let height = match rows.len() {
            0..=12 => 24,
            13..=40 => 18,
            _ => 14,
        };
        let _ = write!(
            out,
            "<div class=\"time\" id=\"time\" data-wall=\"{:.3}\" style=\"--row: {height}px\">\n<div></div><div class=\"axis\">",
            self.wall
        );
        for (at, label) in ticks(self.wall) {
            let _ = write!(out, "<span style=\"left: {:.3}%\">{label}</span>", self.x(at));
        }
        out.push_str("</div>\n<div class=\"names\">");
        for (id, build) in &rows {
            let name = esc(build.name.as_str());
            let class = build.class();
            let _ = write!(
                out,
                "<a class=\"{class}\" href=\"#build{id}\" title=\"{name}\">{name}</a>"
            );
        }
        let all = height * rows.len();
        let _ = write!(
            out,
            "</div>\n<svg class=\"plot\" width=\"100%\" height=\"{all}\" role=\"img\" aria-label=\"Steps over time\">"
        );
        out.push_str(
            "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect class=\"hatch\" width=\"3\" height=\"6\"/></pattern></defs>",
        );
        self.grid(out);
        for (row, (id, build)) in rows.iter().enumerate() {
            self.bars(out, *id, build, (row * height) as f64, height as f64, around);
        }
        out.push_str("</svg>\n");
        self.curves(out);
        out.push_str("<div></div><p id=\"then\" class=\"quiet\">&nbsp;</p>\n</div>\n</section>\n");
    }

    fn bars(&self, out: &mut String, id: usize, build: &Build, top: f64, height: f64, around: &Surroundings<'_>) {
        let (from, to) = (build.begun(), build.through(self.wall));
        let _ = write!(
            out,
            "<rect class=\"waits\" x=\"{:.3}%\" width=\"{:.3}%\" y=\"{:.1}\" height=\"2\"/>",
            self.x(from),
            self.x(to - from),
            top + height / 2.0 - 1.0
        );
        for step in &build.steps {
            let name = step.step.as_str();
            let end = step.through(self.wall);
            let place = format!(
                "x=\"{:.3}%\" width=\"{:.3}%\" y=\"{:.1}\" height=\"{:.1}\"",
                self.x(step.begun),
                self.x(end - step.begun),
                top + 2.0,
                height - 4.0
            );
            let _ = write!(
                out,
                "<a href=\"#build{id}\"><rect class=\"step s-{name}\" {place}><title>{}</title></rect>",
                esc(&step.told(build, self.wall, around))
            );
            if step.ended.is_none_or(|cost| !cost.ok) {
                let _ = write!(out, "<rect class=\"over\" {place}/>");
            }
            out.push_str("</a>");
        }
    }

    /// Jobs and memory under the same axis.
    fn curves(&self, out: &mut String) {
        let (jobs, label) = if self.tokens.is_empty() {
            (self.steps_at_work(), "steps at work".to_owned())
        } else {
            (self.tokens.clone(), format!("jobs in use, of {}", self.jobs))
        };
        let most = jobs.iter().fold(self.jobs as f64, |most, (_, n)| most.max(*n));
        self.curve(out, "jobs", &label, &format!("{most:.0}"), &jobs, most);
        let peak = self.memory.iter().fold(0.0, |most: f64, (_, bytes)| most.max(*bytes));
        if peak > 0.0 {
            self.curve(
                out,
                "memory",
                "memory of all processes",
                &text::size(peak as u64),
                &self.memory,
                peak,
            );
        }
    }

    fn curve(&self, out: &mut String, id: &str, label: &str, most_label: &str, points: &[(f64, f64)], most: f64) {
        let thin = thinned(points);
        // Each value holds until the next one.
        let (mut path, mut last) = (String::from("M0 100"), 0.0);
        for (at, value) in &thin {
            let (x, y) = (10.0 * self.x(*at), 100.0 - 100.0 * value / most.max(f64::MIN_POSITIVE));
            let _ = write!(path, "H{x:.1}V{y:.1}");
            last = *value;
        }
        let end = if last > 0.0 { "H1000V100Z" } else { "V100Z" };
        let data: Vec<String> = thin.iter().map(|(at, v)| format!("[{at:.1},{v:.0}]")).collect();
        let _ = write!(
            out,
            "<div class=\"what\">{label}<span>{most_label}</span></div>\n<svg class=\"plot curve\" id=\"{id}\" width=\"100%\" \
             height=\"64\" role=\"img\" aria-label=\"{label}\" data-points=\"[{}]\">",
            data.join(",")
        );
        self.grid(out);
        let _ = writeln!(
            out,
            "<svg width=\"100%\" height=\"100%\" viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\"><path d=\"{path}{end}\"/></svg></svg>"
        );
    }

    /// In place of jobs where none were counted.
    fn steps_at_work(&self) -> Vec<(f64, f64)> {
        let steps = self.builds.iter().flat_map(|b| &b.steps);
        let mut changes: Vec<(f64, f64)> = steps
            .flat_map(|s| [(s.begun, 1.0), (s.through(self.wall), -1.0)])
            .collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut now = 0.0;
        let count = |(at, change): (f64, f64)| {
            now += change;
            (at, now)
        };
        changes.into_iter().map(count).collect()
    }

    fn by_step(&self, out: &mut String) {
        let all = self.cpu();
        let row = |step: StepName| {
            let of_kind = || {
                self.builds
                    .iter()
                    .flat_map(|b| &b.steps)
                    .filter(move |s| s.step == step)
            };
            let wall: f64 = of_kind().map(|s| s.through(self.wall) - s.begun).sum();
            let cpu: f64 = of_kind().map(|s| s.cost().cpu).sum();
            let rss = of_kind().map(|s| s.cost().max_rss_kib).max()?;
            let share = if all > 0.0 { 100.0 * cpu / all } else { 0.0 };
            let name = step.as_str();
            Some(format!(
                "<tr><td><i class=\"s-{name}\"></i>{name}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td class=\"share\"><div class=\"s-{name}\" style=\"width: {share:.1}%\"></div></td><td>{share:.0} %</td><td>{}</td></tr>\n",
                of_kind().count(),
                seconds(wall),
                seconds_of(cpu),
                memory(rss),
            ))
        };
        let rows: String = StepName::ALL.into_iter().filter_map(row).collect();
        if !rows.is_empty() {
            let _ = write!(
                out,
                "<section>\n<h2>By kind of step</h2>\n<table>\n<thead><tr><th>step</th><th>times</th><th>wall, summed</th>\
                 <th>CPU</th><th colspan=\"2\">share of CPU</th><th>largest process</th></tr></thead>\n<tbody>\n{rows}</tbody>\n\
                 </table>\n</section>\n"
            );
        }
    }

    fn by_build(&self, out: &mut String, around: &Surroundings<'_>) {
        let few = self.worked().count() <= FEW;
        if self.worked().count() > 0 {
            out.push_str("<section>\n<h2>By build</h2>\n<div class=\"builds\">\n");
        }
        for (id, build) in self.worked() {
            let open = if few || build.class() == "bad" { " open" } else { "" };
            let (result, reason) = match &build.ended {
                Some((result, reason)) => (word(*result), reason.as_str()),
                None => ("not ended", ""),
            };
            let _ = writeln!(
                out,
                "<details id=\"build{id}\"{open}><summary><b>{}</b><span class=\"{}\">{result}</span><span>{}</span>\
                 <span>{} CPU</span><span>{}</span></summary>",
                esc(build.name.as_str()),
                build.class(),
                seconds(build.through(self.wall) - build.begun()),
                seconds_of(build.cpu()),
                memory(build.steps.iter().map(|s| s.cost().max_rss_kib).max().unwrap_or(0)),
            );
            if !reason.is_empty() {
                let _ = writeln!(out, "<p>{}</p>", esc(reason));
            }
            for (at, reason) in &build.waits {
                let _ = writeln!(
                    out,
                    "<p class=\"quiet\">waited from {} for {}</p>",
                    clock(*at),
                    esc(reason)
                );
            }
            out.push_str(
                "<table>\n<thead><tr><th>step</th><th>began</th><th>wall</th><th>CPU</th><th>cores busy</th>\
                 <th>largest process</th><th>log</th></tr></thead>\n<tbody>\n",
            );
            for step in &build.steps {
                self.step_row(out, build, step, around);
            }
            out.push_str("</tbody>\n</table>\n</details>\n");
        }
        if self.worked().count() > 0 {
            out.push_str("</div>\n</section>\n");
        }
        let idle: Vec<&Build> = self.builds.iter().filter(|b| b.steps.is_empty()).collect();
        if !idle.is_empty() {
            let _ = write!(
                out,
                "<section>\n<details class=\"idle\"><summary>{} without work</summary>\n<table>\n<tbody>\n",
                text::count(idle.len(), "build")
            );
            for build in idle {
                let (result, reason) = build
                    .ended
                    .as_ref()
                    .map_or(("not ended", ""), |(r, why)| (word(*r), why));
                let _ = writeln!(
                    out,
                    "<tr><td>{}</td><td class=\"{} left\">{result}</td><td class=\"left\">{}</td></tr>",
                    esc(build.name.as_str()),
                    build.class(),
                    esc(reason)
                );
            }
            out.push_str("</tbody>\n</table>\n</details>\n</section>\n");
        }
    }

    fn step_row(&self, out: &mut String, build: &Build, step: &Step, around: &Surroundings<'_>) {
        let (name, cost) = (step.step.as_str(), step.cost());
        let wall = step.through(self.wall) - step.begun;
        let busy = if cost.cpu > 0.0 && cost.wall > 0.0 {
            format!("{:.2}", cost.cpu / cost.wall)
        } else {
            "–".to_owned()
        };
        let log = (around.log)(&build.name, step.step, &step.log);
        let log = log.map(|l| format!("<code>{}</code>", esc(&l.to_string_lossy())));
        let _ = writeln!(
            out,
            "<tr><td><i class=\"s-{name}\"></i>{name}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{busy}</td><td>{}</td>\
             <td class=\"left\">{}</td></tr>",
            step.trouble()
                .map(|t| format!(" <b class=\"bad\">{t}</b>"))
                .unwrap_or_default(),
            clock(step.begun),
            seconds(wall),
            seconds_of(cost.cpu),
            memory(cost.max_rss_kib),
            log.unwrap_or_default(),
        );
    }
}

impl Build {
    /// When it was taken up: the source may have been there long before.
    fn begun(&self) -> f64 {
        let after = self.steps.iter().find(|s| s.step > StepName::Fetch);
        after.or(self.steps.first()).map_or(f64::MAX, |s| s.begun)
    }

    fn through(&self, wall: f64) -> f64 {
        self.steps.iter().fold(0.0, |last: f64, s| last.max(s.through(wall)))
    }

    fn cpu(&self) -> f64 {
        self.steps.iter().map(|s| s.cost().cpu).sum()
    }

    fn class(&self) -> &'static str {
        match self.ended {
            Some((BuildResult::Built, _)) => "good",
            Some((BuildResult::Failed, _)) | None => "bad",
            Some(_) => "quiet",
        }
    }
}

impl Step {
    fn through(&self, wall: f64) -> f64 {
        self.ended.map_or(wall, |cost| cost.at)
    }

    fn cost(&self) -> Cost {
        self.ended.unwrap_or_default()
    }

    fn trouble(&self) -> Option<&'static str> {
        match self.ended {
            Some(Cost { ok: true, .. }) => None,
            Some(_) => Some("failed"),
            None => Some("not ended"),
        }
    }

    /// All that is known of it, a line each.
    fn told(&self, build: &Build, wall: f64, around: &Surroundings<'_>) -> String {
        let (cost, length) = (self.cost(), self.through(wall) - self.begun);
        let mut lines = vec![format!("{} · {}", build.name, self.step.as_str())];
        if let Some(trouble) = self.trouble() {
            lines[0].push_str(&format!(" · {trouble}"));
        }
        lines.push(format!("{} wall, from {}", seconds(length), clock(self.begun)));
        if cost.cpu > 0.0 {
            lines.push(format!(
                "{} CPU, {:.2} cores busy",
                seconds(cost.cpu),
                cost.cpu / cost.wall.max(0.001)
            ));
            lines.push(format!("{} largest process", memory(cost.max_rss_kib)));
        }
        if let Some(log) = (around.log)(&build.name, self.step, &self.log) {
            lines.push(log.display().to_string());
        }
        lines.join("\n")
    }
}

fn word(result: BuildResult) -> &'static str {
    match result {
        BuildResult::Built => "built",
        BuildResult::Fresh => "fresh",
        BuildResult::Kept => "kept",
        BuildResult::Skipped => "skipped",
        BuildResult::Failed => "failed",
    }
}

/// Text as HTML, also inside attributes.
fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Seconds, with a tenth where that matters.
fn seconds(s: f64) -> String {
    if s < 9.95 {
        format!("{s:.1} s")
    } else {
        text::duration(s)
    }
}

/// The same, and nothing where nothing was measured.
fn seconds_of(s: f64) -> String {
    if s > 0.0 { seconds(s) } else { "–".to_owned() }
}

fn memory(kib: u64) -> String {
    if kib > 0 {
        text::size(kib * 1024)
    } else {
        "–".to_owned()
    }
}

fn clock(at: f64) -> String {
    let s = at.max(0.0) as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// Round times on an axis of `wall` seconds, at most ten.
fn ticks(wall: f64) -> Vec<(f64, String)> {
    const ROUND: [f64; 19] = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
        14400.0, 43200.0,
    ];
    let fits = |step: &&f64| wall / **step <= 10.0;
    let step = ROUND
        .iter()
        .find(fits)
        .copied()
        .unwrap_or((wall / 864_000.0).ceil() * 86400.0);
    let label = |at: f64| if step < 1.0 { format!("{at:.1} s") } else { clock(at) };
    let at = (0..=10).map(|i| f64::from(i) * step).filter(|at| *at <= wall);
    at.map(|at| (at, label(at))).collect()
}

/// Of many points, the highest of each stretch.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(MOST_POINTS).max(1);
    let highest = |c: &[(f64, f64)]| (c[0].0, c.iter().fold(0.0, |most: f64, (_, v)| most.max(*v)));
    points.chunks(stretch).map(highest).collect()
}

#[cfg(test)]
#[path = "timings/tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
