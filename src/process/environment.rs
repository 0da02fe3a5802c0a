//! The environment children start from: nothing of bm's own but what is named here.
//!
//! Owns the base variables and the line that redoes a command by hand. Reads bm's environment and looks at
//! directories; starts nothing.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use super::Command;
use crate::error::{Error, Exit, Result};

/// Where programs are when bm's own PATH holds no directory at all.
const STANDARD_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// What fetching may take from bm's own environment; lower case as curl and git read it, upper case as others do.
const FETCH: [&str; 12] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
];

/// The whole environment of a child, before what the recipe adds. Of `path` only absolute, existing directories
/// are kept. `source_date_epoch` is in seconds.
///
/// # Errors
/// If a path cannot be written into a variable.
pub fn base(
    path: &[PathBuf],
    home: &Path,
    tmp: &Path,
    source_date_epoch: Option<i64>,
) -> Result<BTreeMap<String, String>> {
    let text = |name: &str, path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            Error::new(Exit::Usage, format!("`{}` is not valid UTF-8", path.display())).detail("variable", name)
        })
    };
    let mut variables = BTreeMap::from([
        ("PATH".to_owned(), usable(path).join(":")),
        ("HOME".to_owned(), text("HOME", home)?),
        ("TMPDIR".to_owned(), text("TMPDIR", tmp)?),
    ]);
    for (name, value) in [("LC_ALL", "C"), ("TZ", "UTC"), ("TERM", "dumb")] {
        variables.insert(name.to_owned(), value.to_owned());
    }
    if let Some(seconds) = source_date_epoch {
        variables.insert("SOURCE_DATE_EPOCH".to_owned(), seconds.to_string());
    }
    Ok(variables)
}

/// The entries of PATH that mean the same to every child: absolute, existing, once each. A colon or bytes that
/// are not UTF-8 cannot be written into the variable.
fn usable(path: &[PathBuf]) -> Vec<&str> {
    let mut kept = Vec::new();
    for entry in path {
        if let Some(text) = entry.to_str().filter(|t| !t.contains(':'))
            && entry.is_absolute()
            && entry.is_dir()
            && !kept.contains(&text)
        {
            kept.push(text);
        }
    }
    kept
}

/// bm's own PATH: absolute, existing directories, in order, once each; the standard ones if none is left.
pub fn host_path() -> Vec<PathBuf> {
    let own: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    match usable(&own) {
        kept if !kept.is_empty() => kept.into_iter().map(PathBuf::from).collect(),
        _ => usable(&STANDARD_PATH.map(PathBuf::from))
            .into_iter()
            .map(PathBuf::from)
            .collect(),
    }
}

/// What fetching alone gets besides [`base`]: proxies, the ssh agent, certificates; only those that are set.
pub fn fetch_extra() -> BTreeMap<String, String> {
    FETCH
        .iter()
        .filter_map(|&name| Some((name.to_owned(), env::var(name).ok()?)))
        .collect()
}

/// A line for a POSIX shell that does what `command` does, log and limits aside; safe to copy whatever the words
/// hold. A NUL byte, which no process can be given, is left as it is.
pub fn redo_by_hand(command: &Command) -> String {
    let quoter = shlex::Quoter::new().allow_nul(true);
    let quote = |word: &str| {
        quoter
            .quote(word)
            .expect("NUL is the only word it refuses, and it is allowed")
            .into_owned()
    };
    let mut words = vec!["cd".to_owned(), "--".to_owned()];
    words.push(quote(&command.dir.to_string_lossy()));
    words.extend(["&&", "env", "-i"].map(str::to_owned));
    words.extend(command.env.iter().map(|(name, value)| {
        if is_plain(name) {
            format!("{name}={}", quote(value))
        } else {
            quote(&format!("{name}={value}"))
        }
    }));
    if command.argv.first().is_some_and(|program| program.contains('=')) {
        // `env` would take such a program for one more variable.
        words.extend(["sh", "-c", r#"'exec "$0" "$@"'"#].map(str::to_owned));
    }
    words.extend(command.argv.iter().map(|word| quote(word)));
    words.join(" ")
}

/// A name the shell needs no quotes for.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::process::Limits;

    #[test]
    fn the_base_holds_nothing_but_what_the_contract_names() {
        let path = [
            "/usr/bin",
            "relative",
            "",
            "/no/such/dir",
            "/etc/passwd",
            "/bin",
            "/usr/bin",
        ]
        .map(PathBuf::from);
        let got = base(&path, Path::new("/h"), Path::new("/t"), Some(1_600_000_000)).unwrap();
        let want = [
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("PATH", "/usr/bin:/bin"),
            ("SOURCE_DATE_EPOCH", "1600000000"),
            ("TERM", "dumb"),
            ("TMPDIR", "/t"),
            ("TZ", "UTC"),
        ];
        assert_eq!(got, want.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(
            !base(&path, Path::new("/h"), Path::new("/t"), None)
                .unwrap()
                .contains_key("SOURCE_DATE_EPOCH")
        );
    }

    #[test]
    fn a_home_that_is_not_text_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/h\xff"));
        let e = base(&[], odd, Path::new("/t"), None).unwrap_err();
        assert_eq!(e.exit(), Exit::Usage);
        assert_eq!(e.details(), [("variable".to_owned(), "HOME".to_owned())]);
    }

    #[test]
    fn a_directory_with_a_colon_cannot_be_on_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a:b");
        fs_err::create_dir(&odd).unwrap();
        assert_eq!(usable(&[odd]), Vec::<&str>::new());
    }

    #[test]
    fn the_host_path_is_absolute_and_without_repeats() {
        let path = host_path();
        assert!(!path.is_empty());
        assert!(path.iter().all(|p| p.is_absolute() && p.is_dir()));
        assert_eq!(path.iter().collect::<std::collections::BTreeSet<_>>().len(), path.len());
    }

    /// The line, run by a real shell, gives the program exactly the words, variables and directory.
    #[test]
    fn the_line_redoes_the_command_whatever_the_words_hold() {
        let dir = tempfile::tempdir().unwrap();
        let odd_dir = dir.path().join("-it's a \"dir\" $HOME");
        fs_err::create_dir(&odd_dir).unwrap();
        let show = dir.path().join("show=it");
        let script = "#!/bin/sh\npwd\nfor word; do printf '<%s>' \"$word\"; done\nprintf '%s' \"$ODD\" \"$EMPTY.\"\n";
        fs_err::write(&show, script).unwrap();
        fs_err::set_permissions(&show, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let words = [
            "",
            "a b",
            "it's",
            "$HOME `id` \\",
            "-O3 -g",
            "two\nlines",
            "é",
            "*",
            "!x",
            "a=b",
        ];
        let mut argv = vec![show.to_str().unwrap().to_owned()];
        argv.extend(words.map(str::to_owned));
        let variables = [("ODD", "'quoted' \"$x\"\n"), ("EMPTY", ""), ("PATH", "/usr/bin:/bin")];
        let command = Command {
            argv,
            env: variables.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            dir: odd_dir.clone(),
            log: PathBuf::new(),
            limits: Limits::default(),
            run_as: None,
        };
        let line = redo_by_hand(&command);
        let out = std::process::Command::new("/bin/sh")
            .args(["-c", &line])
            .output()
            .unwrap();
        let want = format!(
            "{}\n{}'quoted' \"$x\"\n.",
            odd_dir.display(),
            words.map(|w| format!("<{w}>")).concat()
        );
        assert_eq!(String::from_utf8(out.stdout).unwrap(), want, "{line}");
        assert!(out.status.success(), "{line}");
    }

    #[test]
    fn plain_commands_make_a_plain_line() {
        let command = Command {
            argv: vec!["make".to_owned(), "install".to_owned()],
            env: [
                ("LC_ALL".to_owned(), "C".to_owned()),
                ("CFLAGS".to_owned(), "-O2 -g".to_owned()),
            ]
            .into(),
            dir: "/src".into(),
            log: PathBuf::new(),
            limits: Limits::default(),
            run_as: None,
        };
        assert_eq!(
            redo_by_hand(&command),
            "cd -- /src && env -i CFLAGS='-O2 -g' LC_ALL=C make install"
        );
    }
}
