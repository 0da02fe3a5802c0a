//! Tests of the page of timings: a run told by hand, and what its page says.

use super::*;

fn name(name: &str) -> BuildName {
    name.parse().unwrap()
}

fn step(at: f64, build: &str, step: StepName, end: Option<(f64, bool, f64)>) -> Vec<Event> {
    let begun = What::StepBegun {
        build: name(build),
        step,
        log: PathBuf::from(format!("/logs/{build}/<{}>.log", step.as_str())),
        estimate: None,
    };
    let mut events = vec![Event { at, what: begun }];
    events.extend(end.map(|(until, ok, cpu)| Event {
        at: until,
        what: What::StepEnded {
            build: name(build),
            step,
            ok,
            wall: until - at,
            cpu,
            max_rss_kib: 250_000,
            cache: None,
        },
    }));
    events
}

fn ended(at: f64, build: &str, result: BuildResult, reason: Option<&str>) -> Event {
    Event {
        at,
        what: What::BuildEnded {
            build: name(build),
            result,
            wall: 0.0,
            reason: reason.map(str::to_owned),
            log: None,
        },
    }
}

fn page(events: Vec<Event>) -> String {
    let timings = Timings::default();
    events.iter().for_each(|e| timings.on(e));
    timings.page(&Surroundings {
        cores: 8,
        command: "bm build '<b>'".into(),
        log: &|_, _, live| Some(live.to_owned()),
    })
}

fn begun(builds: &[&str]) -> Event {
    Event {
        at: 0.0,
        what: What::RunBegun {
            builds: builds.iter().map(|b| name(b)).collect(),
            jobs: 2,
            parallel: 2,
            began: "2024-01-01T00:00:00Z".into(),
        },
    }
}

#[test]
fn a_failed_and_interrupted_run_is_told_whole() {
    let mut events = vec![begun(&["good1", "bad1", "cut1", "fresh1"])];
    events.push(ended(0.0, "fresh1", BuildResult::Fresh, None));
    events.extend(step(0.0, "good1", StepName::Compile, Some((50.0, true, 90.0))));
    events.extend(step(10.0, "bad1", StepName::Configure, Some((20.0, false, 10.0))));
    events.push(ended(20.0, "bad1", BuildResult::Failed, Some("no <cc> & \"co\"")));
    events.push(ended(50.0, "good1", BuildResult::Built, None));
    events.extend(step(60.0, "cut1", StepName::Install, None));
    for (at, tokens) in [(1.0, 2), (99.0, 1), (100.0, 0)] {
        events.push(Event {
            at,
            what: What::Load {
                tokens,
                jobs: 2,
                memory_kib: 1_500_000 * tokens as u64,
                free_disk: 1,
                left: None,
            },
        });
    }
    let page = page(events);
    // CPU 100 s over the 2 jobs: 50 s at the least, of 100 s.
    for fact in [
        "<b>2.00</b><span>times the limit",
        "<b>1 min 40 s</b><span>wall time",
        "<b>1 min 40 s</b><span>CPU time",
        "<b>1</b><span>built",
        "<b>1</b><span>failed",
        "<b>1</b><span>fresh",
        "<b>1</b><span>not ended",
        "<b>3.0 GB</b><span>most memory",
        "over 2 cores comes to 50 s",
        "used 50 % of the cores' time",
        // The bars, in percent of the run.
        "class=\"step s-compile\" x=\"0.000%\" width=\"50.000%\"",
        "class=\"step s-configure\" x=\"10.000%\" width=\"10.000%\"",
        "class=\"step s-install\" x=\"60.000%\" width=\"40.000%\"",
        "bad1 · configure · failed\n10 s wall, from 0:10\n10 s CPU, 1.00 cores busy\n256 MB largest process\n/logs/bad1/&lt;configure&gt;.log",
        "<p>no &lt;cc&gt; &amp; &quot;co&quot;</p>",
        "bm build &#39;&lt;b&gt;&#39;",
        "data-points=\"[[1.0,2],[99.0,1],[100.0,0]]\"",
        "1 build without work",
    ] {
        assert!(page.contains(fact), "{fact:?} is not in\n{page}");
    }
    assert_eq!(
        page.matches("class=\"over\"").count(),
        2,
        "the failed step, and the one cut off"
    );
    // Nothing is fetched from anywhere, and nothing told becomes a tag.
    for foreign in ["http:", "https:", "src=", "<link", "@import", "<cc>", "<configure>"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<script").count(), 1);
}

#[test]
fn a_run_without_work_and_one_without_samples_have_pages_too() {
    let idle = page(vec![begun(&["a"]), ended(0.1, "a", BuildResult::Fresh, None)]);
    assert!(
        idle.contains("Nothing had to be built") && !idle.contains("NaN") && !idle.contains("inf"),
        "{idle}"
    );
    let never = page(vec![]);
    assert!(
        never.contains("<b>0</b><span>built") && !never.contains("NaN"),
        "{never}"
    );
    let mut events = vec![begun(&["a", "b"])];
    events.extend(step(0.0, "a", StepName::Compile, Some((4.0, true, 0.0))));
    events.extend(step(2.0, "b", StepName::Compile, Some((6.0, true, 0.0))));
    let plain = page(events);
    assert!(
        plain.contains("steps at work") && !plain.contains("id=\"memory\""),
        "{plain}"
    );
    assert!(plain.contains("[[0.0,1],[2.0,2],[4.0,1],[6.0,0]]"), "{plain}");
}

#[test]
fn the_axis_has_round_times() {
    let labels = |wall| {
        ticks(wall)
            .into_iter()
            .map(|(_, label)| label)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(labels(0.75), "0.0 s 0.1 s 0.2 s 0.3 s 0.4 s 0.5 s 0.6 s 0.7 s");
    assert_eq!(labels(100.0), "0:00 0:10 0:20 0:30 0:40 0:50 1:00 1:10 1:20 1:30 1:40");
    assert_eq!(labels(20_000.0), "0:00 1:00:00 2:00:00 3:00:00 4:00:00 5:00:00");
    assert!(ticks(40.0 * 86400.0).len() > 5);
    assert_eq!(ticks(0.0).len(), 1);
}

#[test]
fn many_points_are_thinned_to_their_peaks() {
    let points: Vec<(f64, f64)> = (0..3600u32)
        .map(|i| (f64::from(i), if i == 1801 { 9.0 } else { 1.0 }))
        .collect();
    let thin = thinned(&points);
    assert_eq!(thin.len(), 1200);
    assert_eq!(thin[600], (1800.0, 9.0));
}
