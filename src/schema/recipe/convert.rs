//! From the wire types of a recipe to the model, one part at a time.

use std::collections::BTreeMap;

use crate::model::recipe::{
    Atom, Between, BuildSystem, Choice, Claims, CmakeLimit, CompilerLimit, Conditional, CostHint, DistroSource, Driver,
    Expect, Flags, GitSource, Hint, MakeCall, Names, Need, OptionSpec, PatchSpec, PinnedVersion, Reason, Recipe,
    Refusal, Requirement, Smoke, Sources, TarballSource, VariantSpec, VersionFrom, Word,
};

use super::super::at::At;
use super::super::diagnostic::{Problem, Source};
use super::super::read::{FlagLists, Reader, VERSION_FIELDS, When};
use super::{
    ArgsRow, AtomRow, BetweenRow, ChoiceRow, ClaimsTable, CmakeRow, CompilerRow, DriverTable, EnvRow, ExpectRow,
    FlagsRow, HintRow, Level, NamesTable, OptionRow, PatchRow, RecipeFile, RefusedRow, RequireRow, SourceTable,
    VersionFromTable, VersionRow,
};

/// The recipe; what could not be read was reported and is left out.
pub(super) fn convert(file: &RecipeFile, source: &Source, reader: &mut Reader<'_>) -> Option<Recipe> {
    if matches!(file.build_system, super::BuildSystem::Commands) {
        reader.take_whole_commands();
    }
    let product = reader.parse(&file.product, "product");
    let names = names(&file.names, reader);
    let mut versions: Vec<_> = file.versions.iter().filter_map(|row| pinned(row, reader)).collect();
    versions.sort_by(|a, b| a.version.cmp(&b.version));
    let each = |rows: &[ArgsRow], reader: &mut Reader<'_>| rows.iter().map(|row| args(row, reader)).collect();
    let recipe = Recipe {
        file: source.file().clone(),
        description: reader.prose(&file.description, "description"),
        build_system: match file.build_system {
            super::BuildSystem::Autoconf => BuildSystem::Autoconf,
            super::BuildSystem::Cmake => BuildSystem::Cmake,
            super::BuildSystem::Commands => BuildSystem::Commands,
        },
        series_parts: usize::from(*file.series_parts),
        sources: sources(&file.source, reader),
        unlisted: reader.parse_opt(file.unlisted.as_ref(), "range"),
        versions,
        configure: each(&file.configure, reader),
        env: file.env.iter().map(|row| env(row, reader)).collect(),
        flags: file.flags.iter().map(|row| flags(row, reader)).collect(),
        compile: each(&file.compile, reader),
        install: each(&file.install, reader),
        atoms: file.atoms.iter().map(|row| atom(row, reader)).collect(),
        implied: reader.flags(&FlagLists {
            cflags: &file.implied.cflags,
            cxxflags: &file.implied.cxxflags,
            ldflags: &[],
        }),
        version_from: file.version_from.as_ref().map(|from| version_from(from, reader)),
        variants: variants(file, reader),
        variant_aliases: aliases(file, reader),
        generated: {
            for file in &file.generated {
                reader.inside(file, "the source tree");
            }
            file.generated.iter().map(|file| (**file).clone()).collect()
        },
        claims: claims(&file.claims),
        claims_when: {
            let rows = file.claims_when.iter();
            rows.map(|r| conditional(r.when.as_ref(), r.reason.as_ref(), claims(&r.claims), reader))
                .collect()
        },
        refused: file.refused.iter().map(|row| refusal(row, reader)).collect(),
        requires: file
            .requires
            .iter()
            .filter_map(|row| requirement(row, reader))
            .collect(),
        patches: file.patches.iter().map(|row| patch(row, reader)).collect(),
        compilers: file.compilers.iter().filter_map(|row| compiler(row, reader)).collect(),
        cmake: file.cmake.iter().filter_map(|row| cmake(row, reader)).collect(),
        options: file.options.iter().map(|row| option(row, reader)).collect(),
        expect: file.expect.iter().map(|row| expect(row, reader)).collect(),
        smoke: match file.smoke {
            super::Smoke::Postgres => Smoke::Postgres,
            super::Smoke::Mysql => Smoke::Mysql,
            super::Smoke::Command => Smoke::Command,
            super::Smoke::Files => Smoke::Files,
        },
        smoke_command: reader.literals(&file.smoke_command),
        cost: cost(&file.cost),
        hints: file.hints.iter().map(|row| hint(row, reader)).collect(),
        driver: driver(&file.driver, reader),
        driver_when: {
            let rows = file.driver_when.iter();
            rows.map(|r| conditional(r.when.as_ref(), r.reason.as_ref(), driver(&r.driver, reader), reader))
                .collect()
        },
        bases: vec![],
        text: source.text().clone(),
        product: product?,
        names: names?,
    };
    Some(recipe)
}

fn cost(table: &super::CostTable) -> CostHint {
    let hint = CostHint::default();
    let mib = |given: &Option<At<u32>>, known: u64| given.as_ref().map_or(known, |mib| u64::from(**mib) << 20);
    let cpu = table.cpu.as_ref().map_or(hint.cpu, |cpu| f64::from(**cpu));
    CostHint {
        cpu,
        // As it was for Postgres: half as much again.
        cpu_lto: table.cpu_lto.as_ref().map_or(cpu * 1.5, |cpu| f64::from(**cpu)),
        memory: mib(&table.memory_mib, hint.memory),
        disk: mib(&table.disk_mib, hint.disk),
    }
}

fn conditional<T>(
    when: Option<&When>,
    reason: Option<&At<String>>,
    value: T,
    reader: &mut Reader<'_>,
) -> Conditional<T> {
    Conditional {
        when: reader.when(when),
        reason: reason.map(|reason| Reason {
            text: reader.prose(reason, "reason"),
            origin: reader.origin(&reason.span()),
        }),
        value,
    }
}

pub(super) fn names(table: &NamesTable, reader: &mut Reader<'_>) -> Option<Names> {
    let release = reader.template(&table.release, "the name of a release", VERSION_FIELDS, &[]);
    let series = &["version.series"];
    let series = reader.template(&table.series, "the name of a series", series, series);
    let parts = &["release", "variant", "toolchain"];
    let build = reader.template(&table.build, "the name of a build", parts, parts);
    let commit = &["commit9"];
    let git = reader.template(&table.git, "the name of a commit", commit, commit);
    Some(Names {
        release: release?,
        series: series?,
        build: build?,
        git: git?,
    })
}

pub(super) fn sources(table: &SourceTable, reader: &mut Reader<'_>) -> Sources {
    let git = table.git.as_ref().and_then(|git| {
        for url in std::iter::once(&git.url).chain(&git.mirrors) {
            check_url(url, reader);
        }
        Some(GitSource {
            url: (*git.url).clone(),
            mirrors: git.mirrors.iter().map(|m| (**m).clone()).collect(),
            tag: reader.template(&git.tag, "a tag", VERSION_FIELDS, &[])?,
        })
    });
    let tarball = table.tarball.as_ref().map(|tarball| {
        let mut places = |urls: &At<Vec<At<String>>>| {
            reader.not_empty(urls);
            let mut read = |url: &At<String>| {
                check_url(url, reader);
                reader.template(url, "a URL", VERSION_FIELDS, &[])
            };
            urls.iter().filter_map(&mut read).collect()
        };
        let forms = tarball.forms.iter();
        TarballSource {
            urls: places(&tarball.urls),
            forms: forms.map(|(name, urls)| ((**name).clone(), places(urls))).collect(),
        }
    });
    let distro = table.distro.as_ref().and_then(|distro| {
        Some(DistroSource {
            package: reader.template(&distro.package, "a source package", VERSION_FIELDS, &[])?,
            alias: (*distro.alias).clone(),
        })
    });
    Sources { git, tarball, distro }
}

fn check_url(url: &At<String>, reader: &mut Reader<'_>) {
    let host = url
        .split_once("://")
        .map(|(_, rest)| rest.split('/').next().unwrap_or(""));
    match host {
        None | Some("") if !url.starts_with("file:///") => {
            reader.problem(url.span(), "bad URL", "expected a scheme, `://` and a host");
        }
        Some(host) if host.contains('@') => {
            reader.problem(
                url.span(),
                "bad URL",
                "a user name or password has no place in a recipe",
            );
        }
        _ => {}
    }
}

pub(super) fn pinned(row: &VersionRow, reader: &mut Reader<'_>) -> Option<PinnedVersion> {
    if row.commit.is_none() && row.sha256.is_none() && row.forms.is_empty() {
        let what = format!("version `{}` is not pinned", *row.id);
        reader.report_if_whole(Problem::new(row.id.span(), what, "expected `commit`, `sha256` or both"));
    }
    let commit = reader.hex(row.commit.as_ref(), 40, "commit");
    let sha256 = reader.hex(row.sha256.as_ref(), 64, "sha256");
    let mut form = |(name, sum): (&At<String>, &At<String>)| {
        let sum = reader.hex(Some(sum), 64, "sha256")?;
        Some(((**name).clone(), sum))
    };
    let forms = row.forms.iter().filter_map(&mut form).collect();
    Some(PinnedVersion {
        forms,
        version: reader.parse(&row.id, "version")?,
        commit,
        sha256,
        origin: reader.origin(&row.id.span()),
    })
}

pub(super) fn args(row: &ArgsRow, reader: &mut Reader<'_>) -> Conditional<MakeCall> {
    let words = reader.some_words(&row.args);
    conditional(row.when.as_ref(), row.reason.as_ref(), words, reader)
}

fn env(row: &EnvRow, reader: &mut Reader<'_>) -> Conditional<BTreeMap<String, Word>> {
    let mut variables = BTreeMap::new();
    for (name, value) in &row.set {
        reader.variable(name);
        variables.insert((**name).clone(), reader.word(value));
    }
    conditional(row.when.as_ref(), row.reason.as_ref(), variables, reader)
}

pub(super) fn flags(row: &FlagsRow, reader: &mut Reader<'_>) -> Conditional<Flags> {
    let flags = reader.flags(&FlagLists {
        cflags: &row.cflags,
        cxxflags: &row.cxxflags,
        ldflags: &row.ldflags,
    });
    conditional(row.when.as_ref(), row.reason.as_ref(), flags, reader)
}

fn atom(row: &AtomRow, reader: &mut Reader<'_>) -> Atom {
    Atom {
        name: (*row.name).clone(),
        group: row.group.as_ref().map(|group| (**group).clone()),
        flags: reader.flags(&FlagLists {
            cflags: &row.cflags,
            cxxflags: &row.cxxflags,
            ldflags: &row.ldflags,
        }),
        lto: row.lto,
        claims: claims(&row.claims),
        origin: reader.origin(&row.name.span()),
    }
}

fn claims(table: &ClaimsTable) -> Claims {
    let level = |level| match level {
        Level::Zero => "0",
        Level::One => "1",
        Level::Two => "2",
        Level::Three => "3",
        Level::Size => "s",
    };
    Claims {
        optimisation: table.optimisation.map(|l| level(l).to_owned()),
        march: table.march.as_ref().map(|march| (**march).clone()),
        lto: table.lto,
        frame_pointer: table.frame_pointer,
    }
}

fn variants(file: &RecipeFile, reader: &mut Reader<'_>) -> BTreeMap<crate::model::name::VariantName, VariantSpec> {
    let mut variants = BTreeMap::new();
    for (name, atoms) in &file.variants {
        if let Some(variant) = reader.parse(name, "variant") {
            let spec = VariantSpec {
                atoms: atoms.iter().map(|atom| (**atom).clone()).collect(),
                origin: reader.origin(&name.span()),
            };
            variants.insert(variant, spec);
        }
    }
    variants
}

fn aliases(
    file: &RecipeFile,
    reader: &mut Reader<'_>,
) -> BTreeMap<crate::model::name::VariantName, crate::model::name::VariantName> {
    let mut aliases = BTreeMap::new();
    for (name, target) in &file.variant_aliases {
        let (name, target) = (reader.parse(name, "alias"), target.parse());
        // A target that is no name is no variant either, which `check` reports.
        if let (Some(name), Ok(target)) = (name, target) {
            aliases.insert(name, target);
        }
    }
    aliases
}

pub(super) fn requirement(row: &RequireRow, reader: &mut Reader<'_>) -> Option<Conditional<Requirement>> {
    type Make = fn(String) -> Need;
    let kinds: [(&Option<At<String>>, Make); 4] = [
        (&row.program, Need::Program),
        (&row.header, Need::Header),
        (&row.pkg_config, Need::PkgConfig),
        (&row.perl_module, Need::PerlModule),
    ];
    let given: Vec<_> = kinds
        .iter()
        .filter_map(|(text, make)| text.as_ref().map(|t| (t, make)))
        .collect();
    let [(text, make)] = given.as_slice() else {
        let span = given.get(1).map(|(text, _)| text.span());
        let span = span
            .or_else(|| row.packages.keys().next().map(At::span))
            .unwrap_or(0..0);
        let label = "expected exactly one of `program`, `header`, `pkg-config` and `perl-module`";
        reader.report_if_whole(Problem::new(span, "unclear requirement", label));
        return None;
    };
    let requirement = Requirement {
        need: make(reader.plain(text, "requirement").text),
        packages: reader.packages(&row.packages),
        origin: reader.origin(&text.span()),
    };
    Some(conditional(row.when.as_ref(), row.reason.as_ref(), requirement, reader))
}

fn patch(row: &PatchRow, reader: &mut Reader<'_>) -> Conditional<PatchSpec> {
    if let Some(strip) = row.strip.as_ref().filter(|strip| ***strip > 9) {
        reader.problem(strip.span(), "bad number for `strip`", "expected 0 to 9");
    }
    let spec = PatchSpec {
        file: (*row.file).clone(),
        // As git writes patches: `a/` and `b/` in front.
        strip: row.strip.as_ref().map_or(1, |strip| usize::from(**strip)),
        origin: reader.origin(&row.file.span()),
    };
    conditional(row.when.as_ref(), row.reason.as_ref(), spec, reader)
}

fn compiler(row: &CompilerRow, reader: &mut Reader<'_>) -> Option<Conditional<CompilerLimit>> {
    let limit = CompilerLimit {
        family: row.family.into(),
        works: reader.parse(&row.works, "range")?,
        origin: reader.origin(&row.works.span()),
    };
    Some(conditional(row.when.as_ref(), row.reason.as_ref(), limit, reader))
}

fn version_from(table: &VersionFromTable, reader: &mut Reader<'_>) -> VersionFrom {
    reader.not_empty(&table.files);
    reader.not_empty(&table.parts);
    for file in table.files.iter() {
        reader.inside(file, "the source tree");
    }
    let between = |row: &BetweenRow| Between {
        before: (*row.before).clone(),
        after: (*row.after).clone(),
    };
    VersionFrom {
        files: table.files.iter().map(|f| (**f).clone()).collect(),
        parts: table.parts.iter().map(between).collect(),
    }
}

fn refusal(row: &RefusedRow, reader: &mut Reader<'_>) -> Conditional<Refusal> {
    let refusal = Refusal {
        instead: reader.prose(&row.instead, "text"),
        origin: reader.origin(&row.reason.span()),
    };
    conditional(Some(&row.when), Some(&row.reason), refusal, reader)
}

fn cmake(row: &CmakeRow, reader: &mut Reader<'_>) -> Option<Conditional<CmakeLimit>> {
    let limit = CmakeLimit {
        works: reader.parse(&row.works, "range")?,
        origin: reader.origin(&row.works.span()),
    };
    Some(conditional(row.when.as_ref(), row.reason.as_ref(), limit, reader))
}

fn option(row: &OptionRow, reader: &mut Reader<'_>) -> OptionSpec {
    reader.not_empty(&row.choices);
    reader.not_empty(&row.default);
    let defaults = row.default.iter();
    OptionSpec {
        name: (*row.name).clone(),
        about: reader.prose(&row.about, "text"),
        choices: row
            .choices
            .iter()
            .map(|choice| self::choice(row, choice, reader))
            .collect(),
        default: defaults
            .map(|d| conditional(d.when.as_ref(), d.reason.as_ref(), (*d.choice).clone(), reader))
            .collect(),
        origin: reader.origin(&row.name.span()),
    }
}

fn choice(option: &OptionRow, row: &ChoiceRow, reader: &mut Reader<'_>) -> Choice {
    let own = row.needs.is_some().then(|| format!("need.{}", *option.name));
    Choice {
        name: (*row.name).clone(),
        versions: reader.parse_opt(row.versions.as_ref(), "range"),
        needs: row.needs.as_ref().map(|name| reader.plain(name, "name of a build")),
        args: reader.words_with(&row.args, own.as_deref()),
        origin: reader.origin(&row.name.span()),
    }
}

pub(super) fn expect(row: &ExpectRow, reader: &mut Reader<'_>) -> Conditional<Expect> {
    for path in row.files.iter().chain(row.undefined.iter().map(|u| &u.header)) {
        reader.inside(path, "the prefix");
        check_alternatives(path, reader);
    }
    for source in &row.compile_lines {
        reader.inside(source, "the source tree");
    }
    for exempt in &row.exempt {
        if let Err(e) = globset::Glob::new(&exempt.unit) {
            reader.problem(exempt.unit.span(), "bad pattern", e.kind());
        }
    }
    // Not `reader.word`: braces are alternatives here, not fields.
    let paths = |list: &[At<String>]| -> Vec<Word> {
        list.iter()
            .map(|path| Word {
                text: (**path).clone(),
                origin: reader.origin(&path.span()),
            })
            .collect()
    };
    let (files, compile_lines) = (paths(&row.files), paths(&row.compile_lines));
    let expect = Expect {
        files,
        compile_lines,
        undefined: row
            .undefined
            .iter()
            .map(|u| ((*u.header).clone(), (*u.name).clone()))
            .collect(),
        exempt: row
            .exempt
            .iter()
            .map(|e| ((*e.unit).clone(), reader.prose(&e.reason, "reason")))
            .collect(),
    };
    conditional(row.when.as_ref(), row.reason.as_ref(), expect, reader)
}

/// `{a,b}`: closed, not nested, at least two.
fn check_alternatives(path: &At<String>, reader: &mut Reader<'_>) {
    let mut rest = path.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        let inner = rest[at..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        match inner {
            Some((inner, after)) if inner.contains(',') && !inner.contains('{') => rest = after,
            _ => {
                let label = "expected alternatives as `{lib,lib/postgresql}`";
                return reader.problem(path.span(), "bad path", label);
            }
        }
    }
}

pub(super) fn hint(row: &HintRow, reader: &mut Reader<'_>) -> Hint {
    Hint {
        symptom: reader.prose(&row.symptom, "symptom"),
        remedy: reader.prose(&row.remedy, "remedy"),
    }
}

fn driver(table: &DriverTable, reader: &mut Reader<'_>) -> Driver {
    for path in [&table.server, &table.client, &table.client_library]
        .into_iter()
        .flatten()
    {
        reader.inside(path, "the prefix");
    }
    let text = |at: &Option<At<String>>| at.as_ref().map(|path| (**path).clone());
    Driver {
        init: table.init.clone(),
        socket: table.socket.clone(),
        port: table.port,
        engine: table.engine.clone(),
        server: text(&table.server),
        client: text(&table.client),
        client_library: text(&table.client_library),
        extensions: table.extensions.clone(),
    }
}
