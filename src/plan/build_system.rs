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
    configure: Vec<Vec<Word>>,
    compile: Vec<MakeCall>,
    install: Vec<MakeCall>,
) -> Vec<Call> {
    let configure = match system {
        BuildSystem::Autoconf => autoconf(prefix, toolchain, flags, configure.concat()),
        BuildSystem::Cmake => cmake(prefix, toolchain, flags, configure.concat()),
        BuildSystem::Commands => {
            let steps = [
                (StepName::Configure, configure),
                (StepName::Compile, compile),
                (StepName::Install, install),
            ];
            let calls = steps
                .into_iter()
                .flat_map(|(step, calls)| calls.into_iter().map(move |words| (step, words)));
            return calls.map(|(step, words)| whole(step, words)).collect();
        }
    };
    let mut calls = vec![Call {
        step: StepName::Configure,
        argv: configure,
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

/// cmake out of tree. Compilers, flags of all kinds and the build tools are always said, so that nothing of cmake's
/// own choosing or of the host gets in; what is said twice counts as the recipe says it, which comes last.
fn cmake(prefix: &Path, toolchain: &Toolchain, flags: &Flags, configure: Vec<Word>) -> Vec<Arg> {
    let mut argv: Vec<Arg> = vec![
        Word::bm("cmake", "the first on PATH").into(),
        Word::bm("../src", "out of tree, the same way in every build").into(),
        Word::bm("-G", "make draws from the job budget").into(),
        Word::bm("Unix Makefiles", "make draws from the job budget").into(),
        Word::bm(format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display()), "the final path").into(),
    ];
    for (variable, program) in [
        ("CMAKE_C_COMPILER", &toolchain.cc),
        ("CMAKE_CXX_COMPILER", &toolchain.cxx),
        // A type, or cmake would take a bare name for a file of the build directory.
        ("CMAKE_AR:STRING", &toolchain.ar),
        ("CMAKE_NM:STRING", &toolchain.nm),
        ("CMAKE_RANLIB:STRING", &toolchain.ranlib),
    ] {
        argv.push(assignment(&format!("-D{variable}"), std::slice::from_ref(program)));
    }
    for (variable, words) in [
        ("CMAKE_C_FLAGS", &flags.cflags),
        ("CMAKE_CXX_FLAGS", &flags.cxxflags),
        ("CMAKE_EXE_LINKER_FLAGS", &flags.ldflags),
        ("CMAKE_SHARED_LINKER_FLAGS", &flags.ldflags),
        ("CMAKE_MODULE_LINKER_FLAGS", &flags.ldflags),
    ] {
        if !words.is_empty() {
            argv.push(assignment(&format!("-D{variable}"), words));
        }
    }
    argv.extend(configure.into_iter().map(Arg::from));
    argv
}

/// A command that the recipe writes from its program on.
fn whole(step: StepName, words: Vec<Word>) -> Call {
    Call {
        step,
        make: words.first().is_some_and(|program| program.text == "make"),
        argv: words.into_iter().map(Arg::from).collect(),
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
