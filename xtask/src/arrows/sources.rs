//! Which modules of `userspace` name `aya`: only the two that speak to the kernel.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Modules, as the first part of a path below `userspace/src`, that may name aya's crates.
const MAY_NAME_AYA: &[&str] = &["drain", "loader"];

/// One sentence for each line outside of those modules that names `aya`.
pub(super) fn faults(sources: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    visit(sources, sources, &mut faults)?;
    faults.sort();
    Ok(faults)
}

fn visit(root: &Path, dir: &Path, faults: &mut Vec<String>) -> Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        let inside = path.strip_prefix(root).unwrap_or(&path);
        if path.is_dir() {
            visit(root, &path, faults)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && !may_name(inside) {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
            faults.extend(
                naming_lines(&text)
                    .map(|line| format!("userspace/src/{}:{line} names aya", inside.display())),
            );
        }
    }
    Ok(())
}

fn may_name(inside: &Path) -> bool {
    let module = inside
        .iter()
        .next()
        .map(|part| Path::new(part).with_extension(""));
    module.is_some_and(|module| MAY_NAME_AYA.iter().any(|name| module == Path::new(name)))
}

/// Numbers of the lines whose code, not whose comments, has a word that is one of aya's crates.
fn naming_lines(text: &str) -> impl Iterator<Item = usize> {
    let names = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        code.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == "aya" || word.starts_with("aya_"))
    };
    text.lines()
        .zip(1..)
        .filter(move |(line, _)| names(line))
        .map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        naming_lines(text).collect()
    }

    #[test]
    fn code_counts_and_comments_do_not() {
        assert_eq!(lines("use aya::maps::Map;\n// like aya\n"), [1]);
        assert_eq!(lines("let x = 1;\nlet y = aya_obj::Object::parse(b);"), [2]);
        assert!(lines("let playa = maya(); let ayah = 1;").is_empty());
    }

    #[test]
    fn only_two_modules_may() {
        for inside in ["loader.rs", "loader/maps.rs", "drain/mod.rs", "drain.rs"] {
            assert!(may_name(Path::new(inside)), "{inside}");
        }
        for inside in ["main.rs", "session/drain.rs", "loaders/a.rs"] {
            assert!(!may_name(Path::new(inside)), "{inside}");
        }
    }

    #[test]
    fn a_tree_is_searched_whole() {
        let root = std::env::temp_dir().join(format!("xtask-sources-{}", std::process::id()));
        std::fs::create_dir_all(root.join("session/deep")).unwrap();
        std::fs::create_dir_all(root.join("loader")).unwrap();
        std::fs::write(root.join("session/deep/a.rs"), "\nuse aya::Ebpf;\n").unwrap();
        std::fs::write(root.join("loader/a.rs"), "use aya::Ebpf;\n").unwrap();
        let found = faults(&root).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, ["userspace/src/session/deep/a.rs:2 names aya"]);
    }
}
