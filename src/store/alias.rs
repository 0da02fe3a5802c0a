//! Other names of a prefix: relative links in the root.
//!
//! A link is bm's own when its target is one plain name that is a build's prefix or nothing at all;
//! so no index can go out of step with the links.

use std::io::ErrorKind;
use std::path::{Component, Path};

use fs_err as fs;

use super::{disk, manifest, prepare};
use crate::error::{Error, Exit, IoContext as _, Result};
use crate::layout::Layout;
use crate::model::name::BuildName;

/// The build that `alias` is another name of, whether its prefix exists or not; `None` for anything
/// that is not a link of bm's.
pub fn target(layout: &Layout, alias: &BuildName) -> Result<Option<BuildName>> {
    let link = layout.prefix(alias);
    let target = match fs::read_link(&link) {
        Ok(target) => target,
        // `InvalidInput` is: no link.
        Err(e) if [ErrorKind::NotFound, ErrorKind::InvalidInput].contains(&e.kind()) => return Ok(None),
        Err(e) => return Err(Error::io(format!("cannot read the link `{}`", link.display()), &e)),
    };
    let Some(name) = plain_name(&target) else {
        return Ok(None);
    };
    let prefix = layout.prefix(&name);
    let ours = !disk::exists(&prefix)? || manifest::read(&prefix).valid().is_some();
    Ok(ours.then_some(name))
}

fn plain_name(target: &Path) -> Option<BuildName> {
    let mut parts = target.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) => name.to_str()?.parse().ok(),
        _ => None,
    }
}

/// Makes `<root>/<alias>` a link to the prefix of `name`, replacing an older link of bm's in one step.
///
/// # Errors
/// [`Exit::Store`] when `name` is not built, or when something that is no link of bm's has the alias.
pub fn set_alias(layout: &Layout, alias: &BuildName, name: &BuildName) -> Result<()> {
    let link = layout.prefix(alias);
    if alias == name {
        return Err(Error::new(
            Exit::Usage,
            format!("`{name}` cannot be another name of itself"),
        ));
    }
    if manifest::read(&layout.prefix(name)).valid().is_none() {
        return Err(
            Error::new(Exit::Store, format!("cannot name `{name}` `{alias}`: it is not built"))
                .hint(format!("bm build {name}")),
        );
    }
    match target(layout, alias)? {
        Some(old) if old == *name => return Ok(()),
        Some(_) => {}
        None if disk::exists(&link)? => {
            return Err(Error::new(
                Exit::Store,
                format!(
                    "cannot make `{}` a link to `{name}`: it exists and is no link of bm's",
                    link.display()
                ),
            )
            .hint(format!("move it away: mv {0} {0}.away", link.display())));
        }
        None => {}
    }
    prepare(layout)?;
    disk::link_atomic(&layout.state(), &link, Path::new(name.as_str()))
}

/// Other names of a build, sorted.
pub fn aliases_of(layout: &Layout, name: &BuildName) -> Result<Vec<BuildName>> {
    let mut found = Vec::new();
    for (alias, of) in all(layout)? {
        if of == *name {
            found.push(alias);
        }
    }
    Ok(found)
}

/// All links of bm's, sorted, with what they point to.
pub fn all(layout: &Layout) -> Result<Vec<(BuildName, BuildName)>> {
    let mut found = Vec::new();
    for alias in links(layout)? {
        if let Some(of) = target(layout, &alias)? {
            found.push((alias, of));
        }
    }
    Ok(found)
}

/// Links of bm's that point to nothing, sorted, with what they point to. Costs nothing for the others.
pub(super) fn dangling(layout: &Layout) -> Result<Vec<(BuildName, BuildName)>> {
    let mut found = Vec::new();
    for alias in links(layout)? {
        if fs::metadata(layout.prefix(&alias)).is_err()
            && let Some(of) = target(layout, &alias)?
        {
            found.push((alias, of));
        }
    }
    Ok(found)
}

/// Whether `alias` is a link to `name` already.
pub fn is_set(layout: &Layout, alias: &BuildName, name: &BuildName) -> bool {
    fs::read_link(layout.prefix(alias)).is_ok_and(|target| target == Path::new(name.as_str()))
}

/// Names in the root that are links, whoever made them, sorted.
fn links(layout: &Layout) -> Result<Vec<BuildName>> {
    let read = || -> std::io::Result<Vec<BuildName>> {
        let mut links = Vec::new();
        // The directory itself tells what is a link: the many prefixes are not looked at.
        for entry in fs::read_dir(layout.root())? {
            let entry = entry?;
            if entry.file_type()?.is_symlink() {
                links.extend(entry.file_name().to_str().and_then(|name| name.parse().ok()));
            }
        }
        links.sort();
        Ok(links)
    };
    match read() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(vec![]),
        links => links.doing(|| format!("cannot list `{}`", layout.root().display())),
    }
}

/// Removes one link.
pub(super) fn remove(layout: &Layout, alias: &BuildName) -> Result<()> {
    disk::remove_file(&layout.prefix(alias))?;
    disk::sync_dir(layout.root())
}
