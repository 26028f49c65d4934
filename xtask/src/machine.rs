//! What a benchmark's figures were measured on, for the documents that show them.

use anyhow::Result;

use crate::command::{capture, command};

/// Kernel, processors and the versions of Debian's `packages`, in one line.
pub(crate) fn machine(packages: &[&str]) -> Result<String> {
    let kernel = capture(command("uname").arg("-r"))?;
    let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |line| line.trim_start_matches(['\t', ' ', ':']));
    let count = std::thread::available_parallelism()?;
    let mut query = command("dpkg-query");
    query.args(["--show", "--showformat=${Package} ${Version}\\n"]);
    let versions = capture(query.args(packages))?;
    let versions = versions.lines().collect::<Vec<_>>().join(", ");
    let kernel = kernel.trim();
    Ok(format!(
        "Linux {kernel}, {count} CPUs ({model}, a virtual machine); {versions}"
    ))
}
