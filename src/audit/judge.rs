//! Holds the evidence against the claims.
//!
//! Owns what counts as proof of a claim about code: level, architecture, LTO, frame pointers,
//! compiler. What the prefix must hold besides is `prefix`'s. Reads no files itself.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use globset::{Glob, GlobMatcher};

use super::collect::{LinkMatch, OwnUnit, Proof};
use super::flags::{self, Effective};
use super::prefix::{self, Place};
use crate::error::{Error, Exit, Result};
use crate::model::manifest::{Audit, Finding};
use crate::model::recipe::{Claims, Expect, Family};

/// Findings of a kind that are told one by one.
const TOLD: usize = 10;

/// What is claimed.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Claims of name and recipe.
    pub claims: &'a Claims,
    /// What else must be found.
    pub expect: &'a Expect,
    /// Family of the toolchain.
    pub family: Family,
    /// What `-march=native` stands for here: the architecture, or all flags with their `-march=`;
    /// empty when not known.
    pub native: &'a str,
    /// First line of the compiler's `--version`.
    pub compiler: &'a str,
    /// Where the prefix is, was and will be.
    pub place: Place<'a>,
}

/// Judges. The audit is passed when it has no findings.
///
/// # Errors
/// A recipe whose `exempt` holds something that is no glob.
pub fn judge(proof: &Proof, question: &Question<'_>) -> Result<Audit> {
    let mut judge = Judge {
        proof,
        question,
        exempt: exemptions(question.expect)?,
        used: BTreeSet::new(),
        findings: Findings::default(),
    };
    judge.links();
    judge.commands();
    judge.units();
    judge.loose();
    judge.compile_lines();
    prefix::check(proof, question.expect, &question.place, &mut judge.findings);
    Ok(Audit {
        findings: judge.findings.told(),
        files: proof.linked.len() + proof.loose.iter().map(|l| &l.file).collect::<BTreeSet<_>>().len(),
        units: proof.units().count(),
        links: proof.links().count(),
        exempt: {
            let borrowed = proof.borrowed.iter();
            let theirs = borrowed
                .map(|(need, n)| format!("{n} units out of static libraries of {need}, which has its own proof"));
            judge.used.into_iter().chain(theirs).collect()
        },
    })
}

fn exemptions(expect: &Expect) -> Result<Vec<(GlobMatcher, &str)>> {
    let compile = |glob: &str| {
        let bad = |e| Error::new(Exit::Usage, format!("`{glob}` in `exempt` is not a glob")).caused_by(e);
        Glob::new(glob).map(|g| g.compile_matcher()).map_err(bad)
    };
    let pairs = expect.exempt.iter();
    pairs
        .map(|(glob, reason)| Ok((compile(glob)?, reason.as_str())))
        .collect()
}

/// Findings as they come in; each said once, however many files hold the unit.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    seen: HashSet<(String, String, String, String)>,
}

impl Findings {
    /// Adds a finding about `what` (a unit, an object, a file), seen at `place`.
    pub fn add(&mut self, subject: &str, asked: impl Into<String>, found: impl Into<String>, what: &str, place: &str) {
        let (asked, found) = (asked.into(), found.into());
        if self
            .seen
            .insert((subject.to_owned(), asked.clone(), found.clone(), what.to_owned()))
        {
            self.list.push(Finding {
                subject: subject.to_owned(),
                asked,
                found,
                evidence: if place.is_empty() {
                    what.to_owned()
                } else {
                    format!("{what}: {place}")
                },
            });
        }
    }

    /// The first few of each kind, and how many more there are.
    fn told(self) -> Vec<Finding> {
        let mut counts = BTreeMap::<(String, String), usize>::new();
        let mut told = vec![];
        for finding in self.list {
            let n = counts
                .entry((finding.subject.clone(), finding.asked.clone()))
                .or_default();
            *n += 1;
            if *n <= TOLD {
                told.push(finding);
            }
        }
        for ((subject, asked), n) in counts {
            if n > TOLD {
                told.push(Finding {
                    subject,
                    asked,
                    found: format!("and {} more", n - TOLD),
                    evidence: String::new(),
                });
            }
        }
        told
    }
}

struct Judge<'a> {
    proof: &'a Proof,
    question: &'a Question<'a>,
    exempt: Vec<(GlobMatcher, &'a str)>,
    used: BTreeSet<String>,
    findings: Findings,
}

impl Judge<'_> {
    fn links(&mut self) {
        for linked in &self.proof.linked {
            if let LinkMatch::Missing(why) = &linked.link {
                self.findings
                    .add("compiler", "a recorded link", "none", &linked.file, why);
            }
            for object in &linked.unexplained {
                let shown = self.proof.show(object);
                self.findings
                    .add("compiler", "a recorded compile call", "none", &shown, &linked.file);
            }
            if !linked.units.iter().any(|u| !u.producer.ltrans) && linked.elf.debug {
                let asked = "debug information of the build's own sources";
                self.findings.add("compiler", asked, "none", &linked.file, "");
            }
        }
        let Some(lto) = self.question.claims.lto else {
            return;
        };
        for (linked, call, flags) in self.proof.links() {
            if flags.lto.on() != lto {
                self.findings
                    .add("lto", lto_word(lto), lto_word(!lto), &linked.file, &call.line());
            }
            let ltrans = linked.units.iter().any(|u| u.producer.ltrans);
            if lto && self.question.family == Family::Gcc && linked.elf.debug && !ltrans {
                let found = "no unit made by the LTO link";
                self.findings
                    .add("lto", lto_word(true), found, &linked.file, "its debug information");
            }
            if !lto && ltrans {
                let found = "a unit made by an LTO link";
                self.findings
                    .add("lto", lto_word(false), found, &linked.file, "its debug information");
            }
        }
    }

    /// A line that the manifest is to keep must be there to be kept.
    fn compile_lines(&mut self) {
        for source in &self.question.expect.compile_lines {
            if self.proof.compile_of(&source.text, None).is_none() {
                let (asked, place) = (
                    format!("the compile line of `{}`", source.text),
                    source.origin.to_string(),
                );
                let found = "no recorded call that compiled it for an installed file";
                self.findings.add("compile-line", asked, found, &source.text, &place);
            }
        }
    }

    /// The compile calls behind installed files, and the objects they left.
    fn commands(&mut self) {
        let calls: BTreeSet<usize> = self.proof.commands().map(|(_, i)| i).collect();
        for i in calls {
            let (call, flags) = (&self.proof.calls[i], &self.proof.effective[i]);
            let line = call.line();
            let Some(source) = call.sources.iter().find(|s| !is_assembler(s)) else {
                continue;
            };
            let unit = self.proof.show(source);
            for (_, name) in &self.question.expect.undefined {
                if flags.defines.contains(name) {
                    self.findings.add(
                        "asserts",
                        format!("`{name}` not defined"),
                        format!("`-D{name}`"),
                        &unit,
                        &line,
                    );
                }
            }
            if self.is_exempt(source) {
                continue;
            }
            let march = self.question.claims.march.as_deref().unwrap_or("");
            self.flags(flags, &unit, &line, flags.march == march);
            self.lto(flags.lto.on(), &unit, &line);
            for object in &call.outputs {
                if let Some(payload) = self.proof.objects.get(object) {
                    let shown = self.proof.show(object);
                    self.lto_payload(payload.present(), &shown, &line);
                }
            }
        }
    }

    /// Debug information, unit by unit.
    fn units(&mut self) {
        for (file, unit) in self.proof.units() {
            if unit.assembler {
                continue;
            }
            let shown = self.proof.show(&unit.source);
            self.compiler(unit, &shown, file);
            if unit.calls.is_empty() && !unit.producer.ltrans {
                self.findings
                    .add("compiler", "a recorded compile call", "none", &shown, file);
            }
            if self.is_exempt(&unit.source) {
                continue;
            }
            let place = format!("debug information of {file}");
            let Some(flags) = &unit.producer.flags else {
                if *self.question.claims != Claims::default() {
                    let found = "no flags recorded";
                    self.findings
                        .add("optimisation", "flags in the debug information", found, &shown, &place);
                }
                continue;
            };
            if unit.producer.ltrans {
                // Frame pointers and LTO are told per source unit, which gcc keeps beside this one.
                let claims = Claims {
                    frame_pointer: None,
                    ..self.question.claims.clone()
                };
                self.flags_against(&claims, flags, &shown, &place, self.march_fits(unit, flags));
            } else {
                self.flags(flags, &shown, &place, self.march_fits(unit, flags));
                self.lto(flags.lto.on(), &shown, &place);
            }
        }
    }

    /// Members of static libraries: those in bitcode have nothing but payload and the call.
    fn loose(&mut self) {
        for loose in &self.proof.loose {
            let what = if loose.member.is_empty() {
                loose.file.clone()
            } else {
                format!("{}({})", loose.file, loose.member)
            };
            let own = !loose.units.is_empty() || !loose.calls.is_empty();
            if !own && loose.payload.present() {
                self.findings
                    .add("compiler", "a recorded compile call", "none", &what, "");
            }
            let sources = loose.units.iter().map(|u| &u.source);
            let sources = sources.chain(loose.calls.iter().flat_map(|i| &self.proof.calls[*i].sources));
            let sources: Vec<_> = sources.filter(|s| !is_assembler(s)).cloned().collect();
            if own && !sources.is_empty() && !sources.iter().any(|s| self.is_exempt(s)) {
                self.lto_payload(loose.payload.present(), &what, "");
            }
        }
    }

    fn flags(&mut self, flags: &Effective, unit: &str, place: &str, march_fits: bool) {
        self.flags_against(self.question.claims, flags, unit, place, march_fits);
    }

    fn flags_against(&mut self, claims: &Claims, flags: &Effective, unit: &str, place: &str, march_fits: bool) {
        if let Some(level) = &claims.optimisation
            && flags.optimisation != *level
        {
            self.findings.add(
                "optimisation",
                format!("-O{level}"),
                format!("-O{}", flags.optimisation),
                unit,
                place,
            );
        }
        if !march_fits {
            let say = |march: &str| match march {
                "" => "the compiler's default".to_owned(),
                march => format!("-march={march}"),
            };
            let asked = say(claims.march.as_deref().unwrap_or(""));
            self.findings.add("march", asked, say(&flags.march), unit, place);
        }
        if claims.frame_pointer == Some(true) && !flags.frame_pointer {
            let (asked, found) = ("-fno-omit-frame-pointer", "frame pointers omitted");
            self.findings.add("frame-pointer", asked, found, unit, place);
        }
    }

    /// gcc writes down what `native` came to, clang the word itself.
    fn march_fits(&self, unit: &OwnUnit, flags: &Effective) -> bool {
        let found = self.proof.march(unit, flags);
        match self.question.claims.march.as_deref() {
            // A unit of the link has no call of its own: what it says comes from the units in it,
            // and those are looked at one by one.
            None => found.is_empty() || unit.producer.ltrans,
            Some("native") if self.question.family == Family::Gcc => match native_march(self.question.native) {
                "" => !flags.march.is_empty() && flags.march != "x86-64",
                native => flags.march == native,
            },
            Some(march) => flags.march == march,
        }
    }

    fn lto(&mut self, found: bool, unit: &str, place: &str) {
        if let Some(asked) = self.question.claims.lto
            && asked != found
        {
            self.findings.add("lto", lto_word(asked), lto_word(found), unit, place);
        }
    }

    fn lto_payload(&mut self, found: bool, object: &str, place: &str) {
        if let Some(asked) = self.question.claims.lto
            && asked != found
        {
            let found = if found {
                "an object with code for LTO"
            } else {
                "an object without code for LTO"
            };
            self.findings.add("lto", lto_word(asked), found, object, place);
        }
    }

    fn compiler(&mut self, unit: &OwnUnit, shown: &str, file: &str) {
        let version = flags::version_of_line(self.question.compiler);
        let fits = unit.producer.family == Some(self.question.family)
            && version.as_ref().is_none_or(|v| *v == unit.producer.version);
        if !fits {
            let found = if unit.producer.compiler.is_empty() {
                "none named"
            } else {
                &unit.producer.compiler
            };
            self.findings
                .add("compiler", self.question.compiler, found, shown, file);
        }
    }

    fn is_exempt(&mut self, source: &std::path::Path) -> bool {
        let shown = self.proof.show(source);
        let found = self
            .exempt
            .iter()
            .find(|(glob, _)| glob.is_match(source) || glob.is_match(&shown));
        if let Some((_, reason)) = found {
            self.used.insert(format!("{shown}: {reason}"));
        }
        found.is_some()
    }
}

fn lto_word(on: bool) -> &'static str {
    if on { "-flto" } else { "no -flto" }
}

fn native_march(native: &str) -> &str {
    let words = || native.split_whitespace();
    let flag = words().rev().find_map(|w| w.strip_prefix("-march="));
    flag.or_else(|| words().next()).unwrap_or("")
}

fn is_assembler(source: &std::path::Path) -> bool {
    source.extension().is_some_and(|e| e == "s" || e == "S" || e == "sx")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn native_is_read_from_a_word_or_from_all_flags() {
        for (native, want) in [
            ("cooperlake", "cooperlake"),
            ("-march=cooperlake -mmmx -mtune=generic", "cooperlake"),
            ("-mmmx -march=znver3", "znver3"),
            ("", ""),
        ] {
            assert_eq!(native_march(native), want, "{native}");
        }
    }

    #[test]
    fn many_findings_of_a_kind_are_counted() {
        let mut findings = Findings::default();
        for i in 0..13 {
            findings.add("lto", "-flto", "no -flto", &format!("u{i}.c"), "bin/a");
            findings.add("lto", "-flto", "no -flto", &format!("u{i}.c"), "bin/b");
        }
        findings.add("march", "-march=native", "none", "u.c", "");
        let told = findings.told();
        assert_eq!(told.len(), 12);
        assert_eq!(told[0].evidence, "u0.c: bin/a");
        assert_eq!(
            (told[11].subject.as_str(), told[11].found.as_str()),
            ("lto", "and 3 more")
        );
    }

    #[test]
    fn a_bad_glob_is_the_recipes_fault() {
        let expect = Expect {
            exempt: vec![("[".to_owned(), "why".to_owned())],
            ..Expect::default()
        };
        assert_eq!(exemptions(&expect).unwrap_err().exit(), Exit::Usage);
    }
}
