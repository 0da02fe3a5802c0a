//! The MySQL rows of the catalogue against the shipped recipes, through the real program. The expectations are in
//! `support/mysql.tsv`: published names, archives, checksums and flags, none derived from a recipe.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

const ROWS: &str = include_str!("support/mysql.tsv");

struct Run {
    code: i32,
    out: String,
    err: String,
}

fn bm(args: &[&str]) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_bm"))
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", dir.path())
        .env("BM_ROOT", dir.path().join("root"))
        .env("BM_CACHE", dir.path().join("cache"))
        .output()
        .unwrap();
    Run {
        code: out.status.code().unwrap(),
        out: String::from_utf8(out.stdout).unwrap(),
        err: String::from_utf8(out.stderr).unwrap(),
    }
}

fn show(names: &[&str]) -> BTreeMap<String, Value> {
    let args: Vec<&str> = ["show", "--json"].iter().chain(names).copied().collect();
    let run = bm(&args);
    assert_eq!(run.code, 0, "{}", run.err);
    let plans = run.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    plans
        .map(|plan| (plan["name"].as_str().unwrap().to_owned(), plan))
        .collect()
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect()
}

/// The words of the cmake call.
fn cmake(plan: &Value) -> Vec<&str> {
    let steps = plan["steps"].as_array().unwrap();
    words(&steps.iter().find(|s| s["name"] == "configure").unwrap()["argv"])
}

#[test]
fn every_row_of_the_catalogue_plans_exactly() {
    let rows: Vec<Vec<&str>> = ROWS
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split('\t').collect())
        .collect();
    assert_eq!(rows.len(), 62);
    let names: Vec<&str> = rows.iter().map(|r| r[0]).collect();
    let plans = show(&names);
    for row in rows {
        let [
            name,
            version,
            archive,
            sha256,
            ssl,
            boost,
            standard,
            frame_pointers,
            lto,
        ] = row[..]
        else {
            panic!("{row:?}")
        };
        let plan = &plans[name];
        let source = &plan["sources"][0];
        assert_eq!(plan["version"], version, "{name}");
        assert_eq!(source["kind"], "tarball", "{name}");
        assert_eq!(
            (&source["ref"], &source["sha256"]),
            (&archive.into(), &sha256.into()),
            "{name}"
        );
        let needs: Vec<&str> = plan["dependencies"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let wanted: Vec<&str> = [ssl, boost]
            .into_iter()
            .filter(|n| n.contains('-') && n.len() > 1)
            .collect();
        assert_eq!(needs, wanted, "{name}");
        let cmake = cmake(plan);
        let prefix = |need: &str| plan["prefix"].as_str().unwrap().replace(name, need);
        let with_ssl = if ssl.contains('-') { prefix(ssl) } else { ssl.to_owned() };
        assert!(
            cmake.contains(&format!("-DWITH_SSL={with_ssl}").as_str()),
            "{name}: {cmake:?}"
        );
        let with_boost = format!("-DWITH_BOOST={}/include", prefix(boost));
        assert_eq!(cmake.contains(&with_boost.as_str()), boost != "-", "{name}");
        let cxxflags = words(&plan["flags"]["cxxflags"]);
        for word in [standard, frame_pointers, lto, "-O3", "-g1"]
            .into_iter()
            .filter(|w| *w != "-")
        {
            assert!(cxxflags.contains(&word), "{name}: {word} in {cxxflags:?}");
        }
        let flags = [&plan["flags"]["cflags"], &plan["flags"]["cxxflags"]]
            .map(words)
            .concat();
        assert_eq!(flags.contains(&"-flto"), lto == "-flto", "{name}: {flags:?}");
        assert!(!flags.iter().any(|w| w.starts_with("-march")), "{name}: {flags:?}");
        for word in [
            "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG",
            "-DWITH_ZLIB=bundled",
            "-DENABLED_LOCAL_INFILE=1",
            "-DMYSQL_MAINTAINER_MODE=0",
            "-DWITH_UNIT_TESTS=OFF",
        ] {
            assert!(cmake.contains(&word), "{name}: {word}");
        }
        let eight = version.starts_with("8.");
        assert_eq!(cmake.contains(&"-DWITH_LTO=ON"), eight && lto == "-flto", "{name}");
        for word in ["-DWITH_ROUTER=OFF", "-DWITH_MYSQLX=OFF", "-DUSE_LD_GOLD=OFF"] {
            assert_eq!(cmake.contains(&word), eight, "{name}: {word}");
        }
        assert_eq!(cmake.contains(&"-DWITH_NUMA=ON"), !version.starts_with("5.6"), "{name}");
        let performance_schema = "-DWITH_PERFSCHEMA_STORAGE_ENGINE=0";
        assert_eq!(
            cmake.contains(&performance_schema),
            version.starts_with("5.6"),
            "{name}"
        );
        assert_eq!(plan["obstacles"], serde_json::json!([]), "{name}");
    }
}

#[test]
fn one_openssl_and_one_boost_serve_all_releases_that_need_the_same() {
    let run = bm(&["build", "my57*_rel", "--dry-run"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let built: Vec<&str> = run.out.lines().filter_map(|l| l.split_whitespace().nth(1)).collect();
    let needs: Vec<&str> = built.iter().copied().filter(|n| !n.starts_with("my")).collect();
    assert_eq!(needs, ["openssl-1.0.2u", "boost-1.59.0", "openssl-1.1.1w"]);
    assert_eq!(built.len() - needs.len(), 35, "5.7.10 to 5.7.44");
}

#[test]
fn another_choice_shows_in_the_name_and_reads_back() {
    let plans = show(&["my5718_rel_ssl-bundled"]);
    let plan = &plans["my5718_rel_ssl-bundled"];
    assert_eq!(plan["options"]["ssl"], "bundled");
    assert_eq!(
        plan["dependencies"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["boost-1.59.0"]
    );
    let set = bm(&["show", "--json", "my5718_rel", "--set", "ssl=bundled"]);
    let set: Value = serde_json::from_str(&set.out).unwrap();
    assert_eq!(set["name"], "my5718_rel_ssl-bundled");
    // The default choice is no other build.
    let same = bm(&["show", "--json", "my5718_rel_ssl-openssl102"]);
    let same: Value = serde_json::from_str(&same.out).unwrap();
    assert_eq!(
        (&same["name"], &same["aliases"][0]),
        (&"my5718_rel".into(), &"my5718_rel_ssl-openssl102".into())
    );
}

#[test]
fn variants_mean_what_their_names_say() {
    let plans = show(&[
        "my5740_rel_o2nofp",
        "my5740_rel_native_lto",
        "my8034_rel_native_lto",
        "my8034_rel_withdbg",
        "my8035_rel_lessps",
    ]);
    // 5.7.40 makes -O3 of an -O2 that stands among the flags of the build type.
    let o2 = &plans["my5740_rel_o2nofp"];
    assert_eq!(
        words(&o2["flags"]["cxxflags"]),
        ["-g1", "-O2", "-fno-omit-frame-pointer"]
    );
    assert!(cmake(o2).contains(&"-DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG"));
    assert_eq!(o2["claims"]["optimisation"], "2");
    for name in ["my5740_rel_native_lto", "my8034_rel_native_lto"] {
        let plan = &plans[name];
        assert_eq!(
            (&plan["claims"]["lto"], &plan["claims"]["march"]),
            (&true.into(), &"native".into()),
            "{name}"
        );
        assert!(words(&plan["flags"]["ldflags"]).contains(&"-flto"), "{name}");
    }
    let debug = cmake(&plans["my8034_rel_withdbg"]);
    let last = |head: &str| debug.iter().rev().find(|w| w.starts_with(head)).copied();
    assert_eq!(last("-DCMAKE_BUILD_TYPE="), Some("-DCMAKE_BUILD_TYPE=RelWithDebInfo"));
    assert_eq!(last("-DWITH_PACKAGE_FLAGS="), Some("-DWITH_PACKAGE_FLAGS=OFF"));
    assert!(cmake(&plans["my8035_rel_lessps"]).contains(&"-DDISABLE_PSI_MUTEX=1"));
}

#[test]
fn patches_go_where_they_are_needed_and_nowhere_else() {
    let wanted: [(&str, &[&str]); 6] = [
        ("my5621_rel", &["mysql/sql-acl-empty-plugin.patch"]),
        ("my5641_rel", &[]),
        ("my5718_rel", &[]),
        ("my5718_rel_lto", &["mysql/exports-are-functions.patch"]),
        ("my5723_rel_lto", &[]),
        ("my8034_rel_lto", &[]),
    ];
    let plans = show(&wanted.map(|(name, _)| name));
    for (name, patches) in wanted {
        let found: Vec<&str> = plans[name]["patches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["file"].as_str().unwrap())
            .collect();
        assert_eq!(found, patches, "{name}");
    }
}

#[test]
fn what_cannot_be_is_said_with_what_can() {
    let check = |args: &[&str], wants: &[&str]| {
        let run = bm(args);
        assert_eq!(run.code, 2, "{args:?}: {}{}", run.out, run.err);
        for want in wants {
            assert!(run.err.contains(want), "{args:?}: {want} in\n{}", run.err);
        }
    };
    check(
        &["show", "my5732_rel", "--set", "ssl=bundled"],
        &[
            "mysql 5.7.32 has no choice `bundled` of option `ssl`",
            "it is for: <5.7.28",
            "choices are `openssl102`",
        ],
    );
    check(
        &["show", "my5732_rel", "--set", "ssh=system"],
        &["no selected build has an option `ssh`", "did you mean `ssl`?"],
    );
    check(
        &["show", "my5732_rel", "--set", "ssl"],
        &["`--set ssl` sets nothing", "--set ssl=system"],
    );
    check(
        &["show", "pg151_def", "--set", "ssl=system"],
        &["no selected build has an option `ssl`", "declare none"],
    );
    check(&["show", "my5732_rel_ssl-bundled"], &["has no choice `bundled`"]);
    check(
        &["build", "my5621_rel_lto"],
        &["build `my5621_rel_lto` is not made", "link-time optimisation"],
    );
}

#[test]
fn the_set_of_the_study_is_its_rows_of_the_catalogue() {
    let run = bm(&["build", "--dry-run", "--yes", "@my_56_to_80"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let planned: Vec<&str> = run.out.lines().filter_map(|l| l.split_whitespace().nth(1)).collect();
    let planned: Vec<&str> = planned.into_iter().filter(|n| n.starts_with("my")).collect();
    let rows = ROWS
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split('\t').next().unwrap());
    let wanted: Vec<&str> = rows.filter(|n| n.starts_with("my") && n.ends_with("_rel")).collect();
    assert_eq!(planned, wanted);
    assert_eq!(wanted.len(), 59);
}

#[test]
fn drivers_are_told_what_each_release_is_started_with() {
    // The manifest's `driver` is made by the same plan; `show` has it not.
    let library = bm::library::Library::load(&[]).unwrap();
    let mysql = &library.recipes[&"mysql".parse().unwrap()];
    let told = |version: &str| {
        let version = version.parse().unwrap();
        let mut driver = mysql.driver.clone();
        let holding = mysql.driver_when.iter();
        for part in holding.filter(|c| c.when.versions.as_ref().is_none_or(|r| r.matches(&version))) {
            driver.overlay(&part.value);
        }
        (driver.init.unwrap(), driver.socket.unwrap())
    };
    let check = |version: &str, init: &str, socket: &str| {
        assert_eq!(told(version), (init.to_owned(), socket.to_owned()), "{version}");
    };
    check("5.6.51", "mysql_install_db", "{prefix}/var/mysql.sock");
    check("5.7.44", "initialize-insecure", "{prefix}/var/mysql.sock");
    check("8.0.34", "initialize-insecure", "/tmp/mysql.sock");
}
