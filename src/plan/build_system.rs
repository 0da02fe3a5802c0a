//! Commands per build system. A new build system is a new arm here and nothing else.

use std::path::Path;

use crate::model::recipe::{BuildSystem, Flags, MakeCall, Toolchain, Word};

use super::{Arg, Call, StepName};

/// The commands of configure, compile and install.
///
/// The build directory is beside the source directory, and `../src` is the way between them in every
/// build, so that nothing of a version or a variant is in a compiler's arguments.
pub fn calls(
    system: BuildSystem,
    prefix: &Path,
    toolchain: &Toolchain,
    flags: &Flags,
    configure: Vec<Word>,
    compile: Vec<MakeCall>,
    install: Vec<MakeCall>,
) -> Vec<Call> {
    match system {
        BuildSystem::Autoconf => {
            let mut calls = vec![Call {
                step: StepName::Configure,
                argv: autoconf(prefix, toolchain, flags, configure),
                make: false,
            }];
            calls.extend(compile.into_iter().map(|words| make(StepName::Compile, words, None)));
            let destdir = Word::bm(
                "DESTDIR={stage}",
                "staging: the prefix appears only when it is complete",
            );
            calls.extend(
                install
                    .into_iter()
                    .map(|words| make(StepName::Install, words, Some(&destdir))),
            );
            calls
        }
    }
}

fn autoconf(prefix: &Path, toolchain: &Toolchain, flags: &Flags, configure: Vec<Word>) -> Vec<Arg> {
    let mut argv: Vec<Arg> = vec![
        Word::bm("../src/configure", "out of tree, the same way in every build").into(),
        Word::bm(format!("--prefix={}", prefix.display()), "the final path").into(),
    ];
    argv.extend(configure.into_iter().map(Arg::from));
    for (variable, program) in [
        ("CC", &toolchain.cc),
        ("CXX", &toolchain.cxx),
        ("AR", &toolchain.ar),
        ("NM", &toolchain.nm),
        ("RANLIB", &toolchain.ranlib),
    ] {
        argv.push(assignment(variable, std::slice::from_ref(program)));
    }
    for (variable, words) in [
        ("CFLAGS", &flags.cflags),
        ("CXXFLAGS", &flags.cxxflags),
        ("LDFLAGS", &flags.ldflags),
    ] {
        if !words.is_empty() {
            argv.push(assignment(variable, words));
        }
    }
    argv
}

fn assignment(variable: &str, words: &[Word]) -> Arg {
    let values: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
    Arg {
        text: format!("{variable}={}", values.join(" ")),
        parts: words.to_vec(),
    }
}

fn make(step: StepName, words: MakeCall, extra: Option<&Word>) -> Call {
    let mut argv: Vec<Arg> = vec![Word::bm("make", "no -j: make draws from the job budget").into()];
    argv.extend(words.into_iter().chain(extra.cloned()).map(Arg::from));
    Call { step, argv, make: true }
}
