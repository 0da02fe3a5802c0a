//! `bm diff`: two manifests, wherever they are, and what differs between them.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::context::Context;
use crate::diff::{self, show};
use crate::error::{Error, Exit, Result};
use crate::layout::manifest_file;
use crate::model::manifest::Manifest;
use crate::model::name::BuildName;
use crate::store::{self, history};

use super::args::{Diff, One};
use super::prefixes::pick_one;
use super::{Ended, one};

/// `bm diff`.
pub fn diff(ctx: &Context, args: &Diff) -> Ended {
    let (a, b) = match (side(ctx, &args.a), side(ctx, &args.b)) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => return Err([a.err(), b.err()].into_iter().flatten().flatten().collect()),
    };
    if a.self_sha256 == b.self_sha256 {
        let same = format!("`{}` and `{}` are the same build", args.a, args.b);
        return Err(one(Error::new(Exit::Usage, same)
            .detail("build", &a.name)
            .detail("prefix", &a.prefix)));
    }
    let report = diff::diff(&a, &b);
    if args.json.json {
        let json = serde_json::to_string(&report).expect("a report has text keys only");
        ctx.shell.result(json);
    } else {
        let fold = if args.all {
            show::Fold::Nothing
        } else {
            show::Fold::Equal
        };
        ctx.shell.toned(&show::lines(&report, fold));
    }
    Ok(Exit::Ok)
}

/// The manifest of a built prefix by its name, of a directory, or in a file.
fn side(ctx: &Context, text: &str) -> Result<Manifest, Vec<Error>> {
    let is_path = text.contains('/') || text.ends_with(".json") || text.parse::<BuildName>().is_err();
    if is_path {
        return at(Path::new(text)).map_err(one);
    }
    let build = text.to_owned();
    pick_one(ctx, &One { build }).map_err(|errors| errors.into_iter().map(|e| of_the_past(ctx, text, e)).collect())
}

/// A build that is gone can still be compared: its manifest is kept.
fn of_the_past(ctx: &Context, text: &str, error: Error) -> Error {
    let remembered = text
        .parse()
        .ok()
        .and_then(|name| history::history(&ctx.layout, &name).ok());
    let mut whole = remembered.into_iter().flatten().filter(|r| r.manifest.is_ok());
    match whole.next_back() {
        Some(last) if error.exit() == Exit::Usage => error.hint(format!(
            "it was built once, and its manifest is kept: {}",
            last.path.display()
        )),
        _ => error,
    }
}

fn at(path: &Path) -> Result<Manifest> {
    let file: PathBuf = if path.is_dir() {
        manifest_file(path)
    } else {
        path.to_owned()
    };
    let text = fs::read_to_string(&file).map_err(|e| {
        Error::new(Exit::Usage, format!("there is no manifest at `{}`", path.display()))
            .caused_by(e)
            .hint("give the name of a built prefix, its directory, or a manifest's file")
    })?;
    store::manifest::parse(&text).map_err(|reason| {
        Error::new(Exit::Store, format!("`{}` is no manifest that counts", file.display())).detail("reason", reason)
    })
}
