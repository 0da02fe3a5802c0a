//! Golden commands of a small recipe, the order of flags, and what stands against a build.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::error::Exit;
use crate::sample::{self, Ask, plan, recipe};

fn argv(plan: &BuildPlan) -> Vec<Vec<String>> {
    let of = |call: Call| call.argv.into_iter().map(|a| a.text).collect();
    plan.run().calls.into_iter().map(of).collect()
}

fn texts(words: &[Word]) -> Vec<&str> {
    words.iter().map(|w| w.text.as_str()).collect()
}

#[test]
fn commands_have_every_word_in_its_place() {
    let plan = plan(
        &recipe(&[]),
        Ask {
            variant: "fast",
            ..Ask::default()
        },
    );
    let configure = [
        "../src/configure",
        "--prefix=/r/d21_o3_lto",
        "--with-tag=2_1",
        "--docs=/r/d21_o3_lto/doc",
        "--fast",
        "--from-git",
        "CC=gcc",
        "CXX=g++",
        "AR=gcc-ar",
        "NM=gcc-nm",
        "RANLIB=gcc-ranlib",
        "CFLAGS=-DV=21 -O3 -flto",
        "CXXFLAGS=-flto",
        "LDFLAGS=-flto",
    ];
    let want: [&[&str]; 3] = [&configure, &["make", "all"], &["make", "install", "DESTDIR={stage}"]];
    assert_eq!(argv(&plan), want);
    assert_eq!(plan.run().env["DEMO"].text, "d21-o3_lto-gcc-2");
    assert_eq!(
        texts(&plan.recipe.smoke_command),
        ["bin/demo", "{version}"],
        "taken as it stands"
    );
    // Values do not hide where a word is written.
    assert_eq!(
        plan.run().calls[0].argv[2].parts[0].origin.to_string(),
        "recipes/demo.toml:12"
    );
}

#[test]
fn the_staging_directory_is_known_when_a_command_is_run() {
    let plan = plan(&recipe(&[]), Ask::default());
    let staged = |call: usize, arg: usize| plan.run().calls[call].argv[arg].staged("/w/stage");
    assert_eq!(staged(2, 2), "DESTDIR=/w/stage");
    assert_eq!(staged(0, 11), "CFLAGS=-DV=21 -O3");
}

#[test]
fn braces_of_the_user_reach_the_program() {
    let word = |text: &str, origin| Word {
        text: text.to_owned(),
        origin,
    };
    let cflags = [word("-DX={stage}", Origin::CommandLine("--cflags"))];
    let passed = BTreeMap::from([("DEMO".to_owned(), word("{version}", Origin::Environment))]);
    let plan = sample::plan_with(&recipe(&[]), Ask::default(), &cflags, &passed);
    let run = plan.run();
    let cflags = run.calls[0].argv.iter().find(|a| a.head() == "CFLAGS=").unwrap();
    assert_eq!(cflags.staged("no"), "CFLAGS=-DV=21 -O3 -DX={stage}");
    assert_eq!(
        plan.run().env["DEMO"].text,
        "{version}",
        "and the user's variable wins over the recipe's"
    );
}

#[test]
fn flags_merge_in_order_and_the_implied_level_comes_first() {
    let check = |ask: Ask<'_>, want: &[&str]| {
        assert_eq!(texts(&plan(&recipe(&[]), ask).run().flags.cflags), want);
    };
    let clang = Ask {
        toolchain: "clang15",
        ..Ask::default()
    };
    // Toolchain, its recording switch, product, variant; -O2 only where nothing says a level.
    check(
        Ask {
            variant: "o3_lto",
            ..clang
        },
        &["-DT", "-grecord-command-line", "-DV=21", "-O3", "-flto"],
    );
    check(
        Ask {
            variant: "def",
            ..clang
        },
        &["-O2", "-DT", "-grecord-command-line", "-DV=21"],
    );
    check(
        Ask {
            variant: "def",
            ..Ask::default()
        },
        &["-O2", "-DV=21"],
    );
    let bare = recipe(&[("[[flags]]\ncflags = [\"-DV={version.compact}\"]\n", "")]);
    let plan = plan(
        &bare,
        Ask {
            variant: "def",
            ..Ask::default()
        },
    );
    assert!(
        plan.run().flags.cflags.is_empty(),
        "without any flag the build system's own default holds"
    );
    assert!(argv(&plan)[0].iter().all(|a| !a.starts_with("CFLAGS")));
}

#[test]
fn a_compiler_that_moves_changes_nothing_but_what_is_for_it() {
    let recipe = recipe(&[]);
    let with = |compiler| {
        plan(
            &recipe,
            Ask {
                compiler,
                ..Ask::default()
            },
        )
    };
    let (old, new, gone) = (with(Some("12.2.0")), with(Some("16.1.0")), with(None));
    assert_eq!(texts(&new.run().flags.cflags), ["-DV=21", "-std=gnu17", "-O3"]);
    assert_eq!(old.inputs()["commands"], new.inputs()["commands"]);
    assert_eq!(old.inputs().get(identity::FOR_COMPILER), None);
    assert!(new.inputs()[identity::FOR_COMPILER].to_string().contains("-std=gnu17"));
    assert_ne!(old.identity, new.identity);
    assert_eq!(
        (&gone.inputs()["commands"], gone.identity),
        (&old.inputs()["commands"], None)
    );
    assert!(
        gone.unresolved[0].starts_with("toolchain `gcc`"),
        "{:?}",
        gone.unresolved
    );
}

#[test]
fn reasons_stand_with_their_line() {
    let plan = plan(
        &recipe(&[]),
        Ask {
            compiler: Some("16.1.0"),
            ..Ask::default()
        },
    );
    let notes: Vec<String> = plan.notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "C17  [recipes/demo.toml:26]",
            "fast came with 2  [recipes/demo.toml:15]"
        ]
    );
    let explained = show::explain(&plan);
    for line in [
        "note      C17  [recipes/demo.toml:26]",
        "      -std=gnu17            recipes/demo.toml:27",
        "    CFLAGS=",
        "    DEMO=d21-o3-gcc-2    recipes/demo.toml:21",
    ] {
        assert!(explained.lines().any(|l| l == line), "{line:?} not in\n{explained}");
    }
    assert!(!explained.contains("secret") && !show::json(&plan).to_string().contains("secret"));
    assert_eq!(show::json(&plan)["notes"][0]["origin"], "recipes/demo.toml:26");
}

#[test]
fn a_compiler_outside_its_limits_is_an_obstacle() {
    let recipe = recipe(&[]);
    let with = |version, toolchain, compiler| {
        plan(
            &recipe,
            Ask {
                version,
                toolchain,
                compiler,
                ..Ask::default()
            },
        )
        .obstacles
    };
    assert!(with("1.0", "gcc", Some("13.4.0")).is_empty());
    assert!(with("2.0", "gcc", Some("14.2.0")).is_empty(), "another version");
    assert!(with("1.0", "clang15", Some("15.0.7")).is_empty(), "another family");
    assert!(with("1.0", "gcc", None).is_empty(), "nothing is known");
    let [refused] = <[Error; 1]>::try_from(with("1.0", "gcc", Some("14.2.0"))).unwrap();
    assert_eq!(refused.exit(), Exit::Host);
    let unfit = plan(
        &recipe,
        Ask {
            version: "1.0",
            compiler: Some("14.2.0"),
            ..Ask::default()
        },
    );
    assert_eq!(
        (unfit.unresolved, unfit.identity),
        (vec![refused.headline().to_owned()], None)
    );
    assert_eq!(refused.headline(), "build `d10_o3` cannot be made with gcc 14.2.0");
    let details: Vec<_> = refused.details().iter().map(|(_, value)| value.as_str()).collect();
    let limit = "gcc <14  [recipes/demo.toml:34]";
    assert_eq!(details, [limit, "gcc 14.2.0", "it does not compile with later ones"]);
    let ask = Ask {
        version: "1.0",
        ..Ask::default()
    };
    let old = plan(&recipe, ask);
    for (family, compiler, want) in [
        (Family::Gcc, "14.2.0", false),
        (Family::Gcc, "12.2.0", true),
        (Family::Clang, "15.0.7", true),
    ] {
        let compiler = compiler.parse().unwrap();
        assert_eq!(fits(&old, family, &compiler), want);
    }
}

#[test]
fn no_recipe_can_write_the_staging_directory_or_a_field_where_none_is_replaced() {
    let refused = |from: &str, to: &str| {
        let broken = std::panic::catch_unwind(|| recipe(&[(from, to)]));
        broken
            .unwrap_err()
            .downcast::<String>()
            .map_or_else(|_| String::new(), |text| *text)
    };
    assert!(refused("\"--fast\"", "\"--into={stage}\"").contains("unknown field `{stage}`"));
    assert!(refused("\"--fast\"", "\"--into={commit9}\"").contains("unknown field `{commit9}`"));
}
