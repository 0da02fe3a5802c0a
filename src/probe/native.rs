//! What `-march=native` stands for on this machine, as the compiler spells it out.
//!
//! The text goes into the identity of a build, so it is canonical: sorted, and complete. Knows
//! nothing of the builds that ask for it.

use std::path::Path;

use super::host;
use super::tools::{Found, Prober};
use super::{Answer, ProbedToolchain};
use crate::error::{Error, Exit, Result};
use crate::model::recipe::Family;

/// What `-march=native` stands for.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Native(String);

impl Native {
    /// All of it: architecture and tuning first, then every option, sorted.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The architecture alone, for people: `skylake-avx512`.
    pub fn arch(&self) -> &str {
        let mut words = self.0.split(' ');
        match words.next() {
            Some("-target-cpu") => words.next().unwrap_or_default(),
            Some(word) => word.strip_prefix("-march=").unwrap_or_default(),
            None => "",
        }
    }
}

impl std::fmt::Display for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Prober {
    /// Asks the toolchain's C compiler what `-march=native` means on this CPU; remembered for the
    /// same compiler on the same CPU.
    ///
    /// # Errors
    /// Exit 3 when the compiler does not know `-march=native` on this machine.
    pub fn native(&self, toolchain: &ProbedToolchain) -> Result<Native> {
        let missing = || Error::new(Exit::Host, format!("`{}` is gone", toolchain.cc.display()));
        let cc = Prober::at(&toolchain.cc).ok_or_else(missing)?;
        self.remember(&cc, &format!("native {}", host::cpu_key()), || match toolchain.family {
            Family::Gcc => self.native_of_gcc(&cc),
            Family::Clang => self.native_of_clang(&cc),
        })
    }

    fn native_of_gcc(&self, cc: &Found) -> Result<Native> {
        let ask = |words: &[&str]| {
            let driver = cc.word();
            let argv = [&[driver.as_str(), "-march=native"], words].concat();
            let said = self.run(&argv, Path::new("/"), "")?;
            if said.ok() { Ok(said) } else { Err(unknown(cc, &said)) }
        };
        let options = ask(&["-Q", "--help=target", "-S", "-x", "c", "/dev/null", "-o", "-"])?;
        // Sizes of caches are no target options: only the call of the compiler proper shows them.
        let call = ask(&["-E", "-v", "-x", "c", "/dev/null"])?;
        gcc_text(&options.stdout, &call.stderr).ok_or_else(|| unknown(cc, &options))
    }

    fn native_of_clang(&self, cc: &Found) -> Result<Native> {
        let argv = [&cc.word(), "-march=native", "-###", "-c", "-x", "c", "/dev/null"];
        let said = self.run(&argv, Path::new("/"), "")?;
        clang_text(&said.stderr)
            .filter(|_| said.ok())
            .ok_or_else(|| unknown(cc, &said))
    }
}

fn unknown(cc: &Found, said: &Answer) -> Error {
    Error::new(
        Exit::Host,
        format!("`{}` does not say what `-march=native` means here", cc.path.display()),
    )
    .caused_by(said.complaint())
    .hint("choose a variant without `native`")
}

/// The options of `-Q --help=target` that are on, and the parameters of the call of cc1.
fn gcc_text(options: &str, call: &str) -> Option<Native> {
    let mut on = Vec::new();
    let (mut arch, mut tune) = (None, None);
    for line in options.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            // A cpu name may follow; on machines where `-mcpu` rules, `-march=` is still told.
            (Some("-march="), Some(value)) => arch = Some(value),
            (Some("-mtune="), Some(value)) => tune = Some(value),
            (Some(option), Some("[enabled]")) if option.starts_with("-m") => on.push(option.to_owned()),
            _ => {}
        }
    }
    on.extend(parameters(call));
    on.sort_unstable();
    on.dedup();
    let mut text = vec![format!("-march={}", arch?)];
    text.extend(tune.map(|t| format!("-mtune={t}")));
    text.extend(on);
    Some(Native(text.join(" ")))
}

/// `--param=NAME=VALUE` for each parameter, whichever of its two spellings the driver used.
fn parameters(call: &str) -> Vec<String> {
    let words = call
        .lines()
        .find(|l| l.split_whitespace().next().is_some_and(|w| w.ends_with("/cc1")))
        .and_then(shlex::split)
        .unwrap_or_default();
    let joined = words.iter().filter(|w| w.starts_with("--param=")).cloned();
    let parted = words.windows(2).filter(|w| w[0] == "--param");
    joined.chain(parted.map(|w| format!("--param={}", w[1]))).collect()
}

/// `-target-cpu`, `-tune-cpu` and the features of clang's call of itself.
fn clang_text(call: &str) -> Option<Native> {
    let line = call.lines().find(|l| l.contains("\"-cc1\""))?;
    let words = shlex::split(line)?;
    let values = |option: &str| -> Vec<String> {
        let pairs = words.windows(2).filter(|w| w[0] == option);
        pairs.map(|w| w[1].clone()).collect()
    };
    // Features that are off belong to it too: the CPU's name alone would turn some of them on.
    let mut features = values("-target-feature");
    features.sort_unstable_by(|a, b| a[1..].cmp(&b[1..]).then(a.cmp(b)));
    features.dedup();
    let mut text = vec![format!("-target-cpu {}", values("-target-cpu").first()?)];
    text.extend(values("-tune-cpu").first().map(|t| format!("-tune-cpu {t}")));
    text.extend(features);
    Some(Native(text.join(" ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Uses;
    use super::super::testing::*;
    use super::*;

    const OPTIONS: &str = "\
The following options are target specific:
  -m128bit-long-double        \t\t[enabled]
  -m32                        \t\t[disabled]
  -mabi=                      \t\tsysv
  -maes                       \t\t[enabled]
  -march=                     \t\tcooperlake
  -mavx2                      \t\t[enabled]
  -mcpu=                      \t\t
  -mtune=                     \t\tgeneric

  Known valid arguments for -march= option:
    i386 i486 native
";
    const CALL: &str = "\
Using built-in specs.
COLLECT_GCC_OPTIONS='-E' '-v' '-march=native'
 /usr/lib/gcc/x86_64-linux-gnu/12/cc1 -E -quiet /dev/null -march=cooperlake -mavx2 --param l1-cache-size=48 \
\"--param=l2-cache-size=2048\" -mtune=generic
#include <...> search starts here:
";

    #[test]
    fn gcc_is_reduced_to_what_is_on() {
        let native = gcc_text(OPTIONS, CALL).unwrap();
        assert_eq!(
            native.as_str(),
            "-march=cooperlake -mtune=generic --param=l1-cache-size=48 --param=l2-cache-size=2048 \
             -m128bit-long-double -maes -mavx2"
        );
        assert_eq!(native.arch(), "cooperlake");
        assert_eq!(gcc_text("cc1: error", CALL), None);
    }

    #[test]
    fn clang_features_are_sorted_by_name_with_those_that_are_off() {
        let line = |features: &str| {
            format!(
                "clang version 15\n \"/usr/lib/llvm-15/bin/clang\" \"-cc1\" \"-target-cpu\" \"icelake-client\" {features}"
            )
        };
        let one = r#""-target-feature" "+avx2" "-target-feature" "-sgx" "-target-feature" "+aes""#;
        let two = r#""-target-feature" "-sgx" "-target-feature" "+aes" "-target-feature" "+avx2""#;
        let native = clang_text(&line(one)).unwrap();
        assert_eq!(native.as_str(), "-target-cpu icelake-client +aes +avx2 -sgx");
        assert_eq!(native.arch(), "icelake-client");
        assert_eq!(clang_text(&line(two)).unwrap(), native);
        assert_eq!(clang_text("clang: error: unsupported argument 'native'"), None);
    }

    #[test]
    fn this_machine_is_understood_by_every_compiler_and_remembered() {
        for toolchain in [14, 15, 19].into_iter().filter_map(clang).chain([gcc()]) {
            let bench = Bench::new();
            let cc = &toolchain.cc.text;
            bench.wrap(cc, &format!("/usr/bin/{cc}"));
            let ask = || {
                let prober = bench.over_system();
                let probed = prober.toolchain(&toolchain, Uses::default()).unwrap();
                prober.native(&probed).unwrap()
            };
            let native = ask();
            assert!(!native.arch().is_empty() && native.arch() != "native", "{native}");
            assert!(native.as_str().split(' ').count() > 3, "{native}");
            let before = calls(&bench).len();
            assert_eq!(ask(), native);
            assert_eq!(calls(&bench).len(), before, "{cc} was asked again");
        }
    }

    #[test]
    fn a_compiler_without_native_is_an_error_of_the_host() {
        let bench = Bench::new();
        let body = "case \"$*\" in *native*) echo \"cc1: error: bad value 'native'\" >&2; exit 1;; esac\nexec /usr/bin/gcc \"$@\"";
        bench.script("gcc", body);
        let prober = bench.over_system();
        let probed = prober.toolchain(&gcc(), Uses::default()).unwrap();
        let error = prober.native(&probed).unwrap_err();
        assert_eq!(error.exit(), Exit::Host);
        assert_eq!(error.causes(), ["cc1: error: bad value 'native'"]);
        assert_eq!(error.hint_text(), Some("choose a variant without `native`"));
    }
}
