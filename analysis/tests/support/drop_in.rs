//! Runs heaptrack_print and ours in a folder and compares all that they write.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use htrace_analysis::drop_in::{self, Version};
use htrace_analysis::files::Files;

/// Files in a folder that is not the current one.
struct In(PathBuf);

impl Files for In {
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(std::fs::File::open(self.0.join(path))?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(std::fs::File::create(self.0.join(path))?))
    }

    fn is_ordinary(&self, path: &Path) -> bool {
        self.0.join(path).is_file()
    }
}

/// All that a program wrote.
#[derive(Debug, PartialEq)]
pub(crate) struct Output {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    files: Vec<Option<String>>,
}

fn read_side_files(folder: &Path) -> Vec<Option<String>> {
    let names = ["flame.out", "hist.out", "massif.out"];
    let files = names.map(|name| {
        let path = folder.join(name);
        let data = std::fs::read(&path).ok()?;
        std::fs::remove_file(&path).unwrap();
        Some(String::from_utf8_lossy(&data).into_owned())
    });
    files.to_vec()
}

/// What heaptrack_print at `program` writes.
pub(crate) fn theirs(program: &str, words: &[String], folder: &Path) -> Output {
    let output = Command::new(program)
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    Output {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        files: read_side_files(folder),
    }
}

/// What ours writes in its place.
pub(crate) fn ours(words: &[String], folder: &Path) -> Output {
    let words: Vec<_> = words.iter().map(Into::into).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let files = In(folder.to_owned());
    let status = drop_in::run(&words, Version::V1_4, &files, &mut out, &mut err).unwrap();
    Output {
        status: status.into(),
        out: String::from_utf8_lossy(&out).into_owned(),
        err: String::from_utf8_lossy(&err).into_owned(),
        files: read_side_files(folder),
    }
}

/// The lines around the first difference.
pub(crate) fn first_difference(wanted: &Output, got: &Output) -> String {
    let (wanted, got) = (format!("{wanted:#?}"), format!("{got:#?}"));
    let split = |text: &str| -> Vec<String> {
        text.split("\\n")
            .flat_map(|line| line.split('\n'))
            .map(String::from)
            .collect()
    };
    let (wanted, got) = (split(&wanted), split(&got));
    let at = wanted
        .iter()
        .zip(&got)
        .position(|(wanted, got)| wanted != got)
        .unwrap_or(0);
    let near = |lines: &[String]| lines[at.saturating_sub(6)..lines.len().min(at + 6)].join("\n");
    format!("--- wanted\n{}\n--- got\n{}", near(&wanted), near(&got))
}
