//! Embeds the BPF object that `cargo xtask build-ebpf` has left in `target/bpf`.
//!
//! Without one the crate still compiles, so that tests and lints need no BPF compiler; a binary
//! built so says at run time how to build it whole.

use std::{env, error::Error, fs, path::Path};

const OBJECT: &str = "../target/bpf/htrace-probes.o";

fn main() -> Result<(), Box<dyn Error>> {
    let source = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join(OBJECT);
    let target = Path::new(&env::var("OUT_DIR")?).join("htrace-probes.o");
    println!("cargo::rerun-if-changed={}", source.display());
    if source.is_file() {
        fs::copy(&source, &target)?;
    } else {
        fs::write(&target, [])?;
        println!("cargo::warning=no BPF object yet; run `cargo xtask build` for a working tracer");
    }
    Ok(())
}
