//! Prints, for each ELF file named on the command line, what its unwind table is made of, how
//! large it is, how long building took (reading the file is not counted), and the same for the
//! call-site filter.

use std::time::Instant;

use htrace_unwind_tables::build;

#[expect(clippy::print_stdout, reason = "printing is this program's purpose")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("   FDEs rejected     rows  unsup   gaps     bytes       ms  filtered       ms  file");
    for path in std::env::args().skip(1) {
        let data = std::fs::read(&path)?;
        let start = Instant::now();
        let table = build(&data)?;
        let build_time = start.elapsed();
        let start = Instant::now();
        let filtered = table.filter_call_sites(&data)?;
        let filter_time = start.elapsed();
        let statistics = table.statistics();
        println!(
            "{:7} {:8} {:8} {:6} {:6} {:9} {:8.1} {:9} {:8.1}  {path}",
            statistics.fdes,
            statistics.rejected_fdes,
            table.rows().len(),
            statistics.unsupported_rows,
            statistics.gap_rows,
            table.size_in_bytes(),
            build_time.as_secs_f64() * 1e3,
            filtered.rows().len(),
            filter_time.as_secs_f64() * 1e3,
        );
    }
    Ok(())
}
