//! Bad input of every kind, end to end through the real binary: the exit code, the words that help,
//! and that nothing is lost and nothing is left.

#![allow(clippy::unwrap_used)]

#[path = "support/bad.rs"]
mod bad;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bad::{Space, Tree, archive, file_header, is_root, names, path_without, picture, sha256, skip};
use fs_err as fs;

/// Builds fk12_o3 and gives a picture of its prefix.
fn built(space: &Space) -> String {
    space.bm(&["build", "fk12_o3"]).works();
    let picture = picture(&space.root.join("fk12_o3"));
    assert!(picture.contains("bin/fakedb"), "{picture}");
    picture
}

// ---- names and options ----

#[test]
fn a_good_build_leaves_nothing_but_its_prefix() {
    let space = Space::new();
    built(&space);
    space.tidy(&["fk12_o3"], 0, 0);
    let ran = space.bm(&["exec", "fk12_o3", "--", "fakedb"]);
    assert_eq!(ran.works().out, "fakedb 1.2\n");
}

#[test]
fn unknown_names_bring_the_nearest_ones() {
    let space = Space::new();
    let cases: [(&[&str], &[&str]); 9] = [
        (
            &["build", "fk12_03"],
            &["unknown build `fk12_03`", "did you mean", "`fk12_o3`"],
        ),
        (
            &["build", "nonsense"],
            &["unknown build `nonsense`", "hint: `bm list` shows all names"],
        ),
        (
            &["build", "@pg_11_to_61"],
            &["unknown set `@pg_11_to_61`", "did you mean `@pg_11_to_16`"],
        ),
        (&["build", "@zzzzzzzzzz"], &["unknown set `@zzzzzzzzzz`", "sets are `@"]),
        (
            &["build", "fk12_o3_clang99"],
            &["unknown build `fk12_o3_clang99`", "did you mean"],
        ),
        (
            &["build", "fk9*_o3"],
            &["no build matches `fk9*_o3`", "`bm list` shows the names"],
        ),
        (&["build", "fk{12_o3"], &["`fk{12_o3` is not a pattern"]),
        (
            &["path", "fk12_o3"],
            &[
                "nothing built matches `fk12_o3`",
                "`bm list --built` shows what is there",
            ],
        ),
        (
            &["build", "postgrs", "--rev", "x"],
            &["unknown product `postgrs`", "did you mean `postgres`?"],
        ),
    ];
    for (args, words) in cases {
        space.bm(args).fails(2).says(words);
    }
    space.tidy(&[], 0, 0);
}

#[test]
fn every_bad_name_of_one_command_is_reported() {
    let space = Space::new();
    let ran = space.bm(&["build", "fk12_o4", "@nope", "fk12_o3", "zz*"]);
    ran.fails(2).says(&[
        "unknown build `fk12_o4`",
        "unknown set `@nope`",
        "no build matches `zz*`",
    ]);
    space.tidy(&[], 0, 0);
}

#[test]
fn digits_that_can_be_read_in_several_ways_show_every_reading() {
    let space = Space::new();
    space
        .bm(&["build", "fk111_o3"])
        .fails(2)
        .says(&["`fk111_o3` can be read in 2 ways", "1.11", "11.1", "hint:"]);
    // No reading is in the range of the recipe, or has no leading zero.
    for impossible in ["fk300_o3", "fk00_o3", "fk012_o3"] {
        space
            .bm(&["build", impossible])
            .fails(2)
            .says(&[&format!("unknown build `{impossible}`")]);
    }
    space
        .bm(&["build", "fk7_o3"])
        .fails(2)
        .says(&["series 7 of fakedb", "no release is pinned"]);
    space.tidy(&[], 0, 0);
}

#[test]
fn names_that_are_paths_or_hold_control_characters_touch_nothing() {
    let space = Space::new();
    fs::write(space.path("outside"), "mine").unwrap();
    for name in [
        "../outside",
        "a/b",
        "..",
        ".",
        ".bm",
        "",
        "fk12_o3\n",
        "a\nb",
        "\u{1b}[31mred",
        "-x",
    ] {
        let chosen = format!("--name={name}");
        let ran = space.bm(&["build", "fk12_o3", &chosen]);
        ran.fails(2).says(&["cannot name a build"]);
        for verb in ["build", "path", "log", "env", "rm"] {
            // Colours forced: otherwise the stream takes escape sequences out and hides what was let through.
            let mut command = space.command(&[verb, "--", name]);
            command.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
            let ran = space.run(command);
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{verb} {name:?}: {}", ran.err);
            assert!(
                !ran.err.contains("\u{1b}[31mred"),
                "raw control characters: {:?}",
                ran.err
            );
            assert!(!ran.err.contains("a\nb") && !ran.err.contains("o3\n`"), "{:?}", ran.err);
        }
    }
    assert_eq!(fs::read_to_string(space.path("outside")).unwrap(), "mine");
    space.tidy(&[], 0, 0);
}

#[test]
fn options_that_need_one_build_say_so() {
    let space = Space::new();
    space
        .bm(&["build", "fk12_o3", "fk12_o2", "--name", "mine"])
        .fails(2)
        .says(&[
            "`--name mine` is for one build, the selection has 2",
            "hint: name one build",
        ]);
    let ran = space.bm(&["build", "fk12_o3", "--cflags=-O1"]);
    ran.fails(2).says(&["--name"]);
    space
        .bm(&["build", "fk12_o3", "--name", "mine", "--cflags", "'-O1"])
        .fails(2)
        .says(&["cannot read `--cflags`", "quote is not closed"]);
    space
        .bm(&["build", "fakedb", "--source", "."])
        .fails(2)
        .says(&["unknown variant `def` of fakedb"]);
    space
        .bm(&["build", "fakedb", "--source", ".", "--variant", "o3"])
        .fails(2)
        .says(&["has no name of its own", "--name NAME"]);
    space
        .bm(&[
            "build",
            "fakedb",
            "--rev",
            "x",
            "--variant",
            "o3",
            "--toolchain",
            "clang99",
        ])
        .fails(2)
        .says(&["unknown toolchain `clang99`", "toolchains are"]);
    space.tidy(&[], 0, 0);
}

#[test]
fn variables_and_config_that_make_no_sense_are_refused() {
    let mut space = Space::new();
    let good = space.path("mirror").display().to_string();
    for (value, why) in [
        ("nonsense", "there is no `=`"),
        ("https://fakedb.example/=", "one side of `=` is empty"),
        (
            "https://fakedb.example/=here",
            "neither an absolute directory nor a URL",
        ),
    ] {
        space.set("BM_MIRROR", value);
        space.bm(&["build", "fk12_o3"]).fails(2).says(&[
            "cannot read the mirror",
            why,
            "hint: BM_MIRROR is a list of URL-PREFIX=DIRECTORY-OR-URL",
        ]);
    }
    space.set("BM_MIRROR", format!("https://fakedb.example/={good}"));
    space.set("BM_FROM", "floppy");
    space.bm(&["build", "fk12_o3"]).fails(2).says(&[
        "`floppy` in BM_FROM is no kind of source",
        "hint: use `git` or `tarball`",
    ]);
    space.set("BM_FROM", "");
    let config = space.path("config.toml");
    space.set("BM_CONFIG", config.display().to_string());
    space
        .bm(&["build", "fk12_o3"])
        .fails(3)
        .says(&["cannot read config", "config.toml"]);
    fs::write(&config, "job = 2\nbuilds = 0\n").unwrap();
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(2).says(&[
        "unknown key `job`",
        "config.toml:1:1",
        "did you mean `jobs`?",
        "bad number for `builds`",
        "config.toml:2:10",
    ]);
    space.tidy(&[], 0, 0);
}

// ---- recipes ----

#[test]
fn all_errors_of_a_recipe_come_in_one_run_each_with_its_place() {
    let mut space = Space::new();
    space.edit("#TOP", "descripton = \"twice\"");
    space.edit("claims = { lto = true }", "claims = { lto = true, marsh = \"native\" }");
    space.edit("o3 = [\"o3\"]", "o3 = [\"o4\"]");
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(2).says(&[
        "unknown key `descripton`",
        "did you mean `description`?",
        "unknown key `marsh`",
        "did you mean `march`?",
        "`o4`",
    ]);
    let text = fs::read_to_string(space.recipe()).unwrap();
    let file = space.recipe().display().to_string();
    for (word, length) in [("descripton", 10), ("marsh", 5)] {
        let (line, column) = text
            .lines()
            .enumerate()
            .find_map(|(i, l)| Some((i + 1, l.find(word)? + 1)))
            .unwrap();
        ran.says(&[&format!("{file}:{line}:{column}"), &"^".repeat(length)]);
    }
    // A command on other builds is stopped too: a recipe that cannot be read may hide anything.
    space.bm(&["list", "pg160_o3"]).fails(2);
    // A part that is missing for a slip of the pen is said as the slip.
    let mut space = Space::new();
    space.edit("args = [\"all\"]", "arg = [\"all\"]");
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(2).says(&["unknown key `arg`", "did you mean `args`?"]);
    space.tidy(&[], 0, 0);
}

#[test]
fn an_overlay_that_is_not_there_is_an_error() {
    let mut space = Space::new();
    let nowhere = space.path("nowhere");
    space.set("BM_RECIPES", nowhere.display().to_string());
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(2).says(&[&nowhere.display().to_string()]);
    space.tidy(&[], 0, 0);
}

#[test]
fn two_cells_of_one_name_are_shown_both() {
    let mut space = Space::new();
    // 1.12 and 11.2 are both written 112.
    let bytes = Tree::of("1.12").pack("1.12");
    space.archive("1.12", &bytes);
    space.archive("11.2", &bytes);
    let ran = space.bm(&["build", "fk112_o3"]);
    ran.fails(2).says(&["1.12", "11.2"]);
    space.tidy(&[], 0, 0);
}

// ---- sources ----

#[test]
fn a_wrong_checksum_shows_expected_and_got() {
    let mut space = Space::empty();
    let good = Tree::of("1.2").pack("1.2");
    space.archive("1.2", &good);
    let before = built(&space);
    fs::remove_dir_all(space.path("cache")).unwrap();
    let changed = Tree::of("1.2").with("pages.c", "n + 1", "n + 2").pack("1.2");
    fs::write(space.path("mirror/fakedb-1.2.tar.gz"), &changed).unwrap();
    let ran = space.bm(&["build", "fk12_o3", "--rebuild"]);
    ran.fails(4).says(&["checksum mismatch of `fakedb-1.2.tar.gz`"]);
    assert_eq!(ran.detail("expected"), sha256(&good));
    assert_eq!(ran.detail("got"), sha256(&changed));
    assert_eq!(picture(&space.root.join("fk12_o3")), before);
    assert_eq!(
        names(&space.path("cache/downloads")),
        [format!("{}.lock", sha256(&good))]
    );
    space.tidy(&["fk12_o3"], 0, 0);
    // The right bytes again: it goes on.
    fs::write(space.path("mirror/fakedb-1.2.tar.gz"), &good).unwrap();
    space.bm(&["build", "fk12_o3", "--rebuild"]).works();
}

/// An archive that is pinned by its own checksum, so that only unpacking can find what is wrong.
fn refused_archive(bytes: &[u8], words: &[&str]) {
    let space = Space::with_archive(bytes);
    fs::write(space.path("victim"), "mine").unwrap();
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(4).says(words);
    assert_eq!(fs::read_to_string(space.path("victim")).unwrap(), "mine");
    assert!(!space.path("evil").exists() && !Path::new("/tmp/bm-evil").exists());
    space.tidy(&[], 0, 0);
}

#[test]
fn a_truncated_archive_is_found_by_unpacking() {
    let whole = Tree::of("1.2").pack("1.2");
    for part in [1, 20, whole.len() / 2, whole.len() - 8, whole.len() - 1] {
        refused_archive(
            &whole[..part],
            &["source: fakedb-1.2.tar.gz", "reason:", "build: fk12_o3"],
        );
    }
    refused_archive(b"", &["reason:"]);
    // Whole gzip around half a tar.
    let half = archive(|builder| {
        builder
            .append_data(&mut file_header(4), "fakedb-1.2/a", &b"text"[..])
            .unwrap();
        let mut header = file_header(5000);
        header.set_path("fakedb-1.2/b").unwrap();
        header.set_cksum();
        std::io::Write::write_all(builder.get_mut(), header.as_bytes()).unwrap();
    });
    refused_archive(&half, &["reason:", "cut short"]);
}

#[test]
fn hostile_archives_write_nothing_outside() {
    let raw = |name: &[u8], kind: tar::EntryType, link: &str| {
        archive(|builder| {
            builder
                .append_data(&mut file_header(4), "fakedb-1.2/a", &b"text"[..])
                .unwrap();
            let mut header = file_header(if link.is_empty() { 4 } else { 0 });
            // `set_path` refuses such names, as it should.
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            header.set_entry_type(kind);
            if !link.is_empty() {
                header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            }
            header.set_cksum();
            builder
                .append(&header, if link.is_empty() { &b"evil"[..] } else { &b""[..] })
                .unwrap();
        })
    };
    let file = tar::EntryType::Regular;
    refused_archive(&raw(b"fakedb-1.2/../../../../evil", file, ""), &["reason:", ".."]);
    refused_archive(&raw(b"../evil", file, ""), &["reason:", "../evil"]);
    refused_archive(&raw(b"/tmp/bm-evil", file, ""), &["reason:", "/tmp/bm-evil"]);
    let link = tar::EntryType::Symlink;
    refused_archive(
        &raw(b"fakedb-1.2/l", link, "../../victim"),
        &["reason:", "fakedb-1.2/l"],
    );
    refused_archive(
        &raw(b"fakedb-1.2/l", link, "/etc/passwd"),
        &["reason:", "entry: fakedb-1.2/l"],
    );
    let hard = tar::EntryType::Link;
    refused_archive(&raw(b"fakedb-1.2/l", hard, "../../../../victim"), &["reason:"]);
    refused_archive(&raw(b"fakedb-1.2/fifo", tar::EntryType::Fifo, ""), &["reason:", "fifo"]);
    // Written through a link that is fine by itself.
    let through = archive(|builder| {
        let mut header = file_header(0);
        header.set_entry_type(tar::EntryType::Symlink);
        builder.append_link(&mut header, "fakedb-1.2/d", "sub").unwrap();
        builder
            .append_data(&mut file_header(4), "fakedb-1.2/d/x", &b"evil"[..])
            .unwrap();
    });
    refused_archive(&through, &["reason:"]);
}

#[test]
fn a_web_page_in_place_of_the_archive_is_called_one() {
    let mut space = Space::new();
    let page = "<!DOCTYPE html>\n<html><head><title>404 gone fishing</title></head></html>";
    fs::write(space.path("mirror/fakedb-1.2.tar.gz"), page).unwrap();
    space
        .bm(&["build", "fk12_o3"])
        .fails(4)
        .says(&["web page", "404 gone fishing"]);
    space.tidy(&[], 0, 0);
    // Also where nothing is pinned, so that no checksum can tell, and nothing gets locked.
    space.unpin();
    fs::write(space.path("mirror/fakedb-1.2.tar.gz"), page).unwrap();
    space
        .bm(&["build", "fk12_o3", "--from", "tarball"])
        .fails(4)
        .says(&["it is a web page, not an archive: 404 gone fishing"]);
    assert!(!space.root.join(".bm/lock.toml").exists());
    space.tidy(&[], 0, 0);
}

#[test]
fn offline_lists_all_that_is_missing() {
    let mut space = Space::empty();
    space.set("BM_MIRROR", "");
    space.pin(&format!("{{ id = \"1.2\", sha256 = \"{}\" }}", "a".repeat(64)));
    space.pin(&format!("{{ id = \"1.3\", sha256 = \"{}\" }}", "b".repeat(64)));
    space.pin(&format!("{{ id = \"1.4\", commit = \"{}\" }}", "c".repeat(40)));
    for verb in ["fetch", "build"] {
        let ran = space.bm(&[verb, "fk12_o3", "fk13_o3", "fk14_o3", "fk15_o3", "--offline"]);
        // The last one is not pinned at all.
        ran.fails(4).says(&[
            "`fakedb-1.2.tar.gz` is neither in the cache nor in a local mirror",
            "`fakedb-1.3.tar.gz` is neither in the cache nor in a local mirror",
            &"a".repeat(64),
            &"c".repeat(40),
            "tag `v1.5`",
            "without `--offline`",
        ]);
    }
    space.tidy(&[], 0, 0);
}

#[test]
fn a_moved_tag_shows_both_commits() {
    let mut space = Space::empty();
    let old = space.commit(&Tree::of("1.2"), Some("v1.2"));
    space.pin(&format!("{{ id = \"1.2\", commit = \"{old}\" }}"));
    let before = built(&space);
    let new = space.commit(&Tree::of("1.2").with("pages.c", "n + 1", "n - -1"), Some("v1.2"));
    // A fresh cache: otherwise the commit is there already and nothing has to be asked.
    fs::remove_dir_all(space.path("cache")).unwrap();
    let ran = space.bm(&["build", "fk12_o3", "--rebuild"]);
    ran.fails(4).says(&["moved tag: `v1.2`", "change the pin"]);
    assert_eq!(ran.detail("expected"), old);
    assert_eq!(ran.detail("got"), new);
    assert_eq!(picture(&space.root.join("fk12_o3")), before);
    space.tidy(&["fk12_o3"], 0, 0);
}

#[test]
fn a_commit_that_no_repository_has_is_named() {
    let mut space = Space::empty();
    space.commit(&Tree::of("1.2"), None);
    let absent = "0123456789abcdef0123456789abcdef01234567";
    space.pin(&format!("{{ id = \"1.2\", commit = \"{absent}\" }}"));
    space.bm(&["build", "fk12_o3"]).fails(4).says(&[
        &format!("no place has commit `{absent}`"),
        "https://fakedb.example/fakedb.git",
        "it has no commit",
        "hint: name a local clone",
    ]);
    space.tidy(&[], 0, 0);
}

#[test]
fn abbreviated_revisions_that_are_unknown_or_ambiguous_are_refused() {
    let space = Space::empty();
    space.commit(&Tree::of("1.2"), None);
    for rev in ["abcdef0", "no-such-branch", "abcdef0123456789abcdef0123456789abcdef01"] {
        space
            .bm(&["build", "fakedb", "--rev", rev, "--variant", "o3"])
            .fails(4)
            .says(&[&format!("`{rev}`"), "https://fakedb.example/fakedb.git"]);
    }
    space
        .bm(&["build", "fakedb", "--rev=-x", "--variant", "o3"])
        .fails(2)
        .says(&["-x"]);
    let (first, second) = twins(&space);
    let short = &first[..7];
    space
        .bm(&["build", "fakedb", "--rev", short, "--variant", "o3"])
        .fails(2)
        .says(&[
            &format!("revision `{short}` is ambiguous"),
            &first,
            &second,
            "hint: give more digits",
        ]);
    space.tidy(&[], 0, 0);
}

/// Two commits on branches of their own whose ids begin with the same seven digits.
fn twins(space: &Space) -> (String, String) {
    use git2::{ObjectType, Oid, Repository};
    let repo = Repository::open_bare(space.path("mirror/fakedb.git")).unwrap();
    let tree = repo.head().unwrap().peel_to_tree().unwrap().id();
    let mut seen = std::collections::HashMap::new();
    for n in 0.. {
        let text = format!("tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\n{n}\n");
        let id = Oid::hash_object(ObjectType::Commit, text.as_bytes())
            .unwrap()
            .to_string();
        let Some((other, before)) = seen.insert(id[..7].to_owned(), (id.clone(), text.clone())) else {
            continue;
        };
        for (branch, text) in [("one", before), ("two", text)] {
            let written = repo.odb().unwrap().write(ObjectType::Commit, text.as_bytes()).unwrap();
            repo.reference(&format!("refs/heads/{branch}"), written, true, "")
                .unwrap();
        }
        return (other, id);
    }
    unreachable!("ids are finite")
}

// ---- patches ----

/// fakedb with one patch.
fn with_patch(patch: &str) -> Space {
    let mut space = Space::new();
    fs::create_dir_all(space.path("overlay/patches/fakedb")).unwrap();
    fs::write(space.path("overlay/patches/fakedb/x.patch"), patch).unwrap();
    space.edit("#MORE", "[[patches]]\nfile = \"fakedb/x.patch\"\n");
    space
}

fn diff(file: &str, from: &str, to: &str) -> String {
    format!("--- a/{file}\n+++ b/{file}\n@@ -1,4 +1,4 @@\n int pages(int n)\n {{\n-{from}\n+{to}\n }}\n")
}

#[test]
fn patches_that_do_not_do_what_they_say_stop_the_build() {
    let plus = "    return n + 1;";
    // The good case first: the fixture's diff is one that git takes.
    let space = with_patch(&diff("pages.c", plus, "    return 1 + n;"));
    space.bm(&["build", "fk12_o3"]).works();
    space.tidy(&["fk12_o3"], 0, 0);

    let apply: (&str, String, &[&str]) = (
        "does not apply",
        diff("pages.c", "    return n + 7;", "    return 1 + n;"),
        &["the patch does not apply", "failed at: pages.c:1", "hint:"],
    );
    let there: (&str, String, &[&str]) = (
        "is in the tree already",
        diff("pages.c", "    return n;", plus),
        &["the patch does not apply", "the tree has this change already"],
    );
    let up: (&str, String, &[&str]) = (
        "leaves the tree",
        diff("../../../victim", plus, "    return 1 + n;"),
        &["outside", "victim"],
    );
    let absolute: (&str, String, &[&str]) = (
        "has an absolute name",
        "--- /dev/null\n+++ b//tmp/bm-evil\n@@ -0,0 +1 @@\n+evil\n".to_owned(),
        &["reason:"],
    );
    let link: (&str, String, &[&str]) = (
        "makes an escaping link",
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+../../../victim\n\\ No newline at end of file\n".to_owned(),
        &["outside", "file: l"],
    );
    let nothing: (&str, String, &[&str]) = ("has no effect", diff("pages.c", plus, plus), &["unchanged", "pages.c"]);
    let text: (&str, String, &[&str]) = ("is no patch", "just words\n".to_owned(), &["reason:"]);
    let empty: (&str, String, &[&str]) = ("is empty", String::new(), &["reason:"]);
    for (what, patch, words) in [apply, there, up, absolute, link, nothing, text, empty] {
        let space = with_patch(&patch);
        fs::write(space.path("victim"), "mine").unwrap();
        let ran = space.bm(&["build", "fk12_o3"]);
        assert_eq!(ran.code, 4, "a patch that {what}: {}", ran.err);
        ran.fails(4)
            .says(&["cannot apply patch `fakedb/x.patch`", "build: fk12_o3", "(kept)"])
            .says(words);
        assert_eq!(fs::read_to_string(space.path("victim")).unwrap(), "mine");
        assert!(!Path::new("/tmp/bm-evil").exists());
        // The tree is kept to look at; it can be given back by building again.
        space.tidy(&[], 1, 0);
    }
}

#[test]
fn a_patch_file_that_is_missing_is_an_error_of_the_recipe() {
    let space = with_patch("");
    fs::remove_file(space.path("overlay/patches/fakedb/x.patch")).unwrap();
    let place = format!("{}:", space.recipe().display());
    space
        .bm(&["build", "fk12_o3"])
        .fails(2)
        .says(&["no such file below `patches/`", "fakedb/x.patch", &place]);
    space.tidy(&[], 0, 0);
}

// ---- the host ----

/// A toolchain like clang 14's, of a version that no host has.
fn clang99(space: &Space, version: &str, cc: &str) {
    let text = format!(
        r#"family = "gcc"
cc = "{cc}"
cxx = "{cc}"
ar = "gcc-ar"
nm = "gcc-nm"
ranlib = "gcc-ranlib"
version = "{version}"
[lto]
cflags = ["-flto"]
cxxflags = ["-flto"]
ldflags = ["-flto"]
[packages]
debian = ["clang-99"]
"#
    );
    fs::write(space.path("overlay/toolchains/clang99.toml"), text).unwrap();
}

/// Debian and what is made of it; elsewhere the hints name no packages.
fn has_apt() -> bool {
    fs::read_to_string("/etc/os-release").is_ok_and(|t| t.contains("debian"))
}

#[test]
fn a_compiler_that_is_missing_or_of_another_version_brings_its_package() {
    let space = Space::new();
    let install = if has_apt() { "apt-get install" } else { "install" };
    let package = if has_apt() { "clang-99" } else { "" };
    clang99(&space, "=99", "clang-99");
    let ran = space.bm(&["build", "fk12_o3_clang99"]);
    ran.fails(3)
        .says(&["clang-99", "toolchains/clang99.toml", "hint:", install, package]);
    // A plan does not need it, and says what is missing.
    let plan = space.bm(&["show", "--json", "fk12_o3_clang99"]);
    let plan: serde_json::Value = serde_json::from_str(&plan.works().out).unwrap();
    assert_eq!(plan["identity"], serde_json::Value::Null);
    assert!(plan["unresolved"].to_string().contains("clang-99"), "{plan}");

    clang99(&space, "=99", "gcc");
    let ran = space.bm(&["build", "fk12_o3_clang99"]);
    ran.fails(3)
        .says(&["wants version `=99`", "found", "clang99.toml", "hint:", package]);
    space.tidy(&[], 0, 0);
}

#[test]
fn programs_and_headers_that_are_missing_make_one_install_line() {
    let mut space = Space::new();
    space.edit(
        "#MORE",
        "[[requires]]\nprogram = \"bison\"\npackages = { debian = [\"bison\"] }\n\
         [[requires]]\nheader = \"no/such/header.h\"\npackages = { debian = [\"libnosuch-dev\"] }\n",
    );
    let all = path_without(&space.path("bin"), &["bison", "bison.yacc"]);
    space.set("PATH", all);
    let ran = space.bm(&["build", "fk12_o3"]);
    let place = space.recipe().display().to_string();
    ran.fails(3).says(&[
        "this host lacks 2 things",
        "`bison`",
        "`no/such/header.h`",
        &place,
        "hint:",
    ]);
    if has_apt() {
        ran.says(&["apt-get install", "bison", "libnosuch-dev"]);
    }
    let deps = space.bm(&["deps", "fk12_o3"]);
    assert_eq!(deps.code, 3);
    if has_apt() {
        assert!(deps.out.contains("bison libnosuch-dev"), "{}", deps.out);
    }
    space.tidy(&[], 0, 0);
}

#[test]
fn without_make_nothing_is_begun() {
    let mut space = Space::new();
    let all = path_without(&space.path("bin"), &["make", "gmake"]);
    space.set("PATH", all);
    space.bm(&["build", "fk12_o3"]).fails(3).says(&["`make`", "hint:"]);
    space.tidy(&[], 0, 0);
}

#[test]
fn without_git_nothing_that_has_patches_is_begun() {
    let mut space = with_patch(&diff("pages.c", "    return n + 1;", "    return 1 + n;"));
    let all = path_without(&space.path("bin"), &["git"]);
    space.set("PATH", all);
    space
        .bm(&["build", "fk12_o3"])
        .fails(3)
        .says(&["this host lacks 1 thing", "`git`", "hint:"]);
    space.tidy(&[], 0, 0);
}

// ---- failing steps ----

#[test]
fn a_failed_compile_teaches_and_can_be_taken_up_again() {
    let space = Space::with_tree(&Tree::of("1.2").with("pages.c", "return n + 1", "return n + one"));
    let ran = space.bm(&["build", "fk12_o3_native_lto"]);
    ran.fails(1).says(&[
        "build `fk12_o3_native_lto` failed in step `compile`: `make` exited with status 2",
        "hint: to go on in the kept tree: bm build fk12_o3_native_lto --from compile",
        "(kept)",
    ]);
    assert!(
        ran.detail("first error").contains("pages.c:3:16: error: "),
        "{}",
        ran.err
    );
    let log = fs::read_to_string(ran.detail("log")).unwrap();
    let end = log.trim_end().lines().rev().take(3);
    let end: Vec<&str> = end.collect();
    assert!(end.iter().any(|l| l.contains("Error 1")), "{end:?}");
    ran.says(&end);
    space.tidy(&[], 1, 0);
    let shown = space.bm(&["log", "fk12_o3_native_lto", "compile"]);
    assert_eq!(shown.works().out.trim_end(), log.trim_end());

    // The line for the hand, pasted into a shell of quite another environment, fails the same way.
    let paste = |line: &str| {
        let out = Command::new("sh")
            .args(["-c", line])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("CFLAGS", "-O0")
            .current_dir("/")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        (out.status.success(), text)
    };
    let line = ran.detail("by hand");
    let (ok, text) = paste(line);
    assert!(!ok && text.contains("pages.c:3:16: error: "), "{text}");
    // Steps that the tree has not reached cannot be begun, and a failed attempt changes nothing.
    space
        .bm(&["build", "fk12_o3_native_lto", "--from", "install"])
        .fails(2)
        .says(&["it got only as far as `compile`", "hint: begin from the start"]);
    space.tidy(&[], 1, 0);

    let tree = ran.detail("tree").strip_suffix(" (kept)").unwrap();
    fs::write(
        Path::new(tree).join("src/pages.c"),
        "int pages(int n)\n{\n    return n + 1;\n}\n",
    )
    .unwrap();
    let (ok, text) = paste(line);
    assert!(ok, "by hand, with the cause gone: {text}");
    space.bm(&["build", "fk12_o3_native_lto", "--from", "compile"]).works();
    space.tidy(&["fk12_o3_native_lto"], 0, 0);
}

#[test]
fn a_tree_is_not_taken_up_where_there_is_none_or_its_recipe_changed() {
    let mut space = Space::with_tree(&Tree::of("1.2").with("pages.c", "return n + 1", "return n + one"));
    space.bm(&["build", "fk12_o3", "--from", "compile"]).fails(2).says(&[
        "no tree to go on in",
        "nothing was kept",
        "hint: begin from the start: bm build fk12_o3",
    ]);
    space.tidy(&[], 0, 0);
    space.bm(&["build", "fk12_o3"]).fails(1);
    space.edit("args = [\"--enable-debug\"]", "args = [\"--enable-debug\", \"--more\"]");
    space
        .bm(&["build", "fk12_o3", "--from", "compile"])
        .fails(2)
        .says(&["no tree to go on in"]);
}

#[test]
fn a_failed_configure_shows_its_error() {
    let tree = Tree::of("1.2").with(
        "configure",
        "#CONFIGURE",
        "echo 'configure: error: no lunar phase' >&2; exit 77",
    );
    let mut space = Space::with_tree(&tree);
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(1).says(&[
        "failed in step `configure`",
        "exited with status 77",
        "--from configure",
    ]);
    assert_eq!(ran.detail("first error"), "configure: error: no lunar phase");
    space.tidy(&[], 1, 0);
    // The recipe knows this symptom: its remedy is the hint.
    space.edit(
        "#MORE",
        "[[hints]]\nsymptom = \"no lunar phase\"\nremedy = \"wait a week\"\n",
    );
    space.bm(&["build", "fk12_o3"]).fails(1).says(&["hint: wait a week"]);
}

#[test]
fn one_failed_build_does_not_stop_the_others_and_the_worst_code_wins() {
    let mut space = Space::with_tree(&Tree::of("1.2").with("pages.c", "return n + 1", "return n + one"));
    space.archive("1.3", &Tree::of("1.3").pack("1.3"));
    space.archive("1.4", b"no archive at all");
    let ran = space.bm(&["build", "fk12_o3", "fk13_o3", "fk14_o3"]);
    ran.fails(4)
        .says(&["1 built, 0 fresh, 2 failed", "build `fk12_o3` failed", "build: fk14_o3"]);
    space.tidy(&["fk13_o3"], 1, 0);
}

// ---- products that misbehave ----

#[test]
fn a_product_that_ignores_destdir_is_named() {
    let rude = |text: &Tree| text.clone().with("Makefile.in", "$(DESTDIR)$(prefix)", "$(prefix)");
    let space = Space::with_tree(&rude(&Tree::of("1.2")));
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(1).says(&[
        "wrote to its final path during `install`",
        "hint: the product ignores DESTDIR",
    ]);
    // What it wrote is no prefix: it is out of the way, and the way is free.
    space.tidy(&[], 1, 1);
    space.bm(&["build", "fk12_o3"]).fails(1).says(&["ignores DESTDIR"]);

    // Over a sealed prefix the harm is done, and said.
    let mut space = Space::new();
    built(&space);
    let other = rude(&Tree::of("1.2")).with("pages.c", "int pages", "int more;\nint pages");
    space.unpin();
    space.archive("1.2", &other.pack("1.2"));
    space.bm(&["build", "fk12_o3", "--rebuild"]).fails(1).says(&[
        "ignores DESTDIR",
        "damaged: what was there; `bm verify fk12_o3` says how",
    ]);
    space
        .bm(&["verify", "fk12_o3"])
        .fails(5)
        .says(&["not as it was sealed", "bin/fakedb"]);
}

#[test]
fn a_product_that_installs_nothing_is_named() {
    let tree = Tree::of("1.2").with(
        "Makefile.in",
        "\tmkdir -p $(DESTDIR)$(prefix)/bin\n\tcp fakedb $(DESTDIR)$(prefix)/bin/fakedb\n",
        "\ttrue\n",
    );
    let space = Space::with_tree(&tree);
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(1).says(&["build `fk12_o3` installed nothing"]);
    assert!(ran.detail("log").ends_with("install.log"));
    space.tidy(&[], 1, 0);
}

#[test]
fn stripped_broken_and_absent_programs_are_refused_by_the_audit() {
    let install = |command: &str| {
        let tree = Tree::of("1.2").with("Makefile.in", "#INSTALL", &format!("\t{command}"));
        Space::with_tree(&tree)
    };
    let bin = "$(DESTDIR)$(prefix)/bin/fakedb";
    for (command, words) in [
        (
            format!("strip {bin}"),
            &["step `audit`", "asked", "found", "nothing was installed"][..],
        ),
        (
            format!("head -c 2000 fakedb > {bin}"),
            &["cannot understand", "compiled file"],
        ),
        (
            format!("mv {bin} {bin}d"),
            &["step `audit`", "asked", "found", "nothing was installed"],
        ),
    ] {
        let space = install(&command);
        let ran = space.bm(&["build", "fk12_o3"]);
        assert_eq!(ran.code, 5, "{command}: {}", ran.err);
        ran.fails(5).says(words).says(&["fk12_o3", "bin/fakedb", "(kept)"]);
        space.tidy(&[], 1, 0);
    }
    // Flags that get lost on the way.
    let weak = Tree::of("1.2").with("Makefile.in", "$(CC) $(CFLAGS) -c", "$(CC) $(CFLAGS) -O1 -c");
    let space = Space::with_tree(&weak);
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(5).says(&["-O3", "-O1", "main.c"]);
    space.tidy(&[], 1, 0);
}

#[test]
fn a_failed_smoke_test_leaves_the_place_as_it_was() {
    let bad = |tree: &Tree| tree.clone().with("pages.c", "return n + 1", "return n + 3");
    let mut space = Space::with_tree(&bad(&Tree::of("1.2")));
    let ran = space.bm(&["build", "fk12_o3"]);
    ran.fails(5).says(&["bin/fakedb", "moved away from its place"]);
    let kept = ran.detail("prefix").split(" (").next().unwrap();
    assert!(Path::new(kept).join("bin/fakedb").is_file(), "{kept}");
    assert!(!Path::new(kept).join(".bm/manifest.json").exists());
    space.tidy(&[], 1, 1);
    assert_eq!(space.bm(&["list", "--built"]).works().out.trim(), "");

    // Over a good prefix: that one comes back as it was.
    space.archive("1.3", &Tree::of("1.3").pack("1.3"));
    space.bm(&["build", "fk13_o3"]).works();
    let before = picture(&space.root.join("fk13_o3"));
    let bytes = bad(&Tree::of("1.3")).pack("1.3");
    space.unpin();
    space.archive("1.3", &bytes);
    space
        .bm(&["build", "fk13_o3"])
        .fails(6)
        .says(&["built from other inputs", "sha256", "--rebuild"]);
    space.bm(&["build", "fk13_o3", "--rebuild"]).fails(5);
    assert_eq!(picture(&space.root.join("fk13_o3")), before);
    space.bm(&["verify", "fk13_o3"]).works();
    space.tidy(&["fk13_o3"], 2, 2);
}

// ---- the store ----

#[test]
fn what_is_in_the_way_and_not_bms_is_not_touched() {
    let space = Space::new();
    let at = space.root.join("fk12_o3");
    let outside = space.path("outside");
    fs::create_dir_all(outside.join("bin")).unwrap();
    let makes: [(&str, &dyn Fn()); 5] = [
        ("a directory", &|| {
            fs::create_dir(&at).unwrap();
            fs::write(at.join("data"), "mine").unwrap();
        }),
        ("an empty directory", &|| fs::create_dir(&at).unwrap()),
        ("a file", &|| fs::write(&at, "mine").unwrap()),
        ("a link", &|| fs::os::unix::fs::symlink(&outside, &at).unwrap()),
        ("a link to nothing", &|| {
            fs::os::unix::fs::symlink("/nowhere", &at).unwrap()
        }),
    ];
    for (what, make) in makes {
        make();
        let before = picture(&at) + &picture(&outside);
        for args in [&["build", "fk12_o3"][..], &["build", "fk12_o3", "--rebuild"]] {
            let ran = space.bm(args);
            assert_eq!(ran.code, 6, "{what}: {}", ran.err);
            ran.fails(6).says(&[
                &format!("`{}` is there and was not built by bm", at.display()),
                "reason:",
                "hint: move it away",
            ]);
            assert_eq!(picture(&at) + &picture(&outside), before, "{what}");
        }
        space.bm(&["rm", "fk12_o3"]).fails(6);
        space.bm(&["exec", "fk12_o3", "--", "true"]).fails(6);
        assert_eq!(space.bm(&["list", "--built"]).works().out.trim(), "", "{what}");
        assert_eq!(picture(&at) + &picture(&outside), before, "{what}");
        space.tidy(&["fk12_o3"], 0, 0);
        if at.is_dir() && !at.is_symlink() {
            fs::remove_dir_all(&at).unwrap();
        } else {
            fs::remove_file(&at).unwrap();
        }
    }
    // In the place of another name for a build: the build is made, the name is not taken.
    let alias = space.root.join("fk1_o3");
    fs::create_dir(&alias).unwrap();
    space.bm(&["build", "fk1_o3"]).fails(6).says(&["fk1_o3"]);
    assert_eq!(names(&alias), [""; 0]);
    space.bm(&["build", "fk12_o3"]).works();
    space.tidy(&["fk12_o3", "fk1_o3"], 0, 0);
}

#[test]
fn a_manifest_that_does_not_count_is_never_handed_over() {
    let space = Space::new();
    built(&space);
    let prefix = space.root.join("fk12_o3");
    let file = prefix.join(".bm/manifest.json");
    let whole = fs::read_to_string(&file).unwrap();
    let schema = "\"schema\":1,";
    assert!(whole.contains(schema) && whole.contains("\"version\":\"1.2\""));
    let cases = [
        (whole[..whole.len() / 2].to_owned(), "it is not whole"),
        (String::new(), "it is not whole"),
        (
            whole.replace("\"version\":\"1.2\"", "\"version\":\"1.3\""),
            "it was changed after bm sealed it",
        ),
        (whole.replace(schema, "\"schema\":9,"), "its schema 9 is newer than 1"),
        (whole.replace(schema, ""), "it has no `schema`"),
        ("[]".to_owned(), "it is not whole"),
    ];
    for (text, why) in cases {
        fs::write(&file, text).unwrap();
        let before = picture(&prefix);
        assert_eq!(space.bm(&["list", "--built"]).works().out.trim(), "");
        let json = space.bm(&["list", "--built", "--json"]);
        assert!(json.works().out.contains("\"builds\":[]"), "{}", json.out);
        for args in [
            &["path", "fk12_o3"][..],
            &["env", "fk12_o3"],
            &["exec", "fk12_o3", "--", "fakedb"],
            &["each", "fk12_o3", "--", "true"],
            &["smoke", "fk12_o3"],
            &["rm", "fk12_o3"],
            &["build", "fk12_o3"],
            &["build", "fk12_o3", "--rebuild"],
        ] {
            let ran = space.bm(args);
            assert_eq!(ran.code, 6, "{args:?}: {}", ran.err);
            ran.fails(6).says(&["fk12_o3", why, "hint: move it away"]);
        }
        space
            .bm(&["path", "fk*"])
            .fails(2)
            .says(&["nothing built matches `fk*`"]);
        assert_eq!(picture(&prefix), before);
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(
        space.bm(&["path", "fk12_o3"]).works().out.trim(),
        prefix.display().to_string()
    );
    // A copy under another name is not that build.
    let copied = Command::new("cp")
        .arg("-a")
        .arg(&prefix)
        .arg(space.root.join("fk12_o2"))
        .status();
    assert!(copied.unwrap().success());
    space
        .bm(&["exec", "fk12_o2", "--", "fakedb"])
        .fails(6)
        .says(&["it is of build `fk12_o3`"]);
}

#[test]
fn a_damaged_lockfile_stops_what_needs_it_and_is_left_alone() {
    let space = Space::new();
    built(&space);
    let lock = space.root.join(".bm/lock.toml");
    for (text, words) in [
        ("schema = 1\n[[git", "the lockfile is damaged"),
        ("\u{0}\u{1}", "the lockfile is damaged"),
        ("schema = 99\n", "written by a newer bm"),
    ] {
        fs::write(&lock, text).unwrap();
        space
            .bm(&["build", "fk12_o2"])
            .fails(6)
            .says(&[words, &lock.display().to_string(), "hint:"]);
        assert_eq!(fs::read_to_string(&lock).unwrap(), text);
        // What is built is not concerned.
        space.bm(&["exec", "fk12_o3", "--", "fakedb"]).works();
        fs::remove_file(&lock).unwrap();
    }
    space.bm(&["build", "fk12_o2"]).works();
    space.tidy(&["fk12_o2", "fk12_o3"], 0, 0);
}

#[test]
fn a_root_that_cannot_be_written_is_the_hosts_fault() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut space = Space::new();
    let dir = space.path("locked");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o555)).unwrap();
    if is_root() {
        if Command::new("setpriv").arg("--version").output().is_err() {
            return skip("no `setpriv` to give up root with");
        }
        for below in ["cache", "home"] {
            std::os::unix::fs::chown(space.path(below), Some(65534), Some(65534)).unwrap();
        }
        // The directory that bm was compiled in may be closed to others.
        fs::copy(env!("CARGO_BIN_EXE_bm"), space.path("bm")).unwrap();
    }
    let as_nobody = |space: &Space, args: &[&str]| {
        let mut command = space.command(args);
        if is_root() {
            let own = command;
            command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command
                .arg(space.path("bm"))
                .args(args)
                .env_clear()
                .stdin(Stdio::null());
            command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        }
        space.run(command)
    };
    for root in [dir.clone(), dir.join("below")] {
        space.set("BM_ROOT", root.display().to_string());
        as_nobody(&space, &["build", "fk12_o3"]).fails(3).says(&[
            "locked",
            "ermission denied",
            "hint: choose a place you may write to",
        ]);
    }
    assert_eq!(names(&dir), [""; 0]);
    // A file where the root should be.
    space.set("BM_ROOT", space.recipe().display().to_string());
    space.bm(&["build", "fk12_o3"]).fails(3).says(&["fakedb.toml"]);
}

/// Set in the copy of this program that runs where the small file system is mounted.
const SMALL: &str = "BM_TEST_SMALL";

/// Fills the file system but for `free` bytes; the file is the filler.
fn fill(disk: &Path, free: u64) {
    let filler = disk.join("filler");
    let _ = fs::remove_file(&filler);
    let stat = rustix::fs::statvfs(disk).unwrap();
    let length = (stat.f_bavail * stat.f_frsize).saturating_sub(free);
    let file = fs::File::create(&filler).unwrap();
    rustix::fs::fallocate(file.file(), rustix::fs::FallocateFlags::empty(), 0, length.max(1)).unwrap();
}

#[test]
fn a_full_disk_loses_nothing_at_any_step() {
    if let Some(disk) = std::env::var_os(SMALL) {
        return full_at_every_step(Path::new(&disk));
    }
    // In a mount namespace of its own: nothing is left mounted, whatever happens to this test.
    let dir = tempfile::Builder::new()
        .prefix("bm-bad-small-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in("/tmp")
        .unwrap();
    // Eight megabytes, and room for bm's own program, which a build copies where it cannot link to it.
    let size = (8 << 20) + fs::metadata(env!("CARGO_BIN_EXE_bm")).unwrap().len();
    let mount = format!("mount -t tmpfs -o size={size},mode=755 small \"$0\" || exit 77; ");
    let (options, script) = if is_root() {
        (&["-m"][..], format!("{mount} exec \"$@\""))
    } else {
        // Root of a first user namespace may mount; in a second one it is an ordinary user again, as
        // bm, which would look for another account if it were root.
        let inner = "exec unshare -U --map-user=1000 --map-group=1000 \"$@\"";
        (&["-Urm"][..], format!("{mount} {inner}"))
    };
    let done = Command::new("unshare")
        .args(options)
        .args(["sh", "-c", &script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_loses_nothing_at_any_step", "--nocapture"])
        .env(SMALL, dir.path())
        .output();
    let Ok(done) = done else {
        return skip("no `unshare` to mount a small file system with");
    };
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    if done.status.code() == Some(77) || said.starts_with("unshare:") {
        return skip(&format!("no small file system can be mounted: {said}"));
    }
    assert!(done.status.success(), "{said}");
}

fn full_at_every_step(disk: &Path) {
    // Bulk in every step, so that each is met.
    let bulk: String = (0..20_000).map(|n| format!("{:x}", n * 7919 % 65_521)).collect();
    let mut tree = Tree::of("1.2")
        .with(
            "pages.c",
            "int pages",
            &format!("const char bulk[] = \"{bulk}\";\nint pages"),
        )
        .with(
            "Makefile.in",
            "#INSTALL",
            "\tcp @src@/README $(DESTDIR)$(prefix)/README",
        );
    tree.0.insert("README".to_owned(), bulk);
    let mut space = Space::with_tree(&tree);
    space.root = disk.join("root");
    fs::create_dir(&space.root).unwrap();
    space.set("BM_ROOT", space.root.display().to_string());
    space.bm(&["fetch", "fk12_o3"]).works();
    let own = fs::metadata(env!("CARGO_BIN_EXE_bm")).unwrap().len();

    // First with an empty place, then over a prefix that must stay.
    for old in [false, true] {
        if old {
            assert_eq!(space.names(), ["fk12_o3"]);
        }
        let mut before = picture(&space.root.join("fk12_o3"));
        let mut met = std::collections::BTreeSet::new();
        let mut free = 0;
        loop {
            // Trees that were kept would make room in the middle of the next round.
            for kept in ["work", "failed"] {
                let _ = fs::remove_dir_all(space.root.join(".bm").join(kept));
            }
            // What the last build needed is known and would be asked for beforehand.
            let _ = fs::remove_file(space.root.join(".bm/measured.json"));
            fill(disk, free);
            let ran = space.bm(&["build", "fk12_o3", "--rebuild"]);
            if ran.code == 0 {
                break;
            }
            let last = ran.err.lines().rev().find(|l| l.trim_end().ends_with("ing fk12_o3"));
            let step = last.map_or("before", |l| l.split_whitespace().next().unwrap());
            assert_eq!(ran.code, 3, "{free} bytes free, {step}: {}", ran.err);
            ran.fails(3).says(&["hint: free some"]);
            met.insert(step.to_owned());
            // What comes after `install` writes little: a page at a time from there.
            free += match step {
                _ if ran.err.contains("cannot keep bm's own program") => own,
                "Auditing" | "Placing" | "Testing" | "Sealing" => 4 << 10,
                "Installing" => 16 << 10,
                _ => 40 << 10,
            };
            let sealed = ran.err.contains("sealed: ");
            if sealed {
                // The new prefix counts, and the next command finishes what is left to do.
                ran.says(&["the next bm command finishes the rest"]);
                fs::remove_file(disk.join("filler")).unwrap();
                space
                    .bm(&["build", "fk12_o3"])
                    .works()
                    .says(&["Repaired", "0 built, 1 fresh"]);
                before = picture(&space.root.join("fk12_o3"));
            }
            assert_eq!(
                picture(&space.root.join("fk12_o3")),
                before,
                "{free} bytes free, {step}: {}",
                ran.err
            );
            if old || sealed {
                let _ = fs::remove_file(disk.join("filler"));
                assert_eq!(
                    space.bm(&["exec", "fk12_o3", "--", "fakedb"]).works().out,
                    "fakedb 1.2\n"
                );
                space.bm(&["verify", "fk12_o3"]).works();
            }
            assert!(free < own + (8 << 20), "it never gets through: {}", ran.err);
        }
        let wanted = ["Unpacking", "Compiling", "Installing"];
        assert!(wanted.iter().all(|w| met.contains(*w)), "only met {met:?}");
        // The seal follows the smoke test without a word.
        assert!(met.contains("Placing") || met.contains("Testing"), "only met {met:?}");
        fs::remove_file(disk.join("filler")).unwrap();
        space.bm(&["build", "fk12_o3"]).works().says(&["0 built, 1 fresh"]);
        space.bm(&["verify", "fk12_o3"]).works();
        space.tidy(&["fk12_o3"], 0, 0);
    }
}

// ---- handing over ----

#[test]
fn a_program_or_driver_that_fails_is_told_from_bm() {
    let space = Space::new();
    space.bm(&["build", "fk12_o2", "fk12_o3"]).works();
    let ran = space.bm(&["exec", "fk12_o3", "--", "no-such-program"]);
    ran.fails(3).says(&["cannot run `no-such-program`"]);
    assert_eq!(space.bm(&["exec", "fk12_o3", "--", "sh", "-c", "exit 42"]).code, 42);

    let logs = space.path("logs");
    let to = format!("--logs={}", logs.display());
    let ran = space.bm(&[
        "each",
        "fk12*",
        &to,
        "--",
        "sh",
        "-c",
        "echo {name} in {prefix}; test {name} = fk12_o3",
    ]);
    ran.says(&["fk12_o2 with status 1", "1 of 2 ran well"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    for (name, code) in [("fk12_o2", "1\n"), ("fk12_o3", "0\n")] {
        assert_eq!(fs::read_to_string(logs.join(format!("{name}.exit"))).unwrap(), code);
        let log = fs::read_to_string(logs.join(format!("{name}.log"))).unwrap();
        assert_eq!(log, format!("{name} in {}\n", space.root.join(name).display()));
    }
    let ran = space.bm(&["each", "fk12*", &to, "--", "no-such-driver"]);
    ran.fails(3).says(&["cannot run `no-such-driver`"]);
    let ran = space.bm(&["each", "fk12*", &to, "--fail-fast", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(ran.code, 1);
    assert_eq!(fs::read_to_string(logs.join("fk12_o2.exit")).unwrap(), "137\n");
    space.tidy(&["fk12_o2", "fk12_o3"], 0, 0);
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_one_is() {
    let space = Space::new();
    let mut child = space
        .command(&["list", "--all"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Less than the pipe holds, then closed: bm writes far more than that.
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    // Lost output must not pass for good.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = space
        .command(&["list", "--all"])
        .stdout(full.into_file())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(3));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(
        err.contains("cannot write the output") && err.contains("No space left"),
        "{err}"
    );
}

// ---- local trees ----

#[test]
fn local_trees_that_are_none_or_were_configured_in_place_are_refused() {
    let space = Space::empty();
    let dir = space.path("tree");
    let build = |dir: &Path| {
        let source = format!("--source={}", dir.display());
        space.bm(&["build", "fakedb", &source, "--variant", "o3", "--name", "mine"])
    };
    build(&dir)
        .fails(4)
        .says(&["does not look like a source tree of fakedb", "tree"]);
    fs::create_dir(&dir).unwrap();
    build(&dir)
        .fails(4)
        .says(&["does not look like a source tree of fakedb", "configure"]);
    fs::write(dir.join("configure"), "#!/bin/sh\n").unwrap();
    build(&dir)
        .fails(4)
        .says(&["cannot read a version from `configure`", "PACKAGE_VERSION='VERSION'"]);
    let file = space.path("file");
    fs::write(&file, "").unwrap();
    build(&file).fails(4).says(&["does not look like a source tree"]);
    space.tidy(&[], 0, 0);

    Tree::of("1.2").write(&dir);
    for litter in ["config.status", "CMakeCache.txt", "generated.h"] {
        fs::write(dir.join(litter), "").unwrap();
        let before = picture(&dir);
        let holds = format!("was configured in place: it holds `{litter}`");
        build(&dir).fails(4).says(&[&holds, "make distclean"]);
        assert_eq!(picture(&dir), before);
        space.tidy(&[], 0, 0);
        fs::remove_file(dir.join(litter)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap().success());
    build(&dir).fails(4).says(&["fifo", "is no file, directory or link"]);
    fs::remove_file(dir.join("fifo")).unwrap();
    let before = picture(&dir);
    build(&dir).works();
    assert_eq!(picture(&dir), before);
    space.tidy(&["mine"], 0, 0);
}
