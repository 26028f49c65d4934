//! Prepares the embedded BPF object: makes its maps, relocates its code, loads its programs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use aya::{
    Pod,
    maps::{Array, Map, MapData, RingBuf},
};
use aya_obj::{EbpfSectionKind, Function, Program, ProgramSection, maps::Map as MapDefinition};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::Level;

use super::{LoadError, Settings, functions, links::LinkKind, privileges, walks::Walks};
use crate::{parallel, sys::bpf};

/// The object that the build has left; empty if there was none.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/htrace-probes.o"));

/// `BPF_PROG_TYPE_RAW_TRACEPOINT`.
const PROGRAM_TYPE_RAW_TRACEPOINT: u32 = 17;
/// `BPF_F_NO_PREALLOC`.
const NO_PREALLOC: u32 = 1;
/// Level at which programs log, if they do: everything (`aya_log_common::Level::Trace`).
const LOG_ALL: u8 = 5;
const LOG_NONE: u8 = 0;

/// The object with its maps.
pub(super) struct Object {
    object: aya_obj::Object,
    definitions: HashMap<String, MapDefinition>,
    maps: HashMap<String, MapData>,
    btf: Option<OwnedFd>,
    /// True for the programs of kernels before 5.17.
    old: bool,
}

impl Object {
    /// Parses the object and makes its maps, for walks by `walks` and for probes `inside` functions
    /// if there are to be any.
    pub(super) fn prepare(
        settings: &Settings,
        walks: Walks,
        inside: bool,
    ) -> Result<Self, LoadError> {
        if OBJECT.is_empty() {
            return Err(LoadError::NoObject);
        }
        let mut object = aya_obj::Object::parse(OBJECT).map_err(unusable)?;
        let level = [if settings.log { LOG_ALL } else { LOG_NONE }];
        let (by_tables, fields) = walks.constants();
        let inside = [u8::from(inside)];
        let constants = [
            (aya_log::LEVEL, (&level[..], false)),
            ("BY_TABLES", (&by_tables[..], true)),
            ("KERNEL_LAYOUT", (&fields[..], true)),
            ("INSIDE", (&inside[..], true)),
        ];
        object
            .patch_map_data(HashMap::from(constants))
            .map_err(unusable)?;
        allow_locked_memory();
        let btf = load_btf(&mut object)?;
        let mut definitions: HashMap<_, _> = object.maps.drain().collect();
        let mut maps = HashMap::new();
        for (name, definition) in &mut definitions {
            configure(name, definition, settings);
            maps.insert(name.clone(), make_map(name, definition)?);
        }
        let mut prepared = Self {
            object,
            definitions,
            maps,
            btf,
            old: matches!(walks, Walks::Old),
        };
        prepared.relocate()?;
        Ok(prepared)
    }

    /// Loads all programs for links of one kind. A program that serves several functions is
    /// loaded once for each, under [`program_of`] its number, where links do not tell it which.
    pub(super) fn load_programs(
        &mut self,
        links: LinkKind,
    ) -> Result<BTreeMap<String, OwnedFd>, LoadError> {
        let mut wanted = BTreeMap::new();
        let is_left_out = |name: &str| self.old && functions::NOT_FOR_OLD.contains(&name);
        let names = self.object.programs.keys();
        for name in names.filter(|name| is_plain(name) && !is_left_out(name)) {
            let copies: Vec<Option<u64>> = match links {
                LinkKind::Perf if name == functions::ENTER => {
                    let functions = functions::entered_functions();
                    functions.map(|function| Some(function.number())).collect()
                }
                LinkKind::Perf if name == functions::LEAVE_AT_RET => vec![Some(0)],
                _ => vec![None],
            };
            for number in copies {
                let key = program_of(name, number.unwrap_or(0), links);
                wanted.entry(key).or_insert((name, number));
            }
        }
        // What takes time is the verifier, and it does several programs at once.
        let wanted: Vec<_> = wanted.into_iter().collect();
        let loaded = parallel::map(&wanted, |(_, (name, number))| {
            self.load_best(name, links.attach_type(), *number)
        });
        let keys = wanted.into_iter().map(|(key, _)| key);
        keys.zip(loaded)
            .map(|(key, program)| Ok((key, program?)))
            .collect()
    }

    /// Loads the variant of a program that suits this kernel best.
    fn load_best(
        &self,
        name: &str,
        uprobe_attach_type: u32,
        number: Option<u64>,
    ) -> Result<OwnedFd, LoadError> {
        let load = |ending, wants_log| {
            let name = format!("{name}{ending}");
            let program = self.object.programs.get(&name)?;
            Some(self.load_program(&name, program, uprobe_attach_type, number, wants_log))
        };
        let preferred = if self.old {
            load(functions::OLD, true)
        } else {
            // The log costs a second verification, and nobody else reads it where this is known.
            let wants_log = may_wait() || tracing::enabled!(Level::DEBUG);
            load(functions::SLEEPABLE, wants_log)
        };
        match preferred {
            Some(Err(error @ LoadError::Verifier { .. })) if !self.old => {
                tell_of_refused_wait(&error);
            }
            Some(result) => return result,
            None => {}
        }
        load("", true).unwrap_or_else(|| {
            Err(LoadError::MissingPart {
                name: name.to_owned(),
            })
        })
    }

    /// An array map.
    pub(super) fn array<T: Pod>(&mut self, name: &str) -> Result<Array<MapData, T>, LoadError> {
        let map = Map::Array(self.take_map(name)?);
        Array::try_from(map).map_err(LoadError::map)
    }

    /// A ring buffer.
    pub(super) fn ring_buffer(&mut self, name: &str) -> Result<RingBuf<MapData>, LoadError> {
        RingBuf::try_from(Map::RingBuf(self.take_map(name)?)).map_err(LoadError::map)
    }

    /// A map that aya has no type for, or that is used otherwise.
    pub(super) fn take_map(&mut self, name: &str) -> Result<MapData, LoadError> {
        self.maps
            .remove(name)
            .ok_or_else(|| LoadError::MissingPart {
                name: name.to_owned(),
            })
    }

    /// Puts the maps' descriptors and the functions' places into the code.
    fn relocate(&mut self) -> Result<(), LoadError> {
        let sections: HashSet<usize> = self.object.functions.keys().map(|key| key.0).collect();
        let maps = self.definitions.iter().filter_map(|(name, definition)| {
            let map = self.maps.get(name)?;
            Some((name.as_str(), map.fd().as_fd().as_raw_fd(), definition))
        });
        self.object
            .relocate_maps(maps, &sections)
            .map_err(unusable)?;
        self.object.relocate_calls(&sections).map_err(unusable)?;
        self.object.sanitize_functions(aya::features());
        Ok(())
    }

    fn load_program(
        &self,
        name: &str,
        program: &Program,
        uprobe_attach_type: u32,
        number: Option<u64>,
        wants_log: bool,
    ) -> Result<OwnedFd, LoadError> {
        let missing = || LoadError::MissingPart {
            name: name.to_owned(),
        };
        let function = self
            .object
            .functions
            .get(&program.function_key())
            .ok_or_else(missing)?;
        let mut load = bpf::ProgramLoad {
            name,
            license: &program.license,
            ..bpf::ProgramLoad::default()
        };
        match program.section {
            ProgramSection::UProbe { sleepable } | ProgramSection::URetProbe { sleepable } => {
                load.program_type = bpf::PROGRAM_TYPE_KPROBE;
                load.expected_attach_type = uprobe_attach_type;
                load.may_sleep = sleepable;
            }
            ProgramSection::RawTracePoint => load.program_type = PROGRAM_TYPE_RAW_TRACEPOINT,
            _ => return Err(missing()),
        }
        let (functions, lines) = debug_records(function);
        let instructions = instruction_bytes(function, number);
        load.instructions = &instructions;
        load.btf = self.btf.as_ref().map(|fd| bpf::ProgramBtf {
            fd: fd.as_fd(),
            functions: (&functions, function.func_info_rec_size),
            lines: (&lines, function.line_info_rec_size),
        });
        bpf::load_program(&load, &mut []).map_err(|error| explain(&load, error, wants_log))
    }
}

/// True for the name of a program that is not a variant of another.
fn is_plain(name: &str) -> bool {
    !name.ends_with(functions::OLD) && !name.ends_with(functions::SLEEPABLE)
}

/// The size of an object's map is what its source says, unless it depends on the settings.
fn configure(name: &str, definition: &mut MapDefinition, settings: &Settings) {
    match name {
        "EVENTS" => definition.set_max_entries(settings.ring_bytes),
        "THREADS" => definition.set_max_entries(settings.max_threads),
        "KNOWN_STACKS" => definition.set_max_entries(settings.known_stacks),
        "TABLE_WORDS" => definition.set_max_entries(settings.table_words),
        _ => {}
    }
    // Elements made on demand are safe in all program types since 6.1; before, the kernel warns.
    if let MapDefinition::Legacy(legacy) = definition
        && legacy.def.map_flags & NO_PREALLOC != 0
        && kernel_version() < (6, 1)
    {
        const THREADS_THEN: u32 = 2048;
        legacy.def.map_flags &= !NO_PREALLOC;
        legacy.def.max_entries = legacy.def.max_entries.min(THREADS_THEN);
    }
}

fn make_map(name: &str, definition: &MapDefinition) -> Result<MapData, LoadError> {
    let is_section = matches!(
        definition.section_kind(),
        EbpfSectionKind::Rodata | EbpfSectionKind::Data | EbpfSectionKind::Bss
    );
    let read_only = definition.section_kind() == EbpfSectionKind::Rodata;
    let map = MapData::create(definition.clone(), name, None)
        .map_err(|error| explain_map(error, name))?;
    let stored = |result: io::Result<()>| {
        result.map_err(|source| LoadError::system(format!("cannot fill the map {name}"), source))
    };
    if is_section && !definition.data().is_empty() {
        stored(bpf::store_section(map.fd().as_fd(), definition.data()))?;
    }
    if read_only {
        stored(bpf::freeze_map(map.fd().as_fd()))?;
    }
    Ok(map)
}

/// Loads the type information, which makes the verifier's messages name source lines. Programs
/// of a kernel without BTF do without.
fn load_btf(object: &mut aya_obj::Object) -> Result<Option<OwnedFd>, LoadError> {
    let Some(features) = aya::features().btf() else {
        return Ok(None);
    };
    let Some(btf) = object.fixup_and_sanitize_btf(features).map_err(unusable)? else {
        return Ok(None);
    };
    match bpf::load_btf(&btf.to_bytes()) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) => {
            tracing::debug!("the kernel does not take our type information: {error}");
            Ok(None)
        }
    }
}

fn unusable(error: impl std::fmt::Display) -> LoadError {
    LoadError::Object(error.to_string())
}

/// Before Linux 5.11 maps count as locked memory, of which most users may have little.
fn allow_locked_memory() {
    let most = libc::RLIM_INFINITY;
    if kernel_version() < MAPS_UNLOCKED_SINCE
        && let Err(error) = setrlimit(Resource::RLIMIT_MEMLOCK, most, most)
    {
        tracing::debug!("the limit of locked memory cannot be raised: {error}");
    }
}

const MAPS_UNLOCKED_SINCE: (u32, u32) = (5, 11);

/// Says why a map could not be made: no privileges, no memory, or no ring buffers before Linux 5.8.
fn explain_map(error: aya::maps::MapError, name: &str) -> LoadError {
    let number = match &error {
        aya::maps::MapError::CreateError { io_error, .. } => io_error.raw_os_error(),
        _ => None,
    };
    if number == Some(libc::ENOMEM) {
        return LoadError::NoMemory {
            map: name.to_owned(),
        };
    }
    let may_lock = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(u64::MAX, |(soft, _)| soft);
    let limited = kernel_version() < MAPS_UNLOCKED_SINCE && may_lock != libc::RLIM_INFINITY;
    if number == Some(libc::EPERM) && limited && privileges::missing().is_none() {
        return LoadError::LockedMemory { bytes: may_lock };
    }
    if kernel_version() < (5, 8) {
        return LoadError::KernelTooOld {
            needed: "5.8",
            running: kernel_release(),
        };
    }
    LoadError::map(error)
}

/// Says why a program could not be loaded.
fn explain(load: &bpf::ProgramLoad<'_>, error: io::Error, wants_log: bool) -> LoadError {
    if error.raw_os_error() == Some(libc::EPERM) {
        return LoadError::system(format!("cannot load the BPF program {}", load.name), error);
    }
    LoadError::Verifier {
        program: load.name.to_owned(),
        log: match wants_log {
            true => verifier_log(load),
            false => String::new(),
        },
        source: error,
    }
}

/// The last lines of what the verifier says, which is asked again for it.
fn verifier_log(load: &bpf::ProgramLoad<'_>) -> String {
    const LOG_BYTES: usize = 16 << 20;
    const LAST_LINES: usize = 30;
    let mut log = vec![0; LOG_BYTES];
    // It fails as before; only the log is wanted.
    let _same_error = bpf::load_program(load, &mut log);
    // The verifier leaves behind the end what it has taken back.
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// The code of a function. With a `number`, the program does not ask for the cookie of its link
/// but finds the number in place of it.
fn instruction_bytes(function: &Function, number: Option<u64>) -> Vec<u8> {
    let encode = |instruction: &aya_obj::generated::bpf_insn| {
        let registers = instruction.dst_reg() | instruction.src_reg() << 4;
        let (code, registers, imm) = match number.and_then(|number| i32::try_from(number).ok()) {
            Some(number) if asks_for_cookie(instruction) => (MOVE_IMMEDIATE, 0, number),
            _ => (instruction.code, registers, instruction.imm),
        };
        let [imm0, imm1, imm2, imm3] = imm.to_ne_bytes();
        let [off0, off1] = instruction.off.to_ne_bytes();
        [code, registers, off0, off1, imm0, imm1, imm2, imm3]
    };
    function.instructions.iter().flat_map(encode).collect()
}

/// `BPF_ALU64 | BPF_MOV | BPF_K`; register 0 is a helper's result.
const MOVE_IMMEDIATE: u8 = 0xb7;

/// True for a call of `bpf_get_attach_cookie`.
fn asks_for_cookie(instruction: &aya_obj::generated::bpf_insn) -> bool {
    const ATTACH_COOKIE: i32 = 174;
    calls(instruction, ATTACH_COOKIE)
}

/// True for a call of the helper of that number.
fn calls(instruction: &aya_obj::generated::bpf_insn, helper: i32) -> bool {
    const CALL: u8 = 0x85;
    instruction.code == CALL && instruction.src_reg() == 0 && instruction.imm == helper
}

/// The name of the program that serves the function of that number.
pub(super) fn program_of(name: &str, number: u64, links: LinkKind) -> String {
    match (links, number) {
        (LinkKind::Multi, _) | (_, 0) => name.to_owned(),
        (LinkKind::Perf, number) => format!("{name} {number}"),
    }
}

fn debug_records(function: &Function) -> (Vec<u8>, Vec<u8>) {
    (
        function.func_info.func_info_bytes(),
        function.line_info.line_info_bytes(),
    )
}

/// Whether programs at user space can wait: Linux 6.0, where they may call
/// `bpf_copy_from_user_task`.
fn may_wait() -> bool {
    kernel_version() >= (6, 0)
}

/// Tells why a variant that can wait is not used.
fn tell_of_refused_wait(error: &LoadError) {
    if may_wait() {
        tracing::warn!(
            "threads cannot wait in one of the programs: what finds no room is lost and counted, and \
             stacks may be cut while mappings change: {error}"
        );
    } else {
        tracing::debug!("programs that wait are not for this kernel: {error}");
    }
}

/// Release of the running kernel, as `uname -r` prints it.
pub(super) fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Major and minor version of the running kernel.
pub(super) fn kernel_version() -> (u32, u32) {
    parse_version(&kernel_release())
}

fn parse_version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See `private_stacks` of the programs: what they would lose without it shows only on kernels
    /// that preempt themselves, and there as a fault of the kernel.
    #[test]
    fn no_program_at_user_space_may_be_given_a_stack_of_the_cpu() {
        const TAIL_CALL: i32 = 12;
        if OBJECT.is_empty() {
            eprintln!("skipped, no BPF programs: run `cargo xtask build-ebpf`");
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"));
            return;
        }
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        let mut checked = 0;
        for (name, program) in &object.programs {
            let at_user_space = matches!(
                program.section,
                ProgramSection::UProbe { .. } | ProgramSection::URetProbe { .. }
            );
            if !at_user_space {
                continue;
            }
            let code = &object.functions[&program.function_key()].instructions;
            let is_exempt = code.iter().any(|instruction| calls(instruction, TAIL_CALL));
            assert!(is_exempt, "{name}");
            checked += 1;
        }
        assert!(checked > 10, "{checked}");
    }

    #[test]
    fn releases_are_read_as_versions() {
        assert_eq!(parse_version("6.18.44-fc-v669"), (6, 18));
        assert_eq!(parse_version("5.10.0-30-cloud-amd64"), (5, 10));
        assert_eq!(parse_version("7.2+deb14"), (7, 2));
        assert_eq!(parse_version(""), (0, 0));
    }
}
