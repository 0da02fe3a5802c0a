//! Builds that need other builds: made first and once, part of the identity, and left alone by what is not about them;
//! products configured with cmake; whole commands.
#![allow(clippy::unwrap_used)]

#[path = "support/run.rs"]
mod support;

use std::os::unix::fs::PermissionsExt;

use bm::digest::sha256;
use fs_err as fs;
use support::Space;

/// A library made by whole commands, in the place its recipe names.
const LIBRARY: &str = r#"product = "fkdep"
description = "What fakedb may need"
build-system = "commands"
series-parts = 1
smoke = "files"
versions = [{ id = "1.0", sha256 = "@SUM@" }]
names = { release = "fkdep-{version}", series = "fkdep{version.series}", build = "{release}{_variant}{_toolchain}", git = "fkdep_git_{commit9}" }
variants = { def = [] }
source.tarball.urls = ["https://fakedb.example/fakedb-{version}.tar.gz"]
compile = [
  { args = ["cp", "../src/src/util.c", "dep.c"] },
  { args = ["{cc}", "-g", "-O2", "-c", "dep.c", "-o", "util.o"] },
  { args = ["@THEN@"] },
]
install = [
  { args = ["mkdir", "-p", "{stage}{prefix}/lib"] },
  { args = ["{cc}", "-shared", "-o", "{stage}{prefix}/lib/libfkdep.so", "util.o"] },
]
[[expect]]
files = ["lib/libfkdep.so"]
"#;

const OPTION: &str = r#"
[[options]]
name = "dep"
about = "the library"
choices = [
  { name = "none" },
  { name = "own", needs = "fkdep-1.0", args = ["LDFLAGS=-L{need.dep}/lib"] },
]
default = [{ choice = "own" }]
"#;

/// Two releases of fakedb that need the library, of which a command of the compile step is `then`.
fn space(then: &str) -> Space {
    let mut space = Space::new();
    let sum = space.tarball("1.0");
    space.release("1.1");
    space.recipe.tail = OPTION.to_owned();
    let text = LIBRARY.replace("@SUM@", &sum).replace("@THEN@", then);
    fs::write(space.path("recipes/recipes/fkdep.toml"), text).unwrap();
    space
}

#[test]
fn what_is_needed_is_built_first_and_once_and_is_part_of_the_identity() {
    let space = space("true");
    let ran = space.ok(&["build", "fk10_o2", "fk11_o2"]);
    let built: Vec<&str> = ran.err.lines().filter(|l| l.trim().starts_with("Built")).collect();
    assert_eq!(built.len(), 3, "{}", ran.err);
    assert!(built[0].contains("fkdep-1.0"), "{}", ran.err);
    let [library, user] = ["fkdep-1.0", "fk10_o2"].map(|name| space.manifest(name));
    assert_eq!(user["dependencies"]["fkdep-1.0"], library["identity"]);
    assert_eq!(user["inputs"]["dependencies"]["fkdep-1.0"], library["identity"]);
    let linked = user["steps"].to_string();
    assert!(
        linked.contains(&format!("-L{}/lib", space.prefix("fkdep-1.0").display())),
        "{linked}"
    );
    space.assert_tidy();

    // Builds that are up to date need it no more, and what others need is rebuilt only when it is named.
    space.ok(&["rm", "fkdep-1.0"]);
    let ran = space.ok(&["build", "fk10_o2"]);
    assert!(ran.err.contains("0 built, 1 fresh"), "{}", ran.err);
    assert!(!space.prefix("fkdep-1.0").exists());
    let ran = space.ok(&["build", "fk10_o2", "--rebuild"]);
    assert!(ran.err.contains("2 built"), "{}", ran.err);
    let before = space.manifest("fkdep-1.0")["built_at"].clone();
    let again = space.ok(&["build", "fk10_o2", "--rebuild"]);
    assert!(again.err.contains("1 built, 1 fresh"), "{}", again.err);
    assert_eq!(space.manifest("fkdep-1.0")["built_at"], before);
    // A proof names what it stands on.
    let list = space.path("verified.toml");
    let file = list.to_str().unwrap();
    space.ok(&["verified", "add", "fk10_o2", "--file", file]);
    assert!(
        fs::read_to_string(&list)
            .unwrap()
            .contains("needs = [\"fkdep-1.0 (unproven copy)\"]")
    );
    space.ok(&["rm", "fkdep-1.0"]);
    let gone = space.run(&["verified", "add", "fk10_o2", "--file", file]);
    assert_eq!(gone.code, 5, "{}", gone.all());
    assert!(
        gone.err
            .contains("`fkdep-1.0`, which it was built on, is not here any more"),
        "{}",
        gone.err
    );
}

#[test]
fn without_what_it_needs_a_build_is_skipped_and_says_why() {
    let space = space("false");
    let ran = space.run(&["build", "fk10_o2", "fk10_o2_dep-none"]);
    assert_eq!(ran.code, 1, "{}", ran.all());
    assert!(ran.err.contains("Skipped fk10_o2: it needs `fkdep-1.0`"), "{}", ran.err);
    assert!(ran.err.contains("Built fk10_o2_dep-none"), "{}", ran.err);
    assert!(!space.prefix("fk10_o2").exists() && !space.prefix("fkdep-1.0").exists());
}

#[test]
fn another_recipe_for_what_is_needed_is_a_change_and_a_new_compiler_is_not() {
    let space = space("true");
    space.ok(&["build", "fk10_o2"]);
    let recipe = space.path("recipes/recipes/fkdep.toml");
    let text = fs::read_to_string(&recipe).unwrap();
    fs::write(&recipe, text.replace("\"-O2\"", "\"-O1\"")).unwrap();
    // Up to date is what stands; the change is said about what changed.
    let ran = space.run(&["build", "fk11_o2"]);
    assert_eq!(ran.code, 6, "{}", ran.all());
    assert!(
        ran.err.contains("is built from other inputs than those planned now"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("Skipped fk11_o2: it needs `fkdep-1.0`"), "{}", ran.err);
    fs::write(&recipe, &text).unwrap();
    // Another shell program under the compiler's name: another toolchain, and so another library, if it were built.
    let first = space.path("first");
    fs::create_dir(&first).unwrap();
    let gcc = first.join("gcc");
    fs::write(&gcc, "#!/bin/sh\nexec /usr/bin/gcc \"$@\"\n").unwrap();
    fs::set_permissions(&gcc, PermissionsExt::from_mode(0o755)).unwrap();
    let mut moved = space;
    moved.first_on_path = Some(first);
    let ran = moved.ok(&["build", "fk10_o2", "fk11_o2"]);
    assert!(ran.err.contains("1 built") && ran.err.contains("kept"), "{}", ran.err);
    // What was built now stands on what is there, and says so.
    assert_eq!(
        moved.manifest("fk11_o2")["dependencies"]["fkdep-1.0"],
        moved.manifest("fkdep-1.0")["identity"]
    );
}

#[test]
fn what_only_a_refused_build_needs_is_not_built() {
    let mut space = space("true");
    space.recipe.tail +=
        "[[refused]]\nwhen = { versions = \"<1.1\" }\nreason = \"it is too old\"\ninstead = \"take 1.1\"\n";
    let ran = space.run(&["build", "fk10_o2"]);
    assert_eq!(ran.code, 2, "{}", ran.all());
    for want in ["build `fk10_o2` is not made", "reason: it is too old", "hint: take 1.1"] {
        assert!(ran.err.contains(want), "{want} in\n{}", ran.err);
    }
    assert!(!space.prefix("fkdep-1.0").exists(), "{}", ran.err);
}

#[test]
fn a_build_that_needs_itself_is_refused() {
    let mut space = space("true");
    space.recipe.tail = OPTION.replace("fkdep-1.0", "fk10_o2");
    let ran = space.run(&["build", "fk11_o2"]);
    assert_eq!(ran.code, 2, "{}", ran.all());
    assert!(ran.err.contains("`fk10_o2` needs itself"), "{}", ran.err);
}

/// A product in C and C++ that cmake configures.
fn cmake_space() -> Space {
    let mut space = Space::empty();
    space.tree.insert(
        "CMakeLists.txt".into(),
        "cmake_minimum_required(VERSION 3.5)\nproject(fakedb C CXX)\ninclude_directories(${CMAKE_BINARY_DIR})\n\
         file(WRITE ${CMAKE_BINARY_DIR}/fk_config.h \"#define FK_VERSION \\\"1.0\\\"\\n\")\n\
         add_library(fk STATIC src/util.c)\nadd_executable(fakedb src/main.c src/store.c src/page.c src/extra.cc)\n\
         target_link_libraries(fakedb fk)\ninstall(TARGETS fakedb fk RUNTIME DESTINATION bin ARCHIVE DESTINATION lib)\n\
         install(FILES ${CMAKE_BINARY_DIR}/fk_config.h DESTINATION include)\n"
            .into(),
    );
    space.tree.insert(
        "src/extra.cc".into(),
        "extern \"C\" int extra(int n) { return n + 1; }\n".into(),
    );
    space.release("1.0");
    space
}

/// The same recipe, for cmake.
fn with_cmake(space: &Space) {
    let file = space.path("recipes/recipes/fakedb.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text
        .replace("build-system = \"autoconf\"", "build-system = \"cmake\"")
        .replace("cflags = [\"-O3\"]", "cflags = [\"-O3\"]\ncxxflags = [\"-O3\"]")
        .replace("cflags = [\"-O2\"]", "cflags = [\"-O2\"]\ncxxflags = [\"-O2\"]")
        .replace("product = \"fakedb\"", "product = \"fakecm\"")
        .replace("\"fk{version", "\"fc{version")
        .replace("fk_git_", "fc_git_")
        .replace(
            "[[compile]]",
            "[[configure]]\nargs = [\"-DCMAKE_C_FLAGS_RELEASE=-DNDEBUG\", \"-DCMAKE_BUILD_TYPE=Release\"]\n\n[[compile]]",
        )
        + "\n[[flags]]\ncflags = [\"-g\"]\ncxxflags = [\"-g\"]\n\n[[cmake]]\nworks = \"<4\"\nreason = \"it wants old policies\"\n";
    fs::write(space.path("recipes/recipes/fakecm.toml"), text).unwrap();
}

#[test]
fn a_product_of_cmake_is_built_and_proved() {
    let space = cmake_space();
    space.ok(&["list"]);
    with_cmake(&space);
    space.ok(&["build", "fc10_o3"]);
    let manifest = space.manifest("fc10_o3");
    assert!(
        manifest["inputs"]["cmake"]["version"]
            .as_str()
            .unwrap()
            .starts_with("cmake version")
    );
    for role in ["cc", "cxx", "cc1plus"] {
        assert!(manifest["inputs"]["toolchain"][role]["sha256"].is_string(), "{role}");
    }
    let units = manifest["evidence"]["units"].as_array().unwrap();
    assert!(
        units.iter().all(|u| u["from"] == "object" || u["optimisation"] == "3"),
        "{units:?}"
    );
    assert!(
        units.iter().any(|u| u["compiler"].as_str().unwrap().contains("C++")),
        "{units:?}"
    );
    let again = space.ok(&["build", "fc10_o3"]);
    assert!(again.err.contains("0 built, 1 fresh"), "{}", again.err);
}

#[test]
fn a_cmake_that_does_not_work_is_refused_before_anything_is_done() {
    let mut space = cmake_space();
    space.ok(&["list"]);
    with_cmake(&space);
    let first = space.path("first");
    fs::create_dir(&first).unwrap();
    let cmake = first.join("cmake");
    fs::write(&cmake, "#!/bin/sh\necho cmake version 4.3.1\n").unwrap();
    fs::set_permissions(&cmake, PermissionsExt::from_mode(0o755)).unwrap();
    space.first_on_path = Some(first);
    let ran = space.run(&["build", "fc10_o3"]);
    assert_eq!(ran.code, 3, "{}", ran.all());
    for want in [
        "build `fc10_o3` cannot be configured with cmake 4.3.1",
        "works: cmake <4",
        "reason: it wants old policies",
        "put a cmake of that range first on PATH",
    ] {
        assert!(ran.err.contains(want), "{want} in\n{}", ran.err);
    }
    assert!(!space.prefix("fc10_o3").exists());
}

#[test]
fn the_checksum_of_another_form_of_the_archive_is_told_apart() {
    let mut space = Space::new();
    // The same release with more in it: other bytes under another name.
    let plain = space.path("mirror/fakedb-1.0.tar.gz");
    space.tree.insert(
        "boost/version.hpp".into(),
        "#define BOOST_LIB_VERSION \"1_59\"\n".into(),
    );
    let with_boost = space.tarball("1.1");
    let sum = sha256(fs::read(&plain).unwrap());
    let forms = "[source.tarball.forms]\nboost = [\"https://fakedb.example/fakedb-boost-{version}.tar.gz\"]\n";
    fs::rename(
        space.path("mirror/fakedb-1.1.tar.gz"),
        space.path("mirror/fakedb-boost-1.0.tar.gz"),
    )
    .unwrap();
    space.recipe.tail = forms.to_owned();

    // Only the sum of the other form is known: that form is taken.
    space.recipe.versions = vec![("1.0".into(), format!("forms = {{ boost = {with_boost:?} }}"))];
    space.ok(&["build", "fk10_o2"]);
    assert_eq!(
        space.manifest("fk10_o2")["sources"][0]["ref"],
        "fakedb-boost-1.0.tar.gz"
    );

    // The sum of the other form in the place of the plain one's, whose bytes are not here yet.
    fs::remove_dir_all(space.path("cache/downloads")).unwrap();
    space.recipe.versions = vec![("1.0".into(), format!("sha256 = {with_boost:?}"))];
    let ran = space.run(&["build", "fk10_o2", "--name", "fk10_o2_again"]);
    assert_eq!(ran.code, 4, "{}", ran.all());
    for want in [
        format!("expected: {with_boost}"),
        format!("got: {sum}"),
        "each form of a release has a checksum of its own: is this one that of `fakedb-boost-1.0.tar.gz`?".to_owned(),
    ] {
        assert!(ran.err.contains(&want), "{want} in\n{}", ran.err);
    }

    // And a plain archive that is really the other one.
    fs::copy(space.path("mirror/fakedb-boost-1.0.tar.gz"), &plain).unwrap();
    let pins = format!("sha256 = {sum:?}, forms = {{ boost = {with_boost:?} }}");
    space.recipe.versions = vec![("1.0".into(), pins)];
    let ran = space.run(&["build", "fk10_o2", "--name", "fk10_o2_again"]);
    assert_eq!(ran.code, 4, "{}", ran.all());
    assert!(
        ran.err
            .contains("those bytes are `fakedb-boost-1.0.tar.gz`, another form of the release"),
        "{}",
        ran.err
    );
}

#[test]
fn what_is_linked_from_a_needed_static_library_is_not_judged_as_the_builds_own() {
    let mut space = Space::new();
    let sum = space.tarball("1.0");
    let archive = LIBRARY
        .replace("@SUM@", &sum)
        .replace("@THEN@", "true")
        .replace("\"-O2\"", "\"-O1\"")
        .replace(
            "\"{cc}\", \"-shared\", \"-o\", \"{stage}{prefix}/lib/libfkdep.so\"",
            "\"{ar}\", \"crs\", \"{stage}{prefix}/lib/libfkdep.a\"",
        )
        .replace("lib/libfkdep.so", "lib/libfkdep.a");
    fs::write(space.path("recipes/recipes/fkdep.toml"), archive).unwrap();
    // The program takes `sum` from there: its own library has it no more.
    space
        .tree
        .insert("src/util.c".into(), "int unused(int n) { return n; }\n".into());
    space.release("1.1");
    space.recipe.tail = OPTION.replace("-L{need.dep}/lib", "{need.dep}/lib/libfkdep.a");
    space.ok(&["build", "fk11_o2"]);
    let audit = &space.manifest("fk11_o2")["audit"];
    let exempt = ["1 units out of static libraries of fkdep-1.0, which has its own proof"];
    assert_eq!(audit["exempt"], serde_json::json!(exempt), "{audit}");
    // The same unit from a library that nobody vouches for is a finding.
    let stray = space.path("stray.a");
    fs::copy(space.prefix("fkdep-1.0").join("lib/libfkdep.a"), &stray).unwrap();
    space.recipe.tail = String::new();
    space.recipe.configure = vec![format!("LDFLAGS={}", stray.display())];
    let ran = space.run(&["build", "fk11_o2", "--name", "fk11_stray"]);
    assert_eq!(ran.code, 5, "{}", ran.all());
    assert!(
        ran.err.contains("asked a recorded compile call, found none"),
        "{}",
        ran.err
    );
}
