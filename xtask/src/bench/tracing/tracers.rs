//! How each tracer is run, and what it says of losses.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use super::Place;
use crate::command::command;

/// The library whose malloc the peers probe.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

pub(super) fn htrace(place: &Place, options: &[&str]) -> Command {
    let mut htrace = command(&place.htrace);
    htrace.arg("-o").arg(place.file("htrace.zst")).args(options);
    htrace
}

pub(super) fn heaptrack(place: &Place, options: &[&str]) -> Command {
    let mut heaptrack = command("heaptrack");
    heaptrack
        .arg("-o")
        .arg(place.file("heaptrack"))
        .args(options);
    heaptrack
}

pub(super) fn valgrind(place: &Place, tool: &str, output: &str) -> Command {
    let mut option = OsString::from(output);
    option.push(place.file("valgrind.out"));
    let mut valgrind = command("valgrind");
    valgrind.arg(format!("--tool={tool}")).arg(option);
    valgrind
}

/// A program under a script. bpftrace splits the command line at spaces and knows no quotes, so the
/// shell reads it from a file.
pub(super) fn bpftrace(place: &Place, words: &[String], script: &str) -> Result<Command> {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    let line: Vec<String> = words.iter().map(quoted).collect();
    let file = place.file("command.sh");
    std::fs::write(&file, format!("exec {}\n", line.join(" ")))?;
    let mut bpftrace = command("bpftrace");
    bpftrace.args(["-c", &format!("/bin/sh {}", file.display()), "-e", script]);
    Ok(bpftrace)
}

/// A probe that does nothing.
pub(super) fn empty_probe() -> String {
    format!("uprobe:{LIBC}:malloc {{ }}")
}

/// Keeps the live blocks with their stacks, as any tool for leaks must.
pub(super) fn with_stacks() -> String {
    format!(
        "uprobe:{LIBC}:malloc {{ @size[tid] = arg0; }} \
         uretprobe:{LIBC}:malloc /@size[tid]/ {{ @live[retval] = ustack; delete(@size[tid]); }} \
         uprobe:{LIBC}:free {{ delete(@live[arg0]); }} \
         END {{ clear(@live); clear(@size); }}"
    )
}

pub(super) fn bcc_memleak(place: &Place, pid: &str) -> Command {
    // Debian's own interpreter, for which its module is made.
    let mut memleak = command("/usr/bin/python3");
    memleak
        .env("BCC_KERNEL_SOURCE", place.file(super::KERNEL_HEADERS))
        .arg(place.file("memleak.py"))
        .args(["-p", pid, "1000"]);
    memleak
}

/// By its own loader and libraries, which are of another suite.
pub(super) fn libbpf_memleak(place: &Place, pid: &str) -> Command {
    let root = place.file(super::LIBBPF_TOOLS).join("root");
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let mut memleak = command(libraries.join("ld-linux-x86-64.so.2"));
    memleak
        .arg("--library-path")
        .arg(&libraries)
        .arg(root.join("usr/sbin/memleak-libbpf"))
        .args(["-p", pid, "-O", LIBC, "1000"]);
    memleak
}

/// Sum of the events that a tracer says are lost.
pub(super) fn lost(said: &str) -> f64 {
    let number = |line: &str| {
        let line = line.to_lowercase();
        let is_loss = line.starts_with("lost ") || line.starts_with("frees not seen");
        let mut words = line.split(|c: char| !c.is_ascii_digit());
        is_loss.then(|| words.find_map(|word| word.parse::<f64>().ok()))?
    };
    // An empty sum of floats is -0.
    said.lines()
        .filter_map(number)
        .fold(0.0, |sum, one| sum + one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_added_up() {
        assert_eq!(
            lost("lost frees-ring-full: 7\nLost 3 events\nnothing lost\n"),
            10.0
        );
        // Equal to -0, which is printed as such.
        assert_eq!(lost("heaptrack stats:\n").to_string(), "0");
    }
}
